"""What is told of jobs that can never start in the reservation that they name, and of those near one."""

from __future__ import annotations

import pytest

from gq.model.estimate import StartEstimate
from gq.model.ids import JobId
from gq.wire import client
from gqd.control.explain.explain import wait_reason
from gqd.state.input import Tick
from tests.builders import submit
from tests.control.test_reservation_jobs import HOUR, alternatives, brief, go_to, host, is_waiting, reserve
from tests.control.test_reservations import series
from tests.hosts import CoreHost

TOO_LONG = "it would run for up to 2 h, but its reservation `talk` ends at @{7200}"
TOO_BIG = (
    "it names reservation `talk`, and does not fit in what that keeps (4 GPUs): it asks for 6 GPUs; its nodes have 4"
)


def asked_for(on: CoreHost, body: client.Submit) -> str:
    told = on.study(client.Submit(spec=body.spec, test_only=True))
    assert isinstance(told, client.Tested) and told.start_at is None
    return told.why


def reason(on: CoreHost, job_id: int) -> str:
    """As gqstat shows it."""
    return wait_reason(on.cluster, on.cluster.jobs[JobId(job_id)], brief(on))


# ── forecasts ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpus", "time_limit_s", "why"), [(2, 2 * HOUR, TOO_LONG), (6, 600, TOO_BIG)], ids=["too long", "too big"]
)
def test_a_job_that_can_never_start_in_one_that_comes_is_told_why(gpus: int, time_limit_s: int, why: str) -> None:
    on = host(2)
    reserve(on)
    asked = submit(gpus=gpus, time_limit_s=time_limit_s, reservation="talk")
    assert asked_for(on, asked) == f"it would wait: {why}"
    assert alternatives(on, gpus=gpus, time_limit_s=time_limit_s, reservation="talk")[0].why == f"it would wait: {why}"
    job_id = on.start(asked)
    assert on.starts()[job_id].never == why
    assert on.explain(job_id).why.startswith(why)


def test_who_finds_no_room_before_it_is_over_is_not_told_that_it_was_deleted() -> None:
    on = host()
    reserve(on, at=0)
    on.handle(Tick(), 1)
    on.start(submit(gpus=4, time_limit_s=3500, reservation="talk"))
    job_id = on.start(submit(gpus=2, time_limit_s=1800, reservation="talk"))
    told: StartEstimate = on.starts()[job_id]
    assert told.never == "it names reservation `talk`, and that is over before it could start there"


# ── too big ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_asks_for_more_than_is_kept_is_told_so_before_it_begins_and_then() -> None:
    on = host(2)
    reserve(on)
    job_id = on.start(submit(gpus=6, time_limit_s=600, reservation="talk"))
    for now in (0, HOUR):
        go_to(on, now)
        told = on.explain(job_id)
        assert (told.reason, told.why, told.hint) == ("Reservation", TOO_BIG, "ask for at most 4")
        assert reason(on, job_id) == "Reservation"
    fitting = on.start(submit(gpus=4, time_limit_s=600, reservation="talk"))
    assert not is_waiting(on, fitting), "what is advised helps"


# ── without a time limit ──────────────────────────────────────────────────────────────────────────────────────


def test_who_names_no_time_limit_is_told_how_long_it_counts() -> None:
    on = host()
    reserve(on)
    took = "it was submitted without --time, so its limit is that of partition `main`: 1 d"
    beside = on.start(submit(gpus=2))
    inside = on.start(submit(gpus=2, reservation="talk"))
    named = on.start(submit(gpus=2, time_limit_s=2 * HOUR))
    assert took in on.explain(beside).why and f"gqctl update {beside} --time=" in on.explain(beside).hint
    assert took in on.explain(inside).why and f"gqctl update {inside} --time=1:00:00" in on.explain(inside).hint
    assert "names no time limit" not in on.explain(named).why


# ── gone ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_series_that_goes_on_it_is_said_that_others_come() -> None:
    on = host()
    on.ask(client.SetReservation(booking=series("talk")))
    job_id = on.start(submit(gpus=2, time_limit_s=600, reservation="talk"))
    for number in list(on.cluster.reservations["talk"].occurrences):
        on.ask(client.SkipOccurrence(name="talk", number=number))
    on.schedule()
    told = on.explain(job_id)
    assert told.reason == reason(on, job_id) == "Reservation"
    assert told.why == "it names reservation `talk`, which has no planned occurrence now; later occurrences follow"
    assert told.hint.endswith(f"gqctl update {job_id} --reservation=none lets it start elsewhere")
    estimate = on.starts()[job_id]
    assert (estimate.never, estimate.start_at) == ("", None)
    assert estimate.why == f"{told.why}; its start cannot be estimated"
