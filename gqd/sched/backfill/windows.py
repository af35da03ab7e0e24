"""Protected starts and reservations, and what may fill the holes before them.  Pure.

A protected job has a *window*: an instant, and exact nodes, CPUs and GPUs from then on.  A job behind it that is
over by then may use them meanwhile.  One that would still run keeps off; and where it fits nowhere else, it may have
them if the protected job finds others for the same instant.

Where everything in a protected job's way has a time limit, the instant is a *promise*, and only limits count for what
fills the hole.  Else it is an estimate, and so is what is counted.

What is reserved is a window, too (`gqd.sched.reservation.windows`), which is there before all others and never moves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gq.model.resource import Grant
from gqd.sched.backfill.starvation import FIRST
from gqd.sched.placement.placement import place
from gqd.sched.reservation.windows import BookedWindow, Masks, masks_of
from gqd.sched.snapshot.model import Overlay, PendingJob
from gqd.sched.snapshot.scalar import Item, Items, free_amount, scalar_items, set_free_amount
from gqd.sched.timeline.timeline import Candidates, Ends, beside
from gqd.state.plan import Protected, RunsIntoReservation

MOVABLE = 8
"""So many protected jobs, the first, look for other nodes for who would be in their way; more keep theirs."""
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
    """What is free at `at` but for other protected jobs; None: it keeps its nodes, as who is first always does."""
    takes: Items = field(default_factory=dict)
    """Of what is only counted."""
    free: dict[Item, int] = field(default_factory=dict)
    """Of these, as in `profile`."""

    def end_of(self, ends: Ends) -> float:
        """The end that counts beside this."""
        return ends.by_limit if self.is_promise else ends.expected

    def told(self) -> Protected:
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
class Guard:
    """The windows of a pass, and what is free now for who would still run when they begin."""

    now: Overlay
    """What is free for who would be in nobody's way."""
    places: dict[str, int]
    windows: list[JobWindow] = field(default_factory=list)
    """Of protected jobs."""
    booked: tuple[BookedWindow, ...] = ()
    """By their begin."""
    _booked_at: list[float] = field(default_factory=list)
    _promises: list[float] = field(default_factory=list)
    """Instants of these, in order; likewise the next."""
    _estimates: list[float] = field(default_factory=list)
    _overlays: dict[tuple[int, int], Overlay] = field(default_factory=dict)
    """By how many promises and estimates, the earliest, somebody would meet."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def meets(self, ends: Ends) -> tuple[int, int]:
        """How many promises and estimates begin before the job would be over."""
        return bisect_left(self._promises, ends.by_limit), bisect_left(self._estimates, ends.expected)

    def met(self, ends: Ends) -> list[JobWindow]:
        """Those, as they were made."""
        return [one for one in self.windows if one.at < one.end_of(ends)]

    def booked_met(self, ends: Ends) -> tuple[BookedWindow, ...]:
        return self.booked[: bisect_left(self._booked_at, ends.by_limit)]

    def longest_beside(self, meets: tuple[int, int]) -> Ends:
        """Who ends after these meets as many, or more."""
        promises, estimates = meets
        by_limit = self._promises[promises - 1] if promises else -inf
        return Ends(by_limit, self._estimates[estimates - 1] if estimates else -inf)

    def overlay(self, ends: Ends) -> Overlay:
        """What is free now for a job that ends then."""
        meets = self.meets(ends)
        if meets == (0, 0):
            return self.now
        known = self._overlays.get(meets)
        if known is None:
            if len(self._overlays) >= KEPT_OVERLAYS:
                self._overlays.clear()
            known = self._overlays[meets] = self._beside(self.met(ends), self.booked_met(ends))
        return known

    def _beside(self, met: Sequence[JobWindow], booked: Sequence[BookedWindow]) -> Overlay:
        left = self.now.copy()
        lowest: dict[Item, int] = {}
        for one in met:
            left.take_all(self.places, one.grants)
        for where, (cpus, gpus) in _union(booked).items():
            left.take_masks(where, cpus, gpus, 0)
        windows: list[JobWindow | BookedWindow] = [*met, *booked]
        for window in windows:
            for item, spare in self._spare(window, {}).items():
                lowest[item] = min(lowest.get(item, spare), spare)
        for item, spare in lowest.items():
            set_free_amount(left, item, min(spare, free_amount(self.now, item)))
        return left

    def _spare(self, one: JobWindow | BookedWindow, moved: Mapping[int, tuple[Grant, ...]]) -> dict[Item, int]:
        """What is left at its start of what it takes, beside all that are open then; `moved`: to other grants."""
        spare = dict(one.free)
        if not spare:
            return spare
        if isinstance(one, BookedWindow):
            _take_off(spare, one.takes)
        else:
            for booked in self.booked:
                if booked.at <= one.at < booked.until:
                    _take_off(spare, booked.takes)
        for other in self.windows:
            if other is not one and not other.at <= one.at < other.until:
                continue
            _take_off(spare, scalar_items(self.places, moved[id(other)]) if id(other) in moved else other.takes)
        return spare

    def spare(self, one: JobWindow | BookedWindow) -> dict[Item, int]:
        """What is left of what is only counted when it begins."""
        return self._spare(one, {})

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def book(self, windows: tuple[BookedWindow, ...]) -> None:
        """Before anybody is protected."""
        self.booked = windows
        self._booked_at = [one.at for one in windows]
        self._promises = self._booked_at.copy()

    def add(self, one: JobWindow, may_move: bool = True) -> None:
        self._count(one)
        if one.slot == FIRST or not may_move or len(self.windows) >= MOVABLE:
            one.profile = None
        self.windows.append(one)
        insort(self._promises if one.is_promise else self._estimates, one.at)
        self._overlays.clear()

    def remove(self, one: JobWindow) -> None:
        self.windows.remove(one)
        (self._promises if one.is_promise else self._estimates).remove(one.at)
        self._overlays.clear()

    def _count(self, one: JobWindow) -> None:
        one.takes = scalar_items(self.places, one.grants)
        one.free = {} if one.profile is None else {item: free_amount(one.profile, item) for item in one.takes}

    def start(self, grants: tuple[Grant, ...], ends: Ends) -> None:
        """A job starts, and ends then."""
        self.now.take_all(self.places, grants)
        takes = scalar_items(self.places, grants)
        if takes:
            self._overlays.clear()
        for overlay in self._overlays.values():
            overlay.take_all(self.places, grants)
        for booked in self.booked_met(ends) if takes else ():
            _take_off(booked.free, takes)
        for one in self.met(ends):
            _take_off(one.free, takes)
            if one.profile is not None:
                one.profile.take_all(self.places, grants)

    def keep(self, grants: tuple[Grant, ...], ends: Ends) -> None:
        """A job is to have these when others have gone, which are no part of what is free; it ends then.

        What those would have left by the time of somebody's start stays counted as his: so he keeps his nodes.
        """
        takes = scalar_items(self.places, grants)
        for booked in self.booked_met(ends):
            _take_off(booked.free, takes)
        for one in self.met(ends):
            _take_off(one.free, takes)
        for one in self.windows:
            one.profile = None
        self._overlays.clear()

    def make_room(self, grants: tuple[Grant, ...], ends: Ends) -> JobWindow | BookedWindow | None:
        """Move who is in the way of these grants to other nodes for the same instant; who cannot be moved, if anyone.

        Then nobody is.
        """
        moved: dict[int, tuple[Grant, ...]] = {}
        takes = scalar_items(self.places, grants)
        if (booked := self._booked_in_the_way(grants, takes, ends)) is not None:
            return booked
        for one in self.met(ends):
            if not _share(one.grants, grants) and self._suffices(one, takes, moved):
                continue
            elsewhere = self._elsewhere(one, grants, ends, moved)
            if elsewhere is None:
                return one
            moved[id(one)] = elsewhere
        for one in self.windows:
            if id(one) in moved:
                one.grants = moved[id(one)]
                self._count(one)
        if moved:
            self._overlays.clear()
        return None

    def _booked_in_the_way(self, grants: tuple[Grant, ...], takes: Items, ends: Ends) -> BookedWindow | None:
        met = self.booked_met(ends)
        masks = masks_of(self.places, grants) if met else {}
        return next((one for one in met if one.shares(masks) or not self._suffices(one, takes, {})), None)

    def _suffices(self, one: JobWindow | BookedWindow, takes: Items, moved: Mapping[int, tuple[Grant, ...]]) -> bool:
        """There is enough for both of what is only counted."""
        spare = self._spare(one, moved) if takes else {}
        return all(takes[item] <= spare[item] for item in takes.keys() & spare.keys())

    def _elsewhere(
        self, one: JobWindow, grants: tuple[Grant, ...], ends: Ends, moved: dict[int, tuple[Grant, ...]]
    ) -> tuple[Grant, ...] | None:
        if one.profile is None:
            return None
        others = [
            _Moved(other.at, other.until, moved.get(id(other), other.grants))
            for other in self.windows
            if other is not one
        ]
        trial = beside(one.profile, self.places, one.at, one.until, [*others, *self.booked])
        checkpoint = trial.checkpoint()
        trial.take_all(self.places, grants)
        found = place(trial, one.job.shape, one.candidates)
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


def _union(windows: Iterable[BookedWindow]) -> Masks:
    """All that they keep."""
    masks: dict[int, tuple[int, int]] = {}
    for one in windows:
        for where, (cpus, gpus) in one.masks.items():
            before = masks.get(where, (0, 0))
            masks[where] = (before[0] | cpus, before[1] | gpus)
    return masks


def overlap(some: Sequence[Grant], others: Sequence[Grant]) -> tuple[str, ...]:
    """Nodes on which both take the same CPUs or GPUs, or both take something that is only counted."""
    if any(one.licenses for one in some) and any(one.licenses for one in others):
        return tuple(one.node for one in some)
    return tuple(one.node for one, other in _pairs(some, others) if _is_shared(one, other) or _are_counted(one, other))


def _share(some: Sequence[Grant], others: Sequence[Grant]) -> bool:
    """Both take the same CPUs or GPUs somewhere."""
    return any(_is_shared(one, other) for one, other in _pairs(some, others))


def _pairs(some: Sequence[Grant], others: Sequence[Grant]) -> Iterator[tuple[Grant, Grant]]:
    """Of the same node."""
    by_node = {grant.node: grant for grant in others}
    return ((one, by_node[one.node]) for one in some if one.node in by_node)


def _is_shared(one: Grant, other: Grant) -> bool:
    return not set(one.gpus).isdisjoint(other.gpus) or not set(one.cpus).isdisjoint(other.cpus)


def _are_counted(one: Grant, other: Grant) -> bool:
    return bool(one.memory_mib and other.memory_mib) or bool(one.resources and other.resources)


def runs_into(window: BookedWindow, grants: tuple[Grant, ...], ends: Ends) -> RunsIntoReservation:
    return RunsIntoReservation(
        name=window.booked.name,
        clear_at=window.at,
        begins_at=window.booked.begin_at,
        ends_at=ends.by_limit if ends.by_limit < inf else None,
        nodes=overlap(grants, window.grants),
    )
