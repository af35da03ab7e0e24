"""The planner: makes a plan from a snapshot in small steps, so that the controller's loop is never held up.  Pure.

A plan is made in this order: (1) jobs that already have victims; (2) one scheduling pass inside each active
reservation; (3) one pass outside all reservations; (4) borrowers of idle reserved resources; (5) growth of elastic
jobs.
"""

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
from gqd.sched.cycle.scheduling_pass import SchedulingPass
from gqd.sched.cycle.state import PassOptions, PassState, PlanDraft
from gqd.sched.preemption.nominations import with_decided, with_nominations
from gqd.sched.preemption.resize import growths
from gqd.sched.reasons.eligibility import EligibilityCaches
from gqd.sched.reservation.scope import active, inside, outside, with_running
from gqd.sched.reservation.windows import as_told_inside, named_reservations, named_wait
from gqd.sched.snapshot.model import PendingJob, ReservedOccurrence, Snapshot
from gqd.state.plan import Growth, Infeasible, NoNodes, Plan, ReservationBegins, Wait


class PlanningSession:
    """The making of one plan: runs the scheduling passes in their order and collects their results."""

    def __init__(self, snapshot: Snapshot, eligibility: EligibilityCaches, options: PassOptions) -> None:
        self.snapshot = snapshot
        self.eligibility = eligibility
        self.options = options
        self.draft = PlanDraft.of(snapshot)
        self.spent = 0
        self.current: PassState | None = None
        self.growths: tuple[Growth, ...] = ()
        self.outside: PassState | None = None
        self.lends = False
        """A job starts on reserved resources that it borrows."""
        self.lent: set[JobId] = set()
        """The borrowers that have started, except arrays of which tasks still wait."""

    @property
    def cost(self) -> int:
        """Units of work done so far."""
        return self.spent + (0 if self.current is None else self.current.cost)

    def work(self) -> Iterator[None]:
        """Make the plan; yields after each step."""
        yield from self._try_nominated()
        for occurrence in active(self.snapshot):
            view = inside(self.snapshot, occurrence)
            if len(view.pending):
                inside_pass = self._begin(view)
                yield from inside_pass.work()
                self._end_inside(inside_pass.state, occurrence)
        outside_pass = self._begin(outside(self.snapshot))
        self.outside = outside_pass.state
        self.outside.waits |= self.draft.waits_inside
        yield from outside_pass.work()
        yield from self._lend(self.outside)
        self.growths = () if self.lends else growths(self.outside)  # beside borrowers, the next plan decides on growth
        if not self.options.skip_reasons:
            yield from self._find_too_big(self.outside)

    def _try_nominated(self) -> Iterator[None]:
        """Try the jobs that already have victims first; later passes see them as running on their grants."""
        for claim in self.snapshot.claims:
            view = nominee_view(self.snapshot, claim)
            if len(view.pending):
                nominee_pass = self._begin(view, preempts=False)
                try_nomination(nominee_pass, claim, planned_starts_of_others(self.snapshot, view, claim.job_id))
                self.snapshot = after_nomination(self.snapshot, claim, nominee_pass.state.started_jobs())
                yield
        self.snapshot = with_nominations(self.snapshot)

    def _lend(self, outside_state: PassState) -> Iterator[None]:
        """Lend idle reserved resources after all other jobs have been tried, in at most `plan_steps` further steps."""
        candidates = borrowers(outside_state)
        if not len(candidates):
            return
        lending_pass = self._begin(snapshot_for_borrowers(self.snapshot, outside_state, candidates), preempts=False)
        lending = lending_pass.state
        add_protected_windows(lending, outside_state)
        starts, limits_s = self.draft.starts, dict[JobId, float]()
        before = len(starts)
        queue_index = lending.scan.next(0)
        while queue_index is not None and lending.cost < lending.scheduling.plan_steps:
            job = lending.snapshot.pending[queue_index]
            if lending_pass.consider(queue_index):
                limits_s[job.job_id] = inf if job.time_limit_s is None else job.time_limit_s
            yield
            queue_index = lending.scan.next(queue_index)
        starts[before:] = with_lenders(self.snapshot, starts[before:], limits_s)
        self.lends = len(starts) > before
        self.lent = {job_id for job_id in limits_s if not self.draft.tasks.get(job_id)}

    def plan(self) -> Plan:
        """Return the plan; `work` must have ended."""
        assert self.outside is not None, "the pass outside reservations has not begun"
        plan = with_borrower_starts(self.outside.plan(), self.lent)
        plan = msgspec.structs.replace(plan, growths=self.growths)
        return msgspec.structs.replace(plan, is_strict=True) if self._is_strict() else plan

    def _is_strict(self) -> bool:
        """Return whether no job can overtake another: by the order, backfill, a guarantee or a reservation."""
        scheduling = self.snapshot.policy.scheduling
        if scheduling.order != "arrival" or scheduling.backfill != "none":
            return False
        return not self.snapshot.limits.has_guarantees and not self.snapshot.booked

    def _begin(self, view: Snapshot, preempts: bool = True) -> SchedulingPass:
        """Begin a pass over this view of the cluster, with cached eligibility."""
        self.spent = self.cost
        eligibility = self.eligibility.of(view)
        view = view if view.nodes is eligibility.nodes else replace(view, nodes=eligibility.nodes)
        self.current = PassState(view, eligibility, self.options, self.draft)
        return SchedulingPass(self.current, preempts)

    def _end_inside(self, state: PassState, occurrence: ReservedOccurrence) -> None:
        """Collect the results of a pass inside a reservation.

        Jobs that could start outside as well get no planned start and no reason here: the pass outside gives them.
        """
        columns = state.scan.columns
        bound_indices = () if occurrence.is_flex else np.flatnonzero(columns.reservation).tolist()
        bound = {JobId(int(columns.job_id[queue_index])): queue_index for queue_index in bound_indices}
        planned_starts = [start for start in state.planned_starts.as_protected() if start.job_id in bound]
        name = occurrence.name
        self.draft.protected += [msgspec.structs.replace(start, reservation=name) for start in planned_starts]
        for head in state.heads.values():
            self.draft.heads_inside.setdefault(name, head)
        for job_id, wait in state.waits.items():
            if job_id in bound:
                job = state.snapshot.pending[bound[job_id]]
                self.draft.waits_inside[job_id] = self._reason_inside(job, wait, occurrence)
        self.snapshot = with_running(self.snapshot, state.started_jobs())
        for decision in state.decided:
            self.snapshot = with_decided(self.snapshot, decision.claim, decision.victims, decision.shrinks)

    def _reason_inside(self, job: PendingJob, wait: Wait, occurrence: ReservedOccurrence) -> Wait:
        """Return why a job waits that could start only inside the reservation."""
        named = named_reservations(self.snapshot, job, self.snapshot.booked)
        return named_wait(named, job.user, job.time_limit_s, self.snapshot.now) or as_told_inside(job, wait, occurrence)

    def _find_too_big(self, state: PassState) -> Iterator[None]:
        """Find the jobs that wait for their reservation to begin but could never fit into it, and say so."""
        for job_id, wait in list(state.waits.items()):
            queue_index = state.scan.index_of(job_id)
            is_asked = self.options.asked is None or job_id in self.options.asked
            if isinstance(wait, ReservationBegins) and queue_index is not None and is_asked:
                state.waits[job_id] = self._never_inside(state.snapshot.pending[queue_index]) or wait
                yield

    def _never_inside(self, job: PendingJob) -> Wait | None:
        """Return why the job does not fit into the first occurrence of its reservation; None: it fits into one."""
        first_reason = None
        for occurrence in (booked for booked in self.snapshot.booked if booked.name == job.reservation):
            view = inside(self.snapshot, occurrence)
            eligibility = self.eligibility.of(view)
            wait = eligibility.never_fits_reason(replace(view, nodes=eligibility.nodes), job)
            if not isinstance(wait, Infeasible | NoNodes):
                return None
            first_reason = first_reason or as_told_inside(job, wait, occurrence)
        return first_reason


