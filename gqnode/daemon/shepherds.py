"""All shepherds of this node, as the daemon's asyncio loop sees them.

It owns the links to the shepherds.  All events of processes come through one callback; commands never wait and are
idempotent.  A command for an attempt whose shepherd is gone does nothing, except `empty`, which always ends in
`TreeEmpty`.  It never decides what an exit means (the agent does), nor touches cells.

After a restart of the daemon, `adopt` connects to a living shepherd, which sends its state: `ProcessStarted`,
`ProcessEnded`, `StepTasksEnded` come again if they had come before.  Events for a client (`TaskStarted`, `Output`,
`StdinTaken`, `TaskExited`) wait until a client attaches: `replay`.
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
from gqnode.shepherd.daemon_link import CONTROL_SOCKET
from gqnode.shepherd.frames import Head, pack
from gqnode.shepherd.processes import kill_all, send_signal, strays
from gqnode.shepherd.shepherd import END_FILE
from gqnode.shepherd.specs import ShepherdSpec, TaskSpec

_CREDENTIALS = struct.Struct("3i")
SWEEP_S = 0.05
IDLE_S = 5.0
"""How long an idle shepherd is kept for another attempt."""
MAX_IDLE = 64
"""Maximum number of idle shepherds; each has an interpreter's memory, some 5 MiB."""
WAKE_S = 1.0
"""Interval between CONT signals to a shepherd that is emptying its cell: the job's processes could stop it."""


class TreeEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """No process of the attempt is left on this node; its spool directory may be removed."""

    attempt_id: AttemptId
    usage: Usage = Usage()


ShepherdEvent = (
    ProcessStarted | ProcessEnded | TreeEmpty | CellQuiet | StepTaskFailed | StepTasksEnded
    | TaskStarted | Output | StdinTaken | TaskExited
)  # fmt: skip
"""``ProcessStarted`` comes for nodes without a script too.

``ProcessEnded`` with ``is_lost`` means that the shepherd has ended without a recorded end; `empty` must still be called
and finds stray processes.  `TreeEmpty` comes only after `empty`.  ``StepTasksEnded`` comes once all tasks of the step
on this node have ended and no process of them is left, whether or not a client has fetched the output.
"""


@dataclass(slots=True, eq=False)
class _Supervised:
    """The state of one attempt's shepherd, as the daemon knows it."""

    attempt_id: AttemptId
    link: ShepherdLink | None = None
    has_reported: bool = False
    """Whether the shepherd has sent its first frame."""
    pid: int | None = None
    """Process id of the shepherd, once it is known."""
    is_started: bool = False
    is_ended: bool = False
    is_empty_requested: bool = False
    emptied: Usage | None = None
    """Usage of all processes, once none is left."""
    is_over: bool = False
    """Whether `TreeEmpty` was reported; only output may still be fetched."""
    request: tuple[Head, bytes] | None = None
    """The request to begin, until a shepherd has taken it."""


class _IdleShepherd(NamedTuple):
    """A shepherd that waits for another attempt."""

    link: ShepherdLink
    pid: int | None
    until: float
    """When it is closed, on the loop's clock."""


