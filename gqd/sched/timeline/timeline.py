"""Free resources over time: running jobs end, planned starts and reservations begin and end.  Pure.

A running job has two ends: the end by its time limit, which is guaranteed, and the expected end.  A job that has run
longer than expected is expected to run as long again as it has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gq.model.resource import Grant
from gq.model.scheduling import Scheduling
from gqd.sched.placement.placement import place
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import Cell, Overlay, PendingJob, RunningJob
from gqd.sched.snapshot.scalar import (
    Item,
    Items,
    free_amount,
    lowest_levels,
    memory_item,
    scalar_items,
    set_free_amount,
)
from gqd.sched.timeline.capacity_bound import CapacityBound, ReleaseRows, Rows, can_bound, packed, rows_of
from gqd.state.records import mask_of

Candidates = list[int] | NDArray[np.int64]
LEAST_OVERRUN_S = 1.0
MOST_CLOSED = 200
"""Maximum number of windows to wait out in the search for a start."""
_at = itemgetter(0)
FEW = 3
"""Up to this many releases are tried individually."""


class EndTimes(NamedTuple):
    """The instants at which a job would end by its limit and by expectation; infinite: unknown."""

    by_limit: float
    expected: float


def expected_length(job: PendingJob, scheduling: Scheduling) -> float:
    """The expected run time in seconds, at most the time limit; without limit and history the configured default,
    not infinity."""
    limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
    if scheduling.expect == "limit":
        return limit_s
    if job.expected_s is not None:
        return min(job.expected_s, limit_s)
    return limit_s if limit_s < inf else scheduling.expected_without_history_s


def ends_if_started(job: PendingJob, now: float, scheduling: Scheduling) -> EndTimes:
    by_limit = inf if job.time_limit_s is None else now + job.time_limit_s
    return EndTimes(by_limit, now + expected_length(job, scheduling))


class RunEstimate(NamedTuple):
    """The estimate of a running job's end that does not change as time passes."""

    limit_at: float
    began_at: float
    length_s: float
    """The expected run time in seconds."""

    def expected_end(self, now: float) -> float:
        """The expected end, never in the past: an overdue job is expected to run as long again as it has, up to its
        limit."""
        end = self.began_at + self.length_s
        if end <= now:
            end = now + max(now - self.began_at, LEAST_OVERRUN_S)
        return min(end, max(now, self.limit_at))


def run_estimate(job: RunningJob, scheduling: Scheduling) -> RunEstimate:
    if job.is_stranded:
        return RunEstimate(inf, job.began_at, inf)
    limit_at = inf if job.ends_at is None else job.ends_at
    length_s = job.expected_s
    if scheduling.expect == "limit":
        length_s = limit_at - job.began_at
    elif length_s is None:
        length_s = inf if limit_at < inf else scheduling.expected_without_history_s
    return RunEstimate(limit_at, job.began_at, length_s)


class Window(Protocol):
    """Resources that a planned start or a reservation holds from `at` until `until`."""

    @property
    def at(self) -> float: ...
    @property
    def until(self) -> float: ...
    @property
    def grants(self) -> tuple[Grant, ...]: ...


class EarliestFit(NamedTuple):
    at: float
    grants: tuple[Grant, ...]
    profile: Overlay
    """The free resources at that instant, ignoring planned starts."""


class Release(NamedTuple):
    """Resources are given back at an instant."""

    at: float
    cells: Sequence[Cell]
    extras: tuple[Grant, ...] = ()
    """The grants, used instead of the cells if they contain generic resources or licences."""
    packed: bytes = b""
    """The released amounts as numbers (`gqd.sched.timeline.capacity_bound.packed`)."""

    def moved(self, at: float) -> Release:
        """The same release at another instant."""
        return Release(at, self.cells, self.extras, self.packed)


class _Taken(NamedTuple):
    """The resources that a window takes."""

    grants: tuple[Grant, ...]
    cells: tuple[Cell, ...]
    rows: Rows


