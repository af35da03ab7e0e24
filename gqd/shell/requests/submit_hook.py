"""Passes submissions through the site's submit hook, if there is one.

Owns the hook's process: it is started for the first job and again after it has died, and killed when an answer takes
longer than ``submit_hook_timeout_s``.  Jobs wait here in one queue for each user, served round robin; other requests
pass at once.  The hook's answer is written into the request, so that it is decided, recorded and audited with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.config.config import Config
from gq.config.submit_hook import Submitter, check_hook
from gq.errors import Refusal
from gq.host.interpreter import isolated_python
from gq.model.job import JobSpec
from gq.wire.client import Submit, SubmitChain
from gqd.shell.log import LOG
from gqd.shell.requests.hook_worker import LENGTH, MAX_FRAME, VERDICTS, Question, Verdict
from gqd.state.input import ClientRequest

MAX_WAITING = 2000
MAX_WAITING_PER_USER = 500
START_S = 10.0
"""Maximum time for loading the hook's file."""
RETRY_S = 5.0
"""Time between a failed start and the next one."""
MAX_NOTE = 400
INHERITED = ("PATH", "PYTHONPATH", "HOME", "LANG", "TZ")
"""Variables of gqd that the hook's process inherits, besides those that begin with `LC_`; others may hold secrets."""
FIXED = ("script_digest", "environment_digest", "is_interactive")
"""Fields that a hook must not change: they are fixed before it is called."""
ASK_ADMINISTRATOR = "ask an administrator: gqd's log has the details"

Enter = Callable[[ClientRequest, dict[str, bytes]], None]


class HookSettings(NamedTuple):
    place: str
    """``FILE.py:FUNCTION`` with an absolute path; empty: no hook."""
    timeout_s: float
    accepts_on_failure: bool


def hook_settings(config: Config) -> HookSettings:
    """The settings of the hook; `Refusal` if its file is missing or unsafe (writable by others)."""
    settings = config.controller
    place = ""
    if settings.submit_hook:
        place = str(Path(config.path).absolute().parent / settings.submit_hook)
        check_hook(place)
    return HookSettings(place, settings.submit_hook_timeout_s, settings.submit_hook_on_failure == "accept")


class HookFailed(RuntimeError):
    """The hook gave no valid answer, for the reason in the text."""


async def try_hook(settings: HookSettings) -> None:
    """Load the hook once, as for the first job.  Raises `Refusal` if that fails."""
    if not settings.place:
        return
    try:
        worker = await _Worker.start(settings.place)
        try:
            await worker.become_ready()
        finally:
            await worker.end()
    except HookFailed as failure:
        message = f"the submit hook {settings.place} cannot be loaded: {failure}"
        raise Refusal("bad_hook", message, "fix the file, or submit_hook in gq.toml") from failure


async def log_if_broken(settings: HookSettings) -> None:
    """Log at the start of gqd that the hook cannot be loaded."""
    try:
        await try_hook(settings)
    except Refusal as refusal:
        fate = "accepted unchecked" if settings.accepts_on_failure else "refused"
        LOG.error("%s; until it is fixed every job is %s (hint: %s)", refusal.message, fate, refusal.hint)


