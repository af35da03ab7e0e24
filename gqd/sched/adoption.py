"""Adoption of a plan: checks each of its decisions, one after the other, against the cluster as it is now.  Pure.

The rules are those of the scheduling pass that made the plan, since the cluster may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from gq.model.account import NORMAL_QOS
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant, gpus_in
from gqd.sched.backfill.windows import BackfillProfile
from gqd.sched.cycle.lending import borrower_view, may_borrow
from gqd.sched.limits.ledger import Ledger, LimitSubject
from gqd.sched.placement.placement import is_possible
from gqd.sched.preemption.nominations import as_preempted, keep, with_nominations, without_nomination
from gqd.sched.preemption.partial_release import as_pseudo_job, grant_of
from gqd.sched.preemption.preempt import apart_from_reserved, gone_at, is_beside, preempted_by, preemptible_jobs
from gqd.sched.preemption.reclaim import OverQuota
from gqd.sched.preemption.suspend_victims import counts_on, give, without_lent
from gqd.sched.preemption.timeslice import Contender, has_used_first_quantum, holders_of, sliceable_at
from gqd.sched.preemption.timeslice_victims import that_give_turns
from gqd.sched.reservation.scope import active, inside, outside, with_running
from gqd.sched.reservation.windows import is_too_long, masks_of, named_by, named_wait, windows_of
from gqd.sched.snapshot.model import Nomination, Overlay, ReservedOccurrence, RunningJob, Snapshot
from gqd.sched.timeline.timeline import EndTimes, Timeline, release_of
from gqd.state.index.tally import account_path
from gqd.state.plan import Preemption, Shrink, Start
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


class _Scope(NamedTuple):
    """The resources that are open to one class of jobs: outside reservations, inside one, or to borrowers."""

    view: Snapshot
    backfill: BackfillProfile
    available: dict[str, int]
    """Index of each node, by its name, on which jobs may start."""

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
        self._given: dict[tuple[AttemptId, str], int] = {}
        """Mask of the GPUs that an elastic job, which continues, is to release on a node: (attempt, node)."""
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
        if scope is None:
            return False
        victims, parts = self._victims(scope, preemption, job), self._parts(scope, preemption)
        if victims is None or parts is None:
            return False
        ends = [gone_at(victim, self._snapshot.now) for victim in victims]
        ends += [shrink.ends_at for shrink in preemption.shrinks]
        claim = _claim_of(preemption, job, max(ends, default=self._snapshot.now))
        if not scope.keep(claim, [*victims, *parts], _ends_of(claim)):
            return False
        self._going |= {victim.job_id for victim in victims}
        for shrink in preemption.shrinks:
            key = shrink.attempt_id, shrink.node
            self._given[key] = self._given.get(key, 0) | mask_of(shrink.gpus)
        return True

    def _parts(self, scope: _Scope, preemption: Preemption) -> list[RunningJob] | None:
        """Return what elastic jobs release for the preemptor; None: one of them may not release it."""
        elastic_jobs = (running for running in scope.view.running if running.resize_bounds is not None)
        givers = {AttemptId(running.job_id, running.attempt): running for running in elastic_jobs}
        parts = []
        for shrink in preemption.shrinks:
            giver = givers.get(shrink.attempt_id)
            if giver is None or giver.job_id in self._going or not self._may_give(giver, shrink):
                return None
            parts.append(as_pseudo_job(giver, grant_of(shrink), shrink.ends_at, preemption.job_id))
        return parts

    def _may_give(self, giver: RunningJob, shrink: Shrink) -> bool:
        """Return whether the elastic job still has what it is to release, and beyond its minimum."""
        resize_bounds = giver.resize_bounds
        if resize_bounds is None or resize_bounds.generation != shrink.generation:
            return False
        if resize_bounds.share is not None:
            return (
                shrink.is_node
                and shrink.node in resize_bounds.joined
                and (shrink.attempt_id, shrink.node) not in self._given
            )
        if giver.grants[0].node != shrink.node:
            return False
        unavailable = mask_of(resize_bounds.least) | self._given.get((shrink.attempt_id, shrink.node), 0)
        return not mask_of(shrink.gpus) & ~(mask_of(giver.grants[0].gpus) & ~unavailable)

    def _victims(self, scope: _Scope, preemption: Preemption, job: StartRequest) -> list[RunningJob] | None:
        """Return the victims; None: one of them may not be preempted."""
        view, victim_ids = scope.view, set(preemption.victims)
        victims = [
            running
            for running in view.running
            if AttemptId(running.job_id, running.attempt) in victim_ids
            and running.job_id not in self._going
            and all(AttemptId(running.job_id, running.attempt) != attempt_id for attempt_id, _ in self._given)
        ]
        victims = apart_from_reserved(view, preemptible_jobs(victims, view.qos, view.now, view.inside))
        names = preempted_by(job.qos, view.qos)
        borrowers = [] if view.inside is None else [victim.job_id for victim in victims if victim.is_borrowing]
        others = [victim for victim in victims if victim.qos not in names and victim.job_id not in borrowers]
        reclaimed = [] if _give_turns(view, others, preemption, job) else others
        if len(victims) < len(victim_ids) or not self._may_reclaim(reclaimed, preemption, job):
            return None
        return victims

    def _may_reclaim(self, victims: Sequence[RunningJob], preemption: Preemption, job: StartRequest) -> bool:
        """Return whether the job may reclaim guaranteed GPUs from all of these victims."""
        if not victims:
            return True
        subject = LimitSubject(job.user, job.account, job.qos)
        is_owner = Ledger(self._snapshot.limits).is_guaranteed(subject, gpus_in(preemption.grants))
        return preemption.is_reclaim and is_owner and self._borrowed.take(victims, job.account)

    def _scope_of(self, reservation: str, occurrence: int, job: StartRequest) -> _Scope | None:
        """Return the scope in which the job is to start; None: it may not start there."""
        if not reservation:
            return self._outside_scope() if not job.reservation or self._may_be_outside(job) else None
        key = (reservation, occurrence)
        booked = next((active_ for active_ in active(self._snapshot) if (active_.name, active_.number) == key), None)
        if booked is None or not self._may_be_inside(booked, job):
            return None
        if key not in self._inside:
            self._inside[key] = _scope(inside(self._current(), booked))
        return self._inside[key]

    def _outside_scope(self) -> _Scope:
        if self._outside is None:
            self._outside = _scope(outside(self._current()))
        return self._outside

    def _borrower_scope(self, job: StartRequest) -> _Scope | None:
        """Return the scope of borrowers; None: the job may not borrow.

        From then on the other scopes are built anew, without what borrowers have taken.
        """
        if job.reservation or not may_borrow(job.qos, self._snapshot.qos):
            return None
        if self._lent is None:
            self._lent = _scope(borrower_view(self._current()))
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


def _scope(view: Snapshot) -> _Scope:
    node_indices = {node.name: index for index, node in enumerate(view.nodes)}
    backfill = BackfillProfile(Overlay.of(view), node_indices)
    if view.booked:
        ends = ((running.ends_at, running.grants) for running in view.running if not running.is_stranded)
        endings = (release_of(max(view.now, at), node_indices, grants) for at, grants in ends if at is not None)
        timeline = Timeline(backfill.now, node_indices, view.now, endings)
        backfill.book(windows_of(view.booked, node_indices, view.now, timeline))
    return _Scope(view, backfill, {node.name: index for index, node in enumerate(view.nodes) if not node.unavailable})


def _give_turns(view: Snapshot, victims: Sequence[RunningJob], preemption: Preemption, job: StartRequest) -> bool:
    """Return whether time slicing is on and lets the job preempt all of these victims now."""
    rules = view.policy.scheduling
    if rules.preempt != "turns" or len(that_give_turns(victims, view.qos)) < len(victims):
        return False
    taker = Contender(job.since, has_used_first_quantum(job.ran_s, rules), len(preemption.grants) > 1)
    return bool((sliceable_at(holders_of(victims, rules), taker) <= view.now).all())


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