class Timeline:
    """Releases in order of time, on top of the current `overlay` (which may change: jobs that start are taken from it).

    The first instant at which a request fits is found by bisection with numbers alone; then the request is placed.
    """

    def __init__(self, overlay: Overlay, places: dict[str, int], now: float, endings: Iterable[Release]) -> None:
        self.overlay = overlay
        self._places = places
        self._now = now
        self.endings = sorted([ending for ending in endings if ending.at < inf], key=_at)
        self._instants = [ending.at for ending in self.endings]
        self._sums: ReleaseRows | None = None
        self._cells_of: dict[int, _Taken] = {}
        """Resources of windows, by the identity of their grants, which are kept here so that the identity stays
        valid."""

    def add(self, ending: Release) -> None:
        if ending.at < inf:
            place = self.ended(ending.at)
            self.endings.insert(place, ending)
            self._instants.insert(place, ending.at)
            self._sums = None

    def earliest(
        self, shape: Shape, candidates: Candidates, length_s: float, windows: Sequence[Window] = ()
    ) -> EarliestFit | None:
        """The first instant at which the shape fits for `length_s` seconds without using the windows' resources;
        None: none is known."""
        search = _Search(self, shape, candidates)
        count = search.first()
        if count is None:
            return None
        at, closed = self._now if count == 0 else self.endings[count - 1].at, 0
        while True:
            met = _met(at, at + length_s, windows)
            if (grants := search.placed(count, at, met)) is not None:
                return EarliestFit(at, grants, search.profile(count))
            closes_at = min((window.until for window in windows if at < window.until), default=inf)
            sooner = search.next(count, bisect_left(self._instants, closes_at), met)
            if sooner is not None:
                at = max(at, self.endings[sooner - 1].at)
            elif closes_at == inf:
                return None
            else:
                closed, at = closed + 1, closes_at
            if closed > MOST_CLOSED:
                return None
            count = max(count, self.ended(at))

    def without(self, profile: Overlay, met: Iterable[Window]) -> Overlay:
        """The profile without the CPU and GPU masks of the windows `met`."""
        for where, (cpus, gpus, _) in self._union(met).items():
            profile.take_masks(where, cpus, gpus, 0)
        return profile

    def _union(self, met: Iterable[Window]) -> dict[int, tuple[int, int, int]]:
        """The union of the windows' resources by node index: (CPU mask, GPU mask, memory in MiB)."""
        union: dict[int, tuple[int, int, int]] = {}
        for one in met:
            for where, cpus, gpus, memory_mib in self._cells(one):
                before = union.get(where, (0, 0, 0))
                union[where] = (before[0] | cpus, before[1] | gpus, before[2] + memory_mib)
        return union

    def _cells(self, window: Window) -> tuple[Cell, ...]:
        return self._known(window).cells

    def rows_of(self, window: Window) -> Rows:
        return self._known(window).rows

    def _known(self, window: Window) -> _Taken:
        known = self._cells_of.get(id(window.grants))
        if known is None:
            cells = cells_of(self._places, window.grants)
            known = self._cells_of[id(window.grants)] = _Taken(window.grants, cells, rows_of(cells))
        return known

    def levels(self, wanted: Sequence[tuple[float, Iterable[Item]]]) -> list[dict[Item, int]]:
        """How much of what is only counted is free at instants, of which none is before the one ahead of it."""
        if not any(items for _, items in wanted):
            return [{} for _ in wanted]
        profile, count, told = self.profile(0), 0, []
        for at, items in wanted:
            until = self.ended(at)
            self.give_back(profile, count, until)
            count = until
            told.append({item: free_amount(profile, item) for item in items})
        return told

    def at(self, at: float) -> Overlay:
        """The free resources at that instant."""
        return self.profile(self.ended(at))

    def left(self, at: float, until: float, windows: Sequence[Window]) -> Overlay:
        """The resources that are free during the whole interval, outside the windows."""
        return self.beside(self.at(at), self.ended(at), at, _met(at, until, windows))

    def beside(self, profile: Overlay, count: int, at: float, met: list[Window]) -> Overlay:
        """The profile after `count` releases without the resources of the windows `met` while a job would run."""
        if not met:
            return profile
        left = profile.copy()
        if any(grant.resources or grant.licenses for one in met for grant in one.grants):
            for one in met:
                left.take_all(self._places, one.grants)
        else:
            for where, (cpus, gpus, memory_mib) in self._union(met).items():
                left.take_masks(where, cpus, gpus, memory_mib)
        taken = [(one.at, one.until, self._items_of(one)) for one in met]
        last = max((opens_at for opens_at, _, items in taken if items), default=at)
        if last > at:  # what was given back until then is there for them
            gone = (ending for ending in self.endings[count : self.ended(last)] if ending.at > at)
            for item, low in lowest_levels(at, taken, ((one.at, self._items(one)) for one in gone)).items():
                set_free_amount(left, item, free_amount(profile, item) + low)
        return left

    def _items_of(self, window: Window) -> Items:
        if any(grant.resources or grant.licenses for grant in window.grants):
            return scalar_items(self._places, window.grants)
        return {memory_item(where): memory_mib for where, _, _, memory_mib in self._cells(window) if memory_mib}

    def _items(self, ending: Release) -> Items:
        if ending.extras:
            return scalar_items(self._places, ending.extras)
        return {memory_item(place): memory_mib for place, _, _, memory_mib in ending.cells if memory_mib}

    @property
    def sums(self) -> ReleaseRows:
        if self._sums is None:
            self._sums = ReleaseRows.of([ending.packed for ending in self.endings])
        return self._sums

    def ended(self, at: float) -> int:
        """The number of releases up to and including that instant."""
        return bisect_right(self._instants, at)

    def profile(self, count: int) -> Overlay:
        """The free resources after `count` releases; equally free nodes are preferred by node index."""
        profile = self.overlay.copy()
        profile.since = None
        profile.free_now = (self.overlay.free_cpus, self.overlay.free_gpus)
        self.give_back(profile, 0, count)
        return profile

    def give_back(self, profile: Overlay, low: int, high: int) -> None:
        profile.give_back_cells([cell for ending in self.endings[low:high] for cell in ending.cells])
        for ending in self.endings[low:high]:
            for grant in ending.extras:
                if (where := self._places.get(grant.node)) is not None:
                    profile.give_back(where, grant)


