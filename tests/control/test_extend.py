"""More time for a running job: granted where it puts off nobody, else refused with what is in the way."""

from __future__ import annotations

import signal
from unittest.mock import Mock

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import Holder, LimitInfo, QosInfo
from gq.model.dependency import parse_dependency
from gq.model.job import SignalSpec
from gq.wire import client, node
from gqd.control import snapshot
from gqd.control.forecast import extend as extend_module
from gqd.control.forecast.extend import MAX_COUNTED, MOST_TRIES
from gqd.control.turn import Turn
from gqd.sched.forecast import Forecast
from gqd.sched.planner import plan_whole
from gqd.state.effect import Reply, SendOrder
from gqd.state.events import event
from gqd.state.policy import Partition, Policy
from tests.builders import ALICE, BOB, OLGA, OWNER, PROMPT, SHARED, client_request, inventory, submit
from tests.control.test_reservations import booking, host_of, set_
from tests.hosts import CoreHost
from tests.property.streams import scheduling

POLICY = Policy(
    owner_uid=OWNER.uid,
    partitions=(Partition(name="main", is_default=True, max_time_s=10_000),),
    scheduling=scheduling("conservative", protected_jobs=1),
    timers=PROMPT,
)


EXPECTED_S = int(POLICY.scheduling.expected_without_history_s)
"""How long a job without a limit is expected to run."""


def studied(host: CoreHost, by_s: int) -> client.Extended | client.Refused:
    """What `gqctl extend 1` is answered, at once or when it has been worked out."""
    try:
        answer = host.study(client.ExtendJob(job_id=1, by_s=by_s))
    except Refusal as refusal:
        return client.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
    assert isinstance(answer, client.Extended | client.Refused)
    return answer


def busy() -> CoreHost:
    """Jobs 1 and 2 have two of the four GPUs each, until 600 and 1000."""
    host = CoreHost(POLICY, {"n1": inventory()})
    for limit_s in (600, 1000):
        host.start(submit(gpus=2, time_limit_s=limit_s))
    return host


def extend(host: CoreHost, job_id: int, by_s: int, now: float = 100.0) -> client.Extended:
    host.beat(now)
    answer = host.ask(client.ExtendJob(job_id=job_id, by_s=by_s), now)
    assert isinstance(answer, client.Extended)
    return answer


def refusal_of(host: CoreHost, job_id: int, by_s: int, now: float = 100.0) -> Refusal:
    with pytest.raises(Refusal) as caught:
        extend(host, job_id, by_s, now)
    return caught.value


def test_an_extension_that_puts_off_nobody_is_granted_and_its_nodes_are_told() -> None:
    host = busy()
    host.orders = []

    answer = extend(host, 1, 3600)

    assert answer == client.Extended(job_id=1, time_limit_s=4200, end_at=4200.0)
    [updated] = [one for one in host.log if isinstance(one, event.JobUpdated)]
    assert (updated.job_id, updated.time_limit_s, updated.expected_s) == (1, 4200, 4200.0)
    told = [one.order for one in host.orders if isinstance(one.order, node.SetTimeLimit)]
    assert told == [node.SetTimeLimit(attempt_id=host.attempt(1).attempt_id, time_limit_s=4200)]
    assert (host.trail[-1].action, host.trail[-1].object, host.trail[-1].outcome) == ("ExtendJob", "job 1", "done")


def test_whose_promised_start_is_in_the_way_is_named_with_the_longest_extension() -> None:
    host = busy()
    host.submit(submit(gpus=4, time_limit_s=60))
    host.schedule()

    refusal = refusal_of(host, 1, 3600)

    assert refusal.code == "not_extended"
    assert "job 3 of ada, which was promised a start by @{1000}, would start later" in refusal.message
    assert refusal.hint == "at most +6:40 would be granted now"
    assert extend(host, 1, 400).time_limit_s == 1000
    assert refusal_of(host, 1, 1).hint == "no extension would be granted now"
    host.schedule()
    assert [one.starts_at for one in plan_whole(host.controller.snapshot(100.0)).protected] == [1000.0]


def unlimited() -> CoreHost:
    """A cluster without time limits: job 1 ends at 600, job 2 is expected to end after an hour, and no start is promised."""
    host = CoreHost(
        msgspec.structs.replace(POLICY, partitions=(Partition(name="main", is_default=True),)),
        {"n1": inventory(), "n2": inventory()},
    )
    host.start(submit(gpus=4, time_limit_s=600, nodelist=("n1",)))
    host.start(submit(gpus=4, nodelist=("n2",)))
    return host


