"""The agent's state (attempts, finished attempts, unacknowledged reports) and the operations that change it.  Pure.

Each operation appends the effects that follow from it, in order, to the turn.  Nothing here decides anything.

Invariants: `deadlines` holds the value of `deadline.next_deadline` for each record that is not being emptied; an
attempt has at most one `EmptyCell` in progress; finished attempts are remembered, so that a delayed order starts
nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from gq.model.ids import AttemptId, JobId, StepId
from gq.wire.node import CellEmptied, ReportBody, SignalAttempt
from gqnode.control import deadline, reports
from gqnode.control.attempt import AttemptRecord, StepRecord
from gqnode.control.effect import DropRecord, Effect, EmptyCell, FreezeCell, SaveRecord, SignalProcess, SignalStepTasks
from gqnode.control.outbox import Outbox


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Timers (seconds) and limits of the agent."""

    resend_s: float = 5.0
    step_wait_s: float = 30.0
    """How long a step waits for its client."""
    quiet_check_s: float = 0.25
    """Interval between checks whether the last processes of an ending attempt are gone."""
    attempts: int = 4096
    steps_per_attempt: int = 512
    remembered: int = 20_000
    """How many jobs keep an entry for their last finished attempt here."""


class AgentState:
    """The agent's state; ``now`` and ``turn`` belong to the input that is being handled, all else persists."""

    def __init__(self, node: str, records: Iterable[AttemptRecord], settings: Settings) -> None:
        self.node = node
        self.settings = settings
        self.records: dict[AttemptId, AttemptRecord] = {}
        self.deadlines: dict[AttemptId, float] = {}
        """Index: the time of the next deadline of each attempt that has one."""
        self.outbox = Outbox(settings.resend_s)
        self.emptying: set[AttemptId] = set()
        self.unmet: set[AttemptId] = set()
        """Attempts whose shepherds have not reported since this daemon started."""
        self.to_tell: dict[AttemptId, SignalAttempt] = {}
        """Preemption signals for attempts in `unmet`, sent once their shepherds report."""
        self.sought: set[AttemptId] = set()
        """Attempts that were about to start when the daemon ended and whose shepherds are looked for."""
        self.check_at: dict[AttemptId, float] = {}
        """When to check again whether an ending attempt has any process left."""
        self.take_at: dict[AttemptId, float] = {}
        """When to revoke the GPUs that an attempt has to give up, or to check again whether they are free."""
        self.now = 0.0
        self.turn: list[Effect] = []
        self._over: dict[JobId, tuple[int, int]] = {}
        """The highest finished attempt of each job and its `Launch.join`; the oldest entries are dropped first."""
        self._steps_over: dict[AttemptId, set[int]] = {}
        for record in records:
            self.keep(record)

    def begin(self, now: float) -> None:
        self.now, self.turn = now, []

    def do(self, *effects: Effect) -> None:
        self.turn.extend(effects)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, record: AttemptRecord, blobs: dict[str, bytes] | None = None) -> AttemptRecord:
        self.keep(record)
        self.do(SaveRecord(record=record, blobs=blobs or {}))
        return record

    def keep(self, record: AttemptRecord) -> AttemptRecord:
        """Change the record in memory only: after a crash the same change would be made again."""
        attempt_id = record.launch.attempt_id
        self.records[attempt_id] = record
        at = None if attempt_id in self.emptying else deadline.next_deadline(record)
        if at is None:
            self.deadlines.pop(attempt_id, None)
        else:
            self.deadlines[attempt_id] = at
        return record

    def save_step(self, record: AttemptRecord, step: StepRecord) -> AttemptRecord:
        return self.save(replace(record, steps={**record.steps, step.order.step_id.step: step}))

    def find_step(self, step_id: StepId) -> tuple[AttemptRecord, StepRecord] | None:
        record = self.records.get(step_id.attempt_id)
        step = record.steps.get(step_id.step) if record is not None else None
        return (record, step) if record is not None and step is not None else None

    def drop(self, attempt_id: AttemptId) -> None:
        del self.records[attempt_id]
        self.deadlines.pop(attempt_id, None)
        self._steps_over.pop(attempt_id, None)
        self.do(DropRecord(attempt_id=attempt_id))

    # ── what is over ──────────────────────────────────────────────────────────────────────────────────────────

    def note_over(self, attempt_id: AttemptId, join: int = 0) -> None:
        highest = max(self._over.pop(attempt_id.job_id, (0, 0)), (attempt_id.attempt, join))
        self._over[attempt_id.job_id] = highest
        while len(self._over) > self.settings.remembered:
            del self._over[next(iter(self._over))]

    def is_over(self, attempt_id: AttemptId, join: int = 0) -> bool:
        """Whether this attempt, or a later attempt of the same job, has ended or runs here."""
        if (attempt_id.attempt, join) <= self._over.get(attempt_id.job_id, (0, 0)):
            return True
        return any(
            record.job_id == attempt_id.job_id and record.attempt > attempt_id.attempt for record in self.records
        )

    def note_step_over(self, step_id: StepId) -> None:
        self._steps_over.setdefault(step_id.attempt_id, set()).add(step_id.step)

    def is_step_over(self, step_id: StepId) -> bool:
        return step_id.step in self._steps_over.get(step_id.attempt_id, ())

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, body: ReportBody) -> None:
        self.do(self.outbox.put(body, self.now))

    def repeat_report(self, record: AttemptRecord) -> None:
        """Answer an order that was seen before by reporting the attempt's state."""
        if (body := reports.standing(record)) is not None:
            self.report(body)

    def not_here(self, attempt_id: AttemptId, join: int = 0) -> None:
        """Report that no process of the attempt is or will be here, also if a delayed `Prepare` arrives."""
        self.note_over(attempt_id, join)
        self.report(CellEmptied(attempt_id=attempt_id, join=join))

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────

    def signal(self, attempt_id: AttemptId, signum: int, scope: str) -> None:
        self.do(SignalProcess(attempt_id=attempt_id, signum=int(signum), scope=scope))

    def terminate(self, attempt_id: AttemptId) -> None:
        """Send TERM to all processes of the attempt, and CONT, since a stopped process would not handle TERM."""
        self.signal(attempt_id, signal.SIGTERM, "all")
        self.signal(attempt_id, signal.SIGCONT, "all")
        self.thaw(attempt_id)

    def thaw(self, attempt_id: AttemptId) -> None:
        """Let a suspended attempt run again, since suspended processes cannot end.

        The cell is thawed before the record is saved: in the other order a crash could leave it suspended for ever.
        """
        record = self.records.get(attempt_id)
        if record is not None and record.suspended_at is not None:
            self.do(FreezeCell(attempt_id=attempt_id, is_frozen=False))
            self.save(deadline.resumed(record, self.now))

    def signal_step(self, step_id: StepId, signum: int) -> None:
        self.do(SignalStepTasks(step_id=step_id, signum=int(signum)))

    def empty(self, attempt_id: AttemptId) -> None:
        self.check_at.pop(attempt_id, None)
        self.take_at.pop(attempt_id, None)
        if attempt_id not in self.emptying:
            self.thaw(attempt_id)
            self.emptying.add(attempt_id)
            self.deadlines.pop(attempt_id, None)
            self.do(EmptyCell(attempt_id=attempt_id))
