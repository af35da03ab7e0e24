"""Preemption: which running jobs a pending job may preempt, decided in a pass when the job finds no room.  Pure.

A job may preempt jobs of the QOS that its own QOS preempts, once these have run for as long as they are protected. A
job within its account's guarantee may also preempt jobs of accounts that borrow beyond theirs, and a job inside a
reservation the jobs that borrow its resources.  With time slicing, any job may preempt jobs that have used their time
slice (see `gqd.sched.preemption.timeslice`).  Elastic jobs release resources beyond their minimum for any job; where
that suffices, no job is stopped.  A decision is made as a whole, and delays neither planned starts nor reservations.
It holds for the rest of the pass: the job counts as if it were running there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from operator import is_
from typing import NamedTuple, TypeAlias

import numpy as np

from gq.model.account import PreemptMode, QosInfo
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import BackfillProfile, JobWindow
from gqd.sched.cycle.state import Decided, PassState
from gqd.sched.preemption.nominations import as_preempted, keep
from gqd.sched.preemption.partial_release import given
from gqd.sched.preemption.reclaim import OverQuota
from gqd.sched.preemption.resize import Key as SpareKey
from gqd.sched.preemption.resize import (
    beside,
    candidate_key,
    no_more_than_needed,
    releasable_parts,
    remainder_after,
    shrinks_of,
)
from gqd.sched.preemption.suspend_victims import parkable
from gqd.sched.preemption.timeslice import Contender, has_used_first_quantum
from gqd.sched.preemption.timeslice_victims import TimesliceVictims
from gqd.sched.preemption.victim_bound import GpusAt, gpus_at, promising_nodes
from gqd.sched.preemption.victims import Candidate, Cost, PlacementQuery, VictimSet, as_suspended, choose, cost_of
from gqd.sched.preemption.victims_exact import Part
from gqd.sched.request import wanted_in_all
from gqd.sched.reservation.windows import ReservationWindow, masks_of
from gqd.sched.snapshot.model import (
    Nomination,
    Overlay,
    PendingColumns,
    PendingJob,
    ReservedOccurrence,
    RunningJob,
    Snapshot,
)
from gqd.sched.snapshot.scalar import scalar_items
from gqd.sched.timeline.timeline import EndTimes, ends_if_started
from gqd.state.index.queue import Booleans, Integers
from gqd.state.plan import NotWorthPreemptingYet, Preemption, Preempts, Shrink
from gqd.state.records import mask_of

MOST_ROUNDS = 4
"""Maximum number of searches for one job, each without the victims that need the longest notice."""
MOST_TRIES = 32
"""Search budget of a pass …"""
COST_IN_VAIN = 4
"""… of which a failed search uses this many units."""
WORK_OF_TRY = 16
"""Units of work of one search, besides those for every node and for every trial placement."""


def preempted_by(qos: str, known: Mapping[str, QosInfo]) -> frozenset[str]:
    """The QOS whose jobs may be preempted by jobs of `qos`."""
    own = known.get(qos)
    names = () if own is None else own.preempts
    return frozenset(name for name in names if name in known and known[name].preempt_mode is not PreemptMode.OFF)


def preemptible_jobs(
    jobs: Iterable[RunningJob], known: Mapping[str, QosInfo], now: float, inside: ReservedOccurrence | None = None
) -> list[RunningJob]:
    """The jobs that run, have run for their protected time, and are not being preempted already.

    Jobs that borrow from a reservation are not protected from the reservation's jobs.
    """
    least_s = {name: one.min_run_s for name, one in known.items() if one.preempt_mode is not PreemptMode.OFF}
    return [
        one
        for one in jobs
        if one.saved_at is not None
        and one.preemptor is None
        and not one.is_stranded
        and ((one.is_borrowing and inside is not None) or now - one.began_at - one.stood_s >= least_s.get(one.qos, inf))
    ]


def preemption_planner(snapshot: Snapshot, names: Iterable[str]) -> PreemptionPlanner | None:
    """The preemption planner for pending jobs of the QOS `names`; None: they could not preempt any job."""
    reach = {name: preempted_by(name, snapshot.qos) for name in names}
    wanted, borrowed = frozenset().union(*reach.values()), None
    is_lent = snapshot.inside is not None and any(one.is_borrowing for one in snapshot.running)
    takes_turns = snapshot.policy.scheduling.preempt == "turns" and len(reach) > 0
    spare = releasable_parts(snapshot)
    if snapshot.limits.has_guarantees:
        borrowed = OverQuota(snapshot.limits, snapshot.gives_back)
    elif not wanted and not is_lent and not takes_turns and not spare:
        return None
    known, now, inside = snapshot.qos, snapshot.now, snapshot.inside
    is_any = takes_turns or borrowed is not None or is_lent
    asked = snapshot.running if is_any else [one for one in snapshot.running if one.qos in wanted]
    there = apart_from_reserved(snapshot, preemptible_jobs(asked, known, now, inside))
    turns = TimesliceVictims(snapshot, there) if takes_turns else None
    is_any = bool(there or takes_turns or spare)
    return PreemptionPlanner(reach, there, borrowed, inside, turns, spare) if is_any else None


def apart_from_reserved(snapshot: Snapshot, jobs: list[RunningJob]) -> list[RunningJob]:
    """The jobs without those on reserved resources, which would not return to jobs outside the reservation."""
    if snapshot.inside is not None:
        return jobs
    kept: dict[str, tuple[int, int]] = {}
    for one in _in_force(snapshot):
        for grant in one.grants:
            cpus, gpus = kept.get(grant.node, (0, 0))
            kept[grant.node] = cpus | mask_of(grant.cpus), gpus | mask_of(grant.gpus)
    return [job for job in jobs if not _is_on(job, kept)] if kept else jobs


def _in_force(snapshot: Snapshot) -> list[ReservedOccurrence]:
    return [one for one in snapshot.booked if one.is_in_force(snapshot.now)]


def _is_on(job: RunningJob, kept: Mapping[str, tuple[int, int]]) -> bool:
    return bool(job.reservation) or any(
        node in kept and (cpus & kept[node][0] or gpus & kept[node][1]) for node, cpus, gpus in job.cells
    )


@dataclass(slots=True)
class _Barrier:
    """Resources that a job may not use if it still runs when these windows open; CPU and GPU masks by node index."""

    windows: list[JobWindow | ReservationWindow]
    masks: dict[int, tuple[int, int]]


MayPreempt: TypeAlias = dict[JobId, tuple[str, ...] | None]
"""Victims that a job may preempt: None if its QOS allows it, else the accounts from which the victim is reclaimed."""


class _Key(NamedTuple):
    """The attributes of a job, besides its time limit, that decide whether victims are found."""

    shape: int
    qos: str
    owner: str
    """The account, if jobs may be reclaimed for it."""
    user: str = ""
    """The user, if the search failed by a limit of the job's own; then the account is set, too."""


