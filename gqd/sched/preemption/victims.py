"""Who gives way: those who have least to lose, of all sets that free enough for the whole job.  Pure.

What a set costs is the work that is lost with it: for each victim its GPUs times the time since it was last saved (its
last checkpoint, else its start).  Of equal ones it is the CPUs times that time, then how many have to go.  That a set
suffices is proven by placing the job where they are gone; none that could stay is in it.
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
"""So many are tried one by one."""


class Cost(NamedTuple):
    """What is lost; the first that differs counts."""

    gpu_s: float
    cpu_s: float
    """Where jobs give their turns: instead of it, how many were submitted later."""
    jobs: int


def cost_of(job: RunningJob, now: float) -> Cost:
    """Of a job that runs."""
    lost_s = 0.0 if job.saved_at is None else max(0.0, now - job.saved_at)
    gpus = gpus_of(job)
    cpus = sum(len(one.cpus) for one in job.grants)
    return Cost(gpus * lost_s, cpus * lost_s, 1)


@dataclass(slots=True, frozen=True, eq=False)
class Candidate:
    """A job that may be told to go."""

    job: RunningJob
    cost: Cost
    parts: tuple[Part, ...]
    """Where the job that waits may use it."""
    funds: tuple[str, ...] | None = None
    """Its GPUs are taken back from these accounts (see `Wish.funds`); None: it goes for another reason."""
    rank: int = 0
    """Of equal cost, the lower goes first."""
    parks: bool = False
    """It stands still meanwhile: nothing is lost, and it keeps what is only counted."""

    @property
    def gpus(self) -> int:
        return gpus_of(self.job)


def parking(one: Candidate) -> Candidate:
    """As one that stands still."""
    parts = tuple(Part(part.place, part.cpus, part.gpus, 0) for part in one.parts)
    return replace(one, cost=Cost(0.0, 0.0, 1), parts=parts, parks=True)


@dataclass(slots=True)
class Wish:
    """What is to be placed, and what it could be placed on."""

    overlay: Overlay
    """What is free for it, as long as nobody goes."""
    shape: Shape
    places: Integers
    waited_s: float
    qos: str
    funds: Mapping[str, int] = field(default_factory=dict)
    """So many GPUs may be taken back, by account."""
    spent: int = 0
    """So often it was tried to place it."""
    work: int = 0
    """Units of work besides."""

    def placed(self, victims: Iterable[Candidate]) -> tuple[Grant, ...] | None:
        """Where it goes when these are gone; the overlay is as it was then."""
        self.spent += 1
        checkpoint = self.overlay.checkpoint()
        for one in victims:
            for part in one.parts:
                self.overlay.give_masks(*part)
        grants = put(self.overlay, self.shape, self.places, waited_s=self.waited_s, qos=self.qos)
        self.overlay.rollback(checkpoint)
        return grants


class Choice(NamedTuple):
    victims: tuple[Candidate, ...]
    grants: tuple[Grant, ...]

    @property
    def parks(self) -> frozenset[JobId]:
        """Those that stand still."""
        return frozenset(one.job.job_id for one in self.victims if one.parks)


def choose(wish: Wish, candidates: Sequence[Candidate]) -> Choice | None:
    """The cheapest that suffice; None: not even all of them do.

    If they would have more taken back of an account than may be, they are chosen among the cheapest of that account.
    """
    found = _cheapest(wish, candidates)
    if found is None or _is_covered(wish, found.victims):
        return found
    return _cheapest(wish, _within_funds(wish, candidates))


def _is_covered(wish: Wish, victims: Iterable[Candidate]) -> bool:
    taken = Counter[str]()
    for one in victims:
        taken.update(dict.fromkeys(one.funds or (), one.gpus))
    return all(count <= wish.funds.get(name, 0) for name, count in taken.items())


def _within_funds(wish: Wish, candidates: Sequence[Candidate]) -> list[Candidate]:
    """As many as may go all together, the cheapest first."""
    chosen: list[Candidate] = []
    for one in sorted(candidates, key=_in_order):
        if _is_covered(wish, [*chosen, one]):
            chosen.append(one)
    return chosen


def _in_order(one: Candidate) -> tuple[Cost, int, int]:
    return one.cost, one.rank, one.job.job_id


def _cheapest(wish: Wish, candidates: Sequence[Candidate]) -> Choice | None:
    """Where what a job needs of each node can be told in numbers, sets are chosen by node
    (`gqd.sched.preemption.victims_exact`); else they are tried in the order of what they cost, and if these are too
    many, the dearest are let off one by one.
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
    """Costs as numbers: GPU-seconds to the millisecond, and what decides between equal ones in what is left."""
    cpu_s = sum(one.cost.cpu_s for one in candidates) or 1.0
    most = max((one.rank for one in candidates), default=0) + 1
    return [
        one.cost.gpu_s + MILLI * (one.cost.cpu_s / cpu_s + MILLI * (1.0 + MILLI * one.rank / most) / len(candidates))
        for one in candidates
    ]


def _first_that_suffices(
    wish: Wish, candidates: Sequence[Candidate], weights: Sequence[float]
) -> Sequence[Candidate] | None:
    """Of all sets, the cheapest first; None: too many had to be tried."""
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


def _without_nodes(wish: Wish, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Let off, node by node, who has something where most would be lost, as long as the rest suffices."""
    lost: dict[int, float] = {}
    for one in candidates:
        for part in one.parts:
            lost[part.place] = lost.get(part.place, 0.0) + one.cost.gpu_s + MILLI * one.cost.cpu_s
    left = list(candidates)
    for place in sorted(lost, key=lambda place: (-lost[place], place)):
        fewer = [one for one in left if all(part.place != place for part in one.parts)]
        if len(fewer) < len(left) and wish.placed(fewer) is not None:
            left = fewer
    return left


def _least(wish: Wish, chosen: Sequence[Candidate]) -> Choice | None:
    """Without those that could stay; the dearest are let off first."""
    left = list(chosen)
    for one in sorted(chosen, key=_in_order, reverse=True):
        fewer = [other for other in left if other is not one]
        if wish.placed(fewer) is not None:
            left = fewer
    grants = wish.placed(left)
    return None if grants is None else Choice(tuple(left), grants)
