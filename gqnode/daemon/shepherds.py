"""All shepherds of this node, seen from the daemon's asyncio loop.

Owns the links to the shepherds.  Everything that happens to processes comes through one callback; commands never wait
and are idempotent.  A command for an attempt whose shepherd is gone does nothing, except `empty`, which always ends
in `TreeEmpty`.  Must never decide what an end means (the agent does), nor touch cells.

After a restart of the daemon, `adopt` meets a living shepherd again and hears how things stand: `ProcessStarted`,
`ProcessEnded`, `StepTasksEnded` come again if they had come before.  What belongs to a client (`TaskStarted`, `Output`,
`StdinTaken`, `TaskExited`) waits until a client is there: `replay`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, Usage
from gq.wire.step import Output, StdinTaken, StreamPosition, TaskExited, TaskStarted
from gqnode.control.input import CellQuiet, ProcessEnded, ProcessStarted, StepTaskFailed, StepTasksEnded
from gqnode.daemon.shepherd_link import ShepherdLink
from gqnode.daemon.spawn import Spawner
from gqnode.shepherd.frames import Head, pack
from gqnode.shepherd.processes import kill_all, send_signal, strays
from gqnode.shepherd.shepherd import CONTROL_SOCKET, END_FILE
from gqnode.shepherd.specs import ShepherdSpec, TaskSpec

_CREDENTIALS = struct.Struct("3i")
SWEEP_S = 0.05
IDLE_S = 5.0
"""How long a shepherd that has nothing to hold is kept for a next attempt."""
MAX_IDLE = 64
"""Each has an interpreter's memory, some 5 MiB, which it had while its job ran."""
WAKE_S = 1.0
"""Between wakings of a shepherd that is to empty its cell: what it holds may stop it, being of the same user."""


class TreeEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """No process of the attempt is left on this node; its spool directory may be removed."""

    attempt_id: AttemptId
    usage: Usage = Usage()


ShepherdEvent = (
    ProcessStarted | ProcessEnded | TreeEmpty | CellQuiet | StepTaskFailed | StepTasksEnded
    | TaskStarted | Output | StdinTaken | TaskExited
)  # fmt: skip
"""``ProcessStarted`` comes for nodes without a script too.

``ProcessEnded`` with ``is_lost``: the shepherd is gone and left no word of the end; `empty` is still to be called
then, and finds strays.  `TreeEmpty` comes only after `empty`.  ``StepTasksEnded`` comes once all tasks of the step on
this node are over and nothing is left of them, whether or not a client has fetched the output.
"""


@dataclass(slots=True, eq=False)
class _Supervised:
    """What the herd knows of one attempt's shepherd."""

    attempt_id: AttemptId
    link: ShepherdLink | None = None
    has_reported: bool = False
    """It has spoken."""
    pid: int | None = None
    """Of the shepherd, once it has said so."""
    is_started: bool = False
    is_ended: bool = False
    is_empty_requested: bool = False
    emptied: Usage | None = None
    """Nothing is left; what all used."""
    is_over: bool = False
    """`TreeEmpty` was told; only output may still be fetched."""
    request: tuple[Head, bytes] | None = None
    """What is to be begun, until a shepherd speaks."""


class _IdleShepherd(NamedTuple):
    """A shepherd that waits for an attempt."""

    link: ShepherdLink
    pid: int | None
    until: float
    """By the loop's clock."""


