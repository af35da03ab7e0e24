"""``--deadline``: what cannot make it ends, what runs ends then, and what never could is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gq.model.job import ExitStatus
from gq.model.policy_tables import Timers
from gq.model.state import JobState, Outcome, Reason
from gq.wire import client
from gq.wire import node as wire
from gqd.state.input import Tick
from gqd.state.policy import Policy
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost


def cluster(now: float = 1000.0) -> CoreHost:
    host = CoreHost(Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6)))
    host.handle(hello("n1", inventory(cpus=2)), now=now)
    return host


def blocked(host: CoreHost, **fields: Any) -> int:
    """Its only node is taken."""
    host.start(submit("blocker", cpus_per_task=2))
    return host.submit(submit("late", **fields))


def limits_sent(host: CoreHost) -> list[int | None]:
    return [sent.order.time_limit_s for sent in host.orders if isinstance(sent.order, wire.SetTimeLimit)]


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"deadline_at": 999.0}, "deadline_passed", "the deadline passed 1 s ago"),
        ({"deadline_at": 1000.0}, "deadline_passed", "the deadline passed"),
        ({"deadline_at": 1060.0, "time_limit_s": 120}, "deadline", "only 1 min is left before the deadline"),
        ({"deadline_at": 1060.0, "begin_at": 1070.0}, "deadline", "begins after its deadline"),
        ({"deadline_at": 1100.0, "begin_at": 1070.0, "time_limit_s": 60}, "deadline", "only 30 s is left"),
    ],
)
def test_a_deadline_that_cannot_be_met_is_refused(fields: dict[str, Any], code: str, said: str) -> None:
    host = cluster()
    with pytest.raises(Refusal) as refused:
        host.submit(submit(**fields))
    assert refused.value.code == code and said in refused.value.message and refused.value.hint
    assert not host.cluster.jobs


def test_a_pending_job_ends_when_its_time_limit_would_not_fit_any_more_and_not_before() -> None:
    host = cluster()
    job_id = blocked(host, deadline_at=1300.0, time_limit_s=120)
    host.handle(Tick(), now=1180)
    assert host.job(job_id).state is JobState.PENDING

    host.handle(Tick(), now=1180.5)

    job = host.job(job_id)
    assert (job.state, job.outcome, job.reason) == (JobState.ENDED, Outcome.DEADLINE, Reason.DEADLINE)
    assert host.explain(job_id).why.startswith("it never started, because with its time limit of 2 min it could")


def test_the_moment_is_known_beforehand_so_that_nobody_waits_for_a_tick() -> None:
    host = cluster()
    blocked(host, deadline_at=1300.0, time_limit_s=120)
    host.handle(Tick(), now=1100)
    assert host.controller.next_wakeup(1100) == 1180


def test_a_job_without_a_limit_waits_until_its_deadline() -> None:
    host = cluster()
    job_id = blocked(host, deadline_at=1300.0)
    host.handle(Tick(), now=1299)
    assert host.job(job_id).state is JobState.PENDING
    host.handle(Tick(), now=1301)
    assert host.job(job_id).outcome is Outcome.DEADLINE


def test_a_plan_that_comes_too_late_starts_nothing() -> None:
    host = cluster()
    host.submit(submit("late", deadline_at=1300.0, time_limit_s=120))
    snapshot = host.controller.snapshot(1180)
    from gqd.sched.planner import plan_whole

    plan = plan_whole(snapshot)
    assert plan.starts
    host.now = 1181
    host.adopt(plan)
    assert not host.cluster.attempts


def test_a_job_that_starts_has_what_is_left_as_its_time_limit_and_its_nodes_are_told_from_its_real_start() -> None:
    host = cluster()
    job_id = host.submit(submit("short", deadline_at=1300.0))
    host.schedule(now=1100)
    [launch] = [sent.order.launch for sent in host.orders if isinstance(sent.order, wire.Prepare)]
    assert launch.time_limit_s == 200
    host.now = 1102.0
    orders, host.orders = host.orders, []
    attempt_id = host.attempt(job_id).attempt_id
    host.report("n1", wire.PrepareReceived(attempt_id=attempt_id))
    host.report("n1", wire.Prepared(attempt_id=attempt_id))
    host.report("n1", wire.Started(attempt_id=attempt_id, at=1102.0))

    assert orders and limits_sent(host) == [198]
    shown = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,))))
    assert isinstance(shown, client.Jobs) and shown.jobs[0].time_limit_s == 198


def test_a_longer_time_limit_is_cut_and_a_shorter_one_stays() -> None:
    host = cluster()
    exact = host.start(submit("exact", deadline_at=1300.0, time_limit_s=300))
    short = host.start(submit("short", deadline_at=1300.0, time_limit_s=60))
    shown = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(exact, short))))
    assert isinstance(shown, client.Jobs) and [job.time_limit_s for job in shown.jobs] == [300, 60]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [({"deadline_at": 1300.0}, Outcome.DEADLINE), ({"deadline_at": 1300.0, "time_limit_s": 60}, Outcome.TIMEOUT)],
)
def test_a_job_that_is_ended_by_its_deadline_says_so(fields: dict[str, Any], outcome: Outcome) -> None:
    host = cluster()
    job_id = host.start(submit("runs", **fields))
    attempt_id = host.attempt(job_id).attempt_id
    ended = wire.AttemptEnded(
        attempt_id=attempt_id, outcome=Outcome.TIMEOUT, exit=ExitStatus(signal=15), ended_at=1300, cell_emptied=True
    )
    host.handle(Tick(), now=1300)
    host.report("n1", ended)
    assert host.job(job_id).outcome is outcome


def test_an_array_loses_the_tasks_that_have_not_started_by_then() -> None:
    host = cluster()
    array = blocked(host, array="1-3", deadline_at=1300.0, time_limit_s=120)
    host.handle(Tick(), now=1181)
    assert (host.job(array).state, host.job(array).outcome) == (JobState.ENDED, Outcome.DEADLINE)


def test_what_waits_for_a_job_that_missed_its_deadline_hears_that_it_ended_badly() -> None:
    from gq.model.dependency import parse_dependency

    host = cluster()
    job_id = blocked(host, deadline_at=1300.0, time_limit_s=120)
    after_it = host.submit(submit("next", dependency=parse_dependency(f"afterok:{job_id}")))
    host.handle(Tick(), now=1181)
    assert host.job(after_it).never == f"job {job_id} had to succeed and failed (DEADLINE)"


def test_a_deadline_is_changed_and_taken_away_and_survives_a_restart() -> None:
    host = cluster()
    moved, freed = blocked(host, deadline_at=1300.0), host.submit(submit("freed", deadline_at=1300.0))
    host.ask(client.UpdateJob(job_id=moved, deadline_at=1400.0))
    host.ask(client.UpdateJob(job_id=freed, deadline_at=0))
    with pytest.raises(Refusal, match="the deadline passed"):
        host.ask(client.UpdateJob(job_id=moved, deadline_at=10.0))
    with pytest.raises(Refusal, match="is left before the deadline"):
        host.ask(client.UpdateJob(job_id=moved, time_limit_s=3600))
    host.restart(now=1350)
    host.handle(Tick())
    assert host.job(moved).state is JobState.PENDING
    host.handle(Tick(), now=1401)
    assert host.job(moved).outcome is Outcome.DEADLINE
    assert host.job(freed).state is JobState.PENDING


def test_a_deadline_that_is_brought_forward_shortens_what_runs_and_only_operators_push_it_back() -> None:
    host = cluster()
    job_id = host.start(submit("runs", deadline_at=1300.0))
    host.orders.clear()
    host.ask(client.UpdateJob(job_id=job_id, deadline_at=1200.0))
    assert limits_sent(host) == [200]
    host.ask(client.UpdateJob(job_id=job_id, deadline_at=1250.0))  # the owner of a private cluster is its administrator
    assert limits_sent(host) == [200, 250]
