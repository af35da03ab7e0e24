"""Two-phase launch on the core: all or nothing, GO last to the batch node, roll-back on refusal or silence."""

from __future__ import annotations

from gq.model.job import ExitStatus
from gq.model.node import GpuReading, XidError
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.state.effect import AckReport, SendOrder
from gqd.state.events import event
from gqd.state.input import NodeHeartbeat, Tick
from tests.builders import attempt_id, hello, inventory, report, route_of, submit
from tests.hosts import CoreHost

GANG = submit("gang", nodes_min=2, gpus_per_node=4, time_limit_s=600)


def two_nodes() -> CoreHost:
    return CoreHost(nodes={"n1": inventory(), "n2": inventory()})


def orders_to(host: CoreHost) -> list[tuple[str, str]]:
    sent, host.orders = host.orders, []
    return [(one.node, type(one.order).__name__) for one in sent]


def test_a_gang_is_prepared_everywhere_before_anything_goes() -> None:
    host = two_nodes()
    host.submit(GANG, now=1)
    host.schedule(now=2)
    assert orders_to(host) == [("n1", "Prepare"), ("n2", "Prepare")]

    host.report("n1", wire.Prepared(attempt_id=attempt_id(1), master_port=20001))
    assert orders_to(host) == [], "GO before all have acknowledged"

    turn = host.report("n2", wire.Prepared(attempt_id=attempt_id(1)), now=3)
    assert turn.events == (
        event.PartPrepared(at=3, attempt_id=attempt_id(1), node="n2"),
        event.PartsReleased(at=3, attempt_id=attempt_id(1), nodes=("n2",), master_port=20001),
    )
    assert turn.effects == (
        SendOrder(node="n2", order=wire.Go(attempt_id=attempt_id(1), master_port=20001)),
        AckReport(route=route_of("n2"), seq=1),
    )
    host.orders = []

    host.report("n2", wire.GoReceived(attempt_id=attempt_id(1)), now=4)
    assert orders_to(host) == [("n1", "Go")], "the batch node goes last"
    assert host.job(1).state is JobState.STARTING

    host.report("n1", wire.Started(attempt_id=attempt_id(1), at=4.5), now=5)
    assert host.job(1).state is JobState.RUNNING
    assert host.job(1).start_at == 4.5


def test_a_refusal_rolls_every_node_back_and_leaves_that_node_out() -> None:
    host = two_nodes()
    host.submit(GANG, now=1)
    host.schedule(now=2)
    host.orders = []
    host.report("n1", wire.Prepared(attempt_id=attempt_id(1), master_port=20001), now=3)

    turn = host.report("n2", wire.PrepareRefused(attempt_id=attempt_id(1), why="no space left"), now=4)

    assert [type(one) for one in turn.events] == [event.NodeBackedOff, event.LaunchFailed, event.PartEmptied]
    assert ("n1", "Stop") in orders_to(host)
    assert host.job(1).state is JobState.COMPLETING
    host.report("n1", wire.CellEmptied(attempt_id=attempt_id(1)), now=5)
    assert host.job(1).state is JobState.PENDING
    host.schedule(now=6)
    assert host.job(1).state is JobState.PENDING
    told = host.explain(1)
    assert told.reason == "LaunchFailed"
    assert "n2" in told.why
    assert "no space left" in told.why
    host.handle(Tick(), now=34.5)
    host.schedule(now=35)
    assert host.job(1).state is JobState.STARTING, "the back-off of 30 s is over"


def test_the_back_off_doubles_and_is_cleared_by_a_launch_that_works() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.submit(submit(), now=0)
    lengths = []
    now = 0.0
    for attempt in range(1, 8):
        host.schedule(now=now)
        host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1, attempt), why="full"), now=now)
        lengths.append(host.cluster.nodes["n1"].backoff_until - now)
        now = host.cluster.nodes["n1"].backoff_until
    assert lengths == [30, 60, 120, 240, 480, 600, 600]

    host.schedule(now=now)
    host.obey()
    assert host.job(1).state is JobState.RUNNING
    assert host.cluster.nodes["n1"].backoff_failures == 0


def test_launches_that_fail_together_are_one_failure_of_the_node() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    for _ in range(3):
        host.submit(submit(), now=0)
    host.schedule()
    assert len(host.orders) == 3
    for job_id in (1, 2, 3):
        host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(job_id), why="full"), now=job_id)
    assert host.cluster.nodes["n1"].backoff_until == 31
    assert host.cluster.nodes["n1"].backoff_failures == 1