class _Search:
    """The search for the first start of one job: by numbers where the bound applies, with full placements only in
    the end."""

    def __init__(self, timeline: Timeline, shape: Shape, candidates: Candidates) -> None:
        self._timeline = timeline
        self._shape = shape
        self._candidates = candidates
        tell = can_bound(timeline.overlay, shape)
        self._bound = CapacityBound(timeline.overlay, timeline.sums, shape, candidates) if tell else None
        self._profile: Overlay | None = None
        self._count = 0
        """The number of releases that the profile includes."""
        self._alone: tuple[int, tuple[Grant, ...]] | None = None
        """The number of releases and the placement after them, ignoring windows."""
        self._is_near = False
        """Whether the bound allowed the last placement that failed."""

    def profile(self, count: int) -> Overlay:
        """The free resources after `count` releases, which never decreases; each call advances the same overlay."""
        if self._profile is None:
            self._profile = self._timeline.profile(count)
        else:
            self._timeline.give_back(self._profile, self._count, count)
        self._count = count
        return self._profile

    def placed(self, count: int, at: float, met: list[Window]) -> tuple[Grant, ...] | None:
        """Place the job after `count` releases, outside the windows `met`; None if it does not fit."""
        if not met and self._alone is not None and self._alone[0] == count:
            return self._alone[1]
        self._is_near = self._may_fit(count, met)
        if not self._is_near:
            return None
        return place(self._timeline.beside(self.profile(count), count, at, met), self._shape, self._candidates)

    def first(self) -> int | None:
        """The number of releases after which the job fits, ignoring windows; a job that fits also fits with more
        resources free."""
        low, high = self._first_by_numbers(), len(self._timeline.endings)
        if low is None:
            return None
        profile = self.profile(low)
        if grants := place(profile, self._shape, self._candidates):
            self._alone = (low, grants)
            return low
        middle, has_fit = high, False
        while low < high:
            if self._fits(later := self._after(profile, low, middle)):
                has_fit, high = True, middle - 1
            elif not has_fit:
                return None
            else:
                profile, low = later, middle
            middle = (low + high + 1) // 2
        return self._timeline.ended(self._timeline.endings[low].at) if has_fit else None

    def _first_by_numbers(self) -> int | None:
        """A lower bound on the number of releases before the job fits; None: it never fits."""
        if self._bound is None:
            return 0
        first = self._bound.first(-1, len(self._timeline.endings))
        return first if not first else self._timeline.ended(self._timeline.endings[first - 1].at)

    def next(self, count: int, ended: int, met: list[Window]) -> int | None:
        """The next number of releases above `count` after which the job may fit outside the windows; None: none up to
        `ended`.

        Later more is free, but more windows are met: a job that does not fit with everything released up to `ended`
        does not fit in between.
        """
        if ended <= count or not self._may_fit(ended, met):
            return None
        if self._is_near and ended - count > FEW:
            later = self._after(self.profile(count), count, ended)
            if not self._fits(self._timeline.without(later, met)):
                return None
        return count + 1 if self._bound is None else self._bound.first(count, ended, self._rows_of(met))

    def _may_fit(self, count: int, met: Sequence[Window]) -> bool:
        return self._bound is None or self._bound.may_fit(count, self._rows_of(met))

    def _rows_of(self, met: Sequence[Window]) -> list[Rows]:
        return [self._timeline.rows_of(one) for one in met]

    def _after(self, profile: Overlay, count: int, ended: int) -> Overlay:
        later = profile.copy()
        self._timeline.give_back(later, count, ended)
        return later

    def _fits(self, overlay: Overlay) -> bool:
        return place(overlay, self._shape, self._candidates) is not None


