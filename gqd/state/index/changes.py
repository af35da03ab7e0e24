"""The rows of the cluster that were changed since the last batch, so that the shell writes exactly those.  Pure."""

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
    """Keys of changed rows, in the order of the changes; a dict with None values is an ordered set."""

    jobs: dict[JobId, None] = field(default_factory=dict)
    forgotten_jobs: dict[JobId, None] = field(default_factory=dict)
    departed_jobs: dict[JobId, Job] = field(default_factory=dict)
    """Jobs that have left memory and whose last rows may still have to be written."""
    departed_attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    """Attempts that have left memory and whose last rows may still have to be written."""
    attempts: dict[AttemptId, None] = field(default_factory=dict)
    parts: dict[tuple[AttemptId, str], None] = field(default_factory=dict)
    freed_parts: dict[tuple[AttemptId, str], tuple[float, Usage, Grant]] = field(default_factory=dict)
    """Removed part → (instant, usage, grant)."""
    steps: dict[StepId, Step] = field(default_factory=dict)
    """The steps themselves, since an ended step has left the cluster."""
    nodes: dict[str, None] = field(default_factory=dict)
    """Nodes, including removed ones."""
    keys: dict[str, None] = field(default_factory=dict)
    """Keys, including removed ones."""
    accounts: dict[str, None] = field(default_factory=dict)
    """Accounts, including removed ones; `members`, `qos`, `limits` and `budgets` also include removed ones."""
    members: dict[tuple[str, str], None] = field(default_factory=dict)
    qos: dict[str, None] = field(default_factory=dict)
    limits: dict[LimitKey, None] = field(default_factory=dict)
    budgets: dict[BudgetKey, None] = field(default_factory=dict)
    reservations: dict[int, Reservation] = field(default_factory=dict)
    """The reservations themselves by number, since a deleted reservation has left the cluster."""
    occurrences: dict[tuple[int, int], tuple[Reservation, Occurrence]] = field(default_factory=dict)
    """The occurrences themselves, by the numbers of the reservation and the occurrence."""
    next_reservation_id: bool = False
    crontabs: dict[str, None] = field(default_factory=dict)
    """Crontabs, including removed ones."""
    cron_entries: dict[EntryKey, None] = field(default_factory=dict)
    """Crontab entries, including removed ones."""
    lengths: dict[Signature, None] = field(default_factory=dict)
    """Signatures, including forgotten ones."""
    claims: dict[JobId, None] = field(default_factory=dict)
    """Claims, including those that have ended."""
    parked: dict[AttemptId, None] = field(default_factory=dict)
    """Parked attempts, including those that are no longer parked."""
    owed_orders: dict[OwedKey, None] = field(default_factory=dict)
    notices: dict[int, Notice] = field(default_factory=dict)
    """The notices themselves, since a delivered or dropped notice has left the outbox."""
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