def test_two_seconds_of_silence_fail_the_launch_and_keep_the_silent_nodes_resources() -> None:
    host = two_nodes()
    host.submit(GANG, now=1)
    host.schedule(now=2)
    host.report("n1", wire.Prepared(attempt_id=attempt_id(1), master_port=20001), now=2.1)
    host.handle(Tick(), now=3.9)
    assert host.job(1).state is JobState.STARTING

    host.handle(Tick(), now=4.1)
    host.report("n1", wire.CellEmptied(attempt_id=attempt_id(1)), now=4.2)

    assert host.job(1).state is JobState.PENDING
    assert host.cluster.nodes["n1"].free_gpu_mask == 0b1111
    assert host.cluster.nodes["n2"].free_gpu_mask == 0, "nobody knows what the silent node does"
    host.report("n2", wire.CellEmptied(attempt_id=attempt_id(1)), now=9)
    assert host.cluster.nodes["n2"].free_gpu_mask == 0b1111


def test_a_silent_node_that_wakes_up_prepared_is_told_to_stop() -> None:
    host = two_nodes()
    host.submit(GANG, now=1)
    host.schedule(now=2)
    host.handle(Tick(), now=5)
    host.orders = []

    host.report("n2", wire.Prepared(attempt_id=attempt_id(1)), now=6)
    host.handle(Tick(), now=11)

    assert ("n2", "Stop") in orders_to(host)
    assert host.job(1).state in (JobState.PENDING, JobState.COMPLETING)


def test_a_requeued_job_ignores_the_exit_of_its_first_attempt() -> None:
    host = two_nodes()
    job_id = host.start(submit(gpus=2), now=1)
    host.ask(client.RequeueJobs(job_ids=(job_id,)), now=5)
    host.obey()
    host.schedule(now=6)
    host.obey()
    assert host.job(job_id).attempt == 2

    late = wire.AttemptEnded(attempt_id=attempt_id(job_id, 1), outcome=Outcome.COMPLETED, exit=ExitStatus(), ended_at=7)
    turn = host.report("n1", late, now=8)

    assert turn.events == ()
    assert turn.effects == (AckReport(route=route_of("n1"), seq=1),)
    assert host.job(job_id).state is JobState.RUNNING


def test_orders_are_idempotent_reports_that_come_twice_change_nothing() -> None:
    host = two_nodes()
    host.start(GANG, now=1)
    for body in (
        wire.PrepareReceived(attempt_id=attempt_id(1)),
        wire.Prepared(attempt_id=attempt_id(1)),
        wire.GoReceived(attempt_id=attempt_id(1)),
        wire.Started(attempt_id=attempt_id(1), at=1),
    ):
        for node in ("n1", "n2"):
            assert host.handle(report(node, body), now=9).events == ()


def test_a_lost_node_ends_its_jobs_which_are_queued_again_while_it_keeps_what_it_held() -> None:
    host = two_nodes()
    host.start(GANG, now=1)
    for _ in range(4):
        host.handle(hello("n1"), now=host.now + 15)
    host.handle(Tick(), now=62)
    assert host.cluster.nodes["n2"].is_lost
    host.obey()

    assert host.job(1).state is JobState.PENDING
    assert host.job(1).restart_count == 1
    assert host.cluster.nodes["n2"].free_gpu_mask == 0

    host.orders.clear()
    host.handle(hello("n2", incarnation="2"), now=100)
    assert host.cluster.nodes["n2"].free_gpu_mask == 0, "a hello frees nothing: the node is asked to say that it may"
    host.report("n2", wire.CellEmptied(attempt_id=attempt_id(1)))
    assert host.cluster.nodes["n2"].free_gpu_mask == 0b1111, "it came back with nothing of the job"
    host.schedule(now=101)
    assert host.job(1).state is JobState.STARTING


def test_after_a_restart_the_controller_goes_on_where_the_launch_stood() -> None:
    host = two_nodes()
    host.submit(GANG, now=1)
    host.schedule(now=2)
    host.report("n1", wire.Prepared(attempt_id=attempt_id(1), master_port=20001), now=2.5)

    host.restart(now=3)
    assert host.job(1).state is JobState.STARTING
    n1 = hello("n1", attempts=(wire.AttemptStatus(attempt_id=attempt_id(1), phase="prepared"),))
    n2 = hello("n2", attempts=(wire.AttemptStatus(attempt_id=attempt_id(1), phase="preparing"),))
    host.handle(n1, now=3.1)
    host.handle(n2, now=3.2)
    assert ("n2", "Prepare") in orders_to(host)
    host.report("n2", wire.Prepared(attempt_id=attempt_id(1)), now=3.3)
    host.obey()
    assert host.job(1).state is JobState.RUNNING