class Planner:
    """Makes plans: `begin` with a snapshot, then `step` until it returns the plan."""

    def __init__(self) -> None:
        self._session: PlanningSession | None = None
        self._work: Iterator[None] = iter(())
        self._eligibility = EligibilityCaches()

    @property
    def is_busy(self) -> bool:
        """Return whether a plan is being made."""
        return self._session is not None

    def begin(
        self,
        snapshot: Snapshot,
        skip_reasons: bool = True,
        asked: Collection[JobId] | None = None,
        *,
        skip_planned_starts: bool = False,
    ) -> None:
        """Begin a plan for this snapshot; a plan that is being made is dropped.

        skip_reasons: leave out reasons that take extra work; else every job, or every job in `asked`, gets its own.
        skip_planned_starts: leave out planned starts on which no decision depends; what this plan and later ones start
        is the same without them.
        """
        self._eligibility.forget_all_but(snapshot.booked)
        self._session = PlanningSession(
            snapshot, self._eligibility, PassOptions(skip_reasons, asked, skip_planned_starts)
        )
        self._work = self._session.work()

    def step(self, budget: int) -> Plan | None:
        """Do about `budget` units of work; return the plan once it is complete, else None.

        The same snapshot gives the same plan, however the work is divided into steps.
        """
        assert self._session is not None, "begin first"
        until = self._session.cost + budget
        for _ in self._work:
            if self._session.cost >= until:
                return None
        plan, self._session = self._session.plan(), None
        return plan


def plan_whole(snapshot: Snapshot, asked: Collection[JobId] | None = None) -> Plan:
    """Make a plan at once, with the reason of every job or of those in `asked`: for explanations and estimates."""
    planner = Planner()
    planner.begin(snapshot, skip_reasons=False, asked=asked)
    while (plan := planner.step(1_000_000)) is None:
        pass
    return plan