def test_a_gang_that_waits_without_a_promise_is_named_where_its_expected_start_would_move() -> None:
    host = unlimited()
    gang = host.submit(submit(nodes_min=2, gpus_per_node=4, time_limit_s=60))
    host.schedule()
    plan = host.controller.volatile.plan
    assert plan is not None
    assert [(one.job_id, one.is_promise) for one in plan.protected] == [(gang, False)]
    start_at = host.starts()[gang].start_at
    assert start_at == EXPECTED_S

    answer = studied(host, 2 * 3600)

    assert isinstance(answer, client.Refused)
    assert answer.code == "not_extended"
    assert answer.message.endswith(
        f": job 3 of ada, which is expected to start at @{{{EXPECTED_S}}}, would start later"
    )
    assert answer.hint == "at most +50:00 would be granted now"
    granted = studied(host, EXPECTED_S - 600)
    assert isinstance(granted, client.Extended)
    assert host.starts()[gang].start_at == start_at


def test_jobs_that_the_extension_does_not_move_are_no_reason_to_refuse_it() -> None:
    host = unlimited()
    host.submit(submit(gpus=4, time_limit_s=60, nodelist=("n2",)))
    host.submit(submit(gpus=1, dependency=parse_dependency("afterany:1")))
    host.schedule()
    assert isinstance(studied(host, 7 * 3600), client.Extended)


def test_the_longest_extension_is_found_among_many_jobs_that_wait() -> None:
    host = unlimited()
    for minutes in range(1, 60):
        host.submit(submit(gpus=4, time_limit_s=60 * minutes, nodelist=("n1",)))
    host.schedule()

    answer = studied(host, 7 * 3600)

    assert isinstance(answer, client.Refused)
    assert "job 4 of ada, which is expected to start at @{660}, would start later" in answer.message
    assert answer.hint == "no extension would be granted now"


def test_a_study_rehearses_the_queue_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    host = CoreHost(
        msgspec.structs.replace(POLICY, partitions=(Partition(name="main", is_default=True),)),
        {f"n{number}": inventory() for number in range(9)},
    )
    for number in range(9):
        host.start(submit(gpus=4, time_limit_s=600 if number == 0 else None))
    for _ in range(3 * MAX_COUNTED):
        host.submit(submit(gpus=4, time_limit_s=3600))
    host.schedule()
    rehearsed = Mock(wraps=Forecast)
    monkeypatch.setattr(extend_module, "Forecast", rehearsed)

    assert isinstance(studied(host, 9 * 3600), client.Refused)

    assert 2 <= rehearsed.call_count <= 2 + MAX_COUNTED.bit_length()
    assert all(len(call.args[1]) <= MAX_COUNTED for call in rehearsed.call_args_list)


def test_a_job_that_holds_nothing_that_a_promise_needs_may_have_more() -> None:
    host = CoreHost(POLICY, {"n1": inventory(), "n2": inventory()})
    host.start(submit(gpus=4, time_limit_s=600, nodelist=("n1",)))
    host.start(submit(gpus=4, time_limit_s=600, nodelist=("n2",)))
    host.submit(submit(gpus=4, time_limit_s=60, nodelist=("n2",)))
    host.schedule()

    assert extend(host, 1, 3600).time_limit_s == 4200
    assert "job 3 of ada" in refusal_of(host, 2, 1).message


def test_the_partition_and_the_qos_bound_it() -> None:
    host = busy()

    refusal = refusal_of(host, 1, 9401)

    assert "jobs of partition `main` may run 2 h 46 min at most" in refusal.message
    assert refusal.hint == "at most +2:36:40 would be granted now"
    host.ask(client.SetQos(qos=QosInfo(name="normal", max_time_s=700)))
    assert "jobs of QOS `normal` may run" in refusal_of(host, 1, 101).message


def test_the_deadline_bounds_it() -> None:
    host = CoreHost(POLICY, {"n1": inventory()})
    host.start(submit(time_limit_s=600, deadline_at=700.0))

    refusal = refusal_of(host, 1, 101)

    assert "its deadline is then" in refusal.message
    assert refusal.hint == "at most +1:40 would be granted now"
    assert extend(host, 1, 100).end_at == 700.0


def test_limits_and_budgets_bound_it() -> None:
    host = busy()
    host.ask(client.SetLimit(limit=LimitInfo(holder=Holder.USER, name="ada", resource="time", most=1800)))
    assert "jobs of user ada may run 30 min at most" in refusal_of(host, 1, 3600).message
    assert extend(host, 1, 1200).time_limit_s == 1800
    host.ask(client.RemoveLimit(holder="user", name="ada", resource="time"))

    host.ask(client.SetLimit(limit=LimitInfo(holder=Holder.USER, name="ada", resource="gpu_hours_per_day", most=2)))

    refusal = refusal_of(host, 1, 3600)
    assert "user ada has 0.56 GPU-hours left" in refusal.message, "2 GPUs for 1700 and 2 for 900 s are spoken for"
    assert refusal.hint == "at most +16:40 would be granted now"