def test_what_a_job_gives_back_that_its_node_has_no_more_is_not_free() -> None:
    host = CoreHost(nodes={"n1": inventory(cpus=8, gpu_count=4)})
    large, small = (host.start(submit(name, cpus_per_task=4, gpus=2)) for name in ("large", "small"))
    kept = (wire.AttemptStatus(attempt_id=host.attempt(one).attempt_id, phase="running") for one in (large, small))
    host.handle(hello("n1", inventory(cpus=6, gpu_count=3), attempts=tuple(kept)))
    host.finish(small)
    host.finish(large)

    node = host.cluster.nodes["n1"]
    assert (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib) == (0b111111, 0b111, 0)


def test_a_node_that_holds_what_nobody_knows_is_told_to_stop_it() -> None:
    host = two_nodes()
    host.handle(hello("n1", attempts=(wire.AttemptStatus(attempt_id=attempt_id(77), phase="running"),)), now=1)
    assert orders_to(host) == [("n1", "Stop")]


def test_a_part_that_reports_after_it_was_given_up_is_stopped() -> None:
    host = two_nodes()
    turn = host.report("n1", wire.Prepared(attempt_id=attempt_id(9)))
    assert turn.events == ()
    assert orders_to(host) == [("n1", "Stop")]


def test_a_job_that_loses_its_process_each_time_is_not_queued_again_for_ever() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    job_id = host.start(submit(), now=1)
    for _ in range(host.policy.limits.restarts + 1):
        lost = wire.AttemptEnded(
            attempt_id=host.job(job_id).attempt_id,
            outcome=Outcome.NODE_FAIL,
            exit=ExitStatus(signal=9),
            ended_at=host.now,
            cell_emptied=True,
        )
        host.report("n1", lost)
        host.schedule(now=host.now + 0.1)
        host.obey()
    assert host.job(job_id).state is JobState.ENDED
    assert host.job(job_id).outcome is Outcome.NODE_FAIL
    assert host.job(job_id).restart_count == host.policy.limits.restarts


def test_a_node_that_has_nothing_left_at_the_end_is_not_told_to_stop() -> None:
    host = two_nodes()
    host.start(GANG, now=1)
    host.orders = []
    over = wire.AttemptEnded(
        attempt_id=attempt_id(1),
        outcome=Outcome.COMPLETED,
        exit=ExitStatus(code=0),
        started_at=1,
        ended_at=9,
        cell_emptied=True,
    )

    host.report("n1", over, now=10)
    assert orders_to(host) == [("n2", "Stop")]
    assert host.job(1).state is JobState.COMPLETING

    host.report("n2", wire.CellEmptied(attempt_id=attempt_id(1)), now=11)
    assert orders_to(host) == []
    assert host.job(1).outcome is Outcome.COMPLETED


def test_what_a_heartbeat_says_of_gpus_is_shown_until_the_node_is_lost() -> None:
    host = two_nodes()
    xids = (XidError(xid=79, at=4.0),)
    broken = GpuReading(index=2, does_answer=False, xids=xids)
    busy = GpuReading(index=0, utilisation_percent=97, memory_used_mib=4000)
    beat = wire.Heartbeat(node="n1", incarnation="1", at=5, gpus=(busy, broken))

    def shown(field: str) -> list[object]:
        [node] = host.ask(client.ListNodes(names=("n1",))).nodes  # type: ignore[union-attr]
        return [getattr(gpu, field) for gpu in node.gpus]

    assert shown("does_answer") == [None] * 4
    host.handle(NodeHeartbeat(route=route_of("n1"), heartbeat=beat), now=5)
    assert shown("does_answer") == [True, None, False, None]
    assert shown("utilisation_percent") == [97, None, None, None]
    assert shown("memory_used_mib") == [4000, None, None, None]
    assert shown("xids") == [(), (), xids, ()]

    host.handle(Tick(), now=5 + host.policy.timers.node_lost_s)
    assert shown("xids") == [()] * 4
