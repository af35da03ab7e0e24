"""Victim selection: the cheapest set of jobs whose resources suffice for the whole pending job.  Pure.

The cost of a set is the work lost with it: for each victim its GPUs times the time since it last saved its work (its
last checkpoint, else its start).  Ties are broken by CPUs times that time, then by the number of victims.  That a set
suffices is proven by placing the job without it; no victim in the set could stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.placement.placement import place as put
from gqd.sched.preemption.reclaim import gpus_of
from gqd.sched.preemption.victims_exact import Part, cheapest_by_node
from gqd.sched.preemption.victims_whole_nodes import cheapest_dense
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import Overlay, RunningJob
from gqd.state.index.queue import Integers

MILLI = 1e-3
MOST_SETS = 400
"""Maximum number of sets that are tried individually."""


class Cost(NamedTuple):
    """The cost of a victim, compared field by field."""

    gpu_s: float
    cpu_s: float
    """CPU-seconds; with time slicing instead the number of jobs submitted later."""
    jobs: int


def cost_of(job: RunningJob, now: float) -> Cost:
    """The cost of preempting a running job."""
    lost_s = 0.0 if job.saved_at is None else max(0.0, now - job.saved_at)
    gpus = gpus_of(job)
    cpus = sum(len(grant.cpus) for grant in job.grants)
    return Cost(gpus * lost_s, cpus * lost_s, 1)


@dataclass(slots=True, frozen=True, eq=False)
class Candidate:
    """A job, or a releasable part of one, that may be preempted."""

    job: RunningJob
    cost: Cost
    parts: tuple[Part, ...]
    """The parts that the pending job may use."""
    reclaimable_from: tuple[str, ...] | None = None
    """The accounts from which the job's GPUs are reclaimed; None: the job is a victim for another reason."""
    rank: int = 0
    """Among candidates of equal cost the lower rank is preempted first."""
    parks: bool = False
    """The job is suspended: no work is lost, and it keeps its scalar resources."""

    @property
    def gpus(self) -> int:
        return gpus_of(self.job)


def as_suspended(candidate: Candidate) -> Candidate:
    """The candidate as one that is suspended."""
    parts = tuple(Part(part.place, part.cpus, part.gpus, 0) for part in candidate.parts)
    return replace(candidate, cost=Cost(0.0, 0.0, 1), parts=parts, parks=True)


@dataclass(slots=True)
class PlacementQuery:
    """The job to place and the resources to place it on."""

    overlay: Overlay
    """The resources free for the job without victims."""
    shape: Shape
    places: Integers
    waited_s: float
    qos: str
    reclaimable_from: Mapping[str, int] = field(default_factory=dict)
    """GPUs that may be reclaimed, by account."""
    spent: int = 0
    """Number of trial placements."""
    work: int = 0
    """Further units of work."""

    def placed(self, victims: Iterable[Candidate]) -> tuple[Grant, ...] | None:
        """Place the job without these victims; the overlay is restored."""
        self.spent += 1
        checkpoint = self.overlay.checkpoint()
        for victim in victims:
            for part in victim.parts:
                self.overlay.give_masks(*part)
        grants = put(self.overlay, self.shape, self.places, waited_s=self.waited_s, qos=self.qos)
        self.overlay.rollback(checkpoint)
        return grants


class VictimSet(NamedTuple):
    victims: tuple[Candidate, ...]
    grants: tuple[Grant, ...]

    @property
    def parks(self) -> frozenset[JobId]:
        """The victims that are suspended."""
        return frozenset(victim.job.job_id for victim in self.victims if victim.parks)


def choose(wish: PlacementQuery, candidates: Sequence[Candidate]) -> VictimSet | None:
    """The cheapest sufficient set of victims; None: not even all candidates suffice.

    If the set reclaims more from an account than allowed, the search is repeated among the cheapest candidates within
    the allowance.
    """
    found = _cheapest(wish, candidates)
    if found is None or _is_covered(wish, found.victims):
        return found
    return _cheapest(wish, _within_funds(wish, candidates))


