"""Jobs that run on what is reserved and idle: who may, when they are asked to go, and what they never stand in."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.ids import JobId
from gq.model.job import SignalSpec
from gq.model.reservation import Flag, OccurrenceState
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire.node import AttemptStatus
from gqd.sched.planner import plan_whole
from gqd.state.input import Tick
from gqd.state.plan import Start
from tests.builders import BOB, OWNER, PROMPT, SHARED, hello, inventory, submit
from tests.control.test_reservation_jobs import EASY, HOUR, MAIN, go_to, is_waiting, occurrence_of, reserve
from tests.hosts import CoreHost

WARNED = SignalSpec(signum=signal.SIGUSR1, before_s=60)
LONG = 10 * HOUR
CLUSTER = msgspec.structs.replace(SHARED, partitions=(MAIN,), scheduling=EASY, timers=PROMPT)
"""Of many: `OWNER` is its administrator."""


def host(nodes: int = 1) -> CoreHost:
    """Nodes with 8 CPUs and 4 GPUs, which may change hands while a job runs."""
    node = msgspec.structs.replace(inventory(), can_resize=True)
    policy = msgspec.structs.replace(CLUSTER, administrators=(OWNER.user,))
    return CoreHost(policy, {f"n{number}": node for number in range(1, nodes + 1)})


def under_way(nodes: int = 1, gpus: int = 4, **fields: Any) -> CoreHost:
    """A reservation of so many GPUs, in which nothing runs."""
    on = host(nodes)
    reserve(on, gpus=gpus, at=0, **fields)
    on.handle(Tick(), 1)
    return on


def borrower(on: CoreHost, gpus: int = 4, now: float | None = None, **fields: Any) -> int:
    return on.start(submit("borrower", gpus=gpus, qos="scavenger", **{"time_limit_s": LONG} | fields), now, BOB)


def owner(on: CoreHost, now: float, gpus: int = 4, **fields: Any) -> int:
    """A job of the reservation comes; the planner decides who gives way."""
    body = submit("owner", gpus=gpus, **{"time_limit_s": 600, "reservation": "talk"} | fields)
    job_id = on.submit(body, now=now)
    on.schedule()
    return job_id


def borrows(on: CoreHost, job_id: int) -> tuple[str, ...]:
    return on.attempt(job_id).borrows


def gone_by(on: CoreHost, job_id: int) -> float | None:
    way = on.attempt(job_id).preemption
    return None if way is None else way.ends_at


# ── who borrows ───────────────────────────────────────────────────────────────────────────────────────────────


def test_empty_hours_of_a_reservation_are_filled_by_who_may_borrow_and_by_nobody_else() -> None:
    on = under_way()
    ordinary = on.start(submit(gpus=1, time_limit_s=60), peer=BOB)
    job_id = borrower(on, time_limit_s=1800)
    assert is_waiting(on, ordinary) and not is_waiting(on, job_id)
    assert (borrows(on, job_id), occurrence_of(on, job_id)) == (("talk",), None)
    assert on.attempt(job_id).billing > 0, "it is charged as usual"
    answer = on.ask(client.ListReservations())
    assert isinstance(answer, client.Reservations)
    [[shown]] = [one.occurrences for one in answer.reservations]
    assert (shown.job_ids, shown.lent_to) == ((), (job_id,))


def test_what_begins_soon_is_lent_until_then_too() -> None:
    on = host()
    reserve(on)
    job_id = borrower(on)
    assert borrows(on, job_id) == ("talk",)


def test_what_is_free_otherwise_is_taken_first() -> None:
    on = under_way(nodes=2)
    first, second = borrower(on), borrower(on)
    [kept] = on.cluster.reservations["talk"].occurrences[1].grants
    assert borrows(on, first) == () and on.attempt(first).batch_node != kept.node
    assert borrows(on, second) == ("talk",)


def test_some_of_it_may_be_free_and_some_reserved() -> None:
    on = under_way(gpus=2)
    job_id = borrower(on, gpus=4)
    assert borrows(on, job_id) == ("talk",)


@pytest.mark.parametrize("flag", [Flag.MAINT, Flag.NO_LEND])
def test_what_is_never_lent_stays_empty(flag: Flag) -> None:
    on = under_way(flags=(flag,))
    assert is_waiting(on, borrower(on))
    on = host()
    reserve(on, flags=(flag,))
    assert is_waiting(on, borrower(on)), "nor is it run into"


def test_who_names_a_reservation_borrows_from_no_other() -> None:
    on = under_way()
    on.ask(client.EditOccurrence(name="talk", number=1, duration_s=2 * HOUR))
    reserve(on, gpus=4, name="later", at=3 * HOUR)
    job_id = on.start(submit(gpus=4, qos="scavenger", time_limit_s=600, reservation="later"))
    assert is_waiting(on, job_id)


def test_a_qos_that_gives_way_to_nobody_cannot_borrow() -> None:
    on = host()
    qos = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=PreemptMode.OFF)
    with pytest.raises(Refusal, match="cannot borrow reserved resources") as refused:
        on.ask(client.SetQos(qos=qos, is_new=False))
    assert "--borrows-reserved=no" in refused.value.hint
    on.ask(client.SetQos(qos=msgspec.structs.replace(qos, borrows_reserved=False), is_new=False))
    assert not on.cluster.qos["scavenger"].borrows_reserved


def test_who_may_not_borrow_any_more_when_the_plan_is_adopted_does_not_start() -> None:
    on = under_way()
    job_id = on.submit(submit(gpus=4, qos="scavenger", time_limit_s=LONG))
    plan = plan_whole(on.controller.snapshot(on.now))
    assert [start.borrows for start in plan.starts] == [("talk",)]
    qos = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], borrows_reserved=False)
    on.ask(client.SetQos(qos=qos, is_new=False))
    on.adopt(plan)
    assert is_waiting(on, job_id)


def test_a_plan_that_borrows_what_is_not_lent_any_more_is_not_adopted() -> None:
    on = under_way()
    job_id = on.submit(submit(gpus=4, qos="scavenger", time_limit_s=LONG))
    plan = plan_whole(on.controller.snapshot(on.now))
    booking = on.cluster.reservations["talk"].booking
    booking = msgspec.structs.replace(booking, flags=(Flag.NO_LEND,))
    on.ask(client.SetReservation(booking=booking, replace=True))
    on.adopt(plan)
    assert is_waiting(on, job_id)


def test_a_start_on_reserved_gpus_that_does_not_say_that_it_borrows_is_not_adopted() -> None:
    on = under_way()
    job_id = on.submit(submit(gpus=4, qos="scavenger", time_limit_s=LONG))
    plan = plan_whole(on.controller.snapshot(on.now))
    [start] = plan.starts
    unmarked = Start(start.job_id, start.attempt, start.grants)
    on.adopt(msgspec.structs.replace(plan, starts=(unmarked,)))
    assert is_waiting(on, job_id)


def test_of_an_array_as_many_tasks_as_there_is_room_for_borrow() -> None:
    on = under_way()
    array = borrower(on, gpus=1, array="0-5")
    tasks = [one for one in on.cluster.jobs.values() if one.array_job_id == array and one.array is None]
    assert [borrows(on, one.job_id) for one in tasks] == [("talk",)] * 4
    assert is_waiting(on, array)


def test_who_was_promised_a_start_outside_is_not_put_off() -> None:
    on = under_way()
    waits = on.start(submit("waits", gpus=4, time_limit_s=600), peer=BOB)
    [promised] = [one for one in plan_whole(on.controller.snapshot(on.now)).protected if one.job_id == waits]
    assert promised.is_promise and promised.starts_at == pytest.approx(HOUR)
    assert is_waiting(on, borrower(on)), "it would run on when the reservation is over, and the other starts"
    assert not is_waiting(on, borrower(on, time_limit_s=600))


# ── when they are asked to go ─────────────────────────────────────────────────────────────────────────────────


def test_the_first_job_of_the_reservation_has_the_borrower_go_and_starts() -> None:
    on = under_way()
    job_id = borrower(on, signal=WARNED)
    wants = owner(on, 100)
    assert gone_by(on, job_id) == 160
    told = on.explain(job_id)
    assert "it borrows from reservation talk, and may be preempted at any time" in told.why
    assert f"it is preempted by job {wants} of {OWNER.user} in reservation talk" in told.why

    go_to(on, 160)
    assert (on.job(job_id).state, on.job(job_id).restart_count) == (JobState.PENDING, 1)
    go_to(on, 161)
    assert occurrence_of(on, wants) == ("talk", 1)
    assert on.job(wants).state is JobState.RUNNING
    assert f"it was preempted by job {wants} of {OWNER.user} in reservation talk" in on.explain(job_id).why


def test_no_least_time_protects_it_and_a_change_of_its_qos_does_not_either() -> None:
    on = under_way()
    qos = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], min_run_s=3600)
    on.ask(client.SetQos(qos=qos, is_new=False))
    job_id = borrower(on)
    off = msgspec.structs.replace(qos, preempt_mode=PreemptMode.OFF, borrows_reserved=False)
    on.ask(client.SetQos(qos=off, is_new=False))
    owner(on, 10)
    assert on.attempt(job_id).outcome is Outcome.PREEMPTED


def test_only_as_many_go_as_are_in_the_way() -> None:
    on = under_way()
    first, second = borrower(on, gpus=2), borrower(on, gpus=2)
    on.ask(client.CheckpointDone(job_id=second), 99)
    wants = owner(on, 100, gpus=2)
    assert (on.attempt(first).outcome, on.attempt(second).outcome) == (None, Outcome.PREEMPTED)
    on.obey()
    on.schedule()
    assert occurrence_of(on, wants) == ("talk", 1)


def test_one_that_takes_memory_of_it_alone_goes_where_that_is_wanted() -> None:
    on = under_way(gpus=2)
    job_id = borrower(on, gpus=2, mem_per_node_mib=50_000)
    assert borrows(on, job_id) == ("talk",)
    wants = owner(on, 100, gpus=2, mem_per_node_mib=24_000)
    assert on.attempt(job_id).outcome is Outcome.PREEMPTED
    on.obey()
    on.schedule()
    assert occurrence_of(on, wants) == ("talk", 1)


def test_a_job_that_a_magnetic_reservation_draws_has_it_go_as_well() -> None:
    on = under_way(flags=(Flag.MAGNETIC,))
    job_id = borrower(on)
    owner(on, 100, reservation="")
    assert on.attempt(job_id).outcome is Outcome.PREEMPTED


def test_when_the_reservation_begins_who_waits_for_it_has_it_go() -> None:
    on = host()
    reserve(on)
    job_id = borrower(on, signal=WARNED)
    wants = owner(on, 100)
    assert gone_by(on, job_id) is None
    go_to(on, HOUR)
    assert gone_by(on, job_id) == HOUR + 60
    go_to(on, HOUR + 60)
    go_to(on, HOUR + 61)
    assert occurrence_of(on, wants) == ("talk", 1)


def test_if_the_job_of_the_reservation_is_cancelled_meanwhile_it_stays() -> None:
    on = under_way()
    job_id = borrower(on, signal=WARNED)
    wants = owner(on, 100)
    assert gone_by(on, job_id) == 160
    on.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(wants,))))
    assert gone_by(on, job_id) is None
    go_to(on, 200)
    assert on.job(job_id).state is JobState.RUNNING


def test_who_waits_outside_has_no_borrower_leave_what_is_reserved() -> None:
    on = under_way()
    job_id = borrower(on)
    ordinary = on.start(submit(gpus=4, time_limit_s=60), 100)
    assert is_waiting(on, ordinary)
    assert on.attempt(job_id).preemption is None and on.attempt(job_id).outcome is None


def test_what_it_has_besides_is_given_back_to_who_waits_outside() -> None:
    on = under_way(gpus=2)
    job_id = borrower(on, gpus=4)
    ordinary = on.start(submit(gpus=2, time_limit_s=60), 100)
    assert on.job(job_id).restart_count == 1
    on.schedule()
    on.obey()
    assert on.job(ordinary).state is JobState.RUNNING
    [kept] = on.cluster.reservations["talk"].occurrences[1].grants
    assert set(on.attempt(ordinary).grants[0].gpus).isdisjoint(kept.gpus)


def test_a_restart_changes_nothing_of_that() -> None:
    on = under_way()
    job_id = borrower(on)
    on.restart()
    assert borrows(on, job_id) == ("talk",)
    attempt = on.attempt(job_id)
    there = AttemptStatus(attempt_id=attempt.attempt_id, phase="running")
    on.handle(hello("n1", inventory(), incarnation="2", attempts=(there,)), 50)
    owner(on, 100)
    assert on.attempt(job_id).outcome is Outcome.PREEMPTED


# ── what they never stand in ──────────────────────────────────────────────────────────────────────────────────


def test_it_is_no_use_of_the_reservation() -> None:
    on = under_way(no_show_s=300)
    job_id = borrower(on)
    go_to(on, 301)
    assert not on.cluster.reservations["talk"].occurrences, "nobody of those whom it was for has come"
    assert on.job(job_id).state is JobState.RUNNING, "and it goes on as an ordinary job"
    assert on.explain(job_id).why == f"it runs on n1 since @{{{int(on.job(job_id).start_at or 0)}}}"


def test_a_reservation_is_made_or_made_longer_as_if_it_were_not_there() -> None:
    on = under_way()
    job_id = borrower(on)
    on.ask(client.EditOccurrence(name="talk", number=1, duration_s=2 * HOUR))
    reserve(on, name="next", at=3 * HOUR)
    assert on.cluster.reservations["next"].occurrences[1].missing_gpus == 0
    with pytest.raises(Refusal, match="may run until then"):
        reserve(on, name="quiet", at=5 * HOUR, flags=(Flag.NO_LEND,))
    assert on.job(job_id).state is JobState.RUNNING


def test_it_may_be_given_more_time() -> None:
    on = host()
    reserve(on, at=2 * HOUR)
    job_id = borrower(on, time_limit_s=3 * HOUR)
    assert borrows(on, job_id) == ("talk",)
    on.ask(client.UpdateJob(job_id=job_id, time_limit_s=4 * HOUR))
    assert on.job(job_id).time_limit_s == 4 * HOUR


def test_it_cannot_be_suspended() -> None:
    on = under_way()
    job_id = borrower(on)
    answer = on.ask(client.SuspendJobs(job_ids=(job_id,)))
    assert isinstance(answer, client.JobsDone)
    [refused] = answer.refused.values() if isinstance(answer.refused, dict) else answer.refused
    assert "it borrows from reservation talk" in str(refused)
    assert on.attempt(job_id).suspended_at is None


def test_it_takes_no_more_gpus_though_they_are_idle() -> None:
    on = under_way()
    job_id = borrower(on, gpus=1, most_gpus=4)
    plain = on.start(submit("plain", gpus=1, most_gpus=2, time_limit_s=LONG), 100)
    on.ask(client.EndReservation(name="talk"))
    for now in (200, 201, 202):
        go_to(on, now)
    assert [len(on.attempt(one).grants[0].gpus) for one in (job_id, plain)] == [1, 2]


def test_a_job_of_the_reservation_is_planned_as_if_it_went() -> None:
    on = under_way()
    borrower(on)
    wants = on.submit(submit(gpus=4, time_limit_s=600, reservation="talk"), now=100)
    assert on.starts()[wants].start_at <= 100 + 120


# ── what is kept for somebody already ─────────────────────────────────────────────────────────────────────────


def test_what_others_give_way_for_is_not_reserved_for_now() -> None:
    on = host()
    on.start(submit(gpus=2, qos="scavenger", time_limit_s=LONG, signal=WARNED), peer=BOB)
    wants = on.submit(submit(gpus=4, time_limit_s=HOUR), now=100)
    on.schedule()
    assert JobId(wants) in on.cluster.claims
    with pytest.raises(Refusal, match="cannot have 2 GPUs"):
        reserve(on, gpus=2, at=100, length_s=600)
    reserve(on, gpus=2, at=3 * HOUR)
    assert on.cluster.reservations["talk"].occurrences[1].state is OccurrenceState.PLANNED