def cells_of(places: dict[str, int], grants: Iterable[Grant]) -> tuple[Cell, ...]:
    return tuple(
        (places[grant.node], mask_of(grant.cpus), mask_of(grant.gpus), grant.memory_mib)
        for grant in grants
        if grant.node in places
    )


def release_of(at: float, places: dict[str, int], grants: tuple[Grant, ...]) -> Release:
    cells = cells_of(places, grants)
    if any(grant.resources or grant.licenses for grant in grants):
        return Release(at, (), grants, packed(cells))
    return Release(at, cells, (), packed(cells))


def beside(profile: Overlay, places: dict[str, int], at: float, until: float, windows: Iterable[Window]) -> Overlay:
    """The part of `profile` outside the windows that are open between these instants, as if all were open at once."""
    met = _met(at, until, windows)
    if not met:
        return profile
    left = profile.copy()
    for one in met:
        left.take_all(places, one.grants)
    return left


def _met(at: float, until: float, windows: Iterable[Window]) -> list[Window]:
    return [window for window in windows if window.at < until and window.until > at]


def earliest_fit(
    overlay: Overlay, shape: Shape, candidates: Candidates, running: Sequence[RunningJob], now: float
) -> tuple[float, tuple[Grant, ...]] | None:
    """(instant, grants) of the first time at which the shape fits if every running job ends at its time limit.

    None: it fits only after a job without a time limit ends.  The overlay is not changed.
    """
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    known = ((one.ends_at, one.grants) for one in running if not one.is_stranded)
    endings = (release_of(max(now, at), places, grants) for at, grants in known if at is not None)
    fit = Timeline(overlay, places, now, endings).earliest(shape, candidates, 0.0)
    return None if fit is None else (fit.at, fit.grants)