def _is_covered(wish: PlacementQuery, victims: Iterable[Candidate]) -> bool:
    taken = Counter[str]()
    for victim in victims:
        taken.update(dict.fromkeys(victim.reclaimable_from or (), victim.gpus))
    return all(count <= wish.reclaimable_from.get(name, 0) for name, count in taken.items())


def _within_funds(wish: PlacementQuery, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The cheapest candidates that may all be reclaimed together."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=_in_order):
        if _is_covered(wish, [*chosen, candidate]):
            chosen.append(candidate)
    return chosen


def _in_order(candidate: Candidate) -> tuple[Cost, int, int]:
    return candidate.cost, candidate.rank, candidate.job.job_id


def _cheapest(wish: PlacementQuery, candidates: Sequence[Candidate]) -> VictimSet | None:
    """The cheapest sufficient set, with no regard to allowances of accounts.

    If the demand on each node is a number, sets are chosen by node (`gqd.sched.preemption.victims_exact`); else sets
    are tried in the order of their cost, and if there are too many, the most expensive candidates are dropped one by
    one.
    """
    if not candidates or wish.placed(candidates) is None:
        return None
    weights = weights_of(candidates)
    order = sorted(range(len(candidates)), key=lambda one: (weights[one], candidates[one].job.job_id))
    candidates, weights = [candidates[one] for one in order], [weights[one] for one in order]
    search = cheapest_dense if wish.shape.is_dense else cheapest_by_node
    found, work = search(wish.overlay, wish.shape, wish.places, [one.parts for one in candidates], weights)
    wish.work += work
    if found and wish.placed(chosen := [candidates[one] for one in found]) is not None:
        return _least(wish, chosen)
    first = _first_that_suffices(wish, candidates, weights)
    return _least(wish, _without_nodes(wish, candidates) if first is None else first)


def weights_of(candidates: Sequence[Candidate]) -> list[float]:
    """Costs as numbers: GPU-seconds to the millisecond, with the tie-breakers in the lower digits."""
    cpu_s = sum(candidate.cost.cpu_s for candidate in candidates) or 1.0
    most = max((candidate.rank for candidate in candidates), default=0) + 1
    return [
        candidate.cost.gpu_s
        + MILLI * (candidate.cost.cpu_s / cpu_s + MILLI * (1.0 + MILLI * candidate.rank / most) / len(candidates))
        for candidate in candidates
    ]


def _first_that_suffices(
    wish: PlacementQuery, candidates: Sequence[Candidate], weights: Sequence[float]
) -> Sequence[Candidate] | None:
    """The first sufficient set in the order of cost; None: too many had to be tried."""
    sets: list[tuple[float, tuple[int, ...]]] = [(weights[0], (0,))]
    for _ in range(MOST_SETS):
        if not sets:
            return None
        weight, chosen = heappop(sets)
        if wish.placed(found := [candidates[one] for one in chosen]) is not None:
            return found
        last = chosen[-1]
        if last + 1 < len(candidates):
            heappush(sets, (weight + weights[last + 1], (*chosen, last + 1)))
            heappush(sets, (weight - weights[last] + weights[last + 1], (*chosen[:-1], last + 1)))
    return None


def _without_nodes(wish: PlacementQuery, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop candidates node by node, those on the most expensive node first, as long as the rest suffices."""
    lost: dict[int, float] = {}
    for candidate in candidates:
        for part in candidate.parts:
            lost[part.place] = lost.get(part.place, 0.0) + candidate.cost.gpu_s + MILLI * candidate.cost.cpu_s
    left = list(candidates)
    for place in sorted(lost, key=lambda place: (-lost[place], place)):
        fewer = [one for one in left if all(part.place != place for part in one.parts)]
        if len(fewer) < len(left) and wish.placed(fewer) is not None:
            left = fewer
    return left


def _least(wish: PlacementQuery, chosen: Sequence[Candidate]) -> VictimSet | None:
    """The set without victims that could stay; the most expensive are dropped first."""
    left = list(chosen)
    for one in sorted(chosen, key=_in_order, reverse=True):
        fewer = [other for other in left if other is not one]
        if wish.placed(fewer) is not None:
            left = fewer
    grants = wish.placed(left)
    return None if grants is None else VictimSet(tuple(left), grants)
