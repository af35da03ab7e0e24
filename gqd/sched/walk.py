"""Going through the queue without touching every job: those of a shape that does not fit are left out at once.  Pure.

Within a pass what is free only shrinks.  So where a job does not fit, no job of its shape does; and where it would only
be in the way of a protected start, neither may those of its shape that take as long or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gq.model.scheduling import Scheduling
from gqd.sched.shape import Shape
from gqd.sched.view import PendingColumns, PendingJobs

Places: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


def columns_of(pending: PendingJobs) -> PendingColumns:
    """For who has no queue with columns: built job by job."""
    codes: dict[Shape, int] = {}
    return PendingColumns(
        job_id=np.array([job.job_id for job in pending], np.int64),
        shape=np.array([codes.setdefault(job.shape, len(codes)) for job in pending], np.int64),
        expected_s=np.array([np.inf if job.expected_s is None else job.expected_s for job in pending], np.float64),
        time_limit_s=np.array([np.inf if job.time_limit_s is None else job.time_limit_s for job in pending]),
        since=np.array([job.since for job in pending], np.float64),
        band=np.zeros(len(pending), np.int64),
    )


def expected_lengths(columns: PendingColumns, scheduling: Scheduling) -> Floats:
    """As `gqd.sched.timeline.expected_length` says of each."""
    if scheduling.expect == "limit":
        return columns.time_limit_s
    known = np.minimum(columns.expected_s, columns.time_limit_s)
    return np.where(np.isinf(known), scheduling.expected_without_history_s, known)


class Walk:
    """Who is still to be looked at, by place in the queue."""

    def __init__(self, columns: PendingColumns, scheduling: Scheduling) -> None:
        self.columns = columns
        self._lengths = expected_lengths(columns, scheduling)
        self.is_left = np.ones(len(columns.shape), np.bool_)
        self._by_shape: Places = np.argsort(columns.shape, kind="stable")
        in_order = columns.shape[self._by_shape]
        is_first = np.ones(len(in_order), np.bool_)
        np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
        self._bounds: Places = np.append(np.flatnonzero(is_first), len(in_order))
        self.codes: list[int] = in_order[self._bounds[:-1]].tolist()
        """Of the shapes that there are."""
        self._number_of = {code: number for number, code in enumerate(self.codes)}

    def next(self, place: int) -> int | None:
        """The first at this place or behind it."""
        rest = self.is_left[place:]
        if not len(rest):
            return None
        step = int(rest.argmax())
        return place + step if rest[step] else None

    def leave_out(self, place: int) -> None:
        self.is_left[place] = False

    def leave_out_all(self, places: Places | Booleans) -> None:
        self.is_left[places] = False

    def leave_out_shape(self, code: int, limit_over_s: float = -np.inf, expected_over_s: float = -np.inf) -> None:
        """All of this shape whose limit and whose expected length are over these."""
        places = self.of_shape(code)
        if limit_over_s > -np.inf:
            places = places[self.columns.time_limit_s[places] > limit_over_s]
        if expected_over_s > -np.inf:
            places = places[self._lengths[places] > expected_over_s]
        self.is_left[places] = False

    def of_shape(self, code: int) -> Places:
        """Their places in the queue, in order."""
        number = self._number_of[code]
        return self._by_shape[self._bounds[number] : self._bounds[number + 1]]

    def one_of_each(self) -> list[int]:
        """The place of the first of each shape, as `codes`."""
        places: list[int] = self._by_shape[self._bounds[:-1]].tolist()
        return places

    def by_shape(self, values: Sequence[bool]) -> Booleans:
        """By place in the queue, what is said of each of `codes`."""
        spread = np.empty(len(self.is_left), np.bool_)
        spread[self._by_shape] = np.repeat(np.array(values, np.bool_), np.diff(self._bounds))
        return spread

    def place_of(self, job_id: int) -> int | None:
        places = np.flatnonzero(self.columns.job_id == job_id)
        return int(places[0]) if len(places) else None
