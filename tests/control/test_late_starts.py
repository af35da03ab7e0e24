"""Launches that a crash of the controller or a cut line holds up, near a reservation: a limit counts from the start."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.ids import AttemptId, JobId
from gq.model.reservation import Booking
from gq.model.resource import ResourceRequest
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events.event import JobRequeued, JobStarted, LaunchFailed
from gqd.state.input import Tick
from gqd.state.policy import Partition
from tests.builders import PROMPT, hello, inventory, submit
from tests.hosts import POLICY, CoreHost

MAIN = Partition(name="main", is_default=True, max_time_s=86400)
BOOKABLE = msgspec.structs.replace(POLICY, partitions=(MAIN,), timers=PROMPT)
LIMIT_S = 600
CLEAR_S = round(BOOKABLE.clear_s)
JOB = submit(gpus_per_node=4, nodes_min=2, time_limit_s=LIMIT_S)


def two_nodes() -> CoreHost:
    """With 4 GPUs each; n1 has the script."""
    return CoreHost(BOOKABLE, {"n1": inventory(), "n2": inventory()})


def reserve(on: CoreHost, at: float, name: str = "talk") -> None:
    whole = ResourceRequest(nodes_min=2, is_exclusive=True)
    on.ask(client.SetReservation(booking=Booking(name=name, resources=whole, begin_at=at, duration_s=3600)))


def come_back(on: CoreHost, phases: dict[str, str], now: float) -> None:
    """The controller starts again, and hears how far its nodes are with attempt 1 of job 1."""
    on.restart(now)
    for name, phase in phases.items():
        status = wire.AttemptStatus(attempt_id=AttemptId(JobId(1), 1), phase=phase, time_limit_s=LIMIT_S)
        on.handle(hello(name, inventory(), attempts=(status,)), now)


def prepared(on: CoreHost, *nodes: str) -> None:
    for node in nodes:
        on.report(node, wire.Prepared(attempt_id=AttemptId(JobId(1), 1), master_port=20000))


def launching() -> CoreHost:
    """A job that has its two nodes, which do not know yet, and what is reserved as soon after it as can be."""
    on = two_nodes()
    on.submit(JOB)
    on.schedule()
    reserve(on, LIMIT_S + CLEAR_S)
    return on


def let_go(on: CoreHost) -> None:
    """All are ready and n2 is going; the order to n1, which has the script, is on its way."""
    prepared(on, "n1", "n2")
    on.report("n2", wire.GoReceived(attempt_id=AttemptId(JobId(1), 1)))


def is_given_up(on: CoreHost) -> bool:
    on.obey()
    failed = [one for one in on.log if isinstance(one, LaunchFailed)]
    assert [one.why for one in failed] in (
        [],
        ["its start was delayed so long that it would overlap reservation `talk`"],
    )
    if not failed:
        return False
    assert not any(isinstance(one, JobStarted) for one in on.log)
    assert [one.counts for one in on.log if isinstance(one, JobRequeued)] == [False]
    assert on.job(1).is_waiting and on.job(1).launch_failures == 0
    assert all(not node.backoff_until for node in on.cluster.nodes.values()), "no node is to blame"
    return True


@pytest.mark.parametrize(("late_s", "is_late"), [(PROMPT.prepare_s, False), (PROMPT.prepare_s + 1, True)])
def test_who_was_not_let_go_when_the_controller_died_is_let_go_only_if_it_is_over_in_time(
    late_s: float, is_late: bool
) -> None:
    on = launching()
    come_back(on, {"n1": "prepared", "n2": "prepared"}, late_s)
    prepared(on, "n1", "n2")

    assert is_given_up(on) == is_late
    assert is_late or on.job(1).state is JobState.RUNNING


def test_who_is_ready_only_after_that_is_not_let_go() -> None:
    on = launching()
    on.restart(30.0)
    on.handle(hello("n1", inventory()), 30.0)
    on.handle(hello("n2", inventory()), 30.0)

    assert is_given_up(on)


def test_what_is_far_from_any_reservation_starts_however_late() -> None:
    on = two_nodes()
    on.submit(JOB)
    on.schedule()
    reserve(on, 3 * LIMIT_S)
    come_back(on, {"n1": "prepared", "n2": "prepared"}, LIMIT_S)
    prepared(on, "n1", "n2")

    assert not is_given_up(on)
    assert on.job(1).state is JobState.RUNNING


@pytest.mark.parametrize(("phase", "is_late"), [("prepared", True), ("preparing", True), ("running", False)])
def test_whose_node_with_the_script_was_let_go_and_has_not_begun_is_given_up(phase: str, is_late: bool) -> None:
    """The order was lost with the controller; a node that has it may have begun."""
    on = launching()
    let_go(on)
    come_back(on, {"n2": "running", "n1": phase}, 60.0)

    if is_late:
        assert is_given_up(on)
    else:
        assert not any(isinstance(one, LaunchFailed) for one in on.log)


def test_what_another_node_says_does_not_end_what_may_have_begun() -> None:
    on = launching()
    let_go(on)
    come_back(on, {"n2": "preparing"}, 60.0)

    assert not any(isinstance(one, LaunchFailed) for one in on.log)


def test_a_node_that_is_silent_after_go_for_too_long_is_told_to_stop() -> None:
    """It may have begun: as if the node were lost, it runs again only if it may."""
    on = launching()
    let_go(on)
    for now in range(1, round(PROMPT.prepare_s) + 2):
        assert on.job(1).state is JobState.STARTING
        on.beat(now)
        on.orders = []
        on.handle(Tick(), now)

    assert on.job(1).state is JobState.COMPLETING
    assert "its start was delayed so long that it would overlap reservation `talk`" in on.attempt(1).why
    stops = [sent.node for sent in on.orders if isinstance(sent.order, wire.Stop)]
    assert sorted(stops) == ["n1", "n2"]


def test_who_begins_so_late_after_go_that_it_would_reach_in_is_ended_at_once() -> None:
    """Its node was away in between; what has just begun loses little, and begins again if it may."""
    on = launching()
    let_go(on)
    come_back(on, {"n2": "running", "n1": "running"}, 200.0)
    on.orders = []
    on.report("n1", wire.Started(attempt_id=AttemptId(JobId(1), 1), at=190.0))

    assert on.job(1).state is JobState.COMPLETING
    assert "its start was delayed so long that it would overlap reservation `talk`" in on.attempt(1).why
    assert sorted(sent.node for sent in on.orders if isinstance(sent.order, wire.Stop)) == ["n1", "n2"]


def test_who_began_in_time_goes_on_however_late_that_is_heard() -> None:
    on = launching()
    let_go(on)
    come_back(on, {"n2": "running", "n1": "running"}, 200.0)
    on.report("n1", wire.Started(attempt_id=AttemptId(JobId(1), 1), at=PROMPT.prepare_s))

    assert on.job(1).state is JobState.RUNNING


def test_before_a_late_start_no_more_time_is_given_than_there_is_after_it() -> None:
    on = two_nodes()
    on.submit(JOB)
    on.schedule()
    come_back(on, {"n1": "prepared", "n2": "prepared"}, 300.0)
    reserve(on, 2000.0)
    held_up_s = round(300 - PROMPT.prepare_s)
    with pytest.raises(Refusal, match=f"--time={(2000 - CLEAR_S - held_up_s) // 60} "):
        on.ask(client.UpdateJob(job_id=1, time_limit_s=2000 - CLEAR_S - held_up_s + 1))
    on.ask(client.UpdateJob(job_id=1, time_limit_s=2000 - CLEAR_S - held_up_s))


def test_a_launch_that_was_cancelled_is_in_the_way_for_its_grace_only() -> None:
    on = two_nodes()
    on.submit(JOB)
    on.schedule()
    come_back(on, {"n1": "prepared", "n2": "prepared"}, 500.0)
    on.ask(client.CancelJobs(filter=client.JobFilter(users=("ada",))))
    assert on.job(1).state is JobState.COMPLETING
    reserve(on, 500.0 + PROMPT.grace_s + CLEAR_S)


def test_what_is_reserved_while_a_launch_is_held_up_begins_as_much_later() -> None:
    on = two_nodes()
    on.submit(JOB)
    on.schedule()
    on.restart(100.0)
    held_up_s = 100 - PROMPT.prepare_s
    with pytest.raises(Refusal, match=r"1 job \(1 with .*\) may run until then"):
        reserve(on, LIMIT_S + CLEAR_S + held_up_s - 1)
    reserve(on, LIMIT_S + CLEAR_S + held_up_s)


def test_what_a_job_has_that_should_be_over_by_its_limit_is_not_free_yet() -> None:
    """Its node is slow to say so, or to end it."""
    on = two_nodes()
    on.start(JOB)
    on.beat(LIMIT_S + 1)
    with pytest.raises(Refusal, match=r"1 job \(1 with .*\) may run until then"):
        reserve(on, LIMIT_S + 1)
    reserve(on, LIMIT_S + CLEAR_S + 2)
