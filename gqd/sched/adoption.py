"""Adoption of a plan: checks each of its decisions, one after the other, against the cluster as it is now.  Pure.

The rules are those of the scheduling pass that made the plan, since the cluster may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

from gq.model.account import NORMAL_QOS
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant, gpus_in
from gqd.sched.backfill.planned_starts import PlannedStarts
from gqd.sched.cycle.lending import borrower_view, may_borrow
from gqd.sched.limits.ledger import Ledger, LimitSubject
from gqd.sched.placement.placement import is_possible
from gqd.sched.preemption.nominations import as_preempted, keep, with_nominations, without_nomination
from gqd.sched.preemption.partial_release import as_pseudo_job, grant_of
from gqd.sched.preemption.preempt import PreemptionPlanner, gone_at, is_beside, preemption_planner
from gqd.sched.preemption.reclaim import OverQuota
from gqd.sched.preemption.suspend_victims import counts_on, give, without_lent
from gqd.sched.preemption.timeslice import Contender, has_used_first_quantum
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.reservation.scope import active, inside, outside, with_running
from gqd.sched.reservation.windows import is_too_long, masks_of, named_by, named_wait
from gqd.sched.snapshot.model import Nomination, ReservedOccurrence, RunningJob, Snapshot
from gqd.sched.timeline.timeline import EndTimes
from gqd.state.index.tally import account_path
from gqd.state.plan import Preemption, Start
from gqd.state.records import mask_of


class StartRequest(NamedTuple):
    """The job for which a start or a preemption is checked."""

    job_id: JobId
    user: str
    account: str
    reservation: str
    time_limit_s: int | None
    qos: str = NORMAL_QOS
    since: float = inf
    """See `gqd.sched.snapshot.model.PendingJob.since`."""
    ran_s: float = 0.0
    """Run time of the job's earlier attempts."""


class _Scope:
    """The resources that are open to one class of jobs: outside reservations, inside one, or to borrowers."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.backfill = PlannedStarts(view, EligibilityCache(view.nodes, view.policy)).backfill
        self.available = {node.name: index for index, node in enumerate(view.nodes) if not node.unavailable}
        """Index of each node, by its name, on which jobs may start."""

    @cached_property
    def planner(self) -> PreemptionPlanner | None:
        """The planner that knows which jobs may be preempted; None: no job may be."""
        return preemption_planner(self.view, self.view.qos)

    def take(self, grants: tuple[Grant, ...], ends: EndTimes) -> bool:
        """Take the grants if they are free and a job on them delays nothing; return whether they are taken."""
        if (
            not is_possible(self.backfill.now, grants, self.available)
            or self.backfill.relocate_conflicting(grants, ends) is not None
        ):
            return False
        self.backfill.start(grants, ends)
        return True

    def keep(self, claim: Nomination, victims: Sequence[RunningJob], ends: EndTimes) -> bool:
        """Keep the claim's grants for its job if all of them are free without the victims; return whether they are."""
        backfill, met = self.backfill, self.backfill.reservations_met(ends)
        masks = masks_of(backfill.places, claim.grants)
        leaving = [victim for victim in victims if victim.job_id not in claim.parks]
        if any(window.shares(masks) for window in met) or not is_beside(backfill, met, claim.grants, leaving):
            return False
        suspended = [victim for victim in victims if victim.job_id in claim.parks]
        if any(counts_on(backfill, victim, window) for victim in suspended for window in backfill.booked):
            return False
        checkpoint = backfill.now.checkpoint()
        for grant in (grant for victim in leaving for grant in victim.grants if grant.node in backfill.places):
            backfill.now.give_back(backfill.places[grant.node], grant)
        give(backfill.now, [grant for victim in suspended for grant in victim.grants])
        is_free = is_possible(backfill.now, claim.grants, self.available)
        backfill.now.rollback(checkpoint)
        if is_free:
            going = as_preempted(victims, {victim.job_id for victim in victims}, claim.job_id, self.view.now)
            keep(backfill.now, going, claim, self.view.now)
            backfill.keep(claim.grants, ends)
        return is_free


