"""On random clusters: an extension is granted exactly when no start of a waiting job moves later, promised or expected,
and nothing reserved is reached.  What would happen is seen by a full replan of a copy of the cluster in which the limit
was really raised, and by rehearsals of the queue in which the job ends at its limit.

``GQ_CLUSTERS=1000`` looks at so many clusters instead of a few; a failure names its seed.
"""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from math import inf

import pytest

from gq.errors import Refusal
from gq.model.ids import JobId
from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking
from gq.model.resource import ResourceRequest
from gq.model.state import JobState
from gq.units import parse_duration_s
from gq.wire import client
from gqd.control.forecast.estimate import promises_of, queue_input_of
from gqd.control.forecast.extend import MAX_COUNTED, MAX_PASSES
from gqd.sched.forecast import EXACT_PASSES, Forecast
from gqd.sched.planner import plan_whole
from gqd.state.plan import Plan
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, PROMPT, inventory, submit
from tests.effort import first
from tests.hosts import CoreHost
from tests.property.streams import scheduling

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "2"))
ROUNDS = 15
MAX_TIME_S = 5000
LIMITS = (60, 300, 600, 1800, 3600)


class Life:
    """A cluster on which jobs come and end, and some of which is reserved."""

    def __init__(self, seed: int, policy_name: str) -> None:
        self.random = random.Random(seed)
        policy = Policy(
            owner_uid=OWNER.uid,
            scheduling=scheduling(policy_name, protected_jobs=self.random.choice((1, 2, 4))),
            partitions=(Partition(name="main", is_default=True, max_time_s=MAX_TIME_S),),
            booking=Rules(users=True),
            timers=PROMPT,
        )
        nodes = {f"n{one}": inventory(cpus=8, gpu_count=4) for one in range(1, self.random.randint(2, 4))}
        self.host = CoreHost(policy, nodes, checked=False)
        self.now = 0.0

    def go_on(self) -> None:
        self.now += self.random.choice((1.0, 7.5, 60.0, 200.0))
        self.host.beat(self.now)
        for job in list(self.host.cluster.jobs.values()):
            if job.state is JobState.RUNNING and (self.random.random() < 0.15 or self._is_over(job.job_id)):
                self.host.finish(job.job_id, now=self.now)
        for _ in range(self.random.randint(0, 3)):
            self._arrive()
        if self.random.random() < 0.15:
            self._reserve()
        self.host.schedule(self.now)
        self.host.obey()

    def _is_over(self, job_id: JobId) -> bool:
        job = self.host.job(job_id)
        return (job.start_at or 0.0) + (job.time_limit_s or inf) <= self.now

    def _arrive(self) -> None:
        pick = self.random
        body = submit(
            gpus=pick.choice((1, 1, 2, 4, 6)), cpus_per_task=pick.choice((1, 2)), time_limit_s=pick.choice(LIMITS)
        )
        try:
            self.host.submit(body, self.now)
        except Refusal as refusal:
            assert refusal.code == "impossible"

    def _reserve(self) -> None:
        begin_at = self.now + self.random.choice((400.0, 2000.0))
        resources = ResourceRequest(gpus=self.random.choice((1, 3)))
        number = len(self.host.cluster.reservations)
        booking = Booking(name=f"r{number}", resources=resources, begin_at=begin_at, duration_s=600)
        try:
            self.host.ask(client.SetReservation(booking=booking), self.now)
        except Refusal as refusal:
            assert refusal.code in ("conflict", "impossible"), refusal

    def running(self) -> list[JobId]:
        return [job.job_id for job in self.host.cluster.jobs.values() if job.state is JobState.RUNNING]


def promised(plan: Plan, now: float) -> dict[JobId, float]:
    starts = {one.job_id: one.starts_at for one in plan.protected if one.is_promise}
    return starts | dict.fromkeys(plan.starting, now)


def expected(life: Life, job_id: JobId, by_s: int, max_passes: int) -> tuple[dict[JobId, float], set[JobId]]:
    """When the first jobs in the queue start if the job ends `by_s` after its limit, and those with a promise."""
    host, now = life.host, life.now
    scene = queue_input_of(host.cluster, host.policy, host.controller.volatile, now).forecast_input
    limit_s = host.job(job_id).time_limit_s + by_s
    view = scene.snapshot
    running = tuple(
        replace(one, ends_at=one.began_at + limit_s, expected_s=float(limit_s)) if one.job_id == job_id else one
        for one in view.running
    )
    counted = [job.job_id for job in view.pending[:MAX_COUNTED]]
    rehearsal = Forecast(replace(scene, snapshot=replace(view, running=running)), counted, max_passes=max_passes)
    while not rehearsal.step(1000):
        pass
    starts = {one: rehearsal.starts[one].starts_at for one in counted if one in rehearsal.starts}
    return starts, set(promises_of(rehearsal.first_plan))


