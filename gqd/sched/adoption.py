"""Does a plan still hold: what is free for whom as its starts are adopted, one after the other.  Pure.

The same rules as in the pass that made the plan, on the cluster as it is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from gq.model.account import NORMAL_QOS
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant, gpus_in
from gqd.sched.backfill.windows import Guard
from gqd.sched.cycle.lending import borrower_view, may_borrow
from gqd.sched.limits.ledger import Asker, Ledger
from gqd.sched.placement.placement import is_possible
from gqd.sched.preemption.nominations import beside_claims, keep, told_to_go, without_claim
from gqd.sched.preemption.partial_release import grant_of, part_of
from gqd.sched.preemption.preempt import apart_from_reserved, gone_at, is_beside, preempted_by, that_may_go
from gqd.sched.preemption.reclaim import Borrowed
from gqd.sched.preemption.suspend_victims import counts_on, give, without_lent
from gqd.sched.preemption.timeslice import Taker, givers_of, gives_turn_at, is_through
from gqd.sched.preemption.timeslice_victims import that_give_turns
from gqd.sched.reservation.scope import active, inside, outside, with_running
from gqd.sched.reservation.windows import is_too_long, masks_of, named_by, named_wait, windows_of
from gqd.sched.snapshot.model import Booked, Claim, Overlay, RunningJob, Snapshot
from gqd.sched.timeline.timeline import Ends, Timeline, ending_of
from gqd.state.index.tally import account_path
from gqd.state.plan import Gift, Preemption, Start
from gqd.state.records import mask_of


class StartRequest(NamedTuple):
    """A job that is to start."""

    job_id: JobId
    user: str
    account: str
    reservation: str
    time_limit_s: int | None
    qos: str = NORMAL_QOS
    since: float = inf
    """See `gqd.sched.snapshot.model.PendingJob`; likewise the next."""
    ran_s: float = 0.0


class _Scope(NamedTuple):
    view: Snapshot
    guard: Guard
    up: dict[str, int]
    """Where the nodes are that may get jobs."""

    def take(self, grants: tuple[Grant, ...], ends: Ends) -> bool:
        if not is_possible(self.guard.now, grants, self.up) or self.guard.make_room(grants, ends) is not None:
            return False
        self.guard.start(grants, ends)
        return True

    def keep(self, claim: Claim, victims: Sequence[RunningJob], ends: Ends) -> bool:
        """All of the claim is free when these are gone; then it is nobody else's."""
        guard, met = self.guard, self.guard.booked_met(ends)
        masks = masks_of(guard.places, claim.grants)
        leaving = [one for one in victims if one.job_id not in claim.parks]
        if any(one.shares(masks) for one in met) or not is_beside(guard, met, claim.grants, leaving):
            return False
        if any(counts_on(guard, one, window) for one in victims if one not in leaving for window in guard.booked):
            return False
        checkpoint = guard.now.checkpoint()
        for grant in (grant for one in leaving for grant in one.grants if grant.node in guard.places):
            guard.now.give_back(guard.places[grant.node], grant)
        give(guard.now, [grant for one in victims if one.job_id in claim.parks for grant in one.grants])
        is_free = is_possible(guard.now, claim.grants, self.up)
        guard.now.rollback(checkpoint)
        if is_free:
            going = told_to_go(victims, {one.job_id for one in victims}, claim.job_id, self.view.now)
            keep(guard.now, going, claim, self.view.now)
            guard.keep(claim.grants, ends)
        return is_free


