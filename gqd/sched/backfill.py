"""Protected starts, and what may fill the holes before them.  Pure.

A protected job has a *reservation*: an instant, and exact nodes, CPUs and GPUs from then on.  A job behind it that is
over by then may use them meanwhile.  One that would still run keeps off; and where it fits nowhere else, it may have
them if the protected job finds others for the same instant.

Where everything in a protected job's way has a time limit, the instant is a *promise*, and only limits count for what
fills the hole.  Else it is an estimate, and so is what is counted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from gq.model.resource import Grant
from gqd.sched.placement import place
from gqd.sched.slots import FIRST
from gqd.sched.timeline import Candidates, Ends, beside
from gqd.sched.view import Overlay, PendingJob
from gqd.state.plan import Protected

MOVABLE = 8
"""So many reservations, the first made, look for other nodes for who would be in their way; more keep theirs."""
KEPT_OVERLAYS = 64


@dataclass(slots=True, eq=False)
class Reservation:
    job: PendingJob
    slot: str
    at: float
    until: float
    is_promise: bool
    grants: tuple[Grant, ...]
    candidates: Candidates
    profile: Overlay | None
    """What is free at `at` but for other reservations; None: it keeps its nodes, as who is first always does."""

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
    """The reservations of a pass, and what is free now for who would still run when they begin."""

    now: Overlay
    """What is free for who would be in nobody's way."""
    places: dict[str, int]
    reservations: list[Reservation] = field(default_factory=list)
    _promises: list[float] = field(default_factory=list)
    """Instants of these, in order; likewise the next."""
    _estimates: list[float] = field(default_factory=list)
    _overlays: dict[tuple[int, int], Overlay] = field(default_factory=dict)
    """By how many promises and estimates, the earliest, somebody would meet."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def meets(self, ends: Ends) -> tuple[int, int]:
        """How many promises and estimates begin before the job would be over."""
        return bisect_left(self._promises, ends.by_limit), bisect_left(self._estimates, ends.expected)

    def met(self, ends: Ends) -> list[Reservation]:
        """Those, as they were made."""
        return [one for one in self.reservations if one.at < one.end_of(ends)]

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
            known = self._overlays[meets] = self.now.copy()
            for one in self.met(ends):
                known.take_all(self.places, one.grants)
        return known

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, one: Reservation) -> None:
        if one.slot == FIRST or len(self.reservations) >= MOVABLE:
            one.profile = None
        self.reservations.append(one)
        insort(self._promises if one.is_promise else self._estimates, one.at)
        self._overlays.clear()

    def remove(self, one: Reservation) -> None:
        self.reservations.remove(one)
        (self._promises if one.is_promise else self._estimates).remove(one.at)
        self._overlays.clear()

    def start(self, grants: tuple[Grant, ...], ends: Ends) -> None:
        """A job starts, and ends then."""
        self.now.take_all(self.places, grants)
        for overlay in self._overlays.values():
            overlay.take_all(self.places, grants)
        for one in self.met(ends):
            if one.profile is not None:
                one.profile.take_all(self.places, grants)

    def make_room(self, grants: tuple[Grant, ...], ends: Ends) -> Reservation | None:
        """Move who is in the way of these grants to other nodes for the same instant; who cannot be moved, if anyone.

        Then nobody is.
        """
        moved: dict[int, tuple[Grant, ...]] = {}
        for one in self.met(ends):
            if not overlap(one.grants, grants):
                continue
            elsewhere = self._elsewhere(one, grants, ends, moved)
            if elsewhere is None:
                return one
            moved[id(one)] = elsewhere
        for one in self.reservations:
            one.grants = moved.get(id(one), one.grants)
        if moved:
            self._overlays.clear()
        return None

    def _elsewhere(
        self, one: Reservation, grants: tuple[Grant, ...], ends: Ends, moved: dict[int, tuple[Grant, ...]]
    ) -> tuple[Grant, ...] | None:
        if one.profile is None:
            return None
        others = [
            _Moved(other.at, other.until, moved.get(id(other), other.grants))
            for other in self.reservations
            if other is not one
        ]
        trial = beside(one.profile, self.places, one.at, one.until, others)
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


def overlap(some: Sequence[Grant], others: Sequence[Grant]) -> tuple[str, ...]:
    """Nodes on which both take the same CPUs or GPUs, or both take something that is only counted."""
    if any(one.licenses for one in some) and any(one.licenses for one in others):
        return tuple(one.node for one in some)
    by_node = {grant.node: grant for grant in others}
    return tuple(one.node for one in some if (other := by_node.get(one.node)) is not None and _meet(one, other))


def _meet(one: Grant, other: Grant) -> bool:
    is_counted = bool(one.memory_mib and other.memory_mib) or bool(one.resources and other.resources)
    return is_counted or not set(one.gpus).isdisjoint(other.gpus) or not set(one.cpus).isdisjoint(other.cpus)
