"""Reservations as windows that never move, and the wait reasons of jobs that name a reservation.  Pure.

A coming occurrence is a *window*: a job that would still run when the window opens must not use its resources. The
job's time limit decides, whatever run time the site expects of its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from gq.model.resource import Grant, gpus_in
from gq.units import counted
from gqd.sched.snapshot.model import PendingJob, ReservedOccurrence, Snapshot
from gqd.sched.snapshot.scalar import Item, Items, scalar_items
from gqd.sched.timeline.timeline import Timeline
from gqd.state.index.tally import account_path
from gqd.state.plan import (
    Infeasible,
    Insufficient,
    NoNodes,
    NotInReservation,
    ReservationBegins,
    ReservationTooShort,
    Wait,
)
from gqd.state.records import mask_of

Masks = Mapping[int, tuple[int, int]]
"""(CPU mask, GPU mask) by node index."""


@dataclass(slots=True, eq=False)
class ReservationWindow:
    booked: ReservedOccurrence
    grants: tuple[Grant, ...]
    """The reserved grants on nodes that exist."""
    masks: Masks
    takes: Items
    """The scalar amounts that the window takes."""
    free: dict[Item, int]
    """The amounts of these that are free when the window opens, without other reservations; starting jobs reduce
    them."""

    @property
    def at(self) -> float:
        return self.booked.clear_at

    @property
    def until(self) -> float:
        return self.booked.end_at

    def shares(self, masks: Masks) -> bool:
        """Whether the window and `masks` have a CPU or GPU in common."""
        own = self.masks
        return any(one in own and bool(cpus & own[one][0] or gpus & own[one][1]) for one, (cpus, gpus) in masks.items())


def masks_of(places: Mapping[str, int], grants: Iterable[Grant]) -> dict[int, tuple[int, int]]:
    return {places[grant.node]: (mask_of(grant.cpus), mask_of(grant.gpus)) for grant in grants if grant.node in places}


def windows_of(
    booked: Iterable[ReservedOccurrence], places: Mapping[str, int], now: float, timeline: Timeline
) -> tuple[ReservationWindow, ...]:
    """Windows of the coming occurrences in order of time; `timeline` has the ends by limit of everything that holds
    resources."""
    windows = []
    for one in sorted(booked, key=lambda one: (one.clear_at, one.name, one.number)):
        if one.clear_at > now and (grants := tuple(grant for grant in one.grants if grant.node in places)):
            windows.append(ReservationWindow(one, grants, masks_of(places, grants), scalar_items(places, grants), {}))
    _count_free(windows, timeline)
    return tuple(windows)


def _count_free(windows: Sequence[ReservationWindow], timeline: Timeline) -> None:
    there: list[ReservationWindow] = []
    for one, free in zip(windows, timeline.levels([(one.at, one.takes) for one in windows]), strict=True):
        there = [other for other in there if other.until > one.at]
        for other in there:
            for item in other.takes.keys() & free.keys():
                free[item] -= other.takes[item]
        one.free = free
        there.append(one)


@dataclass(slots=True, frozen=True)
class AdvancedWindow:
    """A window moved forward by the difference between time limit and expected run time, for a search with expected
    run times."""

    at: float
    until: float
    grants: tuple[Grant, ...]


def advanced_windows(windows: Iterable[ReservationWindow], limit_s: float, expected_s: float) -> list[AdvancedWindow]:
    """The windows as a job with this limit meets them in a search by its expected run time."""
    by_s = 0.0 if limit_s == expected_s else limit_s - expected_s
    return [AdvancedWindow(window.at - by_s, window.until, window.grants) for window in windows]


# ── who names a reservation ───────────────────────────────────────────────────────────────────────────────────


class Span(Protocol):
    """The times of an occurrence."""

    @property
    def begin_at(self) -> float: ...
    @property
    def end_at(self) -> float: ...
    @property
    def closes_at(self) -> float: ...
    @property
    def next_name(self) -> str: ...


class NamingJob(Protocol):
    """A job that names a reservation."""

    @property
    def reservation(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def time_limit_s(self) -> int | None: ...


class NamedReservation(NamedTuple):
    """The reservation that a job names, as far as it concerns the job."""

    name: str
    spans: Sequence[Span]
    """The occurrences in order of time; past ones may be missing."""
    is_for_it: bool
    is_flex: bool


def named_by(job: NamingJob, booked: Iterable[ReservedOccurrence], path: Sequence[str]) -> NamedReservation:
    """The reservation that the job names; `path` is the job's account followed by its parents."""
    own = [one for one in booked if one.name == job.reservation]
    is_for_it = all(one.is_for(job.user, path) for one in own)
    return NamedReservation(job.reservation, own, is_for_it, any(one.is_flex for one in own))


