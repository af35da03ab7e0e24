"""Jobs and reservations in the core: plans are adopted or not, gqwhy's sentences, and what could be asked for instead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.estimate import Alternative
from gq.model.ids import JobId
from gq.model.reservation import Booking, Flag
from gq.model.resource import ResourceRequest
from gq.model.scheduling import PRESETS, Scheduling
from gq.model.state import Reason
from gq.wire import client
from gqd.control.explain.explain import explain_wait, wait_reason
from gqd.control.explain.explanation import in_words
from gqd.sched.planner import Planner, plan_whole
from gqd.shell.zones import load_zones
from gqd.state.input import Tick
from gqd.state.plan import Plan
from gqd.state.policy import Partition
from gqd.state.reservation import OccurrenceKey
from tests.builders import ADAM, ALICE, BOB, PROMPT, SHARED, inventory, submit
from tests.hosts import POLICY, CoreHost

MAIN = Partition(name="main", is_default=True, max_time_s=86400)
EASY = Scheduling(**PRESETS["easy-user"])
BOOKABLE = msgspec.structs.replace(POLICY, partitions=(MAIN,), scheduling=EASY, timers=PROMPT)
HOUR = 3600


def host(nodes: int = 1, policy: Any = BOOKABLE) -> CoreHost:
    """Nodes with 8 CPUs and 4 GPUs."""
    return CoreHost(policy, {f"n{number}": inventory() for number in range(1, nodes + 1)})


def reserve(on: CoreHost, gpus: int = 4, at: float | None = HOUR, length_s: int = HOUR, **fields: Any) -> None:
    """From `HOUR` on, for an hour; it is to be clear a minute before."""
    resources = ResourceRequest(gpus=gpus)
    booking = Booking(**{"name": "talk", "resources": resources, "begin_at": at, "duration_s": length_s} | fields)
    on.ask(client.SetReservation(booking=booking))


def go_to(on: CoreHost, now: float) -> None:
    on.beat(now)
    on.handle(Tick(), now)
    on.schedule()
    on.obey()


def occurrence_of(on: CoreHost, job_id: int) -> OccurrenceKey | None:
    return on.attempt(job_id).occurrence


def is_waiting(on: CoreHost, job_id: int) -> bool:
    return on.cluster.jobs[JobId(job_id)].is_waiting


# ── plans that are adopted, or not ────────────────────────────────────────────────────────────────────────────


def test_who_names_one_starts_in_it_when_it_begins() -> None:
    on = host(2)
    reserve(on)
    job_id = on.start(submit(gpus=2, time_limit_s=600, reservation="talk"))
    assert is_waiting(on, job_id)
    go_to(on, HOUR)
    assert occurrence_of(on, job_id) == OccurrenceKey("talk", 1)
    [kept] = on.cluster.reservations["talk"].occurrences[1].grants
    assert {grant.node for grant in on.attempt(job_id).grants} == {kept.node}


def test_it_begins_for_jobs_though_no_tick_has_come() -> None:
    on = host()
    reserve(on)
    job_id = on.submit(submit(gpus=2, time_limit_s=600, reservation="talk"))
    on.beat(HOUR - 1)
    on.schedule(HOUR)
    assert occurrence_of(on, job_id) == OccurrenceKey("talk", 1)


def test_a_start_that_would_run_into_what_was_reserved_since_is_not_adopted() -> None:
    on = host()
    job_id = on.submit(submit(gpus=2, time_limit_s=2 * HOUR))
    plan = plan_whole(on.controller.snapshot(on.now))
    reserve(on)
    on.adopt(plan)
    assert is_waiting(on, job_id) and on.controller.wants_plan(on.now + 10)


def test_a_start_on_what_was_reserved_for_now_since_is_not_adopted() -> None:
    on = host()
    job_id = on.submit(submit(gpus=2, time_limit_s=60))
    plan = plan_whole(on.controller.snapshot(on.now))
    reserve(on, at=0)
    on.adopt(plan)
    assert is_waiting(on, job_id)


@pytest.mark.parametrize("change", ["deleted", "ended", "shortened"])
def test_a_start_inside_of_what_is_not_so_any_more_is_not_adopted(change: str) -> None:
    on = host()
    reserve(on, at=0)
    job_id = on.submit(submit(gpus=2, time_limit_s=1800, reservation="talk"))
    on.handle(Tick(), 1)
    plan = plan_whole(on.controller.snapshot(on.now))
    assert [start.reservation for start in plan.starts] == ["talk"]
    match change:
        case "deleted":
            on.ask(client.DeleteReservation(name="talk"))
        case "ended":
            on.ask(client.EndReservation(name="talk"))
        case _:
            on.ask(client.EditOccurrence(name="talk", number=1, duration_s=1000))
    on.adopt(plan)
    assert is_waiting(on, job_id)


def test_what_it_keeps_is_everybodys_when_it_is_over_and_who_is_inside_goes_on() -> None:
    on = host()
    reserve(on, at=0)
    inside = on.start(submit(gpus=1, time_limit_s=HOUR, reservation="talk"), 0)
    outside = on.start(submit(gpus=3, time_limit_s=60))
    assert is_waiting(on, outside)
    on.ask(client.EndReservation(name="talk"))
    on.schedule()
    assert not is_waiting(on, outside) and not is_waiting(on, inside)
    assert occurrence_of(on, outside) is None


# ── one after the other ───────────────────────────────────────────────────────────────────────────────────────


def test_the_next_may_not_begin_before_a_job_inside_the_first_is_surely_gone() -> None:
    """Whatever is reserved after the job began."""
    on = host()
    reserve(on, at=0)
    on.start(submit(gpus=4, time_limit_s=HOUR, reservation="talk"))
    with pytest.raises(Refusal, match=r"1 job \(1 with 1 h\) may run until then"):
        reserve(on, name="next", at=HOUR)
    reserve(on, name="next", at=HOUR + 60)


def test_what_a_job_inside_has_besides_is_counted_once() -> None:
    """Half of the node's memory is kept, and is what the job has."""
    on = host()
    reserve(on, gpus=2, at=0)
    on.start(submit(gpus=2, time_limit_s=HOUR, mem_per_node_mib=1024, reservation="talk"))
    reserve(on, gpus=2, name="beside", at=60)
    assert on.cluster.reservations["beside"].occurrences[1].missing_gpus == 0


