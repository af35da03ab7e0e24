"""What is free when: running jobs end, protected jobs begin and end.  Pure.

Of a running job there are two ends: by its time limit, which is a promise; and the expected one.  A job that has run
longer than was expected is expected to run as long again as it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gq.model.resource import Grant
from gq.model.scheduling import Scheduling
from gqd.sched.placement import place
from gqd.sched.shape import Shape
from gqd.sched.view import Overlay, PendingJob, RunningJob

Candidates = list[int] | NDArray[np.int64]
LEAST_OVERRUN_S = 1.0


class Ends(NamedTuple):
    """When a job would be over; infinite: nobody knows."""

    by_limit: float
    expected: float


def expected_length(job: PendingJob, scheduling: Scheduling) -> float:
    """Never longer than its limit; what nobody knows anything of is expected to run for some time, not for ever."""
    limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
    if scheduling.expect == "limit":
        return limit_s
    if job.expected_s is not None:
        return min(job.expected_s, limit_s)
    return limit_s if limit_s < inf else scheduling.expected_without_history_s


def ends_if_started(job: PendingJob, now: float, scheduling: Scheduling) -> Ends:
    by_limit = inf if job.time_limit_s is None else now + job.time_limit_s
    return Ends(by_limit, now + expected_length(job, scheduling))


def ends_of(job: RunningJob, now: float, scheduling: Scheduling) -> Ends:
    """Of what runs; never in the past."""
    if job.is_stranded:
        return Ends(inf, inf)
    by_limit = inf if job.ends_at is None else max(now, job.ends_at)
    if scheduling.expect == "limit":
        return Ends(by_limit, by_limit)
    length = job.expected_s
    if length is None:
        length = inf if by_limit < inf else scheduling.expected_without_history_s
    expected = job.began_at + length
    if expected <= now:
        expected = now + max(now - job.began_at, LEAST_OVERRUN_S)
    return Ends(by_limit, min(expected, by_limit))


class Window(Protocol):
    """What a protected job will hold, from when, until when."""

    @property
    def at(self) -> float: ...
    @property
    def until(self) -> float: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...


class Fit(NamedTuple):
    at: float
    grants: tuple[Grant, ...]
    profile: Overlay
    """What is free then, but for protected jobs."""


class Timeline:
    """Ends in order, on top of what is free now (`overlay`, which may change: what starts is taken from it)."""

    def __init__(self, overlay: Overlay, places: dict[str, int], now: float) -> None:
        self._overlay = overlay
        self._places = places
        self._now = now
        self._ends: list[float] = []
        self._jobs: list[tuple[Grant, ...]] = []

    def fill(self, ends: Iterable[tuple[float, tuple[Grant, ...]]]) -> None:
        """All that runs; what has no end is left out."""
        known = sorted((one for one in ends if one[0] < inf), key=lambda one: one[0])
        self._ends = [one[0] for one in known]
        self._jobs = [one[1] for one in known]

    def add(self, end: float, grants: tuple[Grant, ...]) -> None:
        if end < inf:
            place = bisect_right(self._ends, end)
            self._ends.insert(place, end)
            self._jobs.insert(place, grants)

    def earliest(
        self, shape: Shape, candidates: Candidates, length_s: float, windows: Sequence[Window] = ()
    ) -> Fit | None:
        """The first time that it fits for so long beside what is protected; None: not as far as can be seen."""
        profile = self._overlay.copy()
        count = self._first_fit(profile, shape, candidates)
        if count is None:
            return None
        at = self._now if count == 0 else self._ends[count - 1]
        while True:
            trial = beside(profile, self._places, at, at + length_s, windows)
            grants = place(trial, shape, candidates)
            if grants is not None:
                return Fit(at, grants, profile)
            coming = [one.until for one in windows if one.until > at]
            if count < len(self._ends):
                coming.append(self._ends[count])
            later = min((one for one in coming if one < inf), default=None)
            if later is None:
                return None
            at = max(at, later)
            count = self._give_back(profile, count, at)

    def _first_fit(self, profile: Overlay, shape: Shape, candidates: Candidates) -> int | None:
        """After how many ends it fits if nobody was protected; the profile is then as it is at that time.

        What fits once fits also when more is free, so it is found by halving.
        """
        if place(profile, shape, candidates) is not None:
            return 0
        low, high, has_fit = 0, len(self._jobs), False
        middle = high
        while low < high:
            checkpoint = profile.checkpoint()
            for grants in self._jobs[low:middle]:
                self._end(profile, grants)
            if place(profile, shape, candidates) is not None:
                profile.rollback(checkpoint)
                has_fit, high = True, middle - 1
            elif not has_fit:
                return None
            else:
                low = middle
            middle = (low + high + 1) // 2
        if not has_fit:
            return None
        at = self._ends[low]
        for grants in self._jobs[low : (count := bisect_right(self._ends, at))]:
            self._end(profile, grants)
        return count

    def _give_back(self, profile: Overlay, count: int, at: float) -> int:
        """All that ends until then; how many have ended in all."""
        until = bisect_right(self._ends, at)
        for grants in self._jobs[count:until]:
            self._end(profile, grants)
        return max(count, until)

    def _end(self, profile: Overlay, grants: tuple[Grant, ...]) -> None:
        for grant in grants:
            if (place := self._places.get(grant.node)) is not None:
                profile.give_back(place, grant)


def beside(profile: Overlay, places: dict[str, int], at: float, until: float, windows: Iterable[Window]) -> Overlay:
    """What of it is left beside the windows that are open between these instants."""
    met = [one for one in windows if one.at < until and one.until > at]
    if not met:
        return profile
    left = profile.copy()
    for one in met:
        left.take_all(places, one.grants)
    return left


def earliest_fit(
    overlay: Overlay, shape: Shape, candidates: Candidates, running: Sequence[RunningJob], now: float
) -> tuple[float, tuple[Grant, ...]] | None:
    """(instant, grants) of the first time that the shape fits as running jobs reach their limits, and none earlier.

    None: not before a job without a limit ends.  The overlay is left as it was.
    """
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    timeline = Timeline(overlay, places, now)
    timeline.fill(
        (max(now, job.ends_at), job.grants) for job in running if job.ends_at is not None and not job.is_stranded
    )
    fit = timeline.earliest(shape, candidates, 0.0)
    return None if fit is None else (fit.at, fit.grants)
