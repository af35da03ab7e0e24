"""Jobs that take turns, in the core: what is remembered of each, when the planner is woken, what people are told."""

from __future__ import annotations

import signal

from gq.model.ids import JobId
from gq.model.job import SignalSpec
from gq.model.policy_tables import Timers
from gq.model.scheduling import PRESETS, Scheduling
from gq.model.state import JobState
from gq.wire import client
from gqd.control.snapshot import all_running
from gqd.state.input import Tick
from gqd.state.plan import NotWorthPreemptingYet
from gqd.state.policy import Policy
from gqd.state.preemption import Resumed
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

START = 1000.0
H = 3600.0
TRIAL = 3 * H
R = 60
TURNS = Policy(
    owner_uid=OWNER.uid,
    timers=Timers(node_lost_s=1e9, grace_s=20),
    scheduling=Scheduling(**PRESETS["las"]),
)


def cluster() -> CoreHost:
    host = CoreHost(TURNS)
    host.handle(hello("n1", inventory(cpus=8, gpu_count=4)), now=START)
    return host


def wake(host: CoreHost) -> float:
    """On to when the controller wants to be woken; what follows is done."""
    at = host.controller.next_wakeup(host.now)
    assert at is not None, "it does not want to be woken"
    host.beat(at)
    host.handle(Tick(), at)
    go_on(host)
    return at


def go_on(host: CoreHost) -> None:
    host.obey()
    while host.controller.wants_plan(host.now):
        host.schedule()
        host.obey()


def states(host: CoreHost, *jobs: int) -> list[JobState]:
    return [host.job(one).state for one in jobs]


def test_a_job_takes_the_turn_of_another_when_it_has_waited_long_enough_and_that_has_its_place_back_in_time() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=4, resume_s=R))
    came_at = START + TRIAL + 100
    second = host.submit(submit("second", gpus=4, resume_s=R), now=came_at)
    go_on(host)

    assert states(host, first, second) == [JobState.RUNNING, JobState.PENDING]
    told = host.explain(second)
    assert told.why.startswith("other jobs may be preempted for it at @{11930} or later")
    assert wake(host) == came_at + R / 2
    assert states(host, first, second) == [JobState.PENDING, JobState.RUNNING]
    assert (host.job(first).ran_s, host.job(first).restart_count) == (TRIAL + 130, 1)
    assert "its trial of 3 h is over, so time slicing applies to it" in host.explain(first).why
    began_at = host.now

    assert wake(host) == began_at + TRIAL, "both have had their trials, and the first came first"
    assert states(host, first, second) == [JobState.RUNNING, JobState.PENDING]
    assert host.job(second).ran_s == TRIAL


def test_who_gives_its_turn_next_is_told() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=4, resume_s=R))
    second = host.submit(submit("second", gpus=4, resume_s=R), now=START + 100)
    go_on(host)

    told = host.explain(second)

    assert f"job {first} may be preempted for it from @{{{int(START + TRIAL)}}} on" in told.why
    assert "or are preempted for it" in told.hint
    assert wake(host) == START + TRIAL
    assert states(host, first, second) == [JobState.PENDING, JobState.RUNNING]


def test_that_nobody_gives_its_turn_is_told() -> None:
    host = cluster()
    host.start(submit("first", gpus=4, requeue=False))
    second = host.submit(submit("second", gpus=4), now=START + 100)
    go_on(host)

    assert host.explain(second).why.endswith("; none of these jobs is preempted for it: they would not be requeued")


def test_that_who_came_first_does_not_give_its_turn_is_told() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=4, resume_s=R))
    second = host.submit(submit("second", gpus=4, resume_s=R), now=START + TRIAL + 100)
    go_on(host)
    wake(host)
    wake(host)
    assert states(host, first, second) == [JobState.RUNNING, JobState.PENDING]

    assert "; none of these jobs is preempted for it: they have precedence" in host.explain(second).why


def test_how_long_a_job_ran_is_kept_over_a_crash_and_ends_its_trial_in_the_next_attempt() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=4, resume_s=R))
    host.submit(submit("second", gpus=4, resume_s=R), now=START + TRIAL + 100)
    go_on(host)
    wake(host)
    before = host.job(first).ran_s

    host.restart()

    assert host.job(first).ran_s == before > TRIAL


def test_one_that_is_told_before_counts_its_notice_and_stays_if_the_other_goes_away() -> None:
    host = cluster()
    warned = SignalSpec(signum=signal.SIGUSR1, before_s=30)
    first = host.start(submit("first", gpus=4, signal=warned))
    began_at = host.attempt(first).start_at
    second = host.submit(submit("second", gpus=4), now=START + TRIAL + 100)
    go_on(host)
    wake(host)
    assert host.attempt(first).preemption is not None

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(second,))))
    go_on(host)

    assert host.attempt(first).preemption is None
    assert (host.attempt(first).start_at, host.job(first).ran_s) == (began_at, 0.0)
    third = host.submit(submit("third", gpus=4), now=host.now + 10)
    go_on(host)
    decided_at = wake(host)
    assert wake(host) == decided_at + 30
    assert states(host, first, third) == [JobState.PENDING, JobState.RUNNING]
    assert host.job(first).ran_s == decided_at + 30 - START, "the notice, too"


def test_a_job_that_says_when_it_is_where_it_was_measures_what_its_resumes_cost() -> None:
    host = cluster()
    first = host.start(submit("first", gpus=4, resume_s=R))
    host.ask(client.ResumeDone(job_id=first), START + 5)
    assert host.job(first).resumed is None, "nothing was before"

    assert resumed_after(host, first, 150) == Resumed(attempt=2, cost_s=150.0)
    host.ask(client.ResumeDone(job_id=first), host.now + 7)
    assert host.job(first).resumed == Resumed(attempt=2, cost_s=150.0), "once in each attempt"
    assert resumed_after(host, first, 50) == Resumed(attempt=3, cost_s=100.0)

    host.restart()

    [seen] = all_running(host.cluster)
    assert (host.job(first).spec.resume_s, seen.resume_s) == (R, 100.0)
    [told] = host.ask(client.ListJobs()).jobs
    assert told.resume_s == 100.0


def resumed_after(host: CoreHost, job_id: int, cost_s: float) -> Resumed | None:
    """It is queued again, starts, and needs so long."""
    host.ask(client.RequeueJobs(job_ids=(JobId(job_id),)), host.now + 100)
    go_on(host)
    host.ask(client.ResumeDone(job_id=job_id), (host.attempt(job_id).start_at or 0.0) + cost_s)
    return host.job(job_id).resumed


def test_where_nobody_takes_turns_the_same_job_waits() -> None:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=TURNS.timers))
    host.handle(hello("n1", inventory(cpus=8, gpu_count=4)), now=START)
    host.start(submit("first", gpus=4, resume_s=R))
    second = host.submit(submit("second", gpus=4), now=START + TRIAL + 1000)
    go_on(host)

    assert host.controller.volatile.plan is not None
    assert not isinstance(host.controller.volatile.plan.waits.get(host.job(second).job_id), NotWorthPreemptingYet)
    assert states(host, second) == [JobState.PENDING]