def test_inside_a_job_is_over_in_time_to_clear_what_it_has_for_the_next() -> None:
    on = host()
    reserve(on, at=0)
    reserve(on, name="next", at=HOUR)
    too_long = on.start(submit(gpus=4, time_limit_s=HOUR - 59, reservation="talk"))
    told = on.explain(too_long)
    assert "`talk` must be empty for reservation `next` at @{3540}" in told.why
    assert "--time=59:00 " in told.hint
    on.ask(client.UpdateJob(job_id=too_long, time_limit_s=59 * 60))
    on.schedule()
    assert not is_waiting(on, too_long)


def test_who_would_not_be_over_in_time_for_the_next_is_told_so_before_the_first_begins() -> None:
    on = host()
    reserve(on)
    reserve(on, name="next", at=2 * HOUR)
    job_id = on.submit(submit(gpus=4, time_limit_s=HOUR, reservation="talk"))
    on.schedule()
    told = on.explain(job_id)
    assert told.expected_start_at is None
    assert "must be empty for reservation `next`" in told.why
    assert on.starts()[job_id].never


def test_who_was_not_looked_at_is_told_of_the_next_too() -> None:
    on = host()
    reserve(on)
    reserve(on, name="next", at=2 * HOUR)
    job_id = on.submit(submit(gpus=4, time_limit_s=HOUR, reservation="talk"))
    plan = plan_whole(on.controller.snapshot(on.now))
    plan.waits.clear()
    job = on.cluster.jobs[JobId(job_id)]
    words = in_words(on.cluster, job, explain_wait(on.cluster, job, plan))
    assert "must be empty for reservation `next`" in words.why


def test_a_series_whose_times_follow_each_other_takes_jobs_of_full_length() -> None:
    """What comes next is the same people's."""
    on = host()
    on.controller.volatile.zones = load_zones(["UTC"])
    reserve(on, at=None, length_s=600, cron="*/10 * * * *", zone="UTC")
    job_id = on.start(submit(gpus=4, time_limit_s=600, reservation="talk"))
    go_to(on, 600)
    assert occurrence_of(on, job_id) == OccurrenceKey("talk", 1)


