"""Arrays: one record until its tasks start; one task, a range or all of them asked for; how an array ends."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus, JobInfo
from gq.model.policy_tables import Limits
from gq.model.resource import Grant
from gq.model.state import JobState, Outcome
from gq.model.tasks import format_tasks, parse_tasks
from gq.wire import client
from gq.wire import node as wire
from gqd.control.turn import Turn
from gqd.state.effect import Reply, SendOrder
from gqd.state.events import event
from gqd.state.events.event import Audited
from gqd.state.input import Peer, Tick
from gqd.state.phases import AfterEnding, Hold
from gqd.state.plan import Plan, Start
from gqd.state.policy import Policy
from gqd.state.records import ArrayTasks, Job
from gqd.store.protocol import HistoryQuery
from tests.builders import ADAM, ALICE, BOB, OLGA, OWNER, SHARED, client_request, hello, inventory, submit
from tests.hosts import POLICY, CoreHost


def host_of(gpus: int = 8, policy: Policy = POLICY) -> CoreHost:
    return CoreHost(policy, nodes={"n1": inventory(cpus=64, gpu_count=gpus)})


def array_of(host: CoreHost, job_id: int = 1) -> ArrayTasks:
    array = host.job(job_id).array
    assert array is not None
    return array


def waiting(host: CoreHost, job_id: int = 1) -> str:
    return format_tasks(array_of(host, job_id).waiting)


def task(host: CoreHost, number: int, array_id: int = 1) -> Job:
    return host.job(array_of(host, array_id).jobs[number])


def start(host: CoreHost, *numbers: int, array_id: int = 1) -> Turn:
    """A plan that starts these tasks, one CPU each, and nodes that obey."""
    grants = [Grant(node="n1", tasks=1, cpus=(one,), gpus=(), memory_mib=0) for one in _free_cpus(host, len(numbers))]
    starts = [Start(JobId(array_id), 0, (grant,), number) for number, grant in zip(numbers, grants, strict=True)]
    turn = host.adopt(Plan(made_at=host.now, starts=tuple(starts)))
    host.obey()
    return turn


def _free_cpus(host: CoreHost, count: int) -> list[int]:
    free = host.cluster.nodes["n1"].free_cpu_mask
    return [cpu for cpu in range(64) if free >> cpu & 1][:count]


def happened(turn: Turn) -> list[event.Event]:
    """But for what every request leaves behind."""
    return [one for one in turn.events if not isinstance(one, Audited | event.RequestAnswered)]


def asked(host: CoreHost, body: client.RequestBody, peer: Peer = OWNER) -> tuple[list[event.Event], client.ReplyBody]:
    """All that happened by a request, and its answer; what it sends to nodes is in ``host.orders``."""
    turn = host.handle(client_request(body, 900 + len(host.replies), peer))
    (reply,) = [one for one in turn.effects if not isinstance(one, SendOrder)]
    assert isinstance(reply, Reply)
    return happened(turn), reply.body


def shown(host: CoreHost, **fields: object) -> list[JobInfo]:
    jobs = host.ask(client.ListJobs(filter=client.JobFilter(**fields)))  # type: ignore[arg-type]
    assert isinstance(jobs, client.Jobs)
    return list(jobs.jobs)


def told(jobs: list[JobInfo]) -> list[tuple[int, str, str | int | None]]:
    """(id, state, which tasks)"""
    return [(job.job_id, job.state, job.array_tasks or job.array_task_id) for job in jobs]


def history(host: CoreHost, **fields: object) -> list[JobInfo]:
    return list(host.store.history(HistoryQuery(filter=client.JobFilter(**fields))))  # type: ignore[arg-type]


# ── one record ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_array_is_one_job_whose_tasks_all_wait() -> None:
    host = host_of()
    submitted = host.submit(submit(array="1-100000:3,7", array_throttle=40), now=5)
    assert list(host.cluster.jobs) == [submitted] == [1]
    assert array_of(host) == ArrayTasks(parse_tasks("1-100000:3,7"), throttle=40)
    assert host.cluster.active_by_user == {"ada": 33334}
    (record,) = shown(host)
    assert (record.job_id, record.array_job_id, record.array_task_id) == (1, 1, None)
    assert (record.state, record.array_tasks, record.array_task_count) == ("PENDING", "1-100000:3", 33334)
    assert record.array_throttle == 40


def test_a_task_that_starts_leaves_the_record_and_is_a_job_of_its_own() -> None:
    host = host_of()
    host.submit(submit("sweep", array="1-3", nice=7, comment="why not"), now=5)
    grant = Grant(node="n1", tasks=1, cpus=(0,), gpus=(), memory_mib=0)

    turn = host.adopt(Plan(made_at=5, starts=(Start(JobId(1), 0, (grant,), 2),)))

    assert list(turn.events) == [
        event.ArrayTaskLeft(at=5, array_job_id=JobId(1), task=2, job_id=JobId(2)),
        event.JobAllocated(at=5, attempt_id=AttemptId(JobId(2), 1), grants=(grant,)),
    ]
    (order,) = host.orders
    assert isinstance(order.order, wire.Prepare)
    launch = order.order.launch
    assert (launch.array_job_id, launch.array_task_id) == (1, 2)
    assert (launch.array_task_min, launch.array_task_max) == (1, 3)
    assert (launch.array_task_step, launch.array_task_count) == (1, 3)
    left, record = host.job(2), host.job(1)
    assert waiting(host) == "1,3"
    assert (left.array_job_id, left.array_task_id, left.label) == (1, 2, "1_2")
    assert left.spec is record.spec
    assert (left.submit_at, left.accrue_at, left.partition, left.account) == (5, 5, record.partition, record.account)
    assert host.cluster.active_by_user == {"ada": 3}
    assert told(shown(host)) == [(1, "PENDING", "1,3"), (2, "CONFIGURING", 2)]


@pytest.mark.parametrize(
    ("tasks", "extent"),
    [("0-30:10", (0, 30, 10, 4)), ("5", (5, 5, 1, 1)), ("1,2,9", (1, 9, 1, 3)), ("4-8:2,10", (4, 10, 2, 4))],
)
def test_a_task_is_told_the_extent_of_its_array(tasks: str, extent: tuple[int, int, int, int]) -> None:
    host = host_of()
    host.submit(submit(array=tasks))
    start(host, extent[0])
    answer = host.ask(client.GetJobEnvironment(job_id=2))
    assert isinstance(answer, client.JobEnvironment)
    names = ("JOB_ID", "TASK_ID", "TASK_MIN", "TASK_MAX", "TASK_STEP", "TASK_COUNT")
    for prefix in ("GQ", "SLURM"):
        told = tuple(int(answer.variables[f"{prefix}_ARRAY_{name}"]) for name in names)
        assert told == (1, extent[0], *extent)
        assert answer.variables[f"{prefix}_JOB_ID"] == "2"


def test_a_job_that_is_no_task_hears_nothing_of_arrays() -> None:
    host = host_of()
    host.start(submit())
    answer = host.ask(client.GetJobEnvironment(job_id=1))
    assert isinstance(answer, client.JobEnvironment)
    assert not [name for name in answer.variables if "ARRAY" in name]


def test_the_record_is_in_the_queue_only_while_something_waits_in_it() -> None:
    host = host_of()
    host.submit(submit(array="1-2"))
    start(host, 1, 2)
    assert JobId(1) not in host.cluster.queue
    assert host.job(1).state is JobState.PENDING
    assert told(shown(host)) == [(2, "RUNNING", 1), (3, "RUNNING", 2)]
    assert told(history(host)) == [(2, "RUNNING", 1), (3, "RUNNING", 2)]
    info = host.ask(client.GetCluster())
    assert isinstance(info, client.Cluster)
    assert (info.info.jobs_pending, info.info.jobs_running) == (0, 2)


def test_gqinfo_counts_every_waiting_task() -> None:
    host = host_of()
    host.submit(submit(array="1-50"))
    host.submit(submit(is_held=True))
    start(host, 1)
    info = host.ask(client.GetCluster())
    assert isinstance(info, client.Cluster)
    assert info.info.jobs_pending == 50


def test_a_plan_that_is_out_of_date_starts_no_task_twice() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    start(host, 2)
    assert start(host, 2) == Turn()
    assert start(host, 9) == Turn()
    host.ask(client.HoldJobs(job_ids=(1,)))
    assert start(host, 1) == Turn()
    assert waiting(host) == "1,3"


def test_a_record_itself_never_starts() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    grant = Grant(node="n1", tasks=1, cpus=(0,), gpus=(), memory_mib=0)
    assert host.adopt(Plan(made_at=0, starts=(Start(JobId(1), 0, (grant,)),))) == Turn()


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"array": "1-2000000"}, "1000000"),
        ({"array": "5-1"}, "1-5"),
        ({"array": "a"}, "not a task"),
        ({"array": "1-9", "is_interactive": True}, "interactive"),
        ({"array": "0-100000"}, "100001 tasks"),
        ({"array_throttle": 3}, "not an array"),
        ({"fail_fast": True}, "not an array"),
    ],
)
def test_what_cannot_be_an_array_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        host_of().submit(submit(**fields))
    assert refused.value.code == "bad_array"


def test_each_waiting_task_counts_for_the_limits_of_jobs() -> None:
    policy = Policy(owner_uid=OWNER.uid, limits=Limits(jobs=20, jobs_per_user=10))
    host = host_of(policy=policy)
    host.submit(submit(array="1-8"))
    with pytest.raises(Refusal, match="the array of 3 tasks") as refused:
        host.submit(submit(array="1-3"))
    assert refused.value.code == "too_many_jobs"
    start(host, 1, 2)
    with pytest.raises(Refusal, match="has 8 jobs in the queue, and the maximum per user is 10"):
        host.submit(submit(array="1-3"))
    host.finish(2)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "7-8"})))
    assert host.cluster.active_by_user == {"ada": 5}
    host.submit(submit(array="1-5"))


def test_tasks_that_are_not_there_are_refused_by_name() -> None:
    host = host_of()
    host.submit(submit(array="1-9:2"))
    host.submit(submit())
    for body, code in (
        (client.HoldJobs(job_ids=(), tasks={1: "2"}), "unknown_task"),
        (client.HoldJobs(job_ids=(), tasks={2: "1"}), "not_an_array"),
        (client.HoldJobs(job_ids=(), tasks={7: "1"}), "unknown_job"),
        (client.HoldJobs(job_ids=(), tasks={1: "x"}), "bad_tasks"),
        (client.Explain(job_id=1, task=2), "unknown_task"),
        (client.AccessLog(job_id=1), "is_array"),
        (client.AccessLog(job_id=1, task=3), "not_running"),
        (client.NotifyJob(job_id=1, text="hello"), "is_array"),
        (client.WaitJobs(job_ids=(), tasks={1: "2"}), "unknown_task"),
        (client.QueryHistory(filter=client.JobFilter(tasks={1: "x"})), "bad_tasks"),
        (client.ListJobs(filter=client.JobFilter(tasks={1: "2-1"})), "bad_tasks"),
        (client.GetJobEnvironment(job_id=1), "is_array"),
        (client.UpdateJob(job_id=1, tasks="2", nice=1), "unknown_task"),
    ):
        with pytest.raises(Refusal) as refused:
            host.ask(body)
        assert refused.value.code == code, body


def test_refused_tasks_are_named_as_people_name_them() -> None:
    host = host_of()
    host.submit(submit(array="1-4"))
    start(host, 1, 2)
    answer = host.ask(client.HoldJobs(job_ids=(), tasks={1: "1-3"}))
    assert isinstance(answer, client.JobsDone)
    assert answer.refused == tuple((one, "it is running; only pending jobs can be held") for one in (2, 3))
    assert answer.labels == ((2, "1_1"), (3, "1_2"))


def test_of_a_task_that_was_cancelled_before_it_started_it_is_said_why() -> None:
    host = host_of()
    host.submit(submit(array="1-4", fail_fast=True))
    start(host, 1)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "4"})))
    told = host.explain_task(1, 4)
    assert (told.job_id, told.state, told.why) == (1, "CANCELLED", "it was cancelled by ada")
    host.finish(2, code=1)
    why = "it was cancelled, because task 1_1 failed, and the array was submitted with --fail-fast"
    assert [host.explain_task(1, one).why for one in (2, 3)] == [why, why]
    with pytest.raises(Refusal, match="array 1 has no task 5"):
        host.explain_task(1, 5)


# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cancel_of_what_waits_makes_no_jobs() -> None:
    host = host_of()
    host.submit(submit(array="1-100000"))
    start(host, 1)

    events, answer = asked(host, client.CancelJobs(filter=client.JobFilter(tasks={1: "2-90000"})))

    assert events == [event.ArrayTasksCancelled(at=0, array_job_id=JobId(1), tasks="2-90000", why="by ada")]
    assert answer == client.JobsDone(tasks=((1, "2-90000"),))
    assert told(shown(host)) == [
        (1, "PENDING", "90001-100000"),
        (1, "CANCELLED", "2-90000"),
        (2, "RUNNING", 1),
    ]
    assert told(history(host)) == told(shown(host))
    assert history(host, states=("CANCELLED",))[0].why == "it was cancelled by ada"


def test_a_cancel_of_the_whole_array_ends_what_waits_and_what_runs() -> None:
    host = host_of()
    host.submit(submit(array="1-10"))
    start(host, 3, 4)

    events, answer = asked(host, client.CancelJobs(filter=client.JobFilter(job_ids=(1,))))

    ending = [
        event.JobEnding(
            at=0,
            attempt_id=AttemptId(JobId(job_id), 1),
            outcome=Outcome.CANCELLED,
            then=AfterEnding.END,
            why="by ada",
            grace_s=30,
        )
        for job_id in (3, 2)
    ]
    cancelled = event.ArrayTasksCancelled(at=0, array_job_id=JobId(1), tasks="1-2,5-10", why="by ada")
    assert events == [*ending, cancelled]
    assert answer == client.JobsDone(job_ids=(1, 2, 3), tasks=((1, "1-2,5-10"),))
    assert host.job(1).state is JobState.PENDING
    host.obey()
    assert (host.job(1).state, host.job(1).outcome) == (JobState.ENDED, Outcome.CANCELLED)
    assert told(history(host)) == [(1, "CANCELLED", "1-2,5-10"), (2, "CANCELLED", 3), (3, "CANCELLED", 4)]
    assert host.cluster.active_by_user == {}


def test_a_cancel_by_a_filter_takes_the_record_with_all_that_waits() -> None:
    host = host_of()
    host.submit(submit("mine", array="1-3"))
    host.submit(submit("other", array="1-3"))
    start(host, 2)
    host.ask(client.CancelJobs(filter=client.JobFilter(names=("mine",), states=("PENDING",))))
    assert told(shown(host)) == [(1, "CANCELLED", "1,3"), (2, "PENDING", "1-3"), (3, "RUNNING", 2)]


def test_a_cancel_of_a_range_takes_each_task_where_it_is() -> None:
    host = host_of()
    host.submit(submit(array="1-10"))
    start(host, 1, 2)
    host.finish(2)
    answer = asked(host, client.CancelJobs(filter=client.JobFilter(tasks={1: "1-4"})))[1]
    assert answer == client.JobsDone(job_ids=(3,), tasks=((1, "3-4"),))
    assert asked(host, client.CancelJobs(filter=client.JobFilter(tasks={1: "1-4"})))[1] != answer
    host.obey()
    assert asked(host, client.CancelJobs(filter=client.JobFilter(tasks={1: "1-4"})))[1] == client.JobsDone(skipped=(1,))


def test_a_signal_goes_to_the_tasks_that_run() -> None:
    host = host_of()
    host.submit(submit(array="1-10"))
    start(host, 3, 4)
    answer = asked(host, client.CancelJobs(filter=client.JobFilter(job_ids=(1,)), signum=10))[1]
    assert answer == client.JobsDone(job_ids=(2, 3))
    signalled = [one.order.attempt_id.job_id for one in host.orders if isinstance(one.order, wire.SignalAttempt)]
    assert sorted(signalled) == [2, 3]
    refused = asked(host, client.CancelJobs(filter=client.JobFilter(tasks={1: "5"}), signum=10))[1]
    why = "it is pending; only running jobs can be signalled"
    assert refused == client.JobsDone(refused=((1, why),), labels=((1, "1_[5]"),)), "the task is named, not its array"


# ── hold, release ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hold_of_the_array_holds_the_record_and_what_left_it_and_waits() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    start(host, 1, 2)
    host.ask(client.RequeueJobs(job_ids=(), tasks={1: "1"}))
    host.obey()

    events, answer = asked(host, client.HoldJobs(job_ids=(1,)))

    assert events == [event.JobHeld(at=0, job_id=JobId(one), hold=Hold.USER) for one in (1, 2)]
    assert answer == client.JobsDone(job_ids=(1, 2), tasks=((1, "3-5"),))
    host.schedule()
    assert [job.state for job in host.cluster.jobs.values()] == [JobState.PENDING, JobState.PENDING, JobState.RUNNING]
    assert [job.reason for job in shown(host, states=("PENDING",))] == ["JobHeldUser", "JobHeldUser"]

    events, answer = asked(host, client.ReleaseJobs(job_ids=(1,)))
    assert events == [event.JobReleased(at=0, job_id=JobId(one)) for one in (1, 2)]


def test_a_task_that_is_held_leaves_the_record_and_the_others_go_on() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))

    events, answer = asked(host, client.HoldJobs(job_ids=(), tasks={1: "2,4"}))

    assert events == [
        event.ArrayTaskLeft(at=0, array_job_id=JobId(1), task=2, job_id=JobId(2)),
        event.ArrayTaskLeft(at=0, array_job_id=JobId(1), task=4, job_id=JobId(3)),
        event.JobHeld(at=0, job_id=JobId(2), hold=Hold.USER),
        event.JobHeld(at=0, job_id=JobId(3), hold=Hold.USER),
    ]
    assert answer == client.JobsDone(tasks=((1, "2,4"),))
    assert told(shown(host)) == [(1, "PENDING", "1,3,5"), (2, "PENDING", 2), (3, "PENDING", 4)]
    assert asked(host, client.HoldJobs(job_ids=(), tasks={1: "2"}))[0] == []
    host.ask(client.ReleaseJobs(job_ids=(), tasks={1: "2"}))
    assert [task(host, number).hold for number in (2, 4)] == [None, Hold.USER]


def test_all_that_waits_named_as_a_range_is_held_as_the_record() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    start(host, 1)
    events, _ = asked(host, client.HoldJobs(job_ids=(), tasks={1: "2-99"}))
    assert events == [event.JobHeld(at=0, job_id=JobId(1), hold=Hold.USER)]


def test_a_task_of_a_held_array_is_released_alone() -> None:
    host = host_of()
    host.submit(submit(array="1-5", is_held=True))
    host.ask(client.ReleaseJobs(job_ids=(), tasks={1: "3"}), now=4)
    assert (host.job(1).hold, task(host, 3).hold, task(host, 3).accrue_at) == (Hold.USER, None, 4)


def test_what_an_operator_holds_of_an_array_only_operators_release() -> None:
    host = host_of(policy=SHARED)
    host.submit(submit(array="1-5"), peer=ALICE)
    host.ask(client.HoldJobs(job_ids=(), tasks={1: "1"}), peer=OLGA)
    for asks in ({1: "1"}, {1: "1-5"}):
        answer = host.ask(client.ReleaseJobs(job_ids=(), tasks=asks), peer=ALICE)
        assert isinstance(answer, client.JobsDone)
        assert answer.refused == ((2, "an operator holds it; only operators can release it"),)
    host.ask(client.ReleaseJobs(job_ids=(), tasks={1: "1"}), peer=ADAM)
    assert host.job(2).hold is None


def test_tasks_of_others_are_refused() -> None:
    host = host_of(policy=SHARED)
    host.submit(submit(array="1-5"), peer=ALICE)
    before = host.job(1).array
    for body in (
        client.CancelJobs(filter=client.JobFilter(tasks={1: "2"})),
        client.HoldJobs(job_ids=(), tasks={1: "2"}),
        client.RequeueJobs(job_ids=(1,)),
    ):
        answer = host.ask(body, peer=BOB)
        assert isinstance(answer, client.JobsDone)
        assert answer.refused[0] == (1, "it belongs to alice"), body
        assert not answer.job_ids and not answer.tasks
    for change in (client.UpdateJob(job_id=1, tasks="2", nice=3), client.GetScript(job_id=1, task=2)):
        with pytest.raises(Refusal, match="belongs to alice"):
            host.ask(change, peer=BOB)
    assert host.job(1).array == before
    assert list(host.cluster.jobs) == [1]


def test_so_many_tasks_do_not_leave_at_once() -> None:
    host = CoreHost(nodes={"n1": inventory()}, checked=False)
    host.submit(submit(array="1-20000"))
    with pytest.raises(Refusal, match="10001 tasks"):
        host.ask(client.HoldJobs(job_ids=(), tasks={1: "1-10001"}))
    assert list(host.cluster.jobs) == [1]


# ── requeue ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_is_requeued_stays_a_job_of_its_own() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    start(host, 2)
    answer = asked(host, client.RequeueJobs(job_ids=(), tasks={1: "2"}))[1]
    assert answer == client.JobsDone(job_ids=(2,))
    host.obey()
    assert told(shown(host)) == [(1, "PENDING", "1,3"), (2, "PENDING", 2)]
    assert (task(host, 2).restart_count, array_of(host).active) == (1, 0)


def test_a_requeue_of_the_array_passes_over_what_has_not_started() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    start(host, 1, 2)
    assert asked(host, client.RequeueJobs(job_ids=(1,)))[1] == client.JobsDone(job_ids=(2, 3))
    host.obey()
    refused = ((1, "none of its tasks: it is pending; only a job that has started can be requeued"),)
    assert asked(host, client.RequeueJobs(job_ids=(1,)))[1] == client.JobsDone(refused=refused)
    named = asked(host, client.RequeueJobs(job_ids=(), tasks={1: "3"}))[1]
    why = "it is pending; only a job that has started can be requeued"
    assert named == client.JobsDone(refused=((1, why),), labels=((1, "1_[3]"),)), "the task is named, not its array"


# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_update_of_one_task_makes_it_leave_and_changes_it_alone() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    host.ask(client.UpdateJob(job_id=1, tasks="3", nice=9, time_limit_s=60))
    assert waiting(host) == "1-2,4-5"
    assert (task(host, 3).spec.nice, task(host, 3).time_limit_s) == (9, 60)
    assert (host.job(1).spec.nice, host.job(1).time_limit_s) == (0, None)


def test_an_update_of_the_array_changes_all_that_can_be_changed_so() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    start(host, 1, 2, 3)
    host.finish(2)
    host.ask(client.RequeueJobs(job_ids=(3,)))
    host.obey()
    host.ask(client.UpdateJob(job_id=1, nice=9))
    assert [(job.job_id, job.spec.nice) for job in host.cluster.jobs.values()] == [(1, 9), (2, 0), (3, 9), (4, 0)]
    host.ask(client.UpdateJob(job_id=1, time_limit_s=120))
    assert [job.time_limit_s for job in host.cluster.jobs.values()] == [120, None, 120, 120]
    limits = [one.order for one in host.orders if isinstance(one.order, wire.SetTimeLimit)]
    assert [(one.attempt_id.job_id, one.time_limit_s) for one in limits] == [(4, 120)]


def test_an_update_changes_nothing_where_a_named_task_cannot_be_changed_so() -> None:
    host = host_of()
    host.submit(submit(array="1-5"))
    start(host, 1)
    with pytest.raises(Refusal) as refused:
        host.ask(client.UpdateJob(job_id=1, tasks="1-3", nice=9))
    assert refused.value.code == "job_started"
    assert waiting(host) == "2-5"
    assert {job.spec.nice for job in host.cluster.jobs.values()} == {0}


def test_the_throttle_of_a_live_array_changes() -> None:
    host = host_of()
    host.submit(submit(array="1-9", array_throttle=1))
    start(host, 1)
    assert start(host, 2) == Turn()

    events, answer = asked(host, client.UpdateJob(job_id=1, array_throttle=2))

    assert events == [event.ArrayThrottleSet(at=0, array_job_id=JobId(1), throttle=2)]
    assert answer == client.Done()
    start(host, 2)
    assert start(host, 3) == Turn()
    host.ask(client.UpdateJob(job_id=1, array_throttle=0))
    start(host, 3)
    assert (array_of(host).active, array_of(host).throttle) == (3, None)
    for body in (client.UpdateJob(job_id=2, array_throttle=2), client.UpdateJob(job_id=1, tasks="5", array_throttle=2)):
        with pytest.raises(Refusal, match="not an array"):
            host.ask(body)


# ── the throttle, and the planner ─────────────────────────────────────────────────────────────────────────────


def test_no_more_tasks_hold_resources_than_the_throttle_says() -> None:
    host = host_of()
    host.submit(submit(array="1-6", array_throttle=2, gpus=1))
    ended: list[int] = []
    while host.job(1).state is not JobState.ENDED:
        host.schedule()
        host.obey()
        running = [job.job_id for job in host.cluster.jobs.values() if job.state is JobState.RUNNING]
        assert len(running) == array_of(host).active == min(2, 6 - len(ended))
        host.finish(running[0])
        ended.append(running[0])
    assert host.job(1).outcome is Outcome.COMPLETED


def test_a_requeued_task_waits_for_room_as_the_others_do() -> None:
    host = host_of()
    host.submit(submit(array="1-3", array_throttle=1))
    start(host, 1)
    host.ask(client.RequeueJobs(job_ids=(), tasks={1: "1"}))
    host.obey()
    start(host, 2)
    host.schedule()
    assert task(host, 1).state is JobState.PENDING
    assert [host.explain(one).reason for one in (1, 2)] == ["JobArrayTaskLimit", "JobArrayTaskLimit"]
    assert "array 1 may run 1 task at once" in host.explain(2).why


def test_a_plan_starts_as_many_tasks_as_fit_at_once() -> None:
    host = host_of(gpus=4)
    host.submit(submit(array="1-100", gpus=1))
    turn = host.schedule()
    assert sum(isinstance(one, event.ArrayTaskLeft) for one in turn.events) == 4
    assert waiting(host) == "5-100"
    host.obey()
    host.schedule()
    assert shown(host, job_ids=(1,), states=("PENDING",))[0].reason == "Resources"


# ── how it ends ───────────────────────────────────────────────────────────────────────────────────────────────


def end_all(host: CoreHost, *codes: int) -> Job:
    host.submit(submit(array=f"1-{len(codes)}"))
    start(host, *range(1, 1 + len(codes)))
    for number, code in enumerate(codes, 1):
        host.finish(task(host, number).job_id, code)
    return host.job(1)


def test_an_array_whose_tasks_all_went_well_is_completed() -> None:
    record = end_all(host_of(), 0, 0, 0)
    assert (record.state, record.outcome) == (JobState.ENDED, Outcome.COMPLETED)


def test_a_failed_task_does_not_end_the_others_and_the_array_keeps_the_worst_exit() -> None:
    host = host_of()
    record = end_all(host, 0, 3, 2)
    assert [job.outcome for job in host.cluster.jobs.values()][1:] == [
        Outcome.COMPLETED,
        Outcome.FAILED,
        Outcome.FAILED,
    ]
    assert (record.outcome, record.exit) == (Outcome.FAILED, ExitStatus(3))
    assert record.array == ArrayTasks(0, succeeded=parse_tasks("1"), failed=parse_tasks("2-3"))


def test_the_last_end_of_a_task_and_the_end_of_the_array_are_one_turn() -> None:
    host = host_of()
    host.submit(submit(array="1"))
    start(host, 1)
    ended = wire.AttemptEnded(
        attempt_id=AttemptId(JobId(2), 1),
        outcome=Outcome.COMPLETED,
        exit=ExitStatus(),
        ended_at=3,
        cell_emptied=True,
    )
    turn = host.report("n1", ended, now=4)
    assert [one for one in turn.events if isinstance(one, event.JobEnded)] == [
        event.JobEnded(at=4, job_id=JobId(2), outcome=Outcome.COMPLETED, exit=ExitStatus()),
        event.JobEnded(at=4, job_id=JobId(1), outcome=Outcome.COMPLETED, exit=ExitStatus()),
    ]


def test_with_fail_fast_the_first_failure_ends_the_others() -> None:
    host = host_of()
    host.submit(submit(array="1-9", fail_fast=True))
    start(host, 1, 2, 3)
    host.finish(2)
    assert waiting(host) == "4-9"
    host.finish(3, code=1)
    assert (waiting(host), task(host, 3).outcome) == ("", Outcome.CANCELLED)
    why = "task 1_2 failed, and the array was submitted with --fail-fast"
    assert (task(host, 3).why, host.job(1).why) == (why, why)
    assert (host.job(1).state, host.job(1).outcome) == (JobState.ENDED, Outcome.FAILED)
    assert told(history(host))[0] == (1, "CANCELLED", "4-9")


def test_a_cancelled_task_is_no_failure_that_ends_the_others() -> None:
    host = host_of()
    host.submit(submit(array="1-9", fail_fast=True))
    start(host, 1)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "1,2"})))
    host.obey()
    assert waiting(host) == "3-9"


def test_an_array_stays_in_memory_as_long_as_its_tasks() -> None:
    host = host_of()
    end_all(host, 0, 0)
    keep_s = POLICY.limits.ended_job_keep_s
    host.handle(Tick(), now=keep_s + 1)
    assert list(host.cluster.jobs) == [1]
    host.handle(Tick(), now=keep_s + 2)
    assert host.cluster.jobs == {}
    assert told(history(host, job_ids=(1,))) == [(2, "COMPLETED", 1), (3, "COMPLETED", 2)]


def test_tasks_that_left_memory_are_known_to_have_ended() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    start(host, 1)
    host.finish(2)
    host.handle(Tick(), now=POLICY.limits.ended_job_keep_s + 1)
    assert list(host.cluster.jobs) == [1]
    with pytest.raises(Refusal, match="1_1 ended long ago"):
        host.explain_task(1, 1)
    host.restart()
    start_after = array_of(host)
    assert (format_tasks(start_after.succeeded), start_after.jobs) == ("1", {})


# ── explain, wait ─────────────────────────────────────────────────────────────────────────────────────────────


def test_what_an_array_and_each_of_its_tasks_wait_for_is_told() -> None:
    host = host_of()
    host.submit(submit(array="1-5", is_held=True))
    assert host.explain(1).reason == "JobHeldUser"
    waits = host.explain_task(1, 4)
    assert (waits.job_id, waits.state, waits.reason) == (1, "PENDING", "JobHeldUser")
    host.ask(client.ReleaseJobs(job_ids=(1,)))
    start(host, 1, 2, 3)
    assert host.explain_task(1, 3).job_id == 4
    assert host.explain_task(1, 3).why.startswith("it runs on n1")
    host.finish(4)
    host.finish(3, code=1)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "4-5"})))
    why = host.explain(1).why
    assert why == (
        "none of its tasks is pending: 1 not ended, 1 completed, 1 failed or cancelled, 2 cancelled before they started"
    )


def waited(host: CoreHost) -> list[client.Waited]:
    return [reply.body for reply in host.replies if isinstance(reply.body, client.Waited)]


def test_a_wait_for_an_array_ends_with_its_last_task() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    assert host.ask(client.WaitJobs(job_ids=(1,))) is None
    start(host, 1, 2, 3)
    host.finish(2)
    host.finish(4, code=2)
    assert waited(host) == []
    host.finish(3)
    (answer,) = waited(host)
    assert answer.is_done
    assert [(job.job_id, job.state, job.exit_code) for job in answer.jobs] == [(1, "FAILED", 2)]


def test_a_wait_for_some_tasks_ends_with_the_last_or_the_first_of_them() -> None:
    host = host_of()
    host.submit(submit(array="1-9"))
    assert host.ask(client.WaitJobs(job_ids=(), tasks={1: "1-2"})) is None
    assert host.ask(client.WaitJobs(job_ids=(), tasks={1: "1-2"}, wait_any=True)) is None
    assert host.ask(client.WaitJobs(job_ids=(), tasks={1: "1,9"}, until="started")) is None
    start(host, 1, 2)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "3-9"})))
    assert [len(one.jobs) for one in waited(host)] == [1]
    host.finish(2)
    assert [len(one.jobs) for one in waited(host)] == [1, 2]
    host.finish(3)
    assert [one.is_done for one in waited(host)] == [True, True, True]


# ── restart, lost nodes, launches that fail ───────────────────────────────────────────────────────────────────


def test_a_restart_in_the_middle_loses_no_task_and_starts_none_twice() -> None:
    host = host_of()
    host.submit(submit(array="1-5", array_throttle=3))
    start(host, 1, 2)
    host.finish(2)
    host.ask(client.HoldJobs(job_ids=(), tasks={1: "4"}))
    before = host.cluster
    host.restart()
    assert host.cluster == before
    after = array_of(host)
    assert (waiting(host), after.jobs, after.active) == ("3,5", {1: 2, 2: 3, 4: 4}, 1)
    assert host.job(3).spec is host.job(1).spec


def test_a_task_whose_node_is_lost_waits_again_as_itself() -> None:
    host = host_of()
    host.submit(submit(array="1-3", requeue=True))
    start(host, 1)
    host.handle(hello("n1", inventory(cpus=64), incarnation="2"), now=1)
    host.obey()
    assert (task(host, 1).state, task(host, 1).restart_count, waiting(host)) == (JobState.PENDING, 1, "2-3")
    assert array_of(host).active == 0


def test_what_one_task_cannot_have_on_a_node_the_others_do_not_try_there_either() -> None:
    host = host_of()
    host.submit(submit(array="1-3"))
    grant = Grant(node="n1", tasks=1, cpus=(0,), gpus=(), memory_mib=0)
    host.adopt(Plan(made_at=0, starts=(Start(JobId(1), 0, (grant,), 1),)))
    host.orders.clear()
    refused = wire.PrepareRefused(attempt_id=AttemptId(JobId(2), 1), why="no such user", is_job_fault=True)
    host.report("n1", refused, now=1)
    assert host.job(1).avoid == task(host, 1).avoid == {"n1": 31.0}
    assert JobId(1) in host.cluster.timed
    host.schedule(now=2)
    assert waiting(host) == "2-3"
    host.schedule(now=40)
    assert task(host, 1).state is not JobState.PENDING


# ── history by tasks ──────────────────────────────────────────────────────────────────────────────────────────


def test_history_and_lists_know_tasks_by_array_and_number() -> None:
    host = host_of()
    host.submit(submit(array="1-9"))
    start(host, 1, 2, 3)
    host.finish(2)
    host.ask(client.CancelJobs(filter=client.JobFilter(tasks={1: "8-9"})))
    for ask in (shown, history):
        assert told(ask(host, tasks={1: "1"})) == [(2, "COMPLETED", 1)]
        assert told(ask(host, tasks={1: "2-8"})) == [
            (1, "PENDING", "4-7"),
            (1, "CANCELLED", "8"),
            (3, "RUNNING", 2),
            (4, "RUNNING", 3),
        ]
        assert told(ask(host, job_ids=(3,))) == [(3, "RUNNING", 2)]
        assert told(ask(host, job_ids=(1,), states=("RUNNING",))) == [(3, "RUNNING", 2), (4, "RUNNING", 3)]
        assert told(ask(host, job_ids=(1,), states=("CANCELLED",))) == [(1, "CANCELLED", "8-9")]
        assert told(ask(host, tasks={1: "1"}, job_ids=(3,))) == [(2, "COMPLETED", 1), (3, "RUNNING", 2)]
