"""Going through the queue without touching every job: those of a shape that does not fit are left out at once.  Pure.

Within a pass what is free only shrinks.  So where a job does not fit, no job of its shape does; and where it would only
be in the way of a protected start, neither may those of its shape that take as long or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gq.model.scheduling import Scheduling
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import PendingColumns, PendingJobs
from gqd.state.index.queue import Member

Places: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


def columns_of(pending: PendingJobs) -> PendingColumns:
    """For who has no queue with columns: built job by job."""
    codes: dict[Shape, int] = {}
    reservations, members, names = {"": 0}, dict[Member, int](), dict[str, int]()
    return PendingColumns(
        job_id=np.array([job.job_id for job in pending], np.int64),
        shape=np.array([codes.setdefault(job.shape, len(codes)) for job in pending], np.int64),
        expected_s=np.array([np.inf if job.expected_s is None else job.expected_s for job in pending], np.float64),
        time_limit_s=np.array([np.inf if job.time_limit_s is None else job.time_limit_s for job in pending]),
        since=np.array([job.since for job in pending], np.float64),
        band=np.zeros(len(pending), np.int64),
        priority=np.zeros(len(pending), np.int64),
        reservation=np.array(
            [reservations.setdefault(job.reservation, len(reservations)) for job in pending], np.int64
        ),
        member=np.array([members.setdefault((job.user, job.account), len(members)) for job in pending], np.int64),
        qos=np.array([names.setdefault(job.qos, len(names)) for job in pending], np.int64),
        reservations=tuple(reservations),
        members=tuple(members),
        names_of_qos=tuple(names),
    )


def expected_lengths(columns: PendingColumns, scheduling: Scheduling) -> Floats:
    """As `gqd.sched.timeline.timeline.expected_length` says of each."""
    if scheduling.expect == "limit":
        return columns.time_limit_s
    known = np.minimum(columns.expected_s, columns.time_limit_s)
    return np.where(np.isinf(known), scheduling.expected_without_history_s, known)


def _in_order(codes: Places) -> Places:
    """The places by their codes, of equal ones the first first; short numbers are sorted many times as fast."""
    is_short = not len(codes) or int(codes.max()) <= np.iinfo(np.uint16).max
    return np.argsort(codes.astype(np.uint16) if is_short else codes, kind="stable")


class QueueScan:
    """Who is still to be looked at, by place in the queue."""

    def __init__(self, columns: PendingColumns, scheduling: Scheduling) -> None:
        self.columns = columns
        self._scheduling = scheduling
        self.is_left = np.ones(len(columns.shape), np.bool_)
        self.is_unvisited = np.ones(len(columns.shape), np.bool_)
        """Not looked at itself, though it may be left out for its shape."""
        self._is_exempt: Booleans | None = None
        self._by_shape: Places = _in_order(columns.shape)
        in_order = columns.shape[self._by_shape]
        is_first = np.ones(len(in_order), np.bool_)
        np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
        self._bounds: Places = np.append(np.flatnonzero(is_first), len(in_order))
        self._sizes: Places = self._bounds[1:] - self._bounds[:-1]
        self.codes: list[int] = in_order[self._bounds[:-1]].tolist()
        """Of the shapes that there are."""
        self._number_of = {code: number for number, code in enumerate(self.codes)}

    @cached_property
    def _lengths(self) -> Floats:
        """Asked for only where a protected start is in somebody's way."""
        return expected_lengths(self.columns, self._scheduling)

    def next(self, place: int) -> int | None:
        """The first at this place or behind it."""
        rest = self.is_left[place:]
        if not len(rest):
            return None
        step = int(rest.argmax())
        return place + step if rest[step] else None

    def skip(self, place: int) -> None:
        self.is_left[place] = self.is_unvisited[place] = False

    def exclude(self, which: Booleans) -> None:
        """These are not to be looked at at all."""
        self.is_left[which] = self.is_unvisited[which] = False

    def exempt(self, which: Booleans | None) -> None:
        """These alone are looked at even if others of their shape were not worth it."""
        self._is_exempt = which

    def end_exemption(self, place: int, of_member: bool) -> None:
        """Those of this one's shape and QOS, and of the same user and account if that counts."""
        if self._is_exempt is None:
            return
        columns = self.columns
        places = self.indices_of_shape(int(columns.shape[place]))
        places = places[columns.qos[places] == columns.qos[place]]
        if of_member:
            places = places[columns.member[places] == columns.member[place]]
        self._is_exempt[places] = False

    def skip_all(self, places: Places | Booleans) -> None:
        self.is_left[places] = False

    def skip_shape(self, code: int, limit_over_s: float = -np.inf, expected_over_s: float = -np.inf) -> None:
        """All of this shape whose limit and whose expected length are over these."""
        places = self.indices_of_shape(code)
        if limit_over_s > -np.inf:
            places = places[self.columns.time_limit_s[places] > limit_over_s]
        if expected_over_s > -np.inf:
            places = places[self._lengths[places] > expected_over_s]
        if self._is_exempt is not None:
            places = places[~self._is_exempt[places]]
        self.is_left[places] = False

    def indices_of_shape(self, code: int) -> Places:
        """Their places in the queue, in order."""
        number = self._number_of[code]
        return self._by_shape[self._bounds[number] : self._bounds[number + 1]]

    def first_of_each_shape(self) -> list[int]:
        """The place of the first of each shape, as `codes`."""
        places: list[int] = self._by_shape[self._bounds[:-1]].tolist()
        return places

    def expand_by_shape(self, values: Sequence[bool]) -> Booleans:
        """By place in the queue, what is said of each of `codes`."""
        spread = np.empty(len(self.is_left), np.bool_)
        spread[self._by_shape] = np.repeat(np.array(values, np.bool_), self._sizes)
        return spread

    def index_of(self, job_id: int) -> int | None:
        places = np.flatnonzero(self.columns.job_id == job_id)
        return int(places[0]) if len(places) else None
