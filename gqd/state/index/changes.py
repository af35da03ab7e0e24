"""Which rows of the cluster were touched since the last batch, so that the shell can write exactly those.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import Usage
from gq.model.resource import Grant
from gqd.state.crontab import EntryKey
from gqd.state.notice import Notice
from gqd.state.owed_order import OwedKey
from gqd.state.records import Attempt, BudgetKey, Job, LimitKey, Step
from gqd.state.reservation import Occurrence, Reservation
from gqd.state.runtime_history import Signature


@dataclass(slots=True)
class Changes:
    """Rows touched since the last batch, in order; a dict is an ordered set."""

    jobs: dict[JobId, None] = field(default_factory=dict)
    forgotten_jobs: dict[JobId, None] = field(default_factory=dict)
    departed_jobs: dict[JobId, Job] = field(default_factory=dict)
    """Objects that have left the cluster since the last batch: their last rows may still be owed."""
    departed_attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    """Likewise."""
    attempts: dict[AttemptId, None] = field(default_factory=dict)
    parts: dict[tuple[AttemptId, str], None] = field(default_factory=dict)
    freed_parts: dict[tuple[AttemptId, str], tuple[float, Usage, Grant]] = field(default_factory=dict)
    """When, with what usage, and what it was."""
    steps: dict[StepId, Step] = field(default_factory=dict)
    """The object itself: an ended step has left the cluster."""
    nodes: dict[str, None] = field(default_factory=dict)
    """Also of nodes that are gone."""
    keys: dict[str, None] = field(default_factory=dict)
    """Likewise."""
    accounts: dict[str, None] = field(default_factory=dict)
    """Likewise; and the next four."""
    members: dict[tuple[str, str], None] = field(default_factory=dict)
    qos: dict[str, None] = field(default_factory=dict)
    limits: dict[LimitKey, None] = field(default_factory=dict)
    budgets: dict[BudgetKey, None] = field(default_factory=dict)
    reservations: dict[int, Reservation] = field(default_factory=dict)
    """By their numbers; the object itself: one that was deleted has left the cluster.  Likewise the next."""
    occurrences: dict[tuple[int, int], tuple[Reservation, Occurrence]] = field(default_factory=dict)
    next_reservation_id: bool = False
    crontabs: dict[str, None] = field(default_factory=dict)
    """Also of those that are gone; likewise the next."""
    cron_entries: dict[EntryKey, None] = field(default_factory=dict)
    lengths: dict[Signature, None] = field(default_factory=dict)
    """Also of those that were forgotten."""
    claims: dict[JobId, None] = field(default_factory=dict)
    """Also of those that are gone; likewise the next."""
    parked: dict[AttemptId, None] = field(default_factory=dict)
    owed_orders: dict[OwedKey, None] = field(default_factory=dict)
    notices: dict[int, Notice] = field(default_factory=dict)
    """The object itself: one that was delivered or given up has left the outbox."""
    told_jobs: dict[JobId, None] = field(default_factory=dict)
    dropped_notices: dict[str, None] = field(default_factory=dict)
    next_notice_id: bool = False
    half_life: bool = False
    void_key_files: bool = False
    answers: dict[bytes, None] = field(default_factory=dict)
    answers_forgotten_before: float | None = None
    next_job_id: bool = False

    def __bool__(self) -> bool:
        return any(getattr(self, name) not in (None, False, {}) for name in self.__slots__)
