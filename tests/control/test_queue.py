"""First come, first served; hold, nice, begin, partitions; what is refused at once; why a job waits."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.ids import JobId
from gq.model.policy_tables import Limits
from gq.model.scheduling import PRESETS, Scheduling
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.sched.planner import Planner, plan_whole
from gqd.state.index.queue import PAGE_ROWS, PendingQueue
from gqd.state.input import Tick
from gqd.state.plan import WouldDelay
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, STRANGER, client_request, hello, inventory, submit
from tests.hosts import CoreHost


def cluster(**nodes: int) -> CoreHost:
    """Nodes by name with so many GPUs, 8 CPUs each."""
    return CoreHost(nodes={name: inventory(gpu_count=count) for name, count in nodes.items()})


def started(host: CoreHost) -> list[int]:
    return [one.job_id for one in host.cluster.jobs.values() if one.state is not JobState.PENDING]


def waited(host: CoreHost) -> list[client.Waited]:
    """Answers to `WaitJobs` so far."""
    return [reply.body for reply in host.replies if isinstance(reply.body, client.Waited)]


def test_nobody_overtakes_a_job_that_waits_for_the_same_nodes() -> None:
    host = CoreHost(Policy(owner_uid=OWNER.uid, scheduling=Scheduling(protected_jobs=1)), {"n1": inventory()})
    host.start(submit("first", gpus=2, time_limit_s=600))
    host.submit(submit("gang", gpus=4))
    host.submit(submit("small", gpus=1))
    host.schedule()
    assert started(host) == [1]
    assert host.explain(2).reason == "Resources"
    wait = plan_whole(host.controller.snapshot(0.0)).waits[JobId(3)]
    assert wait == WouldDelay(job_id=JobId(2), starts_at=600.0, ends_at=None, nodes=("n1",))
    host.finish(1)
    host.schedule()
    assert started(host) == [1, 2]


def test_where_nobody_overtakes_who_comes_in_behind_one_that_waits_asks_for_no_plan() -> None:
    policy = Policy(
        owner_uid=OWNER.uid,
        scheduling=Scheduling(policy="fifo", **PRESETS["fifo"]),
        partitions=(Partition(name="main", is_default=True, nodes=("n1",)), Partition(name="other", nodes=("n2",))),
    )
    host = CoreHost(policy, {"n1": inventory(), "n2": inventory()})
    host.start(submit("first", gpus=2))
    host.start(submit("head", gpus=4))
    assert not host.controller.wants_plan(100.0)

    behind = host.submit(submit("behind", gpus=1), 100.0)
    assert not host.controller.wants_plan(100.0)
    assert host.explain(behind).why.startswith("job 2 (ada: head) is ahead of it")

    host.submit(submit("other", gpus=1, partition="other"))
    assert host.controller.wants_plan(100.0)
    host.schedule()
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(2,))), 200.0)
    assert host.controller.wants_plan(200.0)
    host.schedule()
    assert host.job(behind).state is JobState.STARTING


def test_who_others_give_way_to_asks_for_a_plan_behind_whomever() -> None:
    host = CoreHost(
        Policy(owner_uid=OWNER.uid, scheduling=Scheduling(policy="fifo", **PRESETS["fifo"])), {"n1": inventory()}
    )
    host.start(submit("yields", gpus=2, qos="scavenger"))
    host.start(submit("head", gpus=4, qos="scavenger"))
    host.submit(submit("behind", gpus=1, qos="scavenger"), 100.0)
    assert not host.controller.wants_plan(100.0)
    host.submit(submit("normal", gpus=3))
    assert host.controller.wants_plan(100.0)


def test_a_job_that_cannot_use_the_blocked_ones_nodes_goes_ahead() -> None:
    host = CoreHost(nodes={"n1": inventory(gpu_count=4), "n2": inventory(gpu_count=0)})
    host.start(submit(gpus=4))
    host.submit(submit(gpus=4))
    host.submit(submit("cpu-only", nodelist=("n2",)))
    host.schedule()
    assert started(host) == [1, 3]


def test_nice_moves_back_and_hold_keeps_out_until_released() -> None:
    host = cluster(n1=1)
    host.submit(submit("nice", gpus=1, nice=10))
    host.submit(submit("held", gpus=1, is_held=True))
    host.submit(submit("plain", gpus=1))
    host.schedule()
    assert started(host) == [3]
    assert host.explain(2).reason == "JobHeldUser"
    host.finish(3)
    host.ask(client.ReleaseJobs(job_ids=(2,)))
    host.schedule()
    assert started(host) == [2, 3]


def test_a_job_begins_when_it_was_asked_to_and_not_before() -> None:
    host = cluster(n1=1)
    host.submit(submit(begin_at=100.0), now=1)
    host.beat(now=50)
    host.schedule(now=99)
    assert started(host) == []
    assert host.explain(1).reason == "BeginTime"
    assert host.explain(1).expected_start_at == 100.0
    host.handle(Tick(), now=99.5)
    assert host.controller.next_wakeup(99.5) == 100.0
    host.handle(Tick(), now=100)
    assert host.controller.wants_plan(100)
    host.schedule(now=100)
    assert started(host) == [1]


def test_gqwhy_names_the_holder_its_user_its_gpus_and_when_its_limit_ends() -> None:
    host = cluster(n1=4, n2=4)
    host.start(submit("first", nodes_min=2, gpus_per_node=4, time_limit_s=600), now=1000)
    host.submit(submit("second", nodes_min=2, gpus_per_node=4, time_limit_s=600), now=1010)
    host.schedule()
    told = host.explain(2)
    assert told.blockers == (1,)
    for part in ("needs 8 GPUs, 0 are free", "job 1 (ada) holds 8 GPUs on n1, n2", "@{1600}"):
        assert part in told.why
    assert told.expected_start_at == 1600


def test_removing_the_named_blocker_starts_the_job() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=3))
    host.submit(submit(gpus=2))
    host.schedule()
    (blocker,) = host.explain(2).blockers
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(blocker,))))
    host.obey()
    host.schedule()
    assert host.job(2).state is JobState.STARTING


def test_drained_nodes_are_named_and_resume_lets_the_job_start() -> None:
    host = cluster(n1=4)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fan broken"))
    host.submit(submit(gpus=1))
    host.schedule()
    told = host.explain(1)
    assert told.reason == "ReqNodeNotAvail"
    assert "n1 is drained: fan broken" in told.why
    host.ask(client.UpdateNodes(names=("n1",), action="resume"))
    host.schedule()
    assert started(host) == [1]


def test_a_drained_gpu_is_not_given_and_comes_back() -> None:
    host = cluster(n1=2)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="ECC", gpu=0))
    host.start(submit(gpus=1))
    assert host.attempt(1).grants[0].gpus == (1,)
    host.submit(submit(gpus=1))
    host.schedule()
    assert started(host) == [1]
    host.ask(client.UpdateNodes(names=("n1",), action="resume", gpu=0))
    host.schedule()
    assert started(host) == [1, 2]


IMPOSSIBLE = [
    (submit(gpus_per_node=5), "5 GPUs on one node; the largest node has 4"),
    (submit(gpus=9), "9 GPUs; its nodes have 8"),
    (submit(cpus_per_task=9), "9 CPUs on one node; the largest node has 8"),
    (submit(nodes_min=3), "3 nodes; it may use 2"),
    (submit(mem_per_node_mib=70_000), "70000M"),
    (submit(gpus=1, gpu_type="h100"), "GPUs of type `h100`"),
    (submit(nodelist=("n7",)), "node `n7` does not exist"),
    (submit(ntasks=30, gpus_per_task=1), "30 GPUs; its nodes have 8"),
    (submit(partition="mian"), "partition `mian` does not exist"),
    (submit(gpus=3, gpus_per_task=2), "not a multiple"),
    (submit(mem_per_node_mib=1, mem_per_cpu_mib=1), "exclude each other"),
    (submit(ntasks=0), "less than 1"),
    (submit(name="bad\nname"), "printable"),
    (submit(chdir="relative"), "absolute"),
]


@pytest.mark.parametrize(("body", "message"), IMPOSSIBLE)
def test_what_can_never_run_is_refused_at_once_and_leaves_nothing(body: client.Submit, message: str) -> None:
    host = cluster(n1=4, n2=4)
    events = len(host.log)
    with pytest.raises(Refusal, match=message.replace("(", r"\(")):
        host.submit(body)
    assert len(host.log) == events


def test_a_request_that_only_down_nodes_can_meet_waits() -> None:
    host = cluster(n1=4)
    host.restart(now=5)  # the node has not said hello yet
    host.submit(submit(gpus=4))
    host.schedule()
    assert host.explain(1).reason == "ReqNodeNotAvail"
    host.handle(hello("n1"), now=6)
    host.schedule()
    assert started(host) == [1]


def test_time_limits_default_from_the_partition_and_are_bounded_by_it() -> None:
    partitions = (
        Partition(name="main", is_default=True, default_time_s=60, max_time_s=3600),
        Partition(name="long", nodes=("n2",)),
    )
    host = CoreHost(Policy(owner_uid=OWNER.uid, partitions=partitions), {"n1": inventory(), "n2": inventory()})
    host.submit(submit())
    host.submit(submit(partition="long"))
    assert host.job(1).time_limit_s == 60
    assert host.job(2).time_limit_s is None
    for asked in (3601, 0):
        with pytest.raises(Refusal, match="maximum of partition `main`, 1 h") as told:
            host.submit(submit(time_limit_s=asked))
        assert told.value.hint == "ask for at most --time=1:00:00"
    host.schedule()
    assert host.attempt(2).batch_node == "n2"


def test_strangers_are_not_served_and_their_requests_change_nothing() -> None:
    host = cluster(n1=4)
    events = len(host.log)
    with pytest.raises(Refusal, match="not served"):
        host.ask(submit(), peer=STRANGER)
    assert len(host.log) == events


def test_a_request_that_is_sent_again_is_answered_alike_and_done_once() -> None:
    host = cluster(n1=4)
    first = host.submit(submit())
    host._requests -= 1
    assert host.submit(submit()) == first
    assert len(host.cluster.jobs) == 1
    host.restart(now=1)
    host._requests -= 1
    assert host.submit(submit()) == first, "remembered durably"
    host.handle(Tick(), now=700)
    assert not host.cluster.answers, "and not for ever"


def test_the_queue_and_each_user_have_a_limit() -> None:
    host = CoreHost(Policy(owner_uid=OWNER.uid, limits=Limits(jobs_per_user=2)))
    host.submit(submit())
    host.submit(submit())
    with pytest.raises(Refusal, match="the maximum per user"):
        host.submit(submit())


def test_ended_jobs_leave_memory_and_their_ids_are_never_used_again() -> None:
    host = cluster(n1=4)
    host.start(submit(), now=1)
    host.finish(1, now=2)
    assert host.job(1).outcome is Outcome.COMPLETED
    host.handle(Tick(), now=301)
    assert 1 in host.cluster.jobs
    host.handle(Tick(), now=303)
    assert 1 not in host.cluster.jobs
    assert not host.cluster.attempts
    with pytest.raises(Refusal, match="ended long ago"):
        host.explain(1)
    host.restart(now=304)
    assert host.submit(submit()) == 2


def test_a_pending_job_can_be_changed_and_a_running_one_only_in_what_does_not_bind() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=4, time_limit_s=60))
    host.submit(submit(gpus=4))
    host.ask(client.UpdateJob(job_id=2, nice=5, name="renamed", resources=submit(gpus=1).spec.resources))
    assert host.job(2).spec.name == "renamed"
    assert host.job(2).spec.resources.gpus == 1
    host.ask(client.UpdateJob(job_id=1, time_limit_s=120))
    assert host.job(1).time_limit_s == 120
    assert type(host.orders[-1].order).__name__ == "SetTimeLimit"
    with pytest.raises(Refusal, match="cannot be changed"):
        host.ask(client.UpdateJob(job_id=1, nice=5))


def test_cancelling_works_wherever_a_job_stands() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=4))
    host.submit(submit(gpus=4))
    host.schedule()
    both = client.CancelJobs(filter=client.JobFilter(job_ids=(1, 2, 99)))
    done = host.ask(both)
    assert done == client.JobsDone(job_ids=(1, 2), skipped=(99,))
    assert host.job(2).state is JobState.ENDED
    assert host.job(1).state is JobState.COMPLETING
    host.obey()
    assert host.job(1).outcome is Outcome.CANCELLED
    assert host.ask(both) == client.JobsDone(skipped=(1, 2, 99))


def test_a_job_may_ask_for_its_requeue_as_its_last_act() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=4))
    host.ask(client.RequeueJobs(job_ids=(1,)))
    host.obey()
    assert host.job(1).state is JobState.PENDING
    assert host.job(1).restart_count == 1


def test_an_interactive_job_ends_with_its_client() -> None:
    host = cluster(n1=4)
    host.start(submit(is_interactive=True), now=0)
    host.beat(now=50)
    host.ask(client.KeepAlive(job_id=1))
    host.beat(now=100)
    host.handle(Tick())
    assert host.job(1).state is JobState.RUNNING
    host.handle(Tick(), now=111)
    host.obey()
    assert host.job(1).outcome is Outcome.CANCELLED


def test_waiting_is_answered_when_it_is_over_or_when_its_time_is_up() -> None:
    host = cluster(n1=4)
    host.start(submit(), now=0)
    assert host.ask(client.WaitJobs(job_ids=(1,), timeout_s=10), now=1) is None
    assert host.ask(client.WaitJobs(job_ids=(1,), timeout_s=30), now=1) is None
    host.replies.clear()
    host.handle(Tick(), now=11)
    (reply,) = host.replies
    assert isinstance(reply.body, client.Waited)
    assert not reply.body.is_done
    host.finish(1, now=12)
    reply = host.replies[-1]
    assert isinstance(reply.body, client.Waited)
    assert reply.body.is_done
    assert reply.body.jobs[0].state == "COMPLETED"


def test_a_wait_that_is_sent_again_keeps_its_first_deadline() -> None:
    host = cluster(n1=4)
    host.start(submit(), now=0)
    wait = client_request(client.WaitJobs(job_ids=(1,), timeout_s=25), 99)
    for sent_at in (0, 5, 15):
        host.handle(wait, now=sent_at)
    assert waited(host) == []

    host.handle(Tick(), now=25)

    assert [answer.is_done for answer in waited(host)] == [False]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_waiting_for_several_jobs_is_over_with_the_last_end_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    host = cluster(n1=4)
    for _ in order:
        host.start(submit())
    assert host.ask(client.WaitJobs(job_ids=(3, 1, 2), timeout_s=30)) is None
    for job_id in order:
        assert waited(host) == []
        host.finish(job_id)
    assert [answer.is_done for answer in waited(host)] == [True]


def test_a_job_that_is_queued_again_has_not_started_for_who_waits_for_several() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=1))
    host.submit(submit(gpus=4))
    assert host.ask(client.WaitJobs(job_ids=(1, 2), until="started", timeout_s=30)) is None
    host.ask(client.RequeueJobs(job_ids=(1,)))
    host.obey()
    host.ask(client.HoldJobs(job_ids=(1,)))
    host.schedule()
    host.obey()
    assert started(host) == [2]
    assert waited(host) == []


def test_test_only_says_when_it_would_start_and_queues_nothing() -> None:
    host = cluster(n1=4)
    host.start(submit(gpus=4, time_limit_s=100), now=10)
    answer = host.ask(client.Submit(spec=submit(gpus=2).spec, test_only=True))
    assert isinstance(answer, client.Tested)
    assert answer.start_at == 110
    assert answer.nodes == ("n1",)
    assert len(host.cluster.jobs) == 1


def test_a_request_that_needs_a_drained_gpu_waits_for_it_and_says_so() -> None:
    host = cluster(n1=2)
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="ECC", gpu=0))
    host.submit(submit(gpus=2))
    host.schedule()
    told = host.explain(1)
    assert told.reason == "ReqNodeNotAvail"
    assert "n1 is short of 1 drained GPU" in told.why
    host.ask(client.UpdateNodes(names=("n1",), action="resume", gpu=0))
    host.schedule()
    assert started(host) == [1]


def test_a_pass_that_stops_early_starts_the_same_jobs() -> None:
    host = CoreHost(nodes={f"n{number}": inventory() for number in range(1, 4)})
    for number in range(40):
        host.submit(submit(gpus=1 + number % 4))
    whole = plan_whole(host.controller.snapshot(0.0))
    planner = Planner()
    planner.begin(host.controller.snapshot(0.0))
    early = None
    while early is None:
        early = planner.step(1)
    assert early.starts == whole.starts
    assert len(early.waits) < len(whole.waits)


def test_a_line_of_the_queue_is_sent_without_what_is_at_its_default_and_read_with_it() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.start(submit("runs", gpus=4))
    host.submit(submit("waits", gpus=4))
    brief, whole = (host.ask(client.ListJobs(brief=one)) for one in (True, False))
    assert isinstance(brief, client.Jobs) and isinstance(whole, client.Jobs)
    sent = msgspec.msgpack.encode(brief)
    read = msgspec.msgpack.decode(sent, type=client.Jobs)

    assert len(sent) < len(msgspec.msgpack.encode(whole)) / 2
    for line, job in zip(read.jobs, whole.jobs, strict=True):
        for name in ("job_id", "name", "state", "reason", "grants", "gpus", "cpus", "submit_at", "start_at", "account"):
            assert getattr(line, name) == getattr(job, name), name


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS, PAGE_ROWS + 1, 5 * PAGE_ROWS])
def test_a_queue_that_is_loaded_at_once_is_the_one_to_which_the_jobs_came_one_by_one(count: int) -> None:
    host = CoreHost(nodes={"n1": inventory()})
    first = host.job(host.submit(submit("first", gpus=2, nice=3, begin_at=50.0)))
    jobs = [replace(first, job_id=JobId(number), time_limit_s=number) for number in range(1, count + 1)]
    loaded, built = PendingQueue.of(jobs), PendingQueue()
    for job in jobs:
        built.add(job)
        assert loaded.stored_row(job.job_id) == loaded.expected_row(job)

    assert len(loaded) == len(built) == count
    assert (loaded.integers("job_id") == built.integers("job_id")).all()
    for job in jobs:
        loaded.remove(job.job_id)
    assert not len(loaded)