class ShepherdPool:
    """``tell`` is called on the loop for every event, in order per attempt, never from within a call of the herd.

    ``now`` is the daemon's clock, for ends that nobody saw.
    """

    def __init__(
        self, spawner: Spawner, spool_root: str, report: Callable[[ShepherdEvent], None], now: Callable[[], float]
    ) -> None:
        self._spawner = spawner
        self._root = os.path.realpath(spool_root)
        self._report = report
        self._now = now
        self._supervised: dict[AttemptId, _Supervised] = {}
        self._sweeps: set[asyncio.Task[None]] = set()
        self._idle: list[_IdleShepherd] = []
        """Who was last needed is last, so that a few are enough and the others are let go."""
        self._idle_timer: asyncio.TimerHandle | None = None

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, attempt_id: AttemptId, spec: ShepherdSpec, script: bytes = b"") -> None:
        """Start a shepherd (and, with ``spec.is_batch``, the script).

        → `ProcessStarted`, or `ProcessEnded` with ``why``.  An attempt that was started before, by whomever, is
        adopted instead.
        """
        if attempt_id in self._supervised:
            return
        if self._was_started(attempt_id):
            self.adopt(attempt_id)
            return
        supervised = self._supervised[attempt_id] = _Supervised(attempt_id)
        supervised.request = {"do": "begin", "spec": spec._asdict(), "may_rest": True}, script
        self._begin(supervised, *supervised.request)

    def adopt(self, attempt_id: AttemptId) -> None:
        """Meet the shepherd of an earlier daemon.

        → its events again, or what it recorded; `ProcessEnded` with ``is_lost`` if there is neither.
        """
        if attempt_id not in self._supervised:
            self._call_soon(self._reconnect(attempt_id), self._report_recorded_end)

    def signal(self, attempt_id: AttemptId, signum: int, scope: str) -> None:
        """``scope``: ``batch`` (the script's process only), ``steps`` (all processes of tasks), ``all``."""
        self._command(attempt_id, {"do": "signal", "signum": signum, "scope": scope})

    def check(self, attempt_id: AttemptId) -> None:
        """→ `CellQuiet` if no process of the attempt is left at this moment; else no answer"""
        supervised = self._supervised.get(attempt_id)
        if supervised and supervised.link:
            supervised.link.send({"do": "check"})
        else:
            self._spawn_sweep(self._check_strays(attempt_id))

    def empty(self, attempt_id: AttemptId) -> None:
        """KILL every process of the attempt until none is left.  → `TreeEmpty`, always, also for unknown attempts

        A shepherd does it by itself once its script is over; then the answer comes at once.
        """
        supervised = self._supervised.get(attempt_id) or self._reconnect(attempt_id)
        if supervised.emptied is not None:
            self._call_soon(supervised, self._report_empty)
        elif not supervised.is_empty_requested:
            supervised.is_empty_requested = True
            if supervised.link:
                supervised.link.send({"do": "empty"})
                self._keep_awake(supervised)
            else:
                self._spawn_sweep(self._sweep(supervised))

    def shepherd_pid(self, attempt_id: AttemptId) -> int:
        """0: it has none, or has not spoken yet."""
        supervised = self._supervised.get(attempt_id)
        return (supervised.pid or 0) if supervised and supervised.link else 0

    def marker(self, attempt_id: AttemptId) -> str:
        """Value of ``GQ_CELL`` in its processes' environment."""
        return self._directory(attempt_id)

    def write_line(self, attempt_id: AttemptId, text: str) -> None:
        """Append a line to the job's standard error."""
        self._command(attempt_id, {"do": "line", "text": text})

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def start_tasks(self, step_id: StepId, tasks: Sequence[TaskSpec]) -> None:
        """→ `TaskStarted` for each, or `TaskExited` with ``why``.  A second call for the same step does nothing."""
        self._step_command(step_id, {"do": "tasks", "tasks": [task._asdict() for task in tasks]})

    def signal_step(self, step_id: StepId, signum: int) -> None:
        """To every process of the step's tasks, also to those that left their process group."""
        self._step_command(step_id, {"do": "signal_step", "signum": signum})

    def stdin(self, step_id: StepId, offset: int, data: bytes, eof: bool) -> None:
        """Bytes for every task with a pipe or a terminal.  → `StdinTaken`.  What was had already is skipped."""
        self._step_command(step_id, {"do": "stdin", "offset": offset, "eof": eof}, data)

    def resize(self, step_id: StepId, rows: int, columns: int) -> None:
        self._step_command(step_id, {"do": "resize", "rows": rows, "columns": columns})

    def received(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """The client has the output so far: it is forgotten, and reading goes on."""
        self._step_command(step_id, {"do": "received", "positions": _position_tuples(positions)})

    def replay(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """A client is there (again) and has this much: all events of the step's tasks after it are told once more."""
        self._step_command(step_id, {"do": "replay", "positions": _position_tuples(positions)})

    def detach(self, step_id: StepId) -> None:
        """No client will come (again): output is read and thrown away, so that no task waits for ever."""
        self._step_command(step_id, {"do": "detach"})

    async def close(self) -> None:
        """Drop all links; shepherds and their jobs go on."""
        for supervised in self._supervised.values():
            if supervised.link:
                supervised.link.close()
        self._supervised.clear()
        for idle in self._idle:
            idle.link.close()
        self._idle.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for sweep in self._sweeps:
            sweep.cancel()
        await asyncio.gather(*self._sweeps, return_exceptions=True)

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _directory(self, attempt_id: AttemptId) -> str:
        return f"{self._root}/{attempt_id}"

    def _connect(self, supervised: _Supervised, near: socket.socket) -> ShepherdLink:
        supervised.link = ShepherdLink(
            near, partial(self._on_frame, supervised), partial(self._on_link_lost, supervised)
        )
        return supervised.link

    def _begin(self, supervised: _Supervised, head: Head, script: bytes) -> None:
        """By a shepherd that is free, else by a new one; also if that one has just ended, see `_on_gone`."""
        if not self._idle:
            self._spawn(supervised, head, script)
            return
        idle = self._idle.pop()
        supervised.link, supervised.pid = idle.link, idle.pid
        idle.link.turn_to(partial(self._on_frame, supervised), partial(self._on_link_lost, supervised))
        idle.link.send_all([({"do": "hold", "directory": self._directory(supervised.attempt_id)}, b""), (head, script)])
        _wake(supervised)

    def _spawn(self, supervised: _Supervised, head: Head, script: bytes) -> None:
        near, far = socket.socketpair()
        self._connect(supervised, near).send(head, script)
        with far:
            try:
                self._spawner.spawn(self._directory(supervised.attempt_id), far)
            except OSError as error:
                far.send(pack({"is": "unable", "why": f"cannot reach the forkserver: {error.strerror}"}))

    def _reconnect(self, attempt_id: AttemptId) -> _Supervised:
        """Connect to its shepherd if there is one; without, `link` stays None."""
        supervised = self._supervised[attempt_id] = _Supervised(attempt_id)
        near = connect_in(self._directory(attempt_id), CONTROL_SOCKET)
        if near is not None:
            supervised.pid = _peer_pid(near)  # one that is stopped does not say it
            self._connect(supervised, near)
        else:
            supervised.emptied = self._recorded_usage(supervised)
        return supervised

    def _command(self, attempt_id: AttemptId, head: Head, data: bytes = b"") -> None:
        supervised = self._supervised.get(attempt_id)
        if supervised and supervised.link:
            supervised.link.send(head, data)
            _wake(supervised)

    def _step_command(self, step_id: StepId, head: Head, data: bytes = b"") -> None:
        self._command(step_id.attempt_id, {**head, "step": step_id.step}, data)

    def _keep_awake(self, supervised: _Supervised) -> None:
        """Until the cell is empty."""
        if supervised.link and supervised.is_empty_requested:
            _wake(supervised)
            asyncio.get_running_loop().call_later(WAKE_S, self._keep_awake, supervised)

    def _on_link_lost(self, supervised: _Supervised) -> None:
        """Its shepherd has ended, or (no word came) the request died with it or the forkserver: nobody can begin it."""
        supervised.link = None
        if supervised.is_over:
            del self._supervised[supervised.attempt_id]
            return
        if supervised.request and not (
            supervised.is_ended or supervised.is_empty_requested or self._was_started(supervised.attempt_id)
        ):
            request, supervised.request = supervised.request, None
            self._spawn(supervised, *request)
            return
        if supervised.emptied is None:
            supervised.emptied = self._recorded_usage(supervised)
        self._report_recorded_end(supervised)
        if supervised.emptied is None and supervised.is_empty_requested:
            self._spawn_sweep(self._sweep(supervised))
        elif supervised.is_empty_requested:
            self._report_empty(supervised)

    def _keep_idle(self, supervised: _Supervised) -> None:
        """Its shepherd has done with it, as if it had ended, and takes another."""
        link, pid = supervised.link, supervised.pid
        supervised.pid = None
        self._on_link_lost(supervised)
        if link is None:
            return
        if len(self._idle) >= MAX_IDLE:
            link.close()
            return
        loop = asyncio.get_running_loop()
        idle = _IdleShepherd(link, pid, loop.time() + IDLE_S)
        link.turn_to(lambda *_: None, partial(self._forget_idle, idle))
        self._idle.append(idle)
        if self._idle_timer is None:
            self._idle_timer = loop.call_at(idle.until, self._close_expired)

    def _forget_idle(self, idle: _IdleShepherd) -> None:
        if idle in self._idle:
            self._idle.remove(idle)

    def _close_expired(self) -> None:
        """Those that nobody needed for a while."""
        loop = asyncio.get_running_loop()
        self._idle_timer = None
        while self._idle and self._idle[0].until <= loop.time():
            self._idle.pop(0).link.close()
        if self._idle:
            self._idle_timer = loop.call_at(self._idle[0].until, self._close_expired)

    def _call_soon(self, supervised: _Supervised, call: Callable[[_Supervised], None]) -> None:
        asyncio.get_running_loop().call_soon(call, supervised)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, supervised: _Supervised, head: Head, data: bytes) -> None:
        match head:
            case {"is": "here"}:
                supervised.has_reported = True
                supervised.request = None
                supervised.pid = head.get("pid")
            case {"is": "unable", "why": str(why)}:
                self._report_failed(supervised, why)
            case {"is": "started", "at": at}:
                self._report_started(supervised, float(at))
            case {"is": "ended"}:
                self._report_ended(supervised, head)
            case {"is": "quiet"}:
                self._report(CellQuiet(attempt_id=supervised.attempt_id))
            case {"is": "free"}:
                self._keep_idle(supervised)
            case {"is": "emptied"}:
                supervised.emptied = _usage(head)
                if supervised.is_empty_requested:
                    self._report_empty(supervised)
            case {"is": str(), "step": int(number)}:
                event = _step_event(
                    StepId(supervised.attempt_id.job_id, supervised.attempt_id.attempt, number), head, data
                )
                if event is not None:
                    self._report(event)
            case _:
                pass  # a word of a newer shepherd

    def _report_recorded_end(self, supervised: _Supervised) -> None:
        """There is no shepherd (any more): what it recorded is the end, and without a record the end is not known."""
        if supervised.link or supervised.is_ended:
            return
        end = self._recorded(supervised.attempt_id, "ended")
        if end is not None:
            self._report_started(supervised, float(end["started_at"]))
            self._report_ended(supervised, end)
        elif (
            supervised.emptied is None and not supervised.has_reported and not self._was_started(supervised.attempt_id)
        ):
            self._report_failed(supervised, "the shepherd could not be started")
        elif supervised.emptied is None:
            self._report_lost(supervised)

    def _was_started(self, attempt_id: AttemptId) -> bool:
        """A shepherd opens its door before it begins, and records the end before it goes elsewhere."""
        has_door = os.access(f"{self._directory(attempt_id)}/{CONTROL_SOCKET}", os.F_OK)
        return has_door or self._recorded(attempt_id, "ended") is not None

    def _report_started(self, supervised: _Supervised, at: float) -> None:
        if not supervised.is_started:
            supervised.is_started = True
            self._report(ProcessStarted(attempt_id=supervised.attempt_id, at=at))

    def _report_ended(self, supervised: _Supervised, end: Head) -> None:
        supervised.is_ended = True
        self._report(
            ProcessEnded(
                attempt_id=supervised.attempt_id,
                exit=_exit(end),
                usage=_usage(end),
                ended_at=end["ended_at"],
                oom=end["oom"],
                why=end["why"],
                launch_failure=end.get("launch_failure", ""),
            )
        )

    def _report_failed(self, supervised: _Supervised, why: str) -> None:
        self._report_unseen_end(supervised, why, is_lost=False)

    def _report_lost(self, supervised: _Supervised) -> None:
        self._report_unseen_end(supervised, "the shepherd is gone", is_lost=True)

    def _report_unseen_end(self, supervised: _Supervised, why: str, is_lost: bool) -> None:
        supervised.is_ended = True
        self._report(
            ProcessEnded(
                attempt_id=supervised.attempt_id,
                exit=ExitStatus(),
                usage=Usage(),
                ended_at=self._now(),
                why=why,
                is_lost=is_lost,
            )
        )

    def _report_empty(self, supervised: _Supervised) -> None:
        supervised.is_empty_requested = False
        supervised.is_over = True
        if supervised.link is None:
            self._supervised.pop(supervised.attempt_id, None)
        self._report(TreeEmpty(attempt_id=supervised.attempt_id, usage=supervised.emptied or Usage()))

    # ── without a shepherd ────────────────────────────────────────────────────────────────────────────────────

    async def _sweep(self, supervised: _Supervised) -> None:
        """Its shepherd was killed: find what is left by the marker."""
        cell = self._directory(supervised.attempt_id)
        while await asyncio.to_thread(kill_all, partial(strays, cell), freeze=True):
            await asyncio.sleep(SWEEP_S)
        supervised.emptied = _usage(self._recorded(supervised.attempt_id, "ended") or {})
        self._report_empty(supervised)

    async def _check_strays(self, attempt_id: AttemptId) -> None:
        if not await asyncio.to_thread(strays, self._directory(attempt_id)):
            self._report(CellQuiet(attempt_id=attempt_id))

    def _spawn_sweep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sweeps.add(task)
        task.add_done_callback(self._sweeps.discard)

    def _recorded_usage(self, supervised: _Supervised) -> Usage | None:
        recorded = self._recorded(supervised.attempt_id, "emptied")
        return _usage(recorded) if recorded is not None else None

    def _recorded(self, attempt_id: AttemptId, part: str) -> Head | None:
        """``ended`` or ``emptied`` of what its shepherd wrote last."""
        try:
            file = Path(self._directory(attempt_id), END_FILE)
            text = file.read_bytes() if file.stat().st_size else b""  # mostly it is empty
        except OSError:
            return None
        contents = (content for line in reversed(text.splitlines()) if (content := _end_of(attempt_id, line)))
        found = next(contents, {}).get(part)
        return found if isinstance(found, dict) else None


def _end_of(attempt_id: AttemptId, line: bytes) -> Head | None:
    """None: a line that is not whole, or of an attempt that had this directory before."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    is_own = isinstance(content, dict) and content.get("attempt", str(attempt_id)) == str(attempt_id)
    return content if is_own else None


def connect_in(directory: str, name: str) -> socket.socket | None:
    """Connect to a socket by way of its directory, since its path may be longer than a socket's may be."""
    try:
        directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        near.connect(f"/proc/self/fd/{directory_fd}/{name}")
    except OSError:
        near.close()
        return None
    finally:
        os.close(directory_fd)
    return near


def _wake(supervised: _Supervised) -> None:
    """A shepherd that was stopped would hear of no end."""
    if supervised.pid is not None:
        send_signal((supervised.pid,), signal.SIGCONT)


def _peer_pid(near: socket.socket) -> int:
    """The process that a connected socket leads to, by the kernel's word."""
    credentials = near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


def _position_tuples(positions: Iterable[StreamPosition]) -> list[tuple[int, str, int]]:
    return [(position.rank, position.stream, position.offset) for position in positions]


def _exit(head: Head) -> ExitStatus:
    return ExitStatus(code=head["code"], signal=head["signal"])


def _usage(head: Head) -> Usage:
    return Usage(
        user_cpu_s=head.get("user_cpu_s", 0.0),
        system_cpu_s=head.get("system_cpu_s", 0.0),
        max_rss_mib=head.get("max_rss_mib", 0),
    )


def _step_event(step_id: StepId, head: Head, data: bytes) -> ShepherdEvent | None:
    match head["is"]:
        case "task_started":
            return TaskStarted(step_id=step_id, rank=head["rank"], pid=head["pid"])
        case "output":
            return Output(
                step_id=step_id,
                rank=head["rank"],
                stream=head["stream"],
                offset=head["offset"],
                data=data,
                eof=head["eof"],
            )
        case "stdin_taken":
            return StdinTaken(step_id=step_id, offset=head["offset"])
        case "task_exited":
            return TaskExited(step_id=step_id, rank=head["rank"], exit=_exit(head), oom=head["oom"], why=head["why"])
        case "task_failed":
            return StepTaskFailed(step_id=step_id)
        case "step_ended":
            return StepTasksEnded(step_id=step_id, exit=_exit(head), oom=head["oom"], usage=_usage(head))
        case _:
            return None