class _Found(NamedTuple):
    choice: VictimSet | None
    is_limited: bool = False
    """Victims exist, but the job would exceed a limit."""
    later: NotWorthPreemptingYet | None = None
    """Victims exist, but preempting them does not pay off yet."""
    skip_planned_starts: bool = False
    """No job may be preempted, and what elastic jobs could release does not suffice."""


class PreemptionPlanner:
    """The preemption planner of a pass: the eligible victims and the searches made."""

    def __init__(
        self,
        reach: Mapping[str, frozenset[str]],
        there: list[RunningJob],
        borrowed: OverQuota | None,
        inside: ReservedOccurrence | None,
        turns: TimesliceVictims | None = None,
        spare: Mapping[SpareKey, RunningJob] | None = None,
    ) -> None:
        """`spare`: the resources that elastic jobs could release."""
        self.releasable = dict(spare or {})
        """The parts that elastic jobs can still release."""
        self._reach = reach
        self.preemptible = there
        """The jobs that some job may still preempt."""
        self._there_of_qos = {one.qos for one in there}
        self._borrowed = borrowed
        self._inside = inside
        self._turns = turns
        self._known: dict[SpareKey, Candidate] = {}
        self._gpus: dict[SpareKey, GpusAt] = {}
        """GPUs by node of each job, and of each part that an elastic job could release."""
        self._tries = MOST_TRIES
        self._goes_on_at: int | None = None
        self._vain: dict[_Key, float] = {}
        """Failed searches, with the shortest time limit of the jobs concerned."""

    def may_preempt(self, columns: PendingColumns) -> Booleans:
        """Mask by queue index: the job may preempt some job."""
        there = self._there_of_qos
        if self._turns is not None or self.releasable:
            return np.ones(len(columns.qos), np.bool_)
        may = [not there.isdisjoint(self._reach.get(name, ())) for name in columns.names_of_qos]
        which = np.array(may, np.bool_)[columns.qos]
        which |= self._has_lent
        if self._borrowed is not None and len(which):
            owns = [self._borrowed.owns(account) for _, account in columns.members]
            which |= np.array(owns, np.bool_)[columns.member]
        return which

    @property
    def _has_lent(self) -> bool:
        """Whether a running job borrows from the reservation of this pass."""
        return self._inside is not None and any(self._is_lent(one) for one in self.preemptible)

    def decide(self, state: PassState, place: int, job: PendingJob) -> bool:
        """Plan preemption for all pending tasks of the job; False: it waits for something else."""
        while self._may_try(state, place, job):
            before = state.spent
            found = self._find(state, job)
            choice, has_searched = found.choice, state.spent > before
            is_dear = choice is None and not found.skip_planned_starts
            self._tries = max(0, self._tries - has_searched * (COST_IN_VAIN if is_dear else 1))
            if found.later is not None:
                state.waits[job.job_id] = found.later
                state.draft.changes_at = min(state.draft.changes_at, found.later.at)
            if choice is None and job.last_start_at is not None:
                self._stop_if_done(state, place)  # there may be somebody for others like it, who have more time
                return False
            if choice is None:
                self._give_up(state, place, job, found.is_limited)
                return False
            self._settle(state, place, job, choice)
            self._stop_if_done(state, place)
            if not state.tasks.get(job.job_id):
                return True
        return False

    def finish(self, state: PassState) -> None:
        """Record when the next running job becomes preemptible by time alone."""
        if self._turns is not None:
            going = {victim for each in state.decided for victim in each.victims}
            at = self._turns.changes_at(going, state.started_jobs())
            state.draft.changes_at = min(state.draft.changes_at, at)

    def _stop_if_done(self, state: PassState, place: int) -> None:
        """Stop searching once the budget of the pass is used; the next pass resumes here."""
        if not self._tries:
            behind = state.scan.next(place + 1)
            state.draft.searches_from = None if behind is None else state.snapshot.pending[behind].job_id
            state.scan.exempt(None)
            for code in list(state.unfit_shapes):
                state.skip_shape_again(code)

    def _give_up(self, state: PassState, place: int, job: PendingJob, is_limited: bool) -> None:
        """Record a failed search, so that similar jobs (of the same owner, if a limit was the reason) are skipped."""
        if self._turns is not None:
            self._turns.note_waiting(job, state.eligibility.kind_of(job.shape).is_wide)
        of_all, of_owner = self._keys(state, place, job)
        is_beside_all = not state.backfill.windows and not state.snapshot.booked
        self._vain[of_owner if is_limited else of_all] = 0.0 if is_beside_all else _limit_s(job)
        state.scan.end_exemption(place, is_limited or state.is_guaranteed_round)
        state.skip_shape_again(of_all.shape)
        self._stop_if_done(state, place)

    def _keys(self, state: PassState, place: int, job: PendingJob) -> tuple[_Key, _Key]:
        """(key of all similar jobs, key of those of the same owner)."""
        shape, owner = int(state.scan.columns.shape[place]), job.account if state.is_guaranteed_round else ""
        return _Key(shape, job.qos, owner), _Key(shape, job.qos, job.account, job.user)

    def _may_try(self, state: PassState, place: int, job: PendingJob) -> bool:
        """Whether to search for victims.  Never for a job that avoids nodes after launch failures: it might fail
        again on the freed nodes."""
        is_served = self._reach.get(job.qos) or state.is_guaranteed_round or self._has_lent
        is_allowed = self._turns is not None or is_served or self._may_use_spare(job)
        if not is_allowed or self._tries <= (MOST_TRIES // 2 if self._is_before_turn(state, place) else 0):
            return False
        if any(until > state.snapshot.now for _, until in job.avoid):
            return False
        known = [self._vain[key] for key in self._keys(state, place, job) if key in self._vain]
        is_vain = any(_limit_s(job) >= shortest_s for shortest_s in known)
        return not is_vain and state.non_resource_reason(job) is None

    def _may_use_spare(self, job: PendingJob) -> bool:
        """Whether parts of elastic jobs could help the job; most elastic jobs release no CPUs."""
        if wanted_in_all(job.shape)[0]:
            return bool(self.releasable)
        return any(one.grants[0].cpus for one in self.releasable.values())

    def _is_before_turn(self, state: PassState, place: int) -> bool:
        """Whether the job precedes the one at which the previous pass stopped; half of the budget is for jobs from
        there on."""
        if self._goes_on_at is None:
            at = state.snapshot.searches_from
            self._goes_on_at = -1 if at is None else state.scan.index_of(at) or -1
        return place < self._goes_on_at

    def victims_of(self, qos: str, taker: Contender, owner: str | None) -> MayPreempt:
        """The jobs that a job of this QOS may preempt; `owner`: its account, if the job may reclaim GPUs for it."""
        names, may = self._reach.get(qos, frozenset()), MayPreempt()
        if self._inside is not None or not names.isdisjoint(self._there_of_qos):
            may = {job.job_id: None for job in self.preemptible if job.qos in names or self._is_lent(job)}
        if self._borrowed is not None and owner is not None:
            for job in self.preemptible:
                reclaimable_from = None if job.job_id in may else self._borrowed.reclaimable_from(job, owner)
                if reclaimable_from is not None:
                    may[job.job_id] = reclaimable_from
        if self._turns is not None:
            may |= {job_id: None for job_id in self._turns.givers_to(taker) if job_id not in may}
        return may

    def _is_lent(self, job: RunningJob) -> bool:
        return self._inside is not None and job.is_borrowing

    def _find(self, state: PassState, job: PendingJob) -> _Found:
        """Find victims; no job is stopped if releases by elastic jobs suffice."""
        is_wide = state.eligibility.kind_of(job.shape).is_wide
        taker = Contender(job.since, has_used_first_quantum(job.ran_s, state.scheduling), is_wide)
        may = self.victims_of(job.qos, taker, job.account if state.is_guaranteed_round else None)
        spare = list(self.releasable.values()) if self._may_use_spare(job) else []
        spare = [one for one in spare if _is_gone_in_time(state.snapshot, one, job)]
        if spare and (found := self._search(state, job, spare, may)) is not None:
            return found
        there = [one for one in self.preemptible if one.job_id in may]
        if job.last_start_at is not None:
            there = [one for one in there if _is_gone_in_time(state.snapshot, one, job)]
        if there and not spare and (later := self._too_early(state, job)):
            return _Found(None, later=later)
        if not there:
            return _Found(None, skip_planned_starts=True)
        return self._search(state, job, [*spare, *there], may) or _Found(None)

    def _search(self, state: PassState, job: PendingJob, there: list[RunningJob], may: MayPreempt) -> _Found | None:
        """Search for victims, leaving out those with the longest notice as long as their notice is in the way.

        None: the job has no room even without all of them.  A result without victims means that they would leave too
        late.
        """
        anyway_at: float | None = None
        found: _Found | None = None
        for _ in range(MOST_ROUNDS):
            if not there:
                break
            places = self._useful(state, job, there)
            if not len(places):
                break
            state.planned_starts.resolve()
            lead_s = max(one.lead_s for one in there)
            barrier = _barrier(state, job, _later(ends_if_started(job, state.snapshot.now, state.scheduling), lead_s))
            choice = self._choose(state, job, there, may, barrier, places)
            if choice is None:
                there = [one for one in there if one.lead_s <= lead_s / 2] if barrier.windows and lead_s else []
                continue
            found = _Found(None)
            if not _has_room(state, job, choice.grants):
                return _Found(None, is_limited=True)
            if later := self._not_yet(state, job, choice):
                return _Found(None, later=later)
            until = _until(state, choice)
            if until <= state.snapshot.now and not state.decided:
                return _Found(choice)
            anyway_at = _starts_anyway_at(state, job) if anyway_at is None else anyway_at
            if until < anyway_at:
                return _Found(choice)
            there = [one for one in there if gone_at(one, state.snapshot.now) < anyway_at]
        return found

    def _too_early(self, state: PassState, job: PendingJob) -> NotWorthPreemptingYet | None:
        """The reason if no set of victims could pay off yet."""
        if self._turns is None or self._is_served_otherwise(state, job):
            return None
        at = self._turns.pays_off_at(job, self._turns.least_price(state, job))
        return NotWorthPreemptingYet(victims=(), at=at) if at > state.snapshot.now else None

    def _is_served_otherwise(self, state: PassState, job: PendingJob) -> bool:
        """Whether some victims of the job have no price."""
        names = self._reach.get(job.qos, frozenset())
        is_by_qos = self._has_lent or not names.isdisjoint(self._there_of_qos)
        return is_by_qos or (self._borrowed is not None and state.is_guaranteed_round)

    def _not_yet(self, state: PassState, job: PendingJob, choice: VictimSet) -> NotWorthPreemptingYet | None:
        """The reason if preempting these victims does not pay off yet; victims by QOS or guarantee have no price."""
        if self._turns is None:
            return None
        names = self._reach.get(job.qos, frozenset())
        ended = [victim for victim in choice.victims if not victim.job.is_part]
        others = [one for one in ended if one.job.qos not in names and not self._is_lent(one.job)]
        paid = [one for one in others if one.reclaimable_from is None]
        at = self._turns.pays_off_at(job, self._turns.price_of(one.job for one in paid)) if paid else state.snapshot.now
        if at <= state.snapshot.now:
            return None
        return NotWorthPreemptingYet(victims=tuple(sorted(one.job.job_id for one in ended)), at=at)

    def _choose(
        self,
        state: PassState,
        job: PendingJob,
        there: Iterable[RunningJob],
        may: MayPreempt,
        barrier: _Barrier,
        places: Integers,
    ) -> VictimSet | None:
        reclaimable_from = {} if self._borrowed is None else self._borrowed.left
        wish = PlacementQuery(
            _overlay(state, barrier), job.shape, places, state.snapshot.now - job.since, job.qos, reclaimable_from
        )
        candidates = self._candidates(state, there, may, wish, barrier)
        by_right = [one for one in there if may.get(one.job_id, ()) is None]
        parks = parkable(state.backfill, job, by_right, state.snapshot.qos)
        if parks:
            some = [as_suspended(candidate) if candidate.job.job_id in parks else candidate for candidate in candidates]
            if (choice := self._choose_of(state, wish, some, barrier)) is not None:
                return choice
        return self._choose_of(state, wish, candidates, barrier)

    def _choose_of(
        self, state: PassState, wish: PlacementQuery, candidates: list[Candidate], barrier: _Barrier
    ) -> VictimSet | None:
        wish.spent = wish.work = 0
        choice = choose(wish, candidates)
        state.spent += WORK_OF_TRY + len(state.snapshot.nodes) // 4 + wish.work
        if choice is not None and any(victim.job.is_part for victim in choice.victims):
            choice = no_more_than_needed(wish, choice)
        state.spent += wish.spent * (1 + len(state.snapshot.nodes) // 64)
        if choice is None:
            return None
        leaving = [victim.job for victim in choice.victims if not victim.parks]
        is_free = is_beside(state.backfill, barrier.windows, choice.grants, leaving)
        return choice if is_free else None

    def _candidates(
        self, state: PassState, there: Iterable[RunningJob], may: MayPreempt, wish: PlacementQuery, barrier: _Barrier
    ) -> list[Candidate]:
        """The running jobs that hold something the job could use."""
        here = set(wish.places.tolist())
        wanted = {name for name, _ in wish.shape.licenses}
        there = list(there)
        if not wanted:
            there = [one for one in there if any(place in here for place, _ in self._gpus_at(state, one))]
        spare: dict[JobId, list[RunningJob]] = {}
        for one in (one for one in there if one.is_part):
            spare.setdefault(one.job_id, []).append(one)
        candidates = []
        for one in there:
            known = self._known.get(candidate_key(one)) or self._know(state, one)
            own = () if one.is_part else spare.get(one.job_id, ())  # it stands for itself, and costs less
            parts = [
                _part(beside(state.snapshot.nodes[part.place].name, part, own), here, barrier, wanted)
                for part in known.parts
            ]
            reclaimable_from = None if one.is_part else may[one.job_id]
            if reclaimable_from is None and all(map(is_, parts, known.parts)):
                candidates.append(known)
            elif useful := tuple(part for part in parts if any(part[1:])):
                candidates.append(replace(known, parts=useful, reclaimable_from=reclaimable_from))
        return candidates

    def _useful(self, state: PassState, job: PendingJob, there: Iterable[RunningJob]) -> Integers:
        """Nodes on which the job could get room if all of these jobs left; empty: they do not suffice."""
        places = state.eligibility.available(job, state.snapshot.now)
        return promising_nodes(state.backfill.now, job.shape, places, [self._gpus_at(state, one) for one in there])

    def _gpus_at(self, state: PassState, job: RunningJob) -> GpusAt:
        key = candidate_key(job)
        known = self._gpus.get(key)
        if known is None:
            known = self._gpus[key] = gpus_at(job, state.eligibility.places)
        return known

    def _know(self, state: PassState, job: RunningJob) -> Candidate:
        """The candidate for a running job, as far as it is the same for every preemptor of the pass."""
        places = state.eligibility.places
        cells = zip(job.grants, job.cells, strict=True)
        known = ((places[node], grant, cpus, gpus) for grant, (node, cpus, gpus) in cells if node in places)
        parts = tuple(_whole_part(state, *one) for one in known)
        if job.is_part:
            told = self._known[candidate_key(job)] = Candidate(job, Cost(0.0, 0.0, 0), parts)
            return told
        whole = job
        if state.snapshot.inside is not None or job.is_borrowing:
            whole = next((one for one in state.draft.running if one.job_id == job.job_id), job)
        rank = 0 if self._borrowed is None else self._borrowed.rank(job)
        cost = cost_of(whole, state.snapshot.now) if self._turns is None else self._turns.cost_of(whole)
        told = self._known[candidate_key(job)] = Candidate(job, cost, parts, None, rank)
        return told

    def _settle(self, state: PassState, place: int, job: PendingJob, choice: VictimSet) -> None:
        """Record the decision: from now on the job counts as running, and its victims as notified."""
        snapshot = state.snapshot
        ended = [victim for victim in choice.victims if not victim.job.is_part]
        shrinks = shrinks_of(choice.victims, choice.grants, snapshot.now)
        victims = frozenset(one.job.job_id for one in ended)
        taken_back = [one.job for one in ended if one.reclaimable_from is not None]
        if self._borrowed is not None:
            self._borrowed.take(taken_back, job.account)
        claim = _claim(state, job, choice)
        state.decided.append(Decided(claim, victims, shrinks))
        self.forget(victims, shrinks)
        going = given(as_preempted(snapshot.running, victims, job.job_id, snapshot.now), shrinks, job.job_id)
        running = keep(state.backfill.now, going, claim, snapshot.now)
        state.snapshot = replace(snapshot, running=running)
        ends = _later(ends_if_started(job, snapshot.now, state.scheduling), claim.until - snapshot.now)
        state.planned_starts.keep(job.job_id, running, claim.grants, ends)
        state.prefilter = None
        task = state.charge(place, job, state.usage_of(job, claim.grants))
        state.draft.preemptions.append(
            Preemption(
                job_id=job.job_id,
                attempt=job.attempt,
                grants=choice.grants,
                victims=tuple(AttemptId(one.job.job_id, one.job.attempt) for one in ended),
                shrinks=shrinks,
                task=task,
                reservation=claim.reservation,
                occurrence=claim.occurrence,
                is_reclaim=bool(taken_back),
                parks=tuple(
                    AttemptId(victim.job.job_id, victim.job.attempt) for victim in choice.victims if victim.parks
                ),
            )
        )
        if not state.tasks.get(job.job_id):
            all_of_them = sorted({*victims, *(shrink.attempt_id.job_id for shrink in shrinks)})
            state.waits[job.job_id] = Preempts(victims=tuple(all_of_them), until=claim.until)

    def forget(self, victims: Collection[JobId], shrinks: Iterable[Shrink]) -> None:
        """Remove the victims and the released parts; a job that releases a part is not stopped in the same plan, nor
        the reverse."""
        shrinks = list(shrinks)
        givers = {one.attempt_id.job_id for one in shrinks}
        self.preemptible = [one for one in self.preemptible if one.job_id not in victims and one.job_id not in givers]
        self._there_of_qos = {one.qos for one in self.preemptible}
        self.releasable = {key: one for key, one in self.releasable.items() if one.job_id not in victims}
        for shrink in shrinks:
            key = shrink.attempt_id.job_id, shrink.node
            self._known.pop(key, None)
            self._gpus.pop(key, None)
            left = remainder_after(self.releasable.pop(key), shrink)
            if left is not None:
                self.releasable[key] = left


# ── what may be used ──────────────────────────────────────────────────────────────────────────────────────────


def _barrier(state: PassState, job: PendingJob, ends: EndTimes) -> _Barrier:
    windows: list[JobWindow | ReservationWindow] = [
        one for one in state.backfill.windows_met(ends) if one.job.job_id != job.job_id
    ]
    windows += state.backfill.reservations_met(ends)
    masks: dict[int, tuple[int, int]] = {}
    for window in windows:
        for where, (cpus, gpus) in masks_of(state.eligibility.places, window.grants).items():
            before = masks.get(where, (0, 0))
            masks[where] = before[0] | cpus, before[1] | gpus
    return _Barrier(windows, masks)


def _overlay(state: PassState, barrier: _Barrier) -> Overlay:
    overlay = state.backfill.now.copy()
    for where, (cpus, gpus) in barrier.masks.items():
        overlay.take_masks(where, cpus, gpus, 0)
    return overlay


def _whole_part(state: PassState, place: int, grant: Grant, cpus: int, gpus: int) -> Part:
    node = state.snapshot.nodes[place]
    resources = tuple((resource.name, -resource.count) for resource in grant.resources)
    licenses = tuple((license_.name, -license_.count) for license_ in grant.licenses)
    return Part(place, cpus & node.cpu_mask, gpus & node.gpu_mask, grant.memory_mib, resources, licenses)


def _part(part: Part, here: Collection[int], barrier: _Barrier, wanted: Collection[str]) -> Part:
    """The part of a victim that the job may use.  Licences count wherever they are held, all else only on its nodes."""
    licenses = tuple(license_ for license_ in part.licenses if license_[0] in wanted) if part.licenses else ()
    if part.place not in here:
        return Part(part.place, 0, 0, 0, (), licenses)
    if part.place not in barrier.masks and not part.licenses:
        return part
    cpus, gpus = barrier.masks.get(part.place, (0, 0))
    return part._replace(cpus=part.cpus & ~cpus, gpus=part.gpus & ~gpus, licenses=licenses)


# ── whether it may be so ──────────────────────────────────────────────────────────────────────────────────────


def is_beside(
    backfill: BackfillProfile,
    windows: Iterable[JobWindow | ReservationWindow],
    grants: tuple[Grant, ...],
    victims: Iterable[RunningJob],
) -> bool:
    """Whether the scalar amounts suffice for all windows that the job meets."""
    takes = scalar_items(backfill.places, grants)
    for window in windows if takes else ():
        spare = backfill.spare(window)
        gone = [grant for victim in victims if _would_stay(victim, window.at) for grant in victim.grants]
        freed = scalar_items(backfill.places, gone)
        if any(takes[item] > spare[item] + freed.get(item, 0) for item in takes.keys() & spare.keys()):
            return False
    return True


def _would_stay(job: RunningJob, at: float) -> bool:
    """Whether the job would still run then, so that its resources are not counted as free then."""
    return job.ends_at is None or job.ends_at > at


def _has_room(state: PassState, job: PendingJob, grants: tuple[Grant, ...]) -> bool:
    return state.ledger.exceeded_limit(job.subject, state.usage_of(job, grants)) is None


def _starts_anyway_at(state: PassState, job: PendingJob) -> float:
    """When the job could start without preemption."""
    windows = [window for window in state.backfill.windows if window.job.job_id != job.job_id]
    places = state.eligibility.available(job, state.snapshot.now)
    return state.planned_starts.has_place_at(job, places, [*state.backfill.booked, *windows])


def _is_gone_in_time(snapshot: Snapshot, victim: RunningJob, job: PendingJob) -> bool:
    """Whether the victim would be gone, killed if necessary, by the last start that meets the job's deadline."""
    if job.last_start_at is None:
        return True
    return gone_at(victim, snapshot.now) + snapshot.policy.timers.grace_s <= job.last_start_at


def gone_at(job: RunningJob, now: float) -> float:
    """When the job ends if it is notified now."""
    return now + job.lead_s if job.ends_at is None else max(now, min(job.ends_at, now + job.lead_s))


def _until(state: PassState, choice: VictimSet) -> float:
    return max(gone_at(victim.job, state.snapshot.now) for victim in choice.victims)


def _claim(state: PassState, job: PendingJob, choice: VictimSet) -> Nomination:
    inside = state.snapshot.inside
    return Nomination(
        job_id=job.job_id,
        grants=choice.grants,
        until=_until(state, choice),
        user=job.user,
        time_limit_s=job.time_limit_s,
        expected_s=job.expected_s,
        reservation="" if inside is None else inside.name,
        occurrence=0 if inside is None else inside.number,
        parks=choice.parks,
    )


def _later(ends: EndTimes, by_s: float) -> EndTimes:
    return EndTimes(ends.by_limit + by_s, ends.expected + by_s)


def _limit_s(job: PendingJob) -> float:
    return inf if job.time_limit_s is None else float(job.time_limit_s)
