"""Jobs that stand still: what is told to nodes, until they say that it is so; what they keep, and what stands still."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gq.errors import Refusal
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.sched.planner import plan_whole
from gqd.state.events import event
from gqd.state.input import Tick
from tests.builders import ALICE, OLGA, OWNER, SHARED, hello, inventory, submit
from tests.hosts import POLICY, CoreHost


def running(limit_s: int | None = 600, nodes: int = 2) -> CoreHost:
    """Job 1 on all nodes, since 0."""
    host = CoreHost(nodes={f"n{one}": inventory() for one in range(1, nodes + 1)})
    host.start(submit(gpus_per_node=4, nodes_min=nodes, time_limit_s=limit_s))
    host.orders = []
    return host


def suspend(host: CoreHost, now: float) -> client.JobsDone:
    host.beat(now)
    answer = host.ask(client.SuspendJobs(job_ids=(1,)), now)
    assert isinstance(answer, client.JobsDone)
    return answer


def resume(host: CoreHost, now: float) -> client.JobsDone:
    host.beat(now)
    answer = host.ask(client.ResumeJobs(job_ids=(1,)), now)
    assert isinstance(answer, client.JobsDone)
    return answer


def told(host: CoreHost) -> dict[str, bool]:
    """Node → what it was told last; they have not heard it yet."""
    orders, host.orders = host.orders, []
    return {one.node: one.order.is_suspended for one in orders if isinstance(one.order, wire.SetSuspended)}


def say(host: CoreHost, node: str, is_suspended: bool, now: float | None = None) -> None:
    host.report(node, wire.SuspendedSet(attempt_id=host.attempt(1).attempt_id, is_suspended=is_suspended), now)


def shown(host: CoreHost) -> tuple[str, float | None, float]:
    answer = host.ask(client.ListJobs())
    assert isinstance(answer, client.Jobs)
    [job] = answer.jobs
    return job.state, job.suspended_at, job.suspended_s


def test_all_nodes_are_told_and_the_job_keeps_what_it_holds() -> None:
    host = running()

    assert suspend(host, 100.0).job_ids == (1,)

    assert told(host) == {"n1": True, "n2": True}
    assert [one for one in host.log if isinstance(one, event.JobSuspended)] == [
        event.JobSuspended(at=100.0, attempt_id=host.attempt(1).attempt_id)
    ]
    assert shown(host) == ("SUSPENDED", 100.0, 0.0)
    assert [node.free_gpu_mask for node in host.cluster.nodes.values()] == [0, 0]
    assert "it keeps its GPUs, CPUs and memory" in host.explain(1).why
    answer = host.ask(client.ListJobs(filter=client.JobFilter(states=("SUSPENDED",))))
    assert isinstance(answer, client.Jobs)
    assert [job.job_id for job in answer.jobs] == [1]


def test_a_node_is_told_until_it_says_that_it_is_so() -> None:
    host = running()
    suspend(host, 100.0)
    told(host)
    say(host, "n1", True)

    host.handle(Tick(), 100.0 + POLICY.timers.resend_s)
    assert told(host) == {"n2": True}
    say(host, "n2", True)
    host.handle(Tick(), 100.0 + 3 * POLICY.timers.resend_s)
    assert told(host) == {}


def test_an_answer_to_an_older_order_is_corrected() -> None:
    host = running()
    suspend(host, 100.0)
    resume(host, 101.0)
    told(host)

    say(host, "n1", True)

    assert told(host) == {"n1": False}


def test_after_a_restart_nodes_that_are_not_as_they_should_be_are_told() -> None:
    host = running()
    suspend(host, 100.0)
    host.restart(110.0)
    status = wire.AttemptStatus(attempt_id=host.attempt(1).attempt_id, phase="running", time_limit_s=600)

    host.handle(hello("n1", incarnation="1", attempts=(status,)))
    host.handle(hello("n2", incarnation="1", attempts=(replace(status, is_suspended=True),)))

    assert told(host) == {"n1": True}
    assert shown(host)[0] == "SUSPENDED"


def test_the_time_limit_stands_still_and_nobody_is_promised_what_has_no_end() -> None:
    host = running()
    suspend(host, 100.0)
    [held] = plan_whole_of(host, 150.0)
    assert held is None

    assert resume(host, 300.0).job_ids == (1,)

    assert shown(host) == ("RUNNING", None, 200.0)
    assert plan_whole_of(host, 300.0) == [800.0]


def plan_whole_of(host: CoreHost, now: float) -> list[float | None]:
    view = host.controller.snapshot(now)
    host.adopt(plan_whole(view))
    return [one.ends_at for one in view.running]


def test_a_deadline_does_not_stand_still() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.start(submit(time_limit_s=600, deadline_at=700.0))
    suspend(host, 100.0)

    resume(host, 400.0)

    limits = [one.order.time_limit_s for one in host.orders if isinstance(one.order, wire.SetTimeLimit)]
    assert limits == [400], "of the 600 it has had 100, and 300 are left until 700"


def test_a_job_that_is_suspended_at_its_deadline_is_ended_then_and_one_without_is_not() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    for deadline_at in (700.0, None):
        host.start(submit(gpus=2, time_limit_s=600, deadline_at=deadline_at))
    host.beat(100.0)
    host.ask(client.SuspendJobs(job_ids=(1, 2)), 100.0)
    host.obey()

    for now in (699.0, 700.0):
        assert host.job(1).state is JobState.RUNNING
        host.beat(now)
        host.handle(Tick(), now)
    host.obey()

    assert (host.job(1).outcome, host.job(1).why) == (Outcome.DEADLINE, "its deadline passed while it was suspended")
    assert host.job(2).state is JobState.RUNNING


def test_what_is_held_is_billed_also_while_the_job_is_suspended() -> None:
    host = running(nodes=1)
    rate = host.cluster.members[OWNER.user, "default"].usage.rate
    assert rate

    suspend(host, 100.0)

    assert host.cluster.members[OWNER.user, "default"].usage.rate == rate


def test_a_suspended_job_that_is_cancelled_ends_and_what_it_stood_still_is_kept() -> None:
    host = running()
    suspend(host, 100.0)
    told(host)

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), 150.0)

    assert [type(one.order) for one in host.orders] == [wire.Stop, wire.Stop]
    host.obey()
    assert shown(host) == ("CANCELLED", None, 50.0)


def test_suspending_twice_is_no_more_than_once() -> None:
    host = running()
    suspend(host, 100.0)
    told(host)

    assert suspend(host, 200.0).job_ids == (1,)

    assert (told(host), shown(host)) == ({}, ("SUSPENDED", 100.0, 0.0))


def test_only_what_runs_is_suspended_and_only_what_is_suspended_resumed() -> None:
    host = running()
    host.submit(submit())

    answer = host.ask(client.SuspendJobs(job_ids=(2,)))
    assert isinstance(answer, client.JobsDone)
    assert answer.refused == ((2, "it is pending; only running jobs can be suspended"),)
    assert resume(host, 10.0).refused == ((1, "it is running; only suspended jobs can be resumed"),)


def test_a_node_that_does_not_know_how_is_named() -> None:
    host = CoreHost(nodes={"n1": replace(inventory(), can_suspend=False)})
    host.start(submit())

    assert suspend(host, 1.0).refused == (
        (1, "its node n1 has a gqnode that is too old to suspend jobs"),
    )  # fmt: skip
    assert not [one for one in host.log if isinstance(one, event.JobSuspended)]


def test_operators_suspend_and_owners_do_not() -> None:
    host = CoreHost(SHARED, {"n1": inventory()})
    host.start(submit(), peer=ALICE)

    with pytest.raises(Refusal, match="`gqctl suspend` is for operators only"):
        host.ask(client.SuspendJobs(job_ids=(1,)), peer=ALICE)
    assert host.ask(client.SuspendJobs(job_ids=(1,)), peer=OLGA) == client.JobsDone(job_ids=(1,))


def test_a_step_of_a_suspended_job_begins_when_it_goes_on() -> None:
    host = running(nodes=1)
    suspend(host, 100.0)
    request = client.CreateStep(job_id=1, step=client.StepRequest(name="step", ntasks=1), wait_s=20.0)

    assert host.ask(request) is None
    answer = host.ask(client.ResumeJobs(job_ids=(1,)), 110.0)

    assert isinstance(answer, client.StepCreated), "the last of the answers"
    assert [one.node for one in host.orders if isinstance(one.order, wire.LaunchStep)] == ["n1"]


def test_a_suspended_job_cannot_be_extended() -> None:
    host = running()
    suspend(host, 100.0)

    with pytest.raises(Refusal, match="and so is its time limit"):
        host.ask(client.ExtendJob(job_id=1, by_s=60))