def named_wait(named: NamedReservation, user: str, time_limit_s: int | None, now: float) -> Wait | None:
    """Why the job may not start now; None: it may, as far as its reservation goes."""
    own = [span for span in named.spans if span.end_at > now]
    if not own:
        return NotInReservation(name=named.name, why="that has ended or was deleted", is_gone=True)
    if not named.is_for_it:
        return NotInReservation(name=named.name, why=f"that is not for user {user} any more")
    if named.is_flex:
        return None
    active = own[0] if own[0].begin_at <= now else None  # the only one: none begins before the one before is over
    fitting = next((one for one in own if _room_s(one, now) >= (time_limit_s or inf)), None)
    if fitting is not None and fitting is active:
        return None
    if fitting is not None and active is None:
        return ReservationBegins(name=named.name, at=fitting.begin_at)
    return ReservationTooShort(
        name=named.name,
        begins_at=own[0].begin_at,
        ends_at=own[0].closes_at,
        for_next=own[0].next_name if own[0].closes_at < own[0].end_at else "",
        longest_s=int(max(_room_s(one, now) for one in (own if active is None else own[:1]))),
        next_at=None if fitting is None else fitting.begin_at,
    )


def as_told_before(name: str, wait: Wait | None) -> Wait:
    """The wait reason of a job that could not start before its reservation was over; `wait`: its reason until then."""
    match wait:
        case NotInReservation() | ReservationTooShort(next_at=None):
            return wait
        case _:
            return NotInReservation(name=name, why="that is over before it could start there", is_late=True)


def _room_s(span: Span, now: float) -> float:
    return span.closes_at - max(now, span.begin_at)


def is_too_long(job: NamingJob, inside: ReservedOccurrence, now: float) -> bool:
    """Whether the job would still run when the occurrence, or its part before the next one, ends; jobs that name a
    flexible reservation may."""
    if inside.is_flex and job.reservation == inside.name:
        return False
    return job.time_limit_s is None or now + job.time_limit_s > inside.closes_at


def as_told_inside(job: NamingJob, wait: Wait, inside: ReservedOccurrence) -> Wait:
    """The wait reason of a job that names the occurrence, given its reason in a pass restricted to the occurrence."""
    name = inside.name
    match wait:
        case Infeasible():
            return NotInReservation(name=name, why=f"does not fit in {_kept(inside)}: {wait.why}", hint=wait.hint)
        case NoNodes():
            return NotInReservation(name=name, why="may use none of the nodes that it keeps")
        case Insufficient() if wait.starts_at is not None and is_too_long(job, inside, wait.starts_at):
            return msgspec.structs.replace(wait, starts_at=None)
        case _:
            return wait


def _kept(occurrence: ReservedOccurrence) -> str:
    gpus = gpus_in(occurrence.grants)
    return f"what that keeps ({counted(gpus, 'GPUs') if gpus else counted(len(occurrence.grants), 'nodes')})"


def named_reservations(snapshot: Snapshot, job: PendingJob, booked: Iterable[ReservedOccurrence]) -> NamedReservation:
    """Return the reservation that the job names among the occurrences in `booked`, as far as its account may use it."""
    return named_by(job, booked, account_path(snapshot.limits.accounts, job.account))
