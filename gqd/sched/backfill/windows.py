"""The backfill profile: planned starts, reservations, and what is free for jobs that start before them.  Pure.

A planned start is a *window*: an instant, and exact nodes, CPUs and GPUs from then on.  A lower-ranked job that ends
before the window may use these meanwhile.  A job that would still run must not, unless it fits nowhere else and the
planned start can be relocated to other resources at the same instant.

Where everything in the way of a planned start has a time limit, the instant is a *guarantee*, and other jobs are
checked by their limits.  Else it is an estimate, and other jobs are checked by their expected ends.

A reservation is a window, too (`gqd.sched.reservation.windows`); it precedes all others and never moves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gq.model.resource import Grant
from gqd.sched.backfill.starvation import FIRST
from gqd.sched.placement.placement import place
from gqd.sched.reservation.windows import Masks, ReservationWindow, masks_of
from gqd.sched.snapshot.model import Overlay, PendingJob
from gqd.sched.snapshot.scalar import Item, Items, free_amount, scalar_items, set_free_amount
from gqd.sched.timeline.timeline import Candidates, EndTimes, beside
from gqd.state.plan import Protected, RunsIntoReservation

MOVABLE = 8
"""Only this many planned starts, the first, may be relocated; later ones keep their nodes."""
KEPT_OVERLAYS = 64


@dataclass(slots=True, eq=False)
class JobWindow:
    job: PendingJob
    slot: str
    at: float
    until: float
    is_promise: bool
    grants: tuple[Grant, ...]
    candidates: Candidates
    profile: Overlay | None
    """The resources free at `at`, ignoring other planned starts; None: the window keeps its nodes, like every window
    of the first job."""
    takes: Items = field(default_factory=dict)
    """The scalar amounts that the window takes."""
    free: dict[Item, int] = field(default_factory=dict)
    """The free amounts of these, as in `profile`."""

    def end_of(self, ends: EndTimes) -> float:
        """The end of another job that decides whether it meets this window."""
        return ends.by_limit if self.is_promise else ends.expected

    def as_protected(self) -> Protected:
        nodes = tuple(grant.node for grant in self.grants)
        return Protected(
            job_id=self.job.job_id,
            slot=self.slot,
            starts_at=self.at,
            is_promise=self.is_promise,
            nodes=nodes,
            grants=self.grants,
            until=self.until,
        )


@dataclass(slots=True)
class BackfillProfile:
    """The windows of a pass, and what is free now for jobs that would still run when the windows open."""

    now: Overlay
    """The resources free for jobs that meet no window."""
    places: dict[str, int]
    windows: list[JobWindow] = field(default_factory=list)
    """The windows of planned starts."""
    booked: tuple[ReservationWindow, ...] = ()
    """The windows of reservations, in order of time."""
    _booked_at: list[float] = field(default_factory=list)
    _promises: list[float] = field(default_factory=list)
    """Instants of guaranteed windows, in order; `_estimates` has those of estimated ones."""
    _estimates: list[float] = field(default_factory=list)
    _overlays: dict[tuple[int, int], Overlay] = field(default_factory=dict)
    """Overlays by the number of the earliest guarantees and estimates that a job would meet."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def count_met(self, ends: EndTimes) -> tuple[int, int]:
        """The numbers of guarantees and estimates that begin before the job would end."""
        return bisect_left(self._promises, ends.by_limit), bisect_left(self._estimates, ends.expected)

    def windows_met(self, ends: EndTimes) -> list[JobWindow]:
        """The windows of planned starts that begin before the job would end, in the order in which they were added."""
        return [window for window in self.windows if window.at < window.end_of(ends)]

    def reservations_met(self, ends: EndTimes) -> tuple[ReservationWindow, ...]:
        return self.booked[: bisect_left(self._booked_at, ends.by_limit)]

    def latest_ends_meeting(self, meets: tuple[int, int]) -> EndTimes:
        """The ends after which a job meets at least as many windows."""
        promises, estimates = meets
        by_limit = self._promises[promises - 1] if promises else -inf
        return EndTimes(by_limit, self._estimates[estimates - 1] if estimates else -inf)

    def overlay(self, ends: EndTimes) -> Overlay:
        """The resources free now for a job with these ends."""
        meets = self.count_met(ends)
        if meets == (0, 0):
            return self.now
        known = self._overlays.get(meets)
        if known is None:
            if len(self._overlays) >= KEPT_OVERLAYS:
                self._overlays.clear()
            known = self._overlays[meets] = self._beside(self.windows_met(ends), self.reservations_met(ends))
        return known

    def _beside(self, met: Sequence[JobWindow], booked: Sequence[ReservationWindow]) -> Overlay:
        left = self.now.copy()
        lowest: dict[Item, int] = {}
        for one in met:
            left.take_all(self.places, one.grants)
        for where, (cpus, gpus) in _union(booked).items():
            left.take_masks(where, cpus, gpus, 0)
        windows: list[JobWindow | ReservationWindow] = [*met, *booked]
        for window in windows:
            for item, spare in self._spare(window, {}).items():
                lowest[item] = min(lowest.get(item, spare), spare)
        for item, spare in lowest.items():
            set_free_amount(left, item, min(spare, free_amount(self.now, item)))
        return left

    def _spare(self, window: JobWindow | ReservationWindow, moved: Mapping[int, tuple[Grant, ...]]) -> dict[Item, int]:
        """The scalar amounts left when the window opens, without all windows open then; `moved`: grants of relocated
        windows."""
        spare = dict(window.free)
        if not spare:
            return spare
        if isinstance(window, ReservationWindow):
            _take_off(spare, window.takes)
        else:
            for booked in self.booked:
                if booked.at <= window.at < booked.until:
                    _take_off(spare, booked.takes)
        for other in self.windows:
            if other is not window and not other.at <= window.at < other.until:
                continue
            _take_off(spare, scalar_items(self.places, moved[id(other)]) if id(other) in moved else other.takes)
        return spare

    def spare(self, window: JobWindow | ReservationWindow) -> dict[Item, int]:
        """The scalar amounts left when the window opens."""
        return self._spare(window, {})

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def book(self, windows: tuple[ReservationWindow, ...]) -> None:
        """Set the windows of reservations, before any start is planned."""
        self.booked = windows
        self._booked_at = [window.at for window in windows]
        self._promises = self._booked_at.copy()

    def add(self, window: JobWindow, may_move: bool = True) -> None:
        self._count(window)
        if window.slot == FIRST or not may_move or len(self.windows) >= MOVABLE:
            window.profile = None
        self.windows.append(window)
        insort(self._promises if window.is_promise else self._estimates, window.at)
        self._overlays.clear()

    def remove(self, window: JobWindow) -> None:
        self.windows.remove(window)
        (self._promises if window.is_promise else self._estimates).remove(window.at)
        self._overlays.clear()

    def _count(self, window: JobWindow) -> None:
        window.takes = scalar_items(self.places, window.grants)
        window.free = (
            {} if window.profile is None else {item: free_amount(window.profile, item) for item in window.takes}
        )

    def start(self, grants: tuple[Grant, ...], ends: EndTimes) -> None:
        """Account for a job that starts now with these ends."""
        self.now.take_all(self.places, grants)
        takes = scalar_items(self.places, grants)
        if takes:
            self._overlays.clear()
        for overlay in self._overlays.values():
            overlay.take_all(self.places, grants)
        for booked in self.reservations_met(ends) if takes else ():
            _take_off(booked.free, takes)
        for one in self.windows_met(ends):
            _take_off(one.free, takes)
            if one.profile is not None:
                one.profile.take_all(self.places, grants)

    def keep(self, grants: tuple[Grant, ...], ends: EndTimes) -> None:
        """Earmark `grants` for a preemptor until `ends`.

        The resources still belong to its victims, so they are not subtracted from what is free.  Planned starts that
        counted on the victims' release keep their nodes.
        """
        takes = scalar_items(self.places, grants)
        for booked in self.reservations_met(ends):
            _take_off(booked.free, takes)
        for one in self.windows_met(ends):
            _take_off(one.free, takes)
        for window in self.windows:
            window.profile = None
        self._overlays.clear()

    def relocate_conflicting(self, grants: tuple[Grant, ...], ends: EndTimes) -> JobWindow | ReservationWindow | None:
        """Relocate every planned start that conflicts with `grants`, keeping its instant.

        Returns the first window that cannot be relocated, and then relocates none; None: no conflict remains.
        """
        moved: dict[int, tuple[Grant, ...]] = {}
        takes = scalar_items(self.places, grants)
        if (booked := self._booked_in_the_way(grants, takes, ends)) is not None:
            return booked
        for one in self.windows_met(ends):
            if not _share(one.grants, grants) and self._suffices(one, takes, moved):
                continue
            elsewhere = self._elsewhere(one, grants, ends, moved)
            if elsewhere is None:
                return one
            moved[id(one)] = elsewhere
        for window in self.windows:
            if id(window) in moved:
                window.grants = moved[id(window)]
                self._count(window)
        if moved:
            self._overlays.clear()
        return None

    def _booked_in_the_way(self, grants: tuple[Grant, ...], takes: Items, ends: EndTimes) -> ReservationWindow | None:
        met = self.reservations_met(ends)
        masks = masks_of(self.places, grants) if met else {}
        return next((one for one in met if one.shares(masks) or not self._suffices(one, takes, {})), None)

    def _suffices(
        self, window: JobWindow | ReservationWindow, takes: Items, moved: Mapping[int, tuple[Grant, ...]]
    ) -> bool:
        """Whether the scalar amounts suffice for both the window and `takes`."""
        spare = self._spare(window, moved) if takes else {}
        return all(takes[item] <= spare[item] for item in takes.keys() & spare.keys())

    def _elsewhere(
        self, window: JobWindow, grants: tuple[Grant, ...], ends: EndTimes, moved: dict[int, tuple[Grant, ...]]
    ) -> tuple[Grant, ...] | None:
        if window.profile is None:
            return None
        others = [
            _Moved(other.at, other.until, moved.get(id(other), other.grants))
            for other in self.windows
            if other is not window
        ]
        trial = beside(window.profile, self.places, window.at, window.until, [*others, *self.booked])
        checkpoint = trial.checkpoint()
        trial.take_all(self.places, grants)
        found = place(trial, window.job.shape, window.candidates)
        trial.rollback(checkpoint)
        return found


