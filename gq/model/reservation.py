"""Reservations: GPUs or nodes that are kept for some people for a while, once or again and again.  Pure.

A *reservation* has a name and says what is kept, for whom, and when.  Each time that it is kept is an *occurrence* of
it, with exact nodes, CPUs and GPUs; a single one has one, one with a cron line has one for each time that the line
names, planned ahead as far as the site's horizon.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gq.model.notice import Target
from gq.model.resource import Count, Grant, ResourceRequest, gpus_in


class Flag(StrEnum):
    """As Slurm's."""

    MAINT = "MAINT"
    """For maintenance: only administrators; what runs in it is not billed, and nobody has to come."""
    FLEX = "FLEX"
    """Jobs that name it may begin before it, end after it and run outside it."""
    MAGNETIC = "MAGNETIC"
    """Jobs of its users run in it also where they do not name it."""
    IGNORE_JOBS = "IGNORE_JOBS"
    """Made whatever runs there: what still does when it begins goes on."""
    NO_LEND = "NO_LEND"
    """Nobody borrows what it keeps while it is not used (not Slurm's)."""


NEVER_LENT = frozenset({Flag.MAINT, Flag.NO_LEND})


class OccurrenceState(StrEnum):
    PLANNED = "PLANNED"
    ACTIVE = "ACTIVE"
    OVER = "OVER"
    """Its time was up."""
    RELEASED = "RELEASED"
    """Nobody came, and others have what it kept."""
    SKIPPED = "SKIPPED"
    ENDED = "ENDED"
    """By hand, or because its jobs had ended (PURGE_COMP), before its time."""
    FAILED = "FAILED"
    """There was nothing that could be kept."""

    @property
    def is_past(self) -> bool:
        return self not in (OccurrenceState.PLANNED, OccurrenceState.ACTIVE)


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is asked for.  Instants are seconds since the epoch."""

    name: str
    resources: ResourceRequest = ResourceRequest()
    """CPUs and memory that are not said: each GPU's share of its node."""
    partition: str = ""
    """Empty: the default one."""
    begin_at: float | None = None
    """None: by the cron line."""
    cron: str = ""
    """crontab(5)'s five fields, in the zone; empty: once."""
    zone: str = "UTC"
    """Name of a time zone (``Europe/Berlin``)."""
    until_at: float | None = None
    """No occurrence begins from then on; None: for ever."""
    duration_s: Count
    """Time that passes, also over a change to daylight saving."""
    users: tuple[str, ...] = ()
    """Who may use it besides its owner; likewise the next."""
    accounts: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    no_show_s: Count | None = None
    """So long after its begin an occurrence that no job has used is released; None: never."""
    purge_s: Count | None = None
    """PURGE_COMP: an occurrence that was used ends when nothing has run in it for so long; None: never."""
    comment: str = ""
    notify: tuple[Target, ...] = ()
    """Who is told of what was not meant: a no-show, nodes that fail; empty: as ``[notify] default`` says.  Shown is of
    a URL only the host, which stands for the whole where it is sent back."""


class OccurrenceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An occurrence as it is shown."""

    number: int
    """From 1, in the order in which they were planned."""
    begin_at: float
    end_at: float
    """As planned; one that ended before has `ended_at`."""
    state: OccurrenceState = OccurrenceState.PLANNED
    grants: tuple[Grant, ...] = ()
    missing_gpus: int = 0
    """Of those that it should have: nodes have failed, and there are no others for them."""
    ended_at: float | None = None
    why: str = ""
    """Of its state, or of what is missing: one plain sentence."""
    used_at: float | None = None
    """When the first job began in it."""
    used_gpu_s: float = 0.0
    """GPU-seconds of jobs that ran in it, until now."""
    job_ids: tuple[int, ...] = ()
    """Jobs that run in it."""
    lent_to: tuple[int, ...] = ()
    """Jobs that have borrowed of it, while it is under way; only in the list of reservations."""

    @property
    def gpus(self) -> int:
        return gpus_in(self.grants)

    @property
    def booked_gpu_s(self) -> float:
        end_at = self.end_at if self.ended_at is None else self.ended_at
        return max(0.0, end_at - self.begin_at) * self.gpus


class ReservationInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reservation as it is shown."""

    booking: Booking
    owner: str
    uid: int
    created_at: float
    occurrences: tuple[OccurrenceInfo, ...] = ()
    """By their begin; past ones only where they were asked for."""
    gone_at: float | None = None
    """Since when it is deleted, or nothing of it is left; None: it is there."""


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What could be had instead of what was refused; taken if it is asked for at once."""

    begin_at: float
    duration_s: int
    resources: ResourceRequest
    gpus: int = 0
    nodes: tuple[str, ...] = ()


class BookingUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one user, over a span of time."""

    user: str
    occurrences: int = 0
    """That began in it."""
    no_shows: int = 0
    booked_gpu_s: float = 0.0
    """What was kept, until it ended or was released."""
    used_gpu_s: float = 0.0