class HookQueue:
    """Submissions that wait for the hook; `enter` accepts judged requests, and those that need no judgement."""

    def __init__(self, settings: HookSettings, enter: Enter) -> None:
        self._settings = settings
        self._enter = enter
        self._waiting: dict[int, deque[tuple[ClientRequest, dict[str, bytes]]]] = {}
        """Waiting submissions by uid, the user to be served next first."""
        self._pump: asyncio.Task[None] | None = None
        self._worker: _Worker | None = None
        self._endings: set[asyncio.Task[None]] = set()
        self._why_not = ""
        self._not_before = 0.0

    def take(self, request: ClientRequest, blobs: dict[str, bytes]) -> None:
        """Pass the request on; a submission first waits for the hook, if there is one."""
        if not self._settings.place or not isinstance(request.body, Submit | SubmitChain):
            self._enter(request, blobs)
            return
        own = self._waiting.setdefault(request.peer.uid, deque())
        if len(own) >= MAX_WAITING_PER_USER or sum(map(len, self._waiting.values())) >= MAX_WAITING:
            busy = f"{len(own)} of your jobs are already waiting for the site's submit hook"
            self._enter(_refused(request, busy, "try again in a moment"), {})
            return
        own.append((request, blobs))
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._ask_all())

    def adopt(self, settings: HookSettings) -> None:
        """Use these settings from the next job on; the hook's file is loaded again even if its name is unchanged."""
        self._settings = settings
        self._why_not = ""
        if self._worker is not None:
            self._worker.is_outdated = True

    async def close(self) -> None:
        """End the hook's process; waiting jobs are dropped, since they were not acknowledged."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        self._drop_worker()
        if self._endings:
            await asyncio.wait(self._endings)

    # ── one after the other ───────────────────────────────────────────────────────────────────────────────────────

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                uid = next(iter(self._waiting))
                own = self._waiting.pop(uid)
                request, blobs = own.popleft()
                if own:
                    self._waiting[uid] = own  # behind the other users
                judged = await self._judge(request)
                self._enter(judged, {} if judged.hook_refusal else blobs)
        finally:
            self._pump = None

    async def _judge(self, request: ClientRequest) -> ClientRequest:
        body = request.body
        assert isinstance(body, Submit | SubmitChain)
        if not self._settings.place:
            return request
        stages = body.stages if isinstance(body, SubmitChain) else (body,)
        judged: list[Submit] = []
        notes: list[str] = []
        for number, stage in enumerate(stages, 1):
            verdict, note = await self._verdict(request, stage)
            if verdict.refusal:
                where = f"stage {number} of the chain: " if len(stages) > 1 else ""
                return _refused(request, where + verdict.refusal, verdict.hint)
            judged.append(stage if verdict.job is None else msgspec.structs.replace(stage, spec=verdict.job))
            notes.append(note)
        if isinstance(body, Submit):
            return msgspec.structs.replace(request, body=judged[0], hook=notes[0])
        return msgspec.structs.replace(
            request,
            body=msgspec.structs.replace(body, stages=tuple(judged)),
            hook="; ".join(f"stage {number}: {note}" for number, note in enumerate(notes, 1) if note),
            hooks=tuple(notes),
        )

    async def _verdict(self, request: ClientRequest, stage: Submit) -> tuple[Verdict, str]:
        """(answer of the hook, note about the changes to the job)."""
        peer = request.peer
        submitter = Submitter(user=peer.user, uid=peer.uid, gid=peer.gid, groups=peer.groups, is_test=stage.test_only)
        try:
            verdict = await self._ask(Question(job=stage.spec, submitter=submitter))
            if verdict.job is not None:
                _refuse_fixed(stage.spec, verdict.job)
        except HookFailed as failure:
            LOG.error("the submit hook failed: %s", failure)
            if self._settings.accepts_on_failure:
                return Verdict(), _cut(f"accepted unchecked, because the hook failed: {failure}")
            return Verdict(refusal=f"the site's submit hook failed: {failure}", hint=ASK_ADMINISTRATOR), ""
        return verdict, "" if verdict.job is None else _cut(", ".join(changes(stage.spec, verdict.job)))

    async def _ask(self, question: Question) -> Verdict:
        worker = await self._ready_worker()
        try:
            verdict = await worker.ask(msgspec.msgpack.encode(question), self._settings.timeout_s)
        except HookFailed:
            self._drop_worker()
            raise
        if verdict.error:
            raise HookFailed(verdict.error)
        return verdict

    # ── the process ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _ready_worker(self) -> _Worker:
        if self._worker is not None and (self._worker.is_outdated or self._worker.is_dead):
            self._drop_worker()
        if self._worker is None:
            if self._why_not and time.monotonic() < self._not_before:
                raise HookFailed(self._why_not)
            self._worker = worker = await _Worker.start(self._settings.place)
            try:
                await worker.become_ready()
            except HookFailed as failure:
                self._drop_worker()
                self._why_not, self._not_before = str(failure), time.monotonic() + RETRY_S
                raise
            self._why_not = ""
        return self._worker

    def _drop_worker(self) -> None:
        """End the worker in the background."""
        if self._worker is not None:
            ending = asyncio.ensure_future(self._worker.end())
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            self._worker = None


class _Worker:
    """A process of `gqd.shell.requests.hook_worker`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_outdated = False
        """Whether gq.toml was reloaded since the process was started."""

    @staticmethod
    async def start(place: str) -> _Worker:
        environ = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}
        command = [*isolated_python(os.environ), "-m", "gqd.shell.requests.hook_worker", place, str(os.getpid())]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            raise HookFailed(f"its process cannot be started: {error}") from error
        return _Worker(process)

    @property
    def is_dead(self) -> bool:
        return self._process.returncode is not None

    async def become_ready(self) -> None:
        verdict = await self._hear(START_S, "loading it took longer than")
        if verdict.error:
            raise HookFailed(verdict.error)

    async def ask(self, question: bytes, timeout_s: float) -> Verdict:
        assert self._process.stdin is not None
        self._process.stdin.write(LENGTH.pack(len(question)) + question)
        return await self._hear(timeout_s, "it did not answer within")

    async def _hear(self, timeout_s: float, what: str) -> Verdict:
        try:
            return await asyncio.wait_for(self._receive(), timeout_s)
        except TimeoutError:
            raise HookFailed(f"{what} {timeout_s:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise HookFailed(f"its process ended{await self._how()}") from None
        except msgspec.MsgspecError as error:
            raise HookFailed(f"it returned an invalid job: {error}") from None

    async def _receive(self) -> Verdict:
        assert self._process.stdout is not None
        size = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))[0]
        if size > MAX_FRAME:
            raise msgspec.ValidationError(f"{size} bytes")
        return VERDICTS.decode(await self._process.stdout.readexactly(size))

    async def _how(self) -> str:
        """How the process ended, in words; it has closed its output, so it should end soon."""
        with contextlib.suppress(asyncio.TimeoutError):
            status = await asyncio.wait_for(self._process.wait(), 1.0)
            return f" by signal {-status}" if status < 0 else f" with status {status}"
        return ""

    def kill(self) -> None:
        """Kill the process and its children."""
        if not self.is_dead:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        self.kill()
        await self._process.communicate()  # and with it its pipes


# ── changes by the hook ───────────────────────────────────────────────────────────────────────────────────────────


def _refused(request: ClientRequest, why: str, hint: str) -> ClientRequest:
    return msgspec.structs.replace(request, hook_refusal=why, hook_hint=hint)


def _refuse_fixed(before: JobSpec, after: JobSpec) -> None:
    for name in FIXED:
        if getattr(before, name) != getattr(after, name):
            raise HookFailed(f"it changed {name}, which a hook may not change")


def changes(before: msgspec.Struct, after: msgspec.Struct, prefix: str = "") -> Iterator[str]:
    """``time_limit_s=3600`` for each field that differs, nested structures included."""
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, msgspec.Struct) and type(old) is type(new):
            yield from changes(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={msgspec.json.encode(new).decode()}"


def _cut(note: str) -> str:
    plain = "".join(one if one.isprintable() else "?" for one in note)
    return plain if len(plain) <= MAX_NOTE else plain[: MAX_NOTE - 1] + "…"
