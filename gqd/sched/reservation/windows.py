"""What reservations keep, as the planner meets it: windows that never move, and what is told of who names one.  Pure.

An occurrence that is to come is a *window*: whoever would still run when it is to be clear keeps off what it keeps.
How long that is counts by limits, whatever the site expects of its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from gq.model.resource import Grant, gpus_in
from gqd.sched.reasons.infeasible import counted
from gqd.sched.snapshot.model import Booked
from gqd.sched.snapshot.scalar import Item, Items, scalar_items
from gqd.sched.timeline.timeline import Timeline
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
"""Place of a node → masks of (CPUs, GPUs)."""


@dataclass(slots=True, eq=False)
class BookedWindow:
    booked: Booked
    grants: tuple[Grant, ...]
    """On nodes that there are."""
    masks: Masks
    takes: Items
    """Of what is only counted."""
    free: dict[Item, int]
    """Of these, when it begins, beside what else is booked; jobs that start are taken off."""

    @property
    def at(self) -> float:
        return self.booked.clear_at

    @property
    def until(self) -> float:
        return self.booked.end_at

    def shares(self, masks: Masks) -> bool:
        """Both have the same CPUs or GPUs."""
        own = self.masks
        return any(one in own and bool(cpus & own[one][0] or gpus & own[one][1]) for one, (cpus, gpus) in masks.items())


def masks_of(places: Mapping[str, int], grants: Iterable[Grant]) -> dict[int, tuple[int, int]]:
    return {places[one.node]: (mask_of(one.cpus), mask_of(one.gpus)) for one in grants if one.node in places}


def windows_of(
    booked: Iterable[Booked], places: Mapping[str, int], now: float, timeline: Timeline
) -> tuple[BookedWindow, ...]:
    """Of those that are to come, by their begin; `timeline`: of the ends by limit of all that holds anything."""
    windows = []
    for one in sorted(booked, key=lambda one: (one.clear_at, one.name, one.number)):
        if one.clear_at > now and (grants := tuple(grant for grant in one.grants if grant.node in places)):
            windows.append(BookedWindow(one, grants, masks_of(places, grants), scalar_items(places, grants), {}))
    _count_free(windows, timeline)
    return tuple(windows)


def _count_free(windows: Sequence[BookedWindow], timeline: Timeline) -> None:
    there: list[BookedWindow] = []
    for one, free in zip(windows, timeline.levels([(one.at, one.takes) for one in windows]), strict=True):
        there = [other for other in there if other.until > one.at]
        for other in there:
            for item in other.takes.keys() & free.keys():
                free[item] -= other.takes[item]
        one.free = free
        there.append(one)


@dataclass(slots=True, frozen=True)
class Forward:
    """A window that is met by who is expected to be over before it, and may run into it by their limit."""

    at: float
    until: float
    grants: tuple[Grant, ...]


def brought_forward(windows: Iterable[BookedWindow], limit_s: float, expected_s: float) -> list[Forward]:
    """As a job of this limit meets them that is placed by how long it is expected to run."""
    by_s = 0.0 if limit_s == expected_s else limit_s - expected_s
    return [Forward(one.at - by_s, one.until, one.grants) for one in windows]


# ── who names a reservation ───────────────────────────────────────────────────────────────────────────────────


class Span(Protocol):
    """An occurrence."""

    @property
    def begin_at(self) -> float: ...
    @property
    def end_at(self) -> float: ...
    @property
    def closes_at(self) -> float: ...
    @property
    def next_name(self) -> str: ...


class Naming(Protocol):
    """A job."""

    @property
    def reservation(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def time_limit_s(self) -> int | None: ...


class Named(NamedTuple):
    """What a job has of the reservation that it names."""

    name: str
    spans: Sequence[Span]
    """By their begin; those that are over may be left out."""
    is_for_it: bool
    is_flex: bool


def named_by(job: Naming, booked: Iterable[Booked], path: Sequence[str]) -> Named:
    """`path`: the job's account and those above it."""
    own = [one for one in booked if one.name == job.reservation]
    is_for_it = all(one.is_for(job.user, path) for one in own)
    return Named(job.reservation, own, is_for_it, any(one.is_flex for one in own))


def named_wait(named: Named, user: str, time_limit_s: int | None, now: float) -> Wait | None:
    """Why the job may not start now; None: it may, as far as its reservation goes."""
    own = [one for one in named.spans if one.end_at > now]
    if not own:
        return NotInReservation(name=named.name, why="that is over, or was deleted", is_gone=True)
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
    """Why a job waits that could not start before the reservation was over; `wait`: what was said of it earlier."""
    match wait:
        case NotInReservation() | ReservationTooShort(next_at=None):
            return wait
        case _:
            return NotInReservation(name=name, why="that is over before it could start there", is_late=True)


def _room_s(one: Span, now: float) -> float:
    return one.closes_at - max(now, one.begin_at)


def is_too_long(job: Naming, inside: Booked, now: float) -> bool:
    """It would not be over when the occurrence is, or what comes then; who names one that is flexible may be so."""
    if inside.is_flex and job.reservation == inside.name:
        return False
    return job.time_limit_s is None or now + job.time_limit_s > inside.closes_at


def as_told_inside(job: Naming, wait: Wait, inside: Booked) -> Wait:
    """Why a job waits that names the occurrence, as of a pass in which there is nothing else."""
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


def _kept(one: Booked) -> str:
    gpus = gpus_in(one.grants)
    return f"what that keeps ({counted(gpus, 'GPUs') if gpus else counted(len(one.grants), 'nodes')})"
