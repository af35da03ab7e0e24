"""Reservations and their occurrences, with the resources that they reserve.  Only apply functions change them.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gq.model.ids import AttemptId
from gq.model.reservation import NEVER_LENT, Booking, OccurrenceInfo, OccurrenceState
from gq.model.resource import Grant


class OccurrenceKey(NamedTuple):
    """Identifies an occurrence: the reservation's name and the occurrence's number."""

    name: str
    number: int


@dataclass(slots=True)
class Occurrence:
    """A period of a reservation, with the resources reserved for it."""

    number: int
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    """Reserved resources; no two overlapping occurrences reserve the same GPU or CPU."""
    state: OccurrenceState = OccurrenceState.PLANNED
    missing_gpus: int = 0
    ended_at: float | None = None
    why: str = ""
    used_at: float | None = None
    """Instant at which the first job started in the occurrence; failed launches do not count."""
    empty_since: float | None = None
    """Instant at which the last job in the occurrence ended; None: a job runs, or none has run yet."""
    used_gpu_s: float = 0.0
    """GPU-seconds of parts that have ended in the occurrence."""
    inside: dict[AttemptId, None] = field(default_factory=dict, compare=False)
    """Index: attempts in the occurrence that still have parts."""


@dataclass(slots=True)
class Reservation:
    """A reservation, and its occurrences that are not past."""

    reservation_id: int
    """Distinguishes this reservation from earlier ones of the same name."""
    booking: Booking
    owner: str
    uid: int
    created_at: float
    occurrences: dict[int, Occurrence] = field(default_factory=dict)
    """Occurrences that are not past, by number."""
    next_number: int = 1
    planned_until: float | None = None
    """Begin of the last occurrence of the cron line that was planned, skipped or found impossible."""
    over_at: float | None = None
    """Instant since which no occurrence is left; None: there is one."""

    @property
    def name(self) -> str:
        return self.booking.name

    @property
    def is_lent(self) -> bool:
        """Preemptible jobs may borrow resources that the reservation does not use."""
        return NEVER_LENT.isdisjoint(self.booking.flags)

    def active(self) -> Occurrence | None:
        """Return the active occurrence; None: none is active."""
        return next(
            (occurrence for occurrence in self.occurrences.values() if occurrence.state is OccurrenceState.ACTIVE), None
        )

    def may_be_used_by(self, user: str, accounts: Iterable[str]) -> bool:
        """Whether the user may submit jobs to the reservation; `accounts`: the job's account and its ancestors."""
        booking = self.booking
        return user == self.owner or user in booking.users or not set(booking.accounts).isdisjoint(accounts)


def occurrence_info(occurrence: Occurrence) -> OccurrenceInfo:
    """The occurrence as replies show it."""
    return OccurrenceInfo(
        number=occurrence.number,
        begin_at=occurrence.begin_at,
        end_at=occurrence.end_at,
        state=occurrence.state,
        grants=occurrence.grants,
        missing_gpus=occurrence.missing_gpus,
        ended_at=occurrence.ended_at,
        why=occurrence.why,
        used_at=occurrence.used_at,
        used_gpu_s=occurrence.used_gpu_s,
        job_ids=tuple(sorted({attempt_id.job_id for attempt_id in occurrence.inside})),
    )
