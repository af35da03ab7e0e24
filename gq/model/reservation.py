"""Reservations: GPUs or nodes that are reserved for some users for a period, once or repeatedly.  Pure.

A *reservation* has a name and defines what is reserved, for whom, and when.  Each period of it is an *occurrence* with
exact nodes, CPUs and GPUs.  A reservation without a cron line has one occurrence; with a cron line it has one for each
time that the line names, planned ahead as far as the site's horizon.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gq.model.notice import Target
from gq.model.resource import Count, Grant, ResourceRequest, gpus_in


class Flag(StrEnum):
    """Reservation flags with Slurm's names, and `NO_LEND`."""

    MAINT = "MAINT"
    """For maintenance: only administrators use the reservation, its jobs are not billed, and it has no no-shows."""
    FLEX = "FLEX"
    """Jobs that name the reservation may begin before it, end after it and run outside of it."""
    MAGNETIC = "MAGNETIC"
    """Jobs of the reservation's users run in it even if they do not name it."""
    IGNORE_JOBS = "IGNORE_JOBS"
    """The reservation is made even if jobs use its resources; jobs that still run when it begins continue."""
    NO_LEND = "NO_LEND"
    """Idle resources of the reservation are never lent (not a flag of Slurm)."""


NEVER_LENT = frozenset({Flag.MAINT, Flag.NO_LEND})


class OccurrenceState(StrEnum):
    PLANNED = "PLANNED"
    ACTIVE = "ACTIVE"
    OVER = "OVER"
    """The occurrence reached its end."""
    RELEASED = "RELEASED"
    """No job used the occurrence, and its resources were released."""
    SKIPPED = "SKIPPED"
    ENDED = "ENDED"
    """The occurrence was ended before its time, by a user or because its jobs had ended (PURGE_COMP)."""
    FAILED = "FAILED"
    """No resources were available for the occurrence."""

    @property
    def is_past(self) -> bool:
        return self not in (OccurrenceState.PLANNED, OccurrenceState.ACTIVE)


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The request for a reservation.  Instants are seconds since the epoch."""

    name: str
    resources: ResourceRequest = ResourceRequest()
    """The resources of each occurrence; unspecified CPUs and memory are each GPU's share of its node."""
    partition: str = ""
    """Empty: the default partition."""
    begin_at: float | None = None
    """None: the cron line sets the begin."""
    cron: str = ""
    """The five fields of crontab(5), in `zone`; empty: a single occurrence."""
    zone: str = "UTC"
    """Name of a time zone (``Europe/Berlin``)."""
    until_at: float | None = None
    """No occurrence begins at or after this instant; None: the reservation repeats without end."""
    duration_s: Count
    """Elapsed time, whatever the clock shows at a change to daylight saving."""
    users: tuple[str, ...] = ()
    """Users besides the owner who may use the reservation."""
    accounts: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    no_show_s: Count | None = None
    """Seconds after its begin at which an unused occurrence is released; None: never."""
    purge_s: Count | None = None
    """PURGE_COMP: seconds without a running job after which a used occurrence ends; None: never."""
    comment: str = ""
    notify: tuple[Target, ...] = ()
    """Targets notified of no-shows and failed nodes; empty: the target that ``[notify] default`` sets.  Answers show of
    a URL only the host; a request that repeats the host stands for the whole URL."""


class OccurrenceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An occurrence as commands show it."""

    number: int
    """Number from 1, in the order of planning."""
    begin_at: float
    end_at: float
    """The planned end; `ended_at` is set if the occurrence ended earlier."""
    state: OccurrenceState = OccurrenceState.PLANNED
    grants: tuple[Grant, ...] = ()
    missing_gpus: int = 0
    """Number of GPUs that the occurrence lacks, since nodes failed without replacement."""
    ended_at: float | None = None
    why: str = ""
    """A sentence that explains the state, or what is missing."""
    used_at: float | None = None
    """When the first job began in the occurrence."""
    used_gpu_s: float = 0.0
    """GPU-seconds of jobs that ran in the occurrence, until now."""
    job_ids: tuple[int, ...] = ()
    """Jobs that run in the occurrence."""
    lent_to: tuple[int, ...] = ()
    """Jobs that borrow resources of the active occurrence; only in the list of reservations."""

    @property
    def gpus(self) -> int:
        return gpus_in(self.grants)

    @property
    def booked_gpu_s(self) -> float:
        end_at = self.end_at if self.ended_at is None else self.ended_at
        return max(0.0, end_at - self.begin_at) * self.gpus


class ReservationInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reservation as commands show it."""

    booking: Booking
    owner: str
    uid: int
    created_at: float
    occurrences: tuple[OccurrenceInfo, ...] = ()
    """Occurrences by begin; past occurrences only if requested."""
    gone_at: float | None = None
    """When the reservation was deleted or its last occurrence ended; None: the reservation exists."""


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reservation that is possible instead of a refused request, at the time of the answer."""

    begin_at: float
    duration_s: int
    resources: ResourceRequest
    gpus: int = 0
    nodes: tuple[str, ...] = ()


class BookingUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's reservations and their usage over a period."""

    user: str
    occurrences: int = 0
    """Number of occurrences that began in the period."""
    no_shows: int = 0
    booked_gpu_s: float = 0.0
    """GPU-seconds reserved, until each occurrence ended or was released."""
    used_gpu_s: float = 0.0