# ── gqwhy ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_before_it_begins() -> None:
    on = host()
    reserve(on)
    job_id = on.start(submit(gpus=2, time_limit_s=600, reservation="talk"))
    told = on.explain(job_id)
    assert (told.reason, told.expected_start_at) == ("Reservation", HOUR)
    assert told.why.startswith("it names reservation `talk`, which begins at @{3600}")
    assert told.hint == "without --reservation it could start on other nodes"


def test_why_it_would_run_into_one_and_how_long_it_may_be() -> None:
    on = host()
    reserve(on)
    job_id = on.start(submit(gpus=2, time_limit_s=2 * HOUR))
    told = on.explain(job_id)
    assert told.reason == "ReqNodeNotAvail"
    assert told.why.startswith(
        "it would fit now, but would run until @{7200}, and reservation `talk` keeps n1 from @{3600}, so n1 must be empty"
        " by @{3540}"
    )
    assert told.hint == f"with --time=59:00 or less it could start now: gqctl update {job_id} --time=59:00"
    on.ask(client.UpdateJob(job_id=job_id, time_limit_s=59 * 60))
    on.schedule()
    assert not is_waiting(on, job_id), "what is advised helps"


def test_why_it_is_too_long_for_the_one_that_it_names() -> None:
    on = host()
    reserve(on, at=0)
    job_id = on.start(submit(gpus=2, time_limit_s=2 * HOUR, reservation="talk"), 10)
    told = on.explain(job_id)
    assert told.reason == "Reservation"
    assert told.why == "it would run for up to 2 h, but its reservation `talk` ends at @{3600}"
    assert told.hint == f"--time=59:00 or less fits into the reservation: gqctl update {job_id} --time=59:00"
    on.ask(client.UpdateJob(job_id=job_id, time_limit_s=59 * 60))
    on.schedule()
    assert not is_waiting(on, job_id), "what is advised helps"


@pytest.mark.parametrize(
    ("goes", "how"),
    [(client.DeleteReservation(name="talk"), "deleted"), (client.SkipOccurrence(name="talk"), "skipped")],
    ids=["deleted", "its only time was skipped"],
)
def test_why_the_one_that_it_names_is_gone(goes: client.RequestBody, how: str) -> None:
    on = host()
    reserve(on)
    job_id = on.start(submit(gpus=2, time_limit_s=600, reservation="talk"))
    on.ask(goes)
    on.schedule()
    told = on.explain(job_id)
    assert (told.reason, told.why) == (
        "ReservationDeleted",
        f"it names reservation `talk`, and that has ended or was {how}",
    )
    assert told.hint == (
        f"gqctl update {job_id} --reservation=none lets it start elsewhere; `gqresv list` lists the reservations"
    )
    on.ask(client.UpdateJob(job_id=job_id, reservation=""))
    on.schedule()
    assert not is_waiting(on, job_id), "what is advised helps"


def test_why_what_is_free_is_kept() -> None:
    on = host()
    reserve(on, gpus=3, at=0)
    job_id = on.start(submit(gpus=2, time_limit_s=600), 10)
    told = on.explain(job_id)
    assert told.reason == "Resources" and told.blockers == ()
    assert "it needs 2 GPUs, 1 is free: 3 GPUs are kept for reservation talk on n1 until @{3600}" in told.why
    assert told.hint == f"the job may use that reservation: gqctl update {job_id} --reservation=talk"
    on.ask(client.UpdateJob(job_id=job_id, reservation="talk"))
    on.schedule()
    assert not is_waiting(on, job_id), "what is advised helps"


def test_what_a_job_inside_has_stays_with_its_reservation_when_it_has_ended() -> None:
    on = host()
    reserve(on, gpus=3, at=0)
    inside = on.start(submit(gpus=3, time_limit_s=600, reservation="talk"), 10)
    told = on.explain(on.start(submit(gpus=2, time_limit_s=600), 20))
    whose = f"job {inside} (ada) holds 3 GPUs on n1 of reservation talk, which ends at @{{3600}}"
    assert whose in told.why
    assert told.blockers == (inside,)