class PlanValidator:
    """Checks the decisions of a plan in its order; each one that it admits counts for those after it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._started: list[RunningJob] = []
        """Started jobs that the snapshot does not contain yet."""
        self._inside: dict[tuple[str, int], _Scope] = {}
        """Scope of each occurrence: (reservation, number)."""
        self._outside: _Scope | None = None
        self._lent: _Scope | None = None
        """Scope of the jobs that may borrow reserved resources."""
        self._going: set[JobId] = set()
        """Victims of the preemptions admitted so far."""
        self._borrowed = OverQuota(snapshot.limits)

    def admit(self, start: Start, job: StartRequest) -> bool:
        """Return whether the job may start so; its grants are then taken.

        The order must be that of a plan: first nominated jobs, then jobs inside reservations, then all others, and
        borrowers last.
        """
        if all(claim.job_id != job.job_id for claim in self._snapshot.claims):
            return self._take(start, job)
        if self._outside is not None or self._inside or self._lent is not None:
            return False
        nominee = PlanValidator(with_nominations(self._snapshot, but=job.job_id))
        if not nominee._take(start, job):
            return False
        ends_at = None if job.time_limit_s is None else self._snapshot.now + job.time_limit_s
        lent = [grant for claim in self._snapshot.claims if claim.job_id == job.job_id for grant in claim.parked]
        running = without_lent([_running(start, job, ends_at)], lent)
        self._snapshot = with_running(without_nomination(self._snapshot, job.job_id), running)
        return True

    def admit_preemption(self, preemption: Preemption, job: StartRequest) -> bool:
        """Return whether all victims may be preempted and suffice; their resources are then kept for the preemptor.

        The preemptions of a plan come after its starts.
        """
        scope = self._scope_of(preemption.reservation, preemption.occurrence, job)
        if scope is None or scope.planner is None:
            return False
        victims, parts = self._victims(scope.planner, preemption, job), self._parts(scope.planner, preemption)
        if len(victims) < len(preemption.victims) or len(parts) < len(preemption.shrinks):
            return False
        ends = [gone_at(victim, self._snapshot.now) for victim in victims]
        ends += [shrink.ends_at for shrink in preemption.shrinks]
        claim = _claim_of(preemption, job, max(ends, default=self._snapshot.now))
        if not scope.keep(claim, [*victims, *parts], _ends_of(claim)):
            return False
        victim_ids = {victim.job_id for victim in victims}
        scope.planner.forget(victim_ids, preemption.shrinks)
        self._going |= victim_ids
        return True

    def _victims(self, planner: PreemptionPlanner, preemption: Preemption, job: StartRequest) -> list[RunningJob]:
        """Return the victims that the job may preempt; none, if it may not reclaim all of them that it has to."""
        subject, rules = LimitSubject(job.user, job.account, job.qos), self._snapshot.policy.scheduling
        is_owner = Ledger(self._snapshot.limits).is_guaranteed(subject, gpus_in(preemption.grants))
        owner = job.account if preemption.is_reclaim and is_owner else None
        taker = Contender(job.since, has_used_first_quantum(job.ran_s, rules), len(preemption.grants) > 1)
        may = planner.victims_of(job.qos, taker, owner)
        others = (other for other in planner.preemptible if other.job_id in may and other.job_id not in self._going)
        victims = [other for other in others if AttemptId(other.job_id, other.attempt) in preemption.victims]
        reclaimed = [victim for victim in victims if may[victim.job_id] is not None]
        return victims if self._borrowed.take(reclaimed, job.account) else []

    def _parts(self, planner: PreemptionPlanner, preemption: Preemption) -> list[RunningJob]:
        """Return the parts that elastic jobs may release for the preemptor: what they still have beyond their minimum.

        A victim of an earlier preemption releases none.
        """
        parts = []
        for shrink in preemption.shrinks:
            part = planner.releasable.get((shrink.attempt_id.job_id, shrink.node))
            bounds = None if part is None or part.job_id in self._going else part.resize_bounds
            if part is None or bounds is None or bounds.generation != shrink.generation:
                continue
            is_same = part.attempt == shrink.attempt_id.attempt and shrink.is_node == (bounds.share is not None)
            if is_same and not mask_of(shrink.gpus) & ~mask_of(part.grants[0].gpus):
                parts.append(as_pseudo_job(part, grant_of(shrink), shrink.ends_at, preemption.job_id))
        return parts

    def _scope_of(self, reservation: str, occurrence: int, job: StartRequest) -> _Scope | None:
        """Return the scope in which the job is to start; None: it may not start there."""
        if not reservation:
            return self._outside_scope() if not job.reservation or self._may_be_outside(job) else None
        key = (reservation, occurrence)
        booked = next((active_ for active_ in active(self._snapshot) if (active_.name, active_.number) == key), None)
        if booked is None or not self._may_be_inside(booked, job):
            return None
        if key not in self._inside:
            self._inside[key] = _Scope(inside(self._current(), booked))
        return self._inside[key]

    def _outside_scope(self) -> _Scope:
        if self._outside is None:
            self._outside = _Scope(outside(self._current()))
        return self._outside

    def _borrower_scope(self, job: StartRequest) -> _Scope | None:
        """Return the scope of borrowers; None: the job may not borrow.

        From then on the other scopes are built anew, without what borrowers have taken.
        """
        if job.reservation or not may_borrow(job.qos, self._snapshot.qos):
            return None
        if self._lent is None:
            self._lent = _Scope(borrower_view(self._current()))
            self._outside, self._inside = None, {}
        return self._lent

    def _take(self, start: Start, job: StartRequest) -> bool:
        if (start.reservation and self._outside is not None) or (self._lent is not None and not start.borrows):
            return False
        scope = self._borrower_scope(job) if start.borrows else self._scope_of(start.reservation, start.occurrence, job)
        by_limit = inf if job.time_limit_s is None else self._snapshot.now + job.time_limit_s
        if scope is None or not scope.take(start.grants, EndTimes(by_limit, by_limit)):
            return False
        self._started.append(_running(start, job, by_limit if by_limit < inf else None))
        return True

    def _may_be_outside(self, job: StartRequest) -> bool:
        """Return whether a job that names a reservation may start outside of it."""
        named = named_by(job, self._snapshot.booked, self._path(job))
        return named.is_flex and named_wait(named, job.user, job.time_limit_s, self._snapshot.now) is None

    def _may_be_inside(self, booked: ReservedOccurrence, job: StartRequest) -> bool:
        """Return whether the job may start in the occurrence."""
        is_meant = job.reservation == booked.name or (booked.is_magnetic and not job.reservation)
        is_allowed = is_meant and booked.is_for(job.user, self._path(job))
        return is_allowed and not is_too_long(job, booked, self._snapshot.now)

    def _path(self, job: StartRequest) -> tuple[str, ...]:
        return account_path(self._snapshot.limits.accounts, job.account)

    def _current(self) -> Snapshot:
        """Return the snapshot with all jobs started so far; nominated jobs, which all come first, count as running."""
        self._snapshot, self._started = with_running(with_nominations(self._snapshot), self._started), []
        return self._snapshot


def _claim_of(preemption: Preemption, job: StartRequest, until: float) -> Nomination:
    return Nomination(
        job_id=job.job_id,
        grants=preemption.grants,
        until=until,
        user=job.user,
        time_limit_s=job.time_limit_s,
        reservation=preemption.reservation,
        occurrence=preemption.occurrence,
        parks=frozenset(attempt_id.job_id for attempt_id in preemption.parks),
    )


def _ends_of(claim: Nomination) -> EndTimes:
    by_limit = inf if claim.time_limit_s is None else claim.until + claim.time_limit_s
    return EndTimes(by_limit, by_limit)


def _running(start: Start, job: StartRequest, ends_at: float | None) -> RunningJob:
    return RunningJob(
        job_id=job.job_id,
        user=job.user,
        grants=start.grants,
        ends_at=ends_at,
        reservation=start.reservation,
        occurrence=start.occurrence,
        is_borrowing=bool(start.borrows),
    )
