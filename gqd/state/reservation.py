"""What is kept for whom and when, as the controller has it.  Mutable facts; only apply functions change them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gq.model.ids import AttemptId
from gq.model.reservation import NEVER_LENT, Booking, OccurrenceInfo, OccurrenceState
from gq.model.resource import Grant


class OccurrenceKey(NamedTuple):
    """Which occurrence of which reservation."""

    name: str
    number: int


@dataclass(slots=True)
class Occurrence:
    number: int
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    """Exact; no two occurrences that are not past have the same GPU or CPU at the same time."""
    state: OccurrenceState = OccurrenceState.PLANNED
    missing_gpus: int = 0
    ended_at: float | None = None
    why: str = ""
    used_at: float | None = None
    """When the first job started in it: one whose launch failed has not used it."""
    empty_since: float | None = None
    """When the last job in it was over; None: one runs, or none ever did."""
    used_gpu_s: float = 0.0
    """Of parts of attempts in it that are gone."""
    inside: dict[AttemptId, None] = field(default_factory=dict, compare=False)
    """Index: attempts in it that still have parts."""


@dataclass(slots=True)
class Reservation:
    reservation_id: int
    """Of those that had this name, this one."""
    booking: Booking
    owner: str
    uid: int
    created_at: float
    occurrences: dict[int, Occurrence] = field(default_factory=dict)
    """By number: those that are not past."""
    next_number: int = 1
    planned_until: float | None = None
    """With a cron line: the begin of the last occurrence that was planned, skipped or found impossible."""
    over_at: float | None = None
    """Since when there has been no occurrence that is not past; None: there is one."""

    @property
    def name(self) -> str:
        return self.booking.name

    @property
    def is_lent(self) -> bool:
        """Who may borrow has what nobody uses of it."""
        return NEVER_LENT.isdisjoint(self.booking.flags)

    def active(self) -> Occurrence | None:
        """The one under way."""
        return next((one for one in self.occurrences.values() if one.state is OccurrenceState.ACTIVE), None)

    def may_be_used_by(self, user: str, accounts: Iterable[str]) -> bool:
        """`accounts`: the job's, and those above it."""
        booking = self.booking
        return user == self.owner or user in booking.users or not set(booking.accounts).isdisjoint(accounts)


def occurrence_info(one: Occurrence) -> OccurrenceInfo:
    """As it is shown."""
    return OccurrenceInfo(
        number=one.number,
        begin_at=one.begin_at,
        end_at=one.end_at,
        state=one.state,
        grants=one.grants,
        missing_gpus=one.missing_gpus,
        ended_at=one.ended_at,
        why=one.why,
        used_at=one.used_at,
        used_gpu_s=one.used_gpu_s,
        job_ids=tuple(sorted({attempt_id.job_id for attempt_id in one.inside})),
    )