def test_who_needs_more_than_is_kept_is_not_sent_inside() -> None:
    on = host()
    reserve(on, gpus=3, at=0)
    job_id = on.start(submit(gpus=4, time_limit_s=600), 10)
    told = on.explain(job_id)
    assert "3 GPUs are kept for reservation talk" in told.why
    assert "--reservation=talk" not in told.hint


def brief(on: CoreHost) -> Plan:
    planner = Planner()
    planner.begin(on.controller.snapshot(on.now), skip_planned_starts=True)
    while (plan := planner.step(1000)) is None:
        pass
    return plan


def test_the_queue_says_the_word_without_a_long_plan() -> None:
    on = host()
    reserve(on)
    on.ask(
        client.SetReservation(
            booking=Booking(name="gone", begin_at=0, duration_s=60, resources=ResourceRequest(gpus=1))
        )
    )
    early = on.submit(submit(gpus=2, time_limit_s=600, reservation="talk"))
    gone = on.submit(submit(gpus=1, time_limit_s=30, reservation="gone"))
    on.ask(client.DeleteReservation(name="gone"))
    into = on.submit(submit(gpus=2, time_limit_s=2 * HOUR))
    plan = brief(on)
    words = [wait_reason(on.cluster, on.cluster.jobs[JobId(one)], plan) for one in (early, gone, into)]
    assert words == [Reason.RESERVATION, Reason.RESERVATION_DELETED, Reason.NODES_UNAVAILABLE]


# ── estimates, and what could be asked for instead ────────────────────────────────────────────────────────────


def alternatives(on: CoreHost, **asked: Any) -> list[Alternative]:
    answer = on.study(client.WhatIf(spec=submit(**asked).spec))
    assert isinstance(answer, client.Alternatives)
    return list(answer.alternatives)


def test_a_job_that_is_tested_starts_after_what_it_would_run_into() -> None:
    on = host()
    reserve(on)
    told = on.study(client.Submit(spec=submit(gpus=2, time_limit_s=2 * HOUR).spec, test_only=True))
    assert isinstance(told, client.Tested) and told.start_at == 2 * HOUR


def test_a_shorter_time_is_offered_with_which_it_could_start_before() -> None:
    on = host()
    reserve(on)
    asked, *others = alternatives(on, gpus=2, time_limit_s=2 * HOUR)
    assert asked.start_at == 2 * HOUR
    offered = {one.options: one for one in others}
    assert offered["--time=59:00"].start_at == 0
    assert offered["--time=59:00"].what == "59:00 instead of 2:00:00: ends before the reservation"


def test_a_reservation_is_offered_to_who_may_use_it() -> None:
    on = host()
    reserve(on, at=0, length_s=4 * HOUR)
    asked, *others = alternatives(on, gpus=2, time_limit_s=HOUR)
    assert asked.start_at == 4 * HOUR
    offered = {one.options: one.start_at for one in others}
    assert offered["--reservation=talk"] == 0
    long = {one.options: one.start_at for one in alternatives(on, gpus=2, time_limit_s=8 * HOUR)}
    assert long["--reservation=talk --time=4:00:00"] == 0
    within = {one.options: one.start_at for one in alternatives(on, gpus=2, time_limit_s=8 * HOUR, reservation="talk")}
    assert within["--time=4:00:00"] == 0


def test_a_reservation_is_offered_to_nobody_else() -> None:
    on = host(policy=msgspec.structs.replace(SHARED, partitions=(MAIN,)))
    booking = Booking(name="talk", resources=ResourceRequest(gpus=4), begin_at=0, duration_s=HOUR, users=("alice",))
    on.ask(client.SetReservation(booking=booking), peer=ADAM)
    body = client.WhatIf(spec=submit(gpus=2, time_limit_s=600).spec)
    for peer, is_offered in ((ALICE, True), (BOB, False)):
        answer = on.study(body, peer=peer)
        assert isinstance(answer, client.Alternatives)
        assert any("--reservation" in one.options for one in answer.alternatives) == is_offered


def test_who_waits_for_a_reservation_is_told_when_it_starts() -> None:
    on = host()
    reserve(on, flags=(Flag.MAGNETIC,))
    job_id = on.start(submit(gpus=4, time_limit_s=1800, reservation="talk"))
    told = on.starts()[job_id]
    assert (told.start_at, told.why, told.never) == (HOUR, "", "")