def test_what_is_reserved_is_not_reached() -> None:
    host = host_of(1)
    host.start(submit(gpus=4, time_limit_s=600))
    set_(host, booking(at=2000))

    refusal = refusal_of(host, 1, 3600)

    assert "reservation `talk` has n1 from then on" in refusal.message
    assert refusal.hint == "at most +22:20 would be granted now", "it is clear a minute before"
    assert extend(host, 1, 1340).end_at == 1940.0


def test_only_a_running_job_that_has_a_limit_can_be_extended() -> None:
    host = CoreHost(Policy(owner_uid=OWNER.uid), {"n1": inventory()})
    host.start(submit(gpus=4))
    host.submit(submit(gpus=4))

    assert refusal_of(host, 1, 60).code == "no_time_limit"
    assert refusal_of(host, 2, 60).code == "not_running"
    assert refusal_of(host, 1, 0).code == refusal_of(host, 1, -60).code == "bad_number"


def test_a_job_that_gives_way_gets_no_more_time() -> None:
    host = CoreHost(POLICY, {"n1": inventory()})
    notice = SignalSpec(signum=signal.SIGUSR1, before_s=60)
    victim = host.start(submit(gpus=4, qos="scavenger", time_limit_s=600, signal=notice))
    host.submit(submit(gpus=4, time_limit_s=60), now=50.0)
    host.schedule()

    assert refusal_of(host, victim, 60).code == "gives_way"


def test_its_owner_and_operators_extend_a_job_and_nobody_else() -> None:
    host = CoreHost(SHARED, {"n1": inventory()})
    host.start(submit(time_limit_s=600), peer=ALICE)

    with pytest.raises(Refusal, match="belongs to alice"):
        host.ask(client.ExtendJob(job_id=1, by_s=60), peer=BOB)
    for peer, limit_s in ((ALICE, 660), (OLGA, 720)):
        answer = host.ask(client.ExtendJob(job_id=1, by_s=60), peer=peer)
        assert isinstance(answer, client.Extended)
        assert answer.time_limit_s == limit_s


def test_a_request_that_is_sent_again_extends_once() -> None:
    host = busy()
    request = client_request(client.ExtendJob(job_id=1, by_s=60), 77)

    answers = [host.handle(request, 100.0).effects for _ in range(2)]

    told = [[one.body for one in effects if isinstance(one, Reply)] for effects in answers]
    assert told[0] == told[1] == [client.Extended(job_id=1, time_limit_s=660, end_at=660.0)]
    assert not [one for one in answers[1] if isinstance(one, SendOrder)]


def test_a_grant_waits_for_the_plan_that_is_being_made_and_sees_what_came_of_it() -> None:
    """The plan knows the job's end as it was, and may promise a start by that."""
    host = busy()
    host.submit(submit(gpus=4, time_limit_s=60), 50.0)
    view = host.controller.snapshot(50.0)
    plan = plan_whole(view)

    assert host.ask(client.ExtendJob(job_id=1, by_s=3600), 50.0) is None
    host.adopt(plan)

    [answer] = [one.body for one in host.estimate().effects if isinstance(one, Reply)]
    assert isinstance(answer, client.Refused)
    assert "job 3 of ada" in answer.message


def test_the_cluster_is_looked_at_for_a_request_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = busy()
    host.controller.volatile.is_planning = True
    assert host.ask(client.ExtendJob(job_id=1, by_s=60), 50.0) is None
    takes = Mock(wraps=snapshot.take)
    monkeypatch.setattr(snapshot, "take", takes)

    assert host.ask(client.ExtendJob(job_id=2, by_s=60)) is None
    assert not takes.called, "the other one is not done yet"

    host.finish(2)
    host.controller.volatile.is_planning = False
    answers = [one.body for _ in range(20) for one in host.estimate().effects if isinstance(one, Reply)]
    [extended, refused] = answers
    assert isinstance(extended, client.Extended) and isinstance(refused, client.Refused)
    assert refused.code == "not_running"


def test_where_things_change_all_the_time_the_last_plan_decides() -> None:
    host = busy()
    host.submit(submit(gpus=4, time_limit_s=60), 50.0)
    host.schedule(50.0)
    host.controller.volatile.is_planning = True
    assert host.ask(client.ExtendJob(job_id=1, by_s=3600)) is None

    host.controller.volatile.is_planning = False
    turn, slices = Turn(), 0
    while not turn.effects:
        host.submit(submit("other", gpus=1, time_limit_s=10))
        turn = host.controller.estimate(100_000, 50.0)
        slices += 1

    assert MOST_TRIES < slices < 10 * MOST_TRIES
    [answer] = [one.body for one in turn.effects if isinstance(one, Reply)]
    assert isinstance(answer, client.Refused)
    assert "job 3 of ada" in answer.message
    assert answer.hint == "at most +6:40 would be granted now"