class _IdleShepherds:
    """Shepherds that have finished an attempt and wait for another one, `IDLE_S` long.

    The last used is taken first, so that surplus shepherds expire.
    """

    def __init__(self) -> None:
        self._shepherds: list[_IdleShepherd] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, link: ShepherdLink, pid: int | None) -> None:
        """Keep the shepherd, or close its link if `MAX_IDLE` are kept."""
        if len(self._shepherds) >= MAX_IDLE:
            link.close()
            return
        loop = asyncio.get_running_loop()
        shepherd = _IdleShepherd(link, pid, loop.time() + IDLE_S)
        link.turn_to(lambda *_: None, partial(self._forget, shepherd))
        self._shepherds.append(shepherd)
        if self._timer is None:
            self._timer = loop.call_at(shepherd.until, self._close_expired)

    def take(self) -> _IdleShepherd | None:
        return self._shepherds.pop() if self._shepherds else None

    def close(self) -> None:
        for shepherd in self._shepherds:
            shepherd.link.close()
        self._shepherds.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self, shepherd: _IdleShepherd) -> None:
        if shepherd in self._shepherds:
            self._shepherds.remove(shepherd)

    def _close_expired(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._shepherds and self._shepherds[0].until <= loop.time():
            self._shepherds.pop(0).link.close()
        if self._shepherds:
            self._timer = loop.call_at(self._shepherds[0].until, self._close_expired)


class _EndRecords(NamedTuple):
    """The files that shepherds leave in the spool directories of their attempts, which outlive them."""

    root: str

    def directory(self, attempt_id: AttemptId) -> str:
        return f"{self.root}/{attempt_id}"

    def has(self, attempt_id: AttemptId) -> bool:
        """Whether a shepherd has taken the attempt: it makes its socket first and records the end last."""
        has_socket = os.access(f"{self.directory(attempt_id)}/{CONTROL_SOCKET}", os.F_OK)
        return has_socket or self.part(attempt_id, "ended") is not None

    def usage(self, attempt_id: AttemptId) -> Usage | None:
        """Return the usage of all processes of the attempt; None if the shepherd has not recorded that none is left."""
        recorded = self.part(attempt_id, "emptied")
        return _usage(recorded) if recorded is not None else None

    def part(self, attempt_id: AttemptId, name: str) -> Head | None:
        """Return the ``ended`` or ``emptied`` part of the shepherd's last record; None if there is none."""
        try:
            file = Path(self.directory(attempt_id), END_FILE)
            text = file.read_bytes() if file.stat().st_size else b""  # mostly it is empty
        except OSError:
            return None
        contents = (content for line in reversed(text.splitlines()) if (content := _end_of(attempt_id, line)))
        found = next(contents, {}).get(name)
        return found if isinstance(found, dict) else None


class StepCommands:
    """Commands to the shepherds for the tasks of steps."""

    def __init__(self, command: Callable[[AttemptId, Head, bytes], None]) -> None:
        self._command = command

    def start(self, step_id: StepId, tasks: Sequence[TaskSpec]) -> None:
        """Start a step's tasks, once.  → `TaskStarted` for each task, or `TaskExited` with ``why``"""
        self._send(step_id, {"do": "tasks", "tasks": [task._asdict() for task in tasks]})

    def signal(self, step_id: StepId, signum: int) -> None:
        """Signal every process of the step's tasks, also processes that left their process group."""
        self._send(step_id, {"do": "signal_step", "signum": signum})

    def stdin(self, step_id: StepId, offset: int, data: bytes, eof: bool) -> None:
        """Pass input to every task with a pipe or a terminal; bytes seen before are skipped.  → `StdinTaken`"""
        self._send(step_id, {"do": "stdin", "offset": offset, "eof": eof}, data)

    def resize(self, step_id: StepId, rows: int, columns: int) -> None:
        self._send(step_id, {"do": "resize", "rows": rows, "columns": columns})

    def received(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """Acknowledge output: the shepherd drops it and reads on."""
        self._send(step_id, {"do": "received", "positions": _position_tuples(positions)})

    def replay(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """Send all events of the step's tasks after these positions, for a client that has attached (again)."""
        self._send(step_id, {"do": "replay", "positions": _position_tuples(positions)})

    def detach(self, step_id: StepId) -> None:
        """Discard the step's output from now on, so that no task waits for a client that will not come."""
        self._send(step_id, {"do": "detach"})

    def _send(self, step_id: StepId, head: Head, data: bytes = b"") -> None:
        self._command(step_id.attempt_id, {**head, "step": step_id.step}, data)


class ShepherdPool:
    """Calls ``report`` on the loop for every event, in order per attempt, never from within a call of the pool.

    ``now`` is the daemon's clock, for exits that no shepherd recorded.
    """

    def __init__(
        self, spawner: Spawner, spool_root: str, report: Callable[[ShepherdEvent], None], now: Callable[[], float]
    ) -> None:
        self._spawner = spawner
        self._records = _EndRecords(os.path.realpath(spool_root))
        self._report = report
        self._now = now
        self._supervised: dict[AttemptId, _Supervised] = {}
        self._sweeps: set[asyncio.Task[None]] = set()
        self._idle = _IdleShepherds()
        self.steps = StepCommands(self._command)

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, attempt_id: AttemptId, spec: ShepherdSpec, script: bytes = b"") -> None:
        """Start a shepherd (and, with ``spec.is_batch``, the script); an attempt started before is adopted instead.

        → `ProcessStarted`, or `ProcessEnded` with ``why``
        """
        if attempt_id in self._supervised:
            return
        if self._records.has(attempt_id):
            self.adopt(attempt_id)
            return
        supervised = self._supervised[attempt_id] = _Supervised(attempt_id)
        supervised.request = {"do": "begin", "spec": spec._asdict(), "may_rest": True}, script
        self._begin(supervised, *supervised.request)

    def adopt(self, attempt_id: AttemptId) -> None:
        """Connect to the shepherd that an earlier daemon started.

        → its events again, or its recorded end; `ProcessEnded` with ``is_lost`` if neither exists
        """
        if attempt_id not in self._supervised:
            self._call_soon(self._reconnect(attempt_id), self._report_recorded_end)

    def signal(self, attempt_id: AttemptId, signum: int, scope: str) -> None:
        """Send a signal; ``scope``: ``batch`` (the script's process), ``steps`` (all processes of tasks), ``all``."""
        self._command(attempt_id, {"do": "signal", "signum": signum, "scope": scope})

    def check(self, attempt_id: AttemptId) -> None:
        """Check for processes of the attempt.  → `CellQuiet` if none is left at this moment, else no answer"""
        supervised = self._supervised.get(attempt_id)
        if supervised and supervised.link:
            supervised.link.send({"do": "check"})
        else:
            self._spawn_sweep(self._check_strays(attempt_id))

    def empty(self, attempt_id: AttemptId) -> None:
        """KILL every process of the attempt until none is left.  → `TreeEmpty`, also for unknown attempts

        A shepherd does this by itself once its script has ended; then the answer comes at once.
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
        """Return the shepherd's process id; 0 if there is none or it is not known yet."""
        supervised = self._supervised.get(attempt_id)
        return (supervised.pid or 0) if supervised and supervised.link else 0

    def marker(self, attempt_id: AttemptId) -> str:
        """Return the value of ``GQ_CELL`` in the environment of the attempt's processes."""
        return self._records.directory(attempt_id)

    def write_line(self, attempt_id: AttemptId, text: str) -> None:
        """Append a line to the job's standard error."""
        self._command(attempt_id, {"do": "line", "text": text})

    async def close(self) -> None:
        """Drop all links; shepherds and their jobs go on."""
        for supervised in self._supervised.values():
            if supervised.link:
                supervised.link.close()
        self._supervised.clear()
        self._idle.close()
        for sweep in self._sweeps:
            sweep.cancel()
        await asyncio.gather(*self._sweeps, return_exceptions=True)

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self, supervised: _Supervised, near: socket.socket) -> ShepherdLink:
        supervised.link = ShepherdLink(
            near, partial(self._on_frame, supervised), partial(self._on_link_lost, supervised)
        )
        return supervised.link

    def _begin(self, supervised: _Supervised, head: Head, script: bytes) -> None:
        """Give the request to an idle shepherd, else to a new one (see `_on_link_lost` if the idle one has ended)."""
        idle = self._idle.take()
        if idle is None:
            self._spawn(supervised, head, script)
            return
        supervised.link, supervised.pid = idle.link, idle.pid
        idle.link.turn_to(partial(self._on_frame, supervised), partial(self._on_link_lost, supervised))
        idle.link.send_all(
            [({"do": "hold", "directory": self._records.directory(supervised.attempt_id)}, b""), (head, script)]
        )
        _wake(supervised)

    def _spawn(self, supervised: _Supervised, head: Head, script: bytes) -> None:
        near, far = socket.socketpair()
        self._connect(supervised, near).send(head, script)
        with far:
            try:
                self._spawner.spawn(self._records.directory(supervised.attempt_id), far)
            except OSError as error:
                far.send(pack({"is": "unable", "why": f"cannot reach the forkserver: {error.strerror}"}))

    def _reconnect(self, attempt_id: AttemptId) -> _Supervised:
        """Connect to the attempt's shepherd; if there is none, `link` stays None."""
        supervised = self._supervised[attempt_id] = _Supervised(attempt_id)
        near = connect_in(self._records.directory(attempt_id), CONTROL_SOCKET)
        if near is not None:
            supervised.pid = _peer_pid(near)  # one that is stopped does not say it
            self._connect(supervised, near)
        else:
            supervised.emptied = self._records.usage(supervised.attempt_id)
        return supervised

    def _command(self, attempt_id: AttemptId, head: Head, data: bytes = b"") -> None:
        supervised = self._supervised.get(attempt_id)
        if supervised and supervised.link:
            supervised.link.send(head, data)
            _wake(supervised)

    def _keep_awake(self, supervised: _Supervised) -> None:
        """Send CONT to the shepherd at intervals until the cell is empty."""
        if supervised.link and supervised.is_empty_requested:
            _wake(supervised)
            asyncio.get_running_loop().call_later(WAKE_S, self._keep_awake, supervised)

    def _on_link_lost(self, supervised: _Supervised) -> None:
        """Handle the end of a shepherd; a request that no shepherd has taken is given to a new shepherd."""
        supervised.link = None
        if supervised.is_over:
            del self._supervised[supervised.attempt_id]
            return
        if supervised.request and not (
            supervised.is_ended or supervised.is_empty_requested or self._records.has(supervised.attempt_id)
        ):
            request, supervised.request = supervised.request, None
            self._spawn(supervised, *request)
            return
        if supervised.emptied is None:
            supervised.emptied = self._records.usage(supervised.attempt_id)
        self._report_recorded_end(supervised)
        if supervised.emptied is None and supervised.is_empty_requested:
            self._spawn_sweep(self._sweep(supervised))
        elif supervised.is_empty_requested:
            self._report_empty(supervised)

    def _keep_idle(self, supervised: _Supervised) -> None:
        """Keep a shepherd that has finished its attempt for another attempt."""
        link, pid = supervised.link, supervised.pid
        supervised.pid = None
        self._on_link_lost(supervised)
        if link is not None:
            self._idle.add(link, pid)

    def _call_soon(self, supervised: _Supervised, call: Callable[[_Supervised], None]) -> None:
        asyncio.get_running_loop().call_soon(call, supervised)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, supervised: _Supervised, head: Head, data: bytes) -> None:
        match head:
            case {"is": "here"}:
                supervised.has_reported = True
                supervised.request = None
                supervised.pid = head.get("pid")
                _wake(supervised)  # a command may have been sent before, and its job may have stopped it since
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
        """Report the end that a vanished shepherd recorded; without a record, report the attempt lost."""
        if supervised.link or supervised.is_ended:
            return
        end = self._records.part(supervised.attempt_id, "ended")
        if end is not None:
            self._report_started(supervised, float(end["started_at"]))
            self._report_ended(supervised, end)
        elif (
            supervised.emptied is None and not supervised.has_reported and not self._records.has(supervised.attempt_id)
        ):
            self._report_failed(supervised, "the shepherd could not be started")
        elif supervised.emptied is None:
            self._report_lost(supervised)

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
        self._report_unseen_end(supervised, "the shepherd has ended", is_lost=True)

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
        """Kill the processes that a killed shepherd left behind, found by their marker."""
        cell = self._records.directory(supervised.attempt_id)
        while await asyncio.to_thread(kill_all, partial(strays, cell), freeze=True):
            await asyncio.sleep(SWEEP_S)
        supervised.emptied = _usage(self._records.part(supervised.attempt_id, "ended") or {})
        self._report_empty(supervised)

    async def _check_strays(self, attempt_id: AttemptId) -> None:
        if not await asyncio.to_thread(strays, self._records.directory(attempt_id)):
            self._report(CellQuiet(attempt_id=attempt_id))

    def _spawn_sweep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sweeps.add(task)
        task.add_done_callback(self._sweeps.discard)


def _end_of(attempt_id: AttemptId, line: bytes) -> Head | None:
    """Parse a recorded end; None for a partial line, or a record of another attempt in this directory."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    is_own = isinstance(content, dict) and content.get("attempt", str(attempt_id)) == str(attempt_id)
    return content if is_own else None


def connect_in(directory: str, name: str) -> socket.socket | None:
    """Connect to a socket by way of its directory, since its path may exceed the limit for sockets."""
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
    """Send CONT to the shepherd, since a stopped shepherd would notice no exit."""
    if supervised.pid is not None:
        send_signal((supervised.pid,), signal.SIGCONT)


def _peer_pid(near: socket.socket) -> int:
    """Return the process id at the other end of a connected socket, as the kernel reports it."""
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
