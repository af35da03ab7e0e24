"""All shepherds of this node, seen from the daemon's asyncio loop.

Owns the links to the shepherds.  Everything that happens to processes comes through one callback; commands never wait
and are idempotent.  A command for an attempt whose shepherd is gone does nothing, except `empty`, which always ends
in `TreeEmpty`.  Must never decide what an end means (the agent does), nor touch cells.

After a restart of the daemon, `adopt` meets a living shepherd again: all that is not forgotten is told again, as if it
happened now (`ProcessStarted`, `ProcessEnded`, `TaskStarted`, output from the last acknowledged byte on, …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from gq.model.ids import AttemptId, StepId
from gq.model.job import Usage
from gq.wire.step import Output, StdinTaken, StreamPosition, TaskExited, TaskStarted
from gqnode.control.input import ProcessEnded, ProcessStarted, StepTasksEnded
from gqnode.shell.spawn import Spawner
from gqnode.shell.specs import ShepherdSpec, TaskSpec


class TreeEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """No process of the attempt is left on this node; its spool directory may be removed."""

    attempt_id: AttemptId
    usage: Usage = Usage()


HerdEvent = (
    ProcessStarted | ProcessEnded | TreeEmpty | StepTasksEnded | TaskStarted | Output | StdinTaken | TaskExited
)  # fmt: skip
"""``ProcessStarted`` comes for nodes without a script too.  ``ProcessEnded`` with ``is_lost``: the shepherd is gone and
left no word of the end; `empty` is still to be called then, and finds strays.  `TreeEmpty` comes only after `empty`.  ``StepTasksEnded`` comes once all tasks
of the step on this node are over, whether or not a client has fetched the output."""


class Herd:
    """``tell`` is called on the loop for every event, in order per attempt; it must not block."""

    def __init__(self, spawner: Spawner, spool_root: str, tell: Callable[[HerdEvent], None]) -> None: ...

    def start(self, attempt_id: AttemptId, spec: ShepherdSpec, script: bytes = b"") -> None:
        """Start a shepherd (and, with ``spec.is_batch``, the script).  → `ProcessStarted`, or `ProcessEnded` with ``why``"""

    def adopt(self, attempt_id: AttemptId) -> None:
        """Meet the shepherd of an earlier daemon.  → its events again; `ProcessEnded` with ``is_lost`` if there is none"""

    def signal(self, attempt_id: AttemptId, signum: int, scope: str) -> None:
        """``scope``: ``batch`` (the script's process only), ``steps`` (all tasks' process groups), ``all`` (every process)."""

    def signal_step(self, step_id: StepId, signum: int) -> None:
        """Every process group of the step's tasks; KILL also reaches what left its group."""

    def empty(self, attempt_id: AttemptId) -> None:
        """KILL every process of the attempt until none is left.  → `TreeEmpty`, always, also for unknown attempts

        A shepherd does it by itself once its script is over; then the answer comes at once.
        """

    def write_line(self, attempt_id: AttemptId, text: str) -> None:
        """Append a line to the job's standard error."""

    def start_tasks(self, step_id: StepId, tasks: Sequence[TaskSpec]) -> None:
        """→ `TaskStarted` for each, or `TaskExited` with ``why``.  A second call for the same step does nothing."""

    def stdin(self, step_id: StepId, offset: int, data: bytes, eof: bool) -> None:
        """Bytes for every task with a pipe or a terminal.  → `StdinTaken`.  What was had already is skipped."""

    def resize(self, step_id: StepId, rows: int, columns: int) -> None: ...

    def received(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """The client has the output so far: it is forgotten, and reading goes on."""

    def replay(self, step_id: StepId, positions: Iterable[StreamPosition]) -> None:
        """A client is there (again) and has this much: everything after it is told once more."""

    def detach(self, step_id: StepId) -> None:
        """No client will come (again): output is read and thrown away, so that no task waits for ever."""

    async def close(self) -> None:
        """Drop all links; shepherds and their jobs go on."""
