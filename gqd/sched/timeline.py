"""What is free when: running jobs end, protected jobs begin and end.  Pure.

Of a running job there are two ends: by its time limit, which is a promise; and the expected one.  A job that has run
longer than was expected is expected to run as long again as it has.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from copy import copy
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gq.model.resource import Grant
from gq.model.scheduling import Scheduling
from gqd.sched.feasible import keeps_cores
from gqd.sched.placement import may_fit, place
from gqd.sched.shape import Shape
from gqd.sched.view import Cell, Overlay, PendingJob, RunningJob
from gqd.state.cluster import mask_of
from gqd.state.queue import Integers

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


class Course(NamedTuple):
    """What is known of a running job that stays so as time goes on."""

    limit_at: float
    began_at: float
    length_s: float
    """Expected."""

    def expected_end(self, now: float) -> float:
        """Not in the past: who is overdue is expected to run as long again as it has, though not beyond its limit."""
        end = self.began_at + self.length_s
        if end <= now:
            end = now + max(now - self.began_at, LEAST_OVERRUN_S)
        return min(end, max(now, self.limit_at))


def course_of(job: RunningJob, scheduling: Scheduling) -> Course:
    if job.is_stranded:
        return Course(inf, job.began_at, inf)
    limit_at = inf if job.ends_at is None else job.ends_at
    length_s = job.expected_s
    if scheduling.expect == "limit":
        length_s = limit_at - job.began_at
    elif length_s is None:
        length_s = inf if limit_at < inf else scheduling.expected_without_history_s
    return Course(limit_at, job.began_at, length_s)


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


class Ending(NamedTuple):
    """Somebody gives back what they hold."""

    at: float
    cells: Sequence[Cell]
    extras: tuple[Grant, ...] = ()
    """Instead of the cells, where generic resources or licences are in them."""


class Timeline:
    """Ends in order, on top of what is free now (`overlay`, which may change: what starts is taken from it).

    The first time that something fits is found by halving, by numbers alone; then it is placed.
    """

    def __init__(self, overlay: Overlay, places: dict[str, int], now: float, endings: Iterable[Ending]) -> None:
        self._overlay = overlay
        self._places = places
        self._now = now
        self._endings = sorted((one for one in endings if one.at < inf), key=_at)
        self._sums: _Sums | None = None

    def add(self, ending: Ending) -> None:
        if ending.at < inf:
            insort(self._endings, ending, key=_at)
            self._sums = None

    def earliest(
        self, shape: Shape, candidates: Candidates, length_s: float, windows: Sequence[Window] = ()
    ) -> Fit | None:
        """The first time that it fits for so long beside what is protected; None: not as far as can be seen."""
        count = self._first_fit(shape, candidates)
        if count is None:
            return None
        at = self._now if count == 0 else self._endings[count - 1].at
        profile = self._profile(count)
        while True:
            trial = beside(profile, self._places, at, at + length_s, windows)
            grants = place(trial, shape, candidates)
            if grants is not None:
                return Fit(at, grants, profile)
            coming = [one.until for one in windows if at < one.until < inf]
            if count < len(self._endings):
                coming.append(self._endings[count].at)
            if not coming:
                return None
            at = max(at, min(coming))
            until = max(count, self._ended(at))
            self._give_back(profile, count, until)
            count = until

    def at(self, at: float) -> Overlay:
        """What is free then but for protected jobs."""
        return self._profile(self._ended(at))

    def _first_fit(self, shape: Shape, candidates: Candidates) -> int | None:
        """After how many ends it fits if nobody was protected; what fits once fits also when more is free."""
        low, high = self._first_by_numbers(shape, candidates), len(self._endings)
        if low is None:
            return None
        profile = self._profile(low)
        if place(profile, shape, candidates) is not None:
            return low
        middle, has_fit = high, False
        while low < high:
            later = profile.copy()
            self._give_back(later, low, middle)
            if place(later, shape, candidates) is not None:
                has_fit, high = True, middle - 1
            elif not has_fit:
                return None
            else:
                profile, low = later, middle
            middle = (low + high + 1) // 2
        return self._ended(self._endings[low].at) if has_fit else None

    def _first_by_numbers(self, shape: Shape, candidates: Candidates) -> int | None:
        """It does not fit before so many have ended; None: never."""
        if not _is_of_numbers(self._overlay, shape):
            return 0
        probe = copy(self._overlay)
        low, high = 0, len(self._endings)
        if may_fit(probe, shape, candidates):
            return 0
        self._sums = self._sums or _Sums.of(self._endings, len(self._overlay.nodes))
        self._sums.set(probe, self._overlay, high)
        if not may_fit(probe, shape, candidates):
            return None
        while high - low > 1:  # it may fit after `high`, and not after `low`
            middle = (low + high) // 2
            self._sums.set(probe, self._overlay, middle)
            if may_fit(probe, shape, candidates):
                high = middle
            else:
                low = middle
        return self._ended(self._endings[high - 1].at)

    def _ended(self, at: float) -> int:
        """How many end until then."""
        return bisect_right(self._endings, at, key=_at)

    def _profile(self, count: int) -> Overlay:
        """What is free after so many ends; of equally free nodes the first in order goes first."""
        profile = self._overlay.copy()
        profile.since = None
        profile.free_now = (self._overlay.free_cpus, self._overlay.free_gpus)
        self._give_back(profile, 0, count)
        return profile

    def _give_back(self, profile: Overlay, low: int, high: int) -> None:
        profile.give_back_cells([cell for one in self._endings[low:high] for cell in one.cells])
        for one in self._endings[low:high]:
            for grant in one.extras:
                if (where := self._places.get(grant.node)) is not None:
                    profile.give_back(where, grant)


def _at(ending: Ending) -> float:
    return ending.at


def _is_of_numbers(overlay: Overlay, shape: Shape) -> bool:
    """Whether it fits hangs on sums per node, which only grow as jobs end."""
    kind = overlay.fleet.kind((shape.gpu_type, shape.min_gpu_mem_mib))
    return kind.is_pure and not shape.roles and not keeps_cores(overlay, shape)


class _Sums(NamedTuple):
    """What ends give back, in order, as columns."""

    bounds: Integers
    """By number of ends: how many of the rows are theirs."""
    place: Integers
    gpus: Integers
    cpus: Integers
    memory: Integers

    @classmethod
    def of(cls, endings: Sequence[Ending], size: int) -> _Sums:
        cells = [list(one.cells) for one in endings]
        flat = [cell for one in cells for cell in one]
        return cls(
            np.cumsum([0, *map(len, cells)]),
            np.array([cell[0] for cell in flat], np.int64),
            np.array([cell[2].bit_count() for cell in flat], np.int64),
            np.array([cell[1].bit_count() for cell in flat], np.int64),
            np.array([cell[3] for cell in flat], np.int64),
        )

    def set(self, probe: Overlay, base: Overlay, count: int) -> None:
        """The probe's numbers, and only these, are as after so many ends."""
        rows, size = int(self.bounds[count]), len(base.nodes)
        place = self.place[:rows]
        probe.gpu_counts = base.gpu_counts + np.bincount(place, self.gpus[:rows], size).astype(np.int64)
        probe.cpu_counts = base.cpu_counts + np.bincount(place, self.cpus[:rows], size).astype(np.int64)
        probe.memory = base.memory + np.bincount(place, self.memory[:rows], size).astype(np.int64)


def cells_of(places: dict[str, int], grants: Iterable[Grant]) -> tuple[Cell, ...]:
    return tuple(
        (places[one.node], mask_of(one.cpus), mask_of(one.gpus), one.memory_mib) for one in grants if one.node in places
    )


def ending_of(at: float, places: dict[str, int], grants: tuple[Grant, ...]) -> Ending:
    if any(one.resources or one.licenses for one in grants):
        return Ending(at, (), grants)
    return Ending(at, cells_of(places, grants))


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
    known = ((one.ends_at, one.grants) for one in running if not one.is_stranded)
    endings = (ending_of(max(now, at), places, grants) for at, grants in known if at is not None)
    fit = Timeline(overlay, places, now, endings).earliest(shape, candidates, 0.0)
    return None if fit is None else (fit.at, fit.grants)