def puts_off_expected(life: Life, job_id: JobId, by_s: int) -> bool:
    """A job that waits without a promise is expected to start later."""
    before, with_promise = expected(life, job_id, 0, MAX_PASSES)
    after, _ = expected(life, job_id, by_s, EXACT_PASSES)
    return any(after.get(one, inf) > at + 1e-6 for one, at in before.items() if one not in with_promise)


def may_have(life: Life, job_id: JobId, by_s: int) -> bool:
    """As a replan says, with the limit raised by somebody who may do so whatever comes of it."""
    if puts_off_expected(life, job_id, by_s):
        return False
    before, after = (pickle.loads(pickle.dumps(life.host)) for _ in range(2))
    now = life.now
    base = plan_whole(before.controller.snapshot(now))
    were = {one.job_id for one in before.controller.volatile.plan.protected if one.is_promise}
    limit_s = after.job(job_id).time_limit_s + by_s
    try:
        after.ask(client.UpdateJob(job_id=job_id, time_limit_s=limit_s), now)
    except Refusal as refusal:
        assert refusal.code in ("reaches_reservation", "time_limit"), refusal
        return False
    then = promised(plan_whole(after.controller.snapshot(now)), now)
    told = {one.job_id for one in base.protected if one.is_promise} | (were & base.starting)
    return all(then.get(one, inf) <= at for one, at in promised(base, now).items() if one in told)


def longest_told(refusal: Refusal) -> int:
    assert refusal.code == "not_extended"
    words = refusal.hint.split()
    return parse_duration_s(words[2].removeprefix("+")) or 0 if words[0] == "at" else 0


def extended(host: CoreHost, job_id: JobId, by_s: int) -> int:
    """How much would be granted, up to what is asked for."""
    try:
        answer = host.study(client.ExtendJob(job_id=job_id, by_s=by_s))
    except Refusal as refusal:
        return longest_told(refusal)
    if isinstance(answer, client.Refused):
        return longest_told(Refusal(answer.code, answer.message, answer.hint))
    assert isinstance(answer, client.Extended)
    return by_s


@pytest.mark.parametrize("policy", first(1, ["default", "easy-user", "conservative"]))
def test_an_extension_is_granted_exactly_when_it_puts_off_nobody(policy: str) -> None:
    granted = refused = 0
    for seed in range(CLUSTERS):
        life = Life(seed, policy)
        for _ in range(ROUNDS):
            life.go_on()
            if not life.running() or life.random.random() < 0.5:
                continue
            job_id = life.random.choice(life.running())
            by_s = life.random.choice((10, 100, 600, 2000, 6000))
            may = may_have(life, job_id, by_s)
            longest = extended(pickle.loads(pickle.dumps(life.host)), job_id, by_s)
            where = f"seed {seed} at {life.now}: job {job_id} +{by_s}, told {longest}"
            assert (longest == by_s) == may, where
            assert not longest or may_have(life, job_id, longest), where
            more = {longest + 1, life.random.randint(longest + 1, by_s)} if longest < by_s else set()
            assert not any(may_have(life, job_id, one) for one in sorted(more)), where
            granted, refused = granted + may, refused + (not may)
            if may:
                extended(life.host, job_id, by_s)
    assert granted and refused, "something was seen of both"


@pytest.mark.parametrize("policy", first(1, ["default", "easy-user", "conservative"]))
def test_what_was_promised_is_kept_whoever_is_given_more_time(policy: str) -> None:
    for seed in range(CLUSTERS):
        life = Life(1000 + seed, policy)
        for _ in range(ROUNDS):
            life.go_on()
            for job_id in life.running():
                before = life.host.controller.volatile.plan
                assert before is not None
                extended(life.host, job_id, life.random.choice((10, 600, 2000)))
                life.host.schedule(life.now)
                life.host.obey()
                after = life.host.controller.volatile.plan
                assert after is not None
                then = promised(after, life.now)
                kept = {one.job_id: one.starts_at for one in before.protected if one.is_promise}
                late = [one for one, at in kept.items() if then.get(one, inf) > max(at, life.now)]
                assert not late, f"seed {1000 + seed} at {life.now}: jobs {late} after job {job_id}"