class PlanValidator:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._started: list[RunningJob] = []
        """And not in the snapshot yet."""
        self._inside: dict[tuple[str, int], _Scope] = {}
        self._outside: _Scope | None = None
        self._lent: _Scope | None = None
        """For those who may borrow what is reserved."""
        self._going: set[JobId] = set()
        """They have been told to give way."""
        self._given: dict[tuple[AttemptId, str], int] = {}
        """What others are to give up, by node, as a mask: they go on."""
        self._borrowed = Borrowed(snapshot.limits)

    def admit(self, start: Start, job: StartRequest) -> bool:
        """It may start so; then it holds that.

        In a plan those come first to whom others give way, then what it starts inside of reservations, and last those
        who borrow.
        """
        if all(one.job_id != job.job_id for one in self._snapshot.claims):
            return self._take(start, job)
        if self._outside is not None or self._inside or self._lent is not None:
            return False
        alone = PlanValidator(beside_claims(self._snapshot, but=job.job_id))
        if not alone._take(start, job):
            return False
        ends_at = None if job.time_limit_s is None else self._snapshot.now + job.time_limit_s
        lent = [grant for one in self._snapshot.claims if one.job_id == job.job_id for grant in one.parked]
        running = without_lent([_running(start, job, ends_at)], lent)
        self._snapshot = with_running(without_claim(self._snapshot, job.job_id), running)
        return True

    def admit_preemption(self, one: Preemption, job: StartRequest) -> bool:
        """All of its victims may be told to go, and that is enough; then they are nobody else's, nor is the rest.

        After the starts of the plan.
        """
        scope = self._scope_of(one.reservation, one.occurrence, job)
        if scope is None:
            return False
        victims, parts = self._victims(scope, one, job), self._parts(scope, one)
        if victims is None or parts is None:
            return False
        ends = [gone_at(each, self._snapshot.now) for each in victims] + [each.ends_at for each in one.gifts]
        claim = _claim_of(one, job, max(ends, default=self._snapshot.now))
        if not scope.keep(claim, [*victims, *parts], _ends_of(claim)):
            return False
        self._going |= {each.job_id for each in victims}
        for each in one.gifts:
            key = each.attempt_id, each.node
            self._given[key] = self._given.get(key, 0) | mask_of(each.gpus)
        return True

    def _parts(self, scope: _Scope, one: Preemption) -> list[RunningJob] | None:
        """What is given up for it; None, if some of it may not be."""
        givers = {AttemptId(each.job_id, each.attempt): each for each in scope.view.running if each.stretch is not None}
        parts = []
        for gift in one.gifts:
            giver = givers.get(gift.attempt_id)
            if giver is None or giver.job_id in self._going or not self._may_give(giver, gift):
                return None
            parts.append(part_of(giver, grant_of(gift), gift.ends_at, one.job_id))
        return parts

    def _may_give(self, giver: RunningJob, gift: Gift) -> bool:
        stretch = giver.stretch
        if stretch is None or stretch.generation != gift.generation:
            return False
        if stretch.share is not None:
            return gift.is_node and gift.node in stretch.joined and (gift.attempt_id, gift.node) not in self._given
        if giver.grants[0].node != gift.node:
            return False
        gone = mask_of(stretch.least) | self._given.get((gift.attempt_id, gift.node), 0)
        return not mask_of(gift.gpus) & ~(mask_of(giver.grants[0].gpus) & ~gone)

    def _victims(self, scope: _Scope, one: Preemption, job: StartRequest) -> list[RunningJob] | None:
        """None, if one of them may not be told to go."""
        view, wanted = scope.view, set(one.victims)
        victims = [
            each
            for each in view.running
            if AttemptId(each.job_id, each.attempt) in wanted
            and each.job_id not in self._going
            and all(AttemptId(each.job_id, each.attempt) != attempt_id for attempt_id, _ in self._given)
        ]
        victims = apart_from_reserved(view, that_may_go(victims, view.qos, view.now, view.inside))
        names = preempted_by(job.qos, view.qos)
        lent = [] if view.inside is None else [each.job_id for each in victims if each.is_borrowing]
        others = [each for each in victims if each.qos not in names and each.job_id not in lent]
        taken_back = [] if _give_turns(view, others, one, job) else others
        if len(victims) < len(wanted) or not self._may_take_back(taken_back, one, job):
            return None
        return victims

    def _may_take_back(self, victims: Sequence[RunningJob], one: Preemption, job: StartRequest) -> bool:
        """Or there is nothing to take back."""
        if not victims:
            return True
        asker = Asker(job.user, job.account, job.qos)
        is_owner = Ledger(self._snapshot.limits).is_guaranteed(asker, gpus_in(one.grants))
        return one.is_reclaim and is_owner and self._borrowed.take(victims, job.account)

    def _scope_of(self, reservation: str, occurrence: int, job: StartRequest) -> _Scope | None:
        if not reservation:
            return self._outside_scope() if not job.reservation or self._may_be_outside(job) else None
        key = (reservation, occurrence)
        one = next((one for one in active(self._snapshot) if (one.name, one.number) == key), None)
        if one is None or not self._may_be_inside(one, job):
            return None
        if key not in self._inside:
            self._inside[key] = _scope(inside(self._as_it_stands(), one))
        return self._inside[key]

    def _outside_scope(self) -> _Scope:
        if self._outside is None:
            self._outside = _scope(outside(self._as_it_stands()))
        return self._outside

    def _borrower_scope(self, job: StartRequest) -> _Scope | None:
        """From then on the others have room only beside those who borrow."""
        if job.reservation or not may_borrow(job.qos, self._snapshot.qos):
            return None
        if self._lent is None:
            self._lent = _scope(borrower_view(self._as_it_stands()))
            self._outside, self._inside = None, {}
        return self._lent

    def _take(self, start: Start, job: StartRequest) -> bool:
        if (start.reservation and self._outside is not None) or (self._lent is not None and not start.borrows):
            return False
        scope = self._borrower_scope(job) if start.borrows else self._scope_of(start.reservation, start.occurrence, job)
        by_limit = inf if job.time_limit_s is None else self._snapshot.now + job.time_limit_s
        if scope is None or not scope.take(start.grants, Ends(by_limit, by_limit)):
            return False
        self._started.append(_running(start, job, by_limit if by_limit < inf else None))
        return True

    def _may_be_outside(self, job: StartRequest) -> bool:
        named = named_by(job, self._snapshot.booked, self._path(job))
        return named.is_flex and named_wait(named, job.user, job.time_limit_s, self._snapshot.now) is None

    def _may_be_inside(self, one: Booked, job: StartRequest) -> bool:
        comes = job.reservation == one.name or (one.is_magnetic and not job.reservation)
        return comes and one.is_for(job.user, self._path(job)) and not is_too_long(job, one, self._snapshot.now)

    def _path(self, job: StartRequest) -> tuple[str, ...]:
        return account_path(self._snapshot.limits.accounts, job.account)

    def _as_it_stands(self) -> Snapshot:
        """For everybody but those to whom others give way, of whom none starts any more."""
        self._snapshot, self._started = with_running(beside_claims(self._snapshot), self._started), []
        return self._snapshot