@dataclass(slots=True, frozen=True)
class _Moved:
    at: float
    until: float
    grants: tuple[Grant, ...]


def _take_off(spare: dict[Item, int], takes: Items) -> None:
    for item in takes.keys() & spare.keys():
        spare[item] -= takes[item]


def _union(windows: Iterable[ReservationWindow]) -> Masks:
    """The union of the windows' masks."""
    masks: dict[int, tuple[int, int]] = {}
    for window in windows:
        for where, (cpus, gpus) in window.masks.items():
            before = masks.get(where, (0, 0))
            masks[where] = (before[0] | cpus, before[1] | gpus)
    return masks


def overlap(some: Sequence[Grant], others: Sequence[Grant]) -> tuple[str, ...]:
    """Nodes on which both grants take the same CPUs or GPUs, or both take scalar resources."""
    if any(one.licenses for one in some) and any(one.licenses for one in others):
        return tuple(one.node for one in some)
    return tuple(one.node for one, other in _pairs(some, others) if _is_shared(one, other) or _are_counted(one, other))


def _share(some: Sequence[Grant], others: Sequence[Grant]) -> bool:
    """Whether the grants have a CPU or GPU in common."""
    return any(_is_shared(one, other) for one, other in _pairs(some, others))


def _pairs(some: Sequence[Grant], others: Sequence[Grant]) -> Iterator[tuple[Grant, Grant]]:
    """Pairs of grants on the same node."""
    by_node = {grant.node: grant for grant in others}
    return ((one, by_node[one.node]) for one in some if one.node in by_node)


def _is_shared(grant: Grant, other: Grant) -> bool:
    return not set(grant.gpus).isdisjoint(other.gpus) or not set(grant.cpus).isdisjoint(other.cpus)


def _are_counted(grant: Grant, other: Grant) -> bool:
    return bool(grant.memory_mib and other.memory_mib) or bool(grant.resources and other.resources)


def runs_into(window: ReservationWindow, grants: tuple[Grant, ...], ends: EndTimes) -> RunsIntoReservation:
    return RunsIntoReservation(
        name=window.booked.name,
        clear_at=window.at,
        begins_at=window.booked.begin_at,
        ends_at=ends.by_limit if ends.by_limit < inf else None,
        nodes=overlap(grants, window.grants),
    )
