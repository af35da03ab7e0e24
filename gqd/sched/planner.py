"""Planning, resumable: a pass inside of each reservation that is under way, one outside of all, and last those who
borrow what is reserved.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import inf

import msgspec
import numpy as np

from gq.model.ids import JobId
from gqd.sched.cycle.lending import (
    add_protected_windows,
    borrowers,
    snapshot_for_borrowers,
    with_borrower_starts,
    with_lenders,
)
from gqd.sched.cycle.nominated import after_nomination, nominee_view, planned_starts_of_others, try_nomination
from gqd.sched.cycle.scheduling_pass import PassOptions, SchedulingPass, named_reservations
from gqd.sched.cycle.state import PlanDraft
from gqd.sched.preemption.nominations import beside_claims, with_decided
from gqd.sched.preemption.resize import growths
from gqd.sched.reasons.eligibility import Grounds
from gqd.sched.reservation.scope import active, inside, outside, with_running
from gqd.sched.reservation.windows import as_told_inside, named_wait
from gqd.sched.snapshot.model import Booked, PendingJob, Snapshot
from gqd.state.plan import Growth, Infeasible, NoNodes, Plan, ReservationBegins, Wait


class PlanningSession:
    """A pass under way: inside of each occurrence in which jobs may start, outside of all, then for who borrows."""

    def __init__(self, snapshot: Snapshot, grounds: Grounds, options: PassOptions) -> None:
        self.snapshot = snapshot
        self.grounds = grounds
        self.options = options
        self.draft = PlanDraft.of(snapshot)
        self.spent = 0
        self.current: SchedulingPass | None = None
        self.growths: tuple[Growth, ...] = ()
        self.outside: SchedulingPass | None = None
        self.lends = False
        """Somebody starts on what is reserved."""
        self.lent: set[JobId] = set()
        """Those of whom nothing waits any more, since they borrow what is reserved."""

    @property
    def cost(self) -> int:
        """Units of work done."""
        return self.spent + (0 if self.current is None else self.current.cost)

    def work(self) -> Iterator[None]:
        yield from self._claimants()
        for one in active(self.snapshot):
            view = inside(self.snapshot, one)
            if len(view.pending):
                within = self._begin(view)
                yield from within.work()
                self._end_inside(within, one)
        last = self.outside = self._begin(outside(self.snapshot))
        last.waits |= self.draft.waits_inside
        yield from last.work()
        yield from self._lend(last)
        self.growths = () if self.lends else growths(last)  # in another pass, beside those who borrow
        if not self.options.skip_reasons:
            yield from self._tell_too_big(last)

    def _claimants(self) -> Iterator[None]:
        """Those to whom others give way go first; for everybody else they then run, or count as if they did."""
        for claim in self.snapshot.claims:
            view = nominee_view(self.snapshot, claim)
            if len(view.pending):
                within = self._begin(view, preempts=False)
                try_nomination(within, claim, planned_starts_of_others(self.snapshot, view, claim.job_id))
                self.snapshot = after_nomination(self.snapshot, claim, within.started_jobs())
                yield
        self.snapshot = beside_claims(self.snapshot)

    def _lend(self, last: SchedulingPass) -> Iterator[None]:
        """What is reserved and idle, when everybody else has been considered; as many steps again at most."""
        places = borrowers(last)
        if not len(places):
            return
        within = self._begin(snapshot_for_borrowers(self.snapshot, last, places), preempts=False)
        add_protected_windows(within, last)
        starts, limits_s = self.draft.starts, dict[JobId, float]()
        before = len(starts)
        place = within.scan.next(0)
        while place is not None and within.cost < within.scheduling.plan_steps:
            job = within.snapshot.pending[place]
            if within.consider(place):
                limits_s[job.job_id] = inf if job.time_limit_s is None else job.time_limit_s
            yield
            place = within.scan.next(place)
        starts[before:] = with_lenders(self.snapshot, starts[before:], limits_s)
        self.lends = len(starts) > before
        self.lent = {job_id for job_id in limits_s if not self.draft.tasks.get(job_id)}

    def plan(self) -> Plan:
        assert self.outside is not None, "it has not come so far"
        plan = with_borrower_starts(self.outside.plan(), self.lent)
        plan = msgspec.structs.replace(plan, growths=self.growths)
        return msgspec.structs.replace(plan, is_strict=True) if self._is_strict() else plan

    def _is_strict(self) -> bool:
        """Nobody overtakes: neither by the order, nor by a guarantee or a reservation."""
        scheduling = self.snapshot.policy.scheduling
        if scheduling.order != "arrival" or scheduling.backfill != "none":
            return False
        return not self.snapshot.limits.has_guarantees and not self.snapshot.booked

    def _begin(self, view: Snapshot, preempts: bool = True) -> SchedulingPass:
        self.spent = self.cost
        ground = self.grounds.of(view)
        known = view if view.nodes is ground.nodes else replace(view, nodes=ground.nodes)
        self.current = SchedulingPass(known, ground, self.options, self.draft, preempts)
        return self.current

    def _end_inside(self, within: SchedulingPass, one: Booked) -> None:
        """Nothing is promised here to those who may as well start outside, and why they wait is said there."""
        columns = within.scan.columns
        places = () if one.is_flex else np.flatnonzero(columns.reservation).tolist()
        bound = {JobId(int(columns.job_id[place])): place for place in places}
        told = [each for each in within.protection.told() if each.job_id in bound]
        self.draft.protected += [msgspec.structs.replace(each, reservation=one.name) for each in told]
        for head in within.heads.values():
            self.draft.heads_inside.setdefault(one.name, head)
        for job_id, wait in within.waits.items():
            if job_id in bound:
                job = within.snapshot.pending[bound[job_id]]
                self.draft.waits_inside[job_id] = self._told_inside(job, wait, one)
        self.snapshot = with_running(self.snapshot, within.started_jobs())
        for each in within.preempting.decided if within.preempting else ():
            self.snapshot = with_decided(self.snapshot, each.claim, each.victims, each.gifts)

    def _told_inside(self, job: PendingJob, wait: Wait, one: Booked) -> Wait:
        named = named_reservations(self.snapshot, job, self.snapshot.booked)
        return named_wait(named, job.user, job.time_limit_s, self.snapshot.now) or as_told_inside(job, wait, one)

    def _tell_too_big(self, last: SchedulingPass) -> Iterator[None]:
        """Of those that wait until theirs begins: who would not fit in it then."""
        for job_id, wait in list(last.waits.items()):
            place = last.scan.index_of(job_id)
            is_asked = self.options.asked is None or job_id in self.options.asked
            if isinstance(wait, ReservationBegins) and place is not None and is_asked:
                last.waits[job_id] = self._never_inside(last.snapshot.pending[place]) or wait
                yield

    def _never_inside(self, job: PendingJob) -> Wait | None:
        """Why it does not fit in the first occurrence; None: it fits in some."""
        told = None
        for one in (one for one in self.snapshot.booked if one.name == job.reservation):
            view = inside(self.snapshot, one)
            ground = self.grounds.of(view)
            wait = ground.hopeless(replace(view, nodes=ground.nodes), job)
            if not isinstance(wait, Infeasible | NoNodes):
                return None
            told = told or as_told_inside(job, wait, one)
        return told


class Planner:
    """`begin` a pass on a snapshot, then `step` until a plan comes out."""

    def __init__(self) -> None:
        self._pass: PlanningSession | None = None
        self._work: Iterator[None] = iter(())
        self._grounds = Grounds()

    @property
    def is_busy(self) -> bool:
        return self._pass is not None

    def begin(
        self,
        snapshot: Snapshot,
        skip_reasons: bool = True,
        asked: Collection[JobId] | None = None,
        *,
        skip_planned_starts: bool = False,
    ) -> None:
        """Forget a pass that is under way and start on this snapshot.

        A pass that stops early leaves out reasons that would have to be worked out; else each job has its own, or
        those that are asked for.  A brief one also leaves out when the protected start, where nothing hangs on it:
        what it starts is the same, and so is what later ones start.
        """
        self._grounds.forget_all_but(snapshot.booked)
        self._pass = PlanningSession(snapshot, self._grounds, PassOptions(skip_reasons, asked, skip_planned_starts))
        self._work = self._pass.work()

    def step(self, budget: int) -> Plan | None:
        """Go on for so many units of work; the plan when the pass is over, else None.

        Deterministic: the same snapshot gives the same plan, however the budget slices it.
        """
        assert self._pass is not None, "begin first"
        until = self._pass.cost + budget
        for _ in self._work:
            if self._pass.cost >= until:
                return None
        plan, self._pass = self._pass.plan(), None
        return plan


def plan_whole(snapshot: Snapshot, asked: Collection[JobId] | None = None) -> Plan:
    """A whole pass at once, with the reason of every job, or of those asked: for explanations, estimates and tests."""
    planner = Planner()
    planner.begin(snapshot, skip_reasons=False, asked=asked)
    while (plan := planner.step(1_000_000)) is None:
        pass
    return plan