def _scope(view: Snapshot) -> _Scope:
    places = {node.name: place for place, node in enumerate(view.nodes)}
    guard = Guard(Overlay.of(view), places)
    if view.booked:
        known = ((one.ends_at, one.grants) for one in view.running if not one.is_stranded)
        endings = (ending_of(max(view.now, at), places, grants) for at, grants in known if at is not None)
        guard.book(windows_of(view.booked, places, view.now, Timeline(guard.now, places, view.now, endings)))
    return _Scope(view, guard, {node.name: place for place, node in enumerate(view.nodes) if not node.unavailable})


def _give_turns(view: Snapshot, victims: Sequence[RunningJob], one: Preemption, job: StartRequest) -> bool:
    """All of these may, where jobs take turns."""
    rules = view.policy.scheduling
    if rules.preempt != "turns" or len(that_give_turns(victims, view.qos)) < len(victims):
        return False
    taker = Taker(job.since, is_through(job.ran_s, rules), len(one.grants) > 1)
    return bool((gives_turn_at(givers_of(victims, rules), taker) <= view.now).all())


def _claim_of(one: Preemption, job: StartRequest, until: float) -> Claim:
    return Claim(
        job_id=job.job_id,
        grants=one.grants,
        until=until,
        user=job.user,
        time_limit_s=job.time_limit_s,
        reservation=one.reservation,
        occurrence=one.occurrence,
        parks=frozenset(each.job_id for each in one.parks),
    )


def _ends_of(claim: Claim) -> Ends:
    by_limit = inf if claim.time_limit_s is None else claim.until + claim.time_limit_s
    return Ends(by_limit, by_limit)


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
