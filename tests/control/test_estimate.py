"""When waiting jobs are told that they start, and that they then do; what is kept of it, and how wrong it was."""

from __future__ import annotations

import heapq
import random
from typing import Any
from unittest.mock import Mock

import pytest

from gq.errors import Refusal
from gq.model.account import Holder, LimitAt, LimitInfo, QosInfo
from gq.model.dependency import parse_dependency
from gq.model.estimate import Alternative, FirstEstimate
from gq.model.job import JobSpec
from gq.model.scheduling import Scheduling
from gq.model.state import JobState
from gq.request.getopt import parse
from gq.request.jobspec import Submission, job_spec
from gq.request.layers import job_arguments
from gq.request.options import SUB, options_of
from gq.wire import client
from gq.wire import node as wire
from gqd.control.forecast import whatif
from gqd.control.forecast.estimate import WAIT_S, EstimateRequest
from gqd.sched.forecast import Forecast
from gqd.state.effect import Reply
from gqd.state.events import event
from gqd.state.input import Tick
from gqd.state.policy import Partition, Policy
from gqd.store.protocol import EstimateOutcome
from gqd.store.queries.accuracy import lines_of
from tests.builders import OWNER, ROOT, attempt_id, client_request, inventory, submit
from tests.hosts import CoreHost
from tests.property.streams import scheduling


def host(nodes: int = 2, checked: bool = True, **fields: Any) -> CoreHost:
    named = {f"n{number + 1}": inventory() for number in range(nodes)}
    return CoreHost(Policy(owner_uid=OWNER.uid, **fields), named, checked=checked)


def random_job(chance: random.Random) -> client.Submit:
    limit_s = 60 * chance.randint(1, 200)
    match chance.randrange(4):
        case 0:
            return submit(gpus=chance.choice([1, 2, 4]), time_limit_s=limit_s)
        case 1:
            return submit(gpus_per_node=4, nodes_min=2, nodes_max=2, time_limit_s=limit_s)
        case 2:
            return submit(cpus_per_task=chance.randint(1, 6), time_limit_s=limit_s)
        case _:
            return submit(gpus_per_node=chance.randint(1, 4), mem_per_node_mib=30_000, time_limit_s=limit_s)


def play(on: CoreHost) -> dict[int, tuple[float, tuple[str, ...]]]:
    """Every job runs to its limit, all plans are made at once; who started when, and where."""
    started: dict[int, tuple[float, tuple[str, ...]]] = {}
    ends: list[tuple[float, int]] = []
    while True:
        on.schedule()
        on.obey()
        for job_id, job in on.cluster.jobs.items():
            if job_id not in started and job.state is JobState.RUNNING:
                attempt = on.attempt(job_id)
                started[job_id] = (attempt.start_at or 0.0, tuple(grant.node for grant in attempt.grants))
                heapq.heappush(ends, (on.now + (job.time_limit_s or 0), job_id))
        if not ends:
            return started
        now = ends[0][0]
        while ends and ends[0][0] == now:
            on.finish(heapq.heappop(ends)[1], now=now)
        on.beat()


@pytest.mark.parametrize("protected_jobs", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_predictions_equal_what_then_happens_when_jobs_run_as_expected(seed: int, protected_jobs: int) -> None:
    chance = random.Random(f"{seed} {protected_jobs}")
    on = host(3, checked=False, scheduling=Scheduling(protected_jobs=protected_jobs))
    for _ in range(12):
        on.submit(random_job(chance))
    on.schedule()
    on.obey()

    told = on.starts()

    happened = play(on)
    assert told
    assert {one: (told[one].start_at, told[one].nodes) for one in told} == {one: happened[one] for one in told}
    assert all(one.p90_at is not None and one.p90_at >= (one.start_at or 0) for one in told.values())


@pytest.mark.parametrize("seed", range(3))
def test_what_if_equals_what_then_happens_for_each_alternative(seed: int) -> None:
    chance = random.Random(seed)
    jobs = [random_job(chance) for _ in range(8)]

    def queue() -> CoreHost:
        on = host(3, checked=False)
        on.ask(client.SetQos(qos=QosInfo(name="high", priority=10), is_new=True), peer=ROOT)
        for job in jobs:
            on.submit(job)
        on.schedule()
        on.obey()
        return on

    asked = ("--gpus=4", "--time=2:00:00")

    answer = queue().study(client.WhatIf(spec=typed(*asked)))

    assert isinstance(answer, client.Alternatives)
    assert len({one.options for one in answer.alternatives}) == len(answer.alternatives) > 1
    asked_at = answer.alternatives[0].start_at
    assert asked_at is not None
    assert all(one.start_at is not None and one.start_at < asked_at for one in answer.alternatives[1:])
    for one in answer.alternatives:
        on = queue()
        job_id = on.submit(client.Submit(spec=typed(*asked, *one.options.split())))
        started = play(on)[job_id]
        assert (one.start_at, one.nodes) == started, one
        assert one.end_at == started[0] + (on.job(job_id).time_limit_s or 0)


def typed(*words: str) -> JobSpec:
    """The spec that these options make."""
    where = Submission(name="job", submit_dir="/", submit_host="login", umask=0o22, now=0.0, command="/job.sh")
    return job_spec(job_arguments(SUB, parse(words, options_of(SUB))[0], {}), where)


# ── what is told ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_before_which_all_have_limits_is_promised_its_start_and_others_are_estimated() -> None:
    on = host(1, scheduling=Scheduling(protected_jobs=1))
    on.start(submit(gpus=4, time_limit_s=600))
    first, second = on.submit(submit(gpus=4, time_limit_s=60)), on.submit(submit(gpus=4, time_limit_s=120))
    on.schedule(now=10)
    told = on.starts()
    assert (told[first].is_promised, told[first].start_at, told[first].p90_at) == (True, 600, 600)
    assert (told[second].is_promised, told[second].start_at, told[second].end_at) == (False, 660, 780)
    assert [told[one].position for one in (first, second)] == [1, 2]


def test_jobs_without_a_limit_are_taken_to_run_as_expected_and_three_times_as_long_if_late_never_for_a_day() -> None:
    on = host(1, scheduling=Scheduling(expected_without_history_s=1000))
    on.start(submit(gpus=4))
    waits = on.submit(submit(gpus=4))
    on.schedule(now=400)
    told = on.starts()[waits]
    assert (told.start_at, told.p90_at, told.is_promised) == (1000, 3000, False)
    on.schedule(now=1500)  # it has run longer than that: so long again
    told = on.starts(now=1500)[waits]
    assert told.start_at == 3000


def test_what_like_jobs_took_is_the_band_of_those_without_a_limit() -> None:
    on = host(1)
    for length in (100, 100, 100, 100, 100, 100, 100, 100, 500, 900):
        job_id = on.start(submit(gpus=4))
        on.finish(job_id, now=on.now + length)
        on.beat()
    began = on.now
    on.start(submit(gpus=4))
    waits = on.submit(submit(gpus=4))
    on.schedule()
    told = on.starts()[waits]
    assert told.start_at == pytest.approx(began + 220)
    assert told.p90_at == pytest.approx(began + 500)


@pytest.mark.parametrize(
    ("fields", "never"),
    [
        ({"is_held": True}, "its owner holds it"),
        ({"qos": "none"}, "QOS `none` may hold 0 GPUs"),
        ({"gpus": 4, "nodelist": ("n2",)}, "n2 is drained: fan"),
    ],
)
def test_a_job_that_cannot_start_is_told_never_and_exactly_why(fields: dict[str, Any], never: str) -> None:
    on = host(2)
    on.ask(client.SetQos(qos=QosInfo(name="none"), is_new=True), peer=ROOT)
    job_id = on.submit(submit(**{"gpus": 1, **fields}))
    limit = LimitInfo(holder=Holder.QOS, name="none", resource="gpus", most=0, at=LimitAt.START)
    on.ask(client.SetLimit(limit=limit), peer=ROOT)
    on.ask(client.UpdateNodes(names=("n2",), action="drain", reason="fan"), peer=ROOT)
    on.schedule()
    told = on.starts()[job_id]
    assert told.start_at is None
    assert never in told.never


def test_what_a_node_said_of_a_users_files_is_not_told_to_everybody() -> None:
    on = host(1)
    on.submit(submit(gpus=1), now=0)
    for attempt in range(1, 11):
        on.schedule()
        refused = wire.PrepareRefused(attempt_id=attempt_id(1, attempt), why="no /home/ada/secret", is_job_fault=True)
        on.report("n1", refused)
        on.beat(now=on.job(1).avoid["n1"])
    told = on.starts()[1]
    assert told.never == "it is held because its launch failed 10 times"


def test_every_waiting_job_has_a_time_or_a_reason_also_behind_those_that_are_rehearsed() -> None:
    on = host(1, scheduling=Scheduling(estimate_jobs=10))
    for _ in range(30):
        on.submit(submit(gpus=4, time_limit_s=60))
    on.schedule()
    on.obey()
    told = on.starts(now=1)
    assert len(told) == 29
    assert all(one.start_at is not None for one in told.values())
    assert [one.position for one in told.values()] == list(range(1, 30))
    assert "a rough estimate from the 10 jobs before it" in told[30].why
    assert told[30].start_at == pytest.approx(60 * 29, rel=0.1)


def test_jobs_that_depend_on_others_start_when_these_have_ended_and_later_ones_when_they_begin() -> None:
    on = host(1)
    first = on.start(submit(gpus=1, time_limit_s=600))
    after = on.submit(submit(gpus=1, time_limit_s=60, dependency=parse_dependency(f"afterok:{first}")))
    last = on.submit(submit(gpus=1, dependency=parse_dependency(f"afterany:{after}")))
    later = on.submit(submit(gpus=1, begin_at=900.0))
    on.schedule()
    told = on.starts()
    assert [told[one].start_at for one in (after, last, later)] == [600, 660, 900]


def test_who_starts_only_if_another_ends_badly_may_start_and_when_is_not_known() -> None:
    on = host(1)
    first = on.start(submit("prep", gpus=1, time_limit_s=600))
    mends = on.submit(submit(gpus=1, dependency=parse_dependency(f"afternotok:{first}")))
    then = on.submit(submit(gpus=1, dependency=parse_dependency(f"afterany:{mends}")))
    on.schedule()
    told = on.starts()
    assert [told[one].never for one in (mends, then)] == ["", ""]
    assert [told[one].start_at for one in (mends, then)] == [None, None]
    ends = "it waits for job 1 (ada: prep, running) to fail; whether and when it starts cannot be estimated"
    assert told[mends].why == ends
    assert (
        told[then].why
        == "it waits for job 2 (ada: job, pending) to end; whether and when it starts cannot be estimated"
    )

    on.finish(first)
    told = on.starts(now=1.0)
    assert "job 1" in told[mends].never, "it ended well"


def test_no_start_is_told_that_is_too_late_for_a_deadline() -> None:
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=600))
    too_late = on.submit(submit(gpus=4, time_limit_s=60, deadline_at=640.0))
    in_time = on.submit(submit(gpus=4, time_limit_s=60, deadline_at=900.0))
    on.schedule()
    told = on.starts()

    why = "it is not expected to start by @{580}, the latest start for its deadline"
    assert (told[too_late].start_at, told[too_late].never, told[too_late].why) == (None, "", why)
    assert told[in_time].start_at is not None
    assert on.explain(too_late).why.endswith(f"until @{{600}} at the latest; {why}")
    assert on.explain(too_late).expected_start_at is None
    on.finish(1, now=500)
    on.schedule()
    assert on.job(too_late).state is JobState.STARTING, "others may end earlier than they are expected to"


def test_who_misses_its_deadline_takes_nobodys_place_in_the_estimates() -> None:
    """It leaves the queue when it could not be over any more, and nothing waits for its end then."""
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=600))
    late = on.submit(submit(gpus=4, time_limit_s=300, deadline_at=800.0))
    late_array = on.submit(submit(array="1-3", gpus=4, time_limit_s=300, deadline_at=800.0))
    behind = on.submit(submit(gpus=4, time_limit_s=60))
    after_all = [
        on.submit(submit(gpus=4, dependency=parse_dependency(f"afterany:{one}"))) for one in (late, late_array)
    ]
    if_well = on.submit(submit(gpus=4, dependency=parse_dependency(f"afterok:{late}")))
    then = on.submit(submit(gpus=4, dependency=parse_dependency(f"afterany:{if_well}")))
    asked = on.study(client.Submit(spec=submit(gpus=4, time_limit_s=60).spec, test_only=True))
    on.schedule()
    told = on.starts()

    assert [told[one].start_at for one in (late, late_array)] == [None, None]
    assert told[behind].start_at == 600
    assert all((told[one].start_at or 0) >= 660 for one in after_all), "they wait for its end, which may be a bad one"
    for one in (if_well, then):
        assert (told[one].start_at, told[one].never) == (None, ""), "it may start all the same"
        assert told[one].why.endswith("whether and when it starts cannot be estimated")
    assert isinstance(asked, client.Tested) and asked.start_at == 660


def test_a_deadline_is_the_end_of_a_rehearsed_job_and_room_that_comes_with_it_is_told() -> None:
    """Also to those behind whom it had been expected to be: a small one may start when a doomed large one is out."""
    on = host(1, scheduling=Scheduling(protected_jobs=1))
    on.start(submit(gpus=2, time_limit_s=600))
    on.submit(submit(gpus=4, time_limit_s=300, deadline_at=500.0))
    small = on.submit(submit(gpus=2, time_limit_s=3000, deadline_at=4000.0))
    ends = on.submit(submit(gpus=2, deadline_at=900.0))
    on.schedule()
    told = on.starts()
    assert told[small].start_at == pytest.approx(200, abs=0.001)
    assert (told[ends].start_at, told[ends].end_at) == (600, 900)


def test_what_if_says_of_a_deadline_that_there_is_no_room_before_it() -> None:
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=600))
    asked = on.study(client.Submit(spec=submit(gpus=4, time_limit_s=60, deadline_at=640.0).spec, test_only=True))
    assert isinstance(asked, client.Tested)
    assert (asked.start_at, asked.why) == (
        None,
        "it is not expected to start by @{580}, the latest start for its deadline",
    )


def test_throttled_tasks_and_limits_are_kept_in_the_rehearsal() -> None:
    on = host(1)
    limit = LimitInfo(holder=Holder.USER, name=OWNER.user, resource="gpus", most=2, at=LimitAt.START)
    on.ask(client.SetLimit(limit=limit), peer=ROOT)
    on.start(submit(gpus=2, time_limit_s=600))
    waits = on.submit(submit(gpus=1, time_limit_s=60))
    array = on.submit(submit(array="1-4", array_throttle=1, cpus_per_task=1, time_limit_s=100))
    behind = on.submit(submit(cpus_per_task=1, dependency=parse_dependency(f"afterok:{array}")))
    on.schedule()
    on.obey()
    told = on.starts()
    assert told[waits].start_at == 600
    assert told[array].start_at == 100
    assert told[behind].start_at == 400


def test_a_node_that_is_left_out_comes_back_in_the_rehearsal() -> None:
    on = host(1)
    job_id = on.submit(submit(gpus=1), now=1)
    on.schedule()
    on.report("n1", wire.PrepareRefused(attempt_id=attempt_id(job_id), why="bad home"), now=2)
    on.schedule()
    told = on.starts()[job_id]
    assert told.start_at == on.cluster.nodes["n1"].backoff_until or told.start_at == dict(on.job(job_id).avoid)["n1"]


def test_a_rehearsal_is_the_same_however_it_is_sliced() -> None:
    on = host(3, checked=False)
    chance = random.Random(7)
    for _ in range(30):
        on.submit(random_job(chance))
    from gqd.control.forecast.estimate import queue_input_of

    setting = queue_input_of(on.cluster, on.policy, on.controller.volatile, 0.0)
    wanted = [one.job_id for one in setting.forecast_input.snapshot.pending]
    results = []
    for budget in (1, 17, 1_000_000):
        rehearsal = Forecast(setting.forecast_input, wanted)
        while not rehearsal.step(budget):
            pass
        results.append(rehearsal.starts)
    assert results[0] == results[1] == results[2]
    assert set(results[0]) == set(wanted)


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────


def facts(on: CoreHost) -> list[event.StartEstimated]:
    return [one for one in on.log if isinstance(one, event.StartEstimated)]


def test_the_first_estimate_is_a_fact_once_for_each_attempt_and_goes_with_it() -> None:
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=600))
    waits = on.submit(submit(gpus=4, time_limit_s=60))
    on.schedule(now=1)
    on.starts()
    on.estimate(now=50)
    assert [(one.job_id, one.estimate.start_at) for one in facts(on)] == [(waits, 600)]
    on.restart(now=60)
    on.finish(1, now=100) if on.controller.volatile.links else None
    for name in ("n1",):
        from tests.builders import hello

        on.handle(hello(name, incarnation="1"))
    assert on.job(waits).estimate == facts(on)[0].estimate, "it survives a restart"


def test_accuracy_is_measured_by_what_jobs_were_told_first() -> None:
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=600))
    waits = on.submit(submit(gpus=4, time_limit_s=60))
    on.schedule(now=1)
    on.starts()
    on.finish(1, now=200)
    on.schedule(now=200)
    on.obey()
    turn_before = len(on.replies)
    on.ask(client.QueryAccuracy(since=0.0))
    assert len(on.replies) == turn_before, "the answer comes from the database"
    [told] = on.store.estimate_outcomes(client.QueryAccuracy(since=0.0))
    assert (told.estimate.start_at, told.start_at, told.error_s) == (600, 200, -400)
    assert on.job(waits).estimate is None
    assert on.store.estimate_outcomes(client.QueryAccuracy(since=201.0)) == []


def test_promised_and_estimated_starts_are_told_apart() -> None:
    def told(error: float, is_promised: bool, band: float = 50) -> EstimateOutcome:
        return EstimateOutcome(FirstEstimate(0.0, 100.0, 100.0 + band, is_promised), 100.0 + error)

    every = [told(0, True), told(-20, True), told(10, False), told(200, False), told(-30, False)]
    promised, estimated, both = lines_of(every)
    assert (promised.kind, promised.jobs, promised.within_band) == ("promised", 2, 1.0)
    assert (estimated.kind, estimated.median_error_s, estimated.p90_error_s) == ("estimated", 30, 200)
    assert (estimated.median_bias_s, estimated.within_band) == (10, pytest.approx(2 / 3))
    assert (both.kind, both.jobs) == ("all", 5)
    assert lines_of([]) == ()


def test_of_an_array_the_first_task_is_asked_about_and_that_is_said() -> None:
    """Its last one ends much later, the more so if it is throttled."""
    on = host(1)
    spec = submit(array="1-10", array_throttle=2, gpus=1, time_limit_s=60).spec
    tested = on.study(client.Submit(spec=spec, test_only=True))
    assert isinstance(tested, client.Tested)
    assert tested.why == "it could be queued; this is for the first of its 10 tasks"
    found = on.study(client.WhatIf(spec=spec))
    assert isinstance(found, client.Alternatives)
    assert found.alternatives[0].what == "as asked; all times are for the first of its 10 tasks"
    assert alternatives(on, "--array=4", "--gpus=1")[0].what == "as asked"


def test_only_what_this_user_may_ask_for_is_offered() -> None:
    closed = Partition(name="closed", users=("olga",))
    main = Partition(name="main", is_default=True, nodes=("n1",))
    on = host(2, partitions=(main, closed, Partition(name="open")))
    on.ask(client.SetQos(qos=QosInfo(name="high", priority=10, users=("olga",)), is_new=True), peer=ROOT)
    on.start(submit(gpus=4, time_limit_s=3600))
    answer = on.study(client.WhatIf(spec=submit(gpus=2, time_limit_s=3600).spec))
    assert isinstance(answer, client.Alternatives)
    options = [one.options for one in answer.alternatives]
    assert "--partition=open" in options
    assert not {"--partition=closed", "--qos=high"} & {*options}
    with pytest.raises(Refusal, match="the largest node has 4"):
        on.study(client.WhatIf(spec=submit(gpus_per_node=5).spec))


def test_only_alternatives_that_start_sooner_are_shown_the_first_start_first() -> None:
    on = host(2)
    on.start(submit(gpus_per_node=3, nodelist=("n1",), time_limit_s=600))
    on.start(submit(gpus_per_node=4, nodelist=("n2",), time_limit_s=7200))
    asked, *others = alternatives(on, "--gpus-per-node=4", "--time=2:00:00")
    assert asked.start_at == 600
    assert [(one.options, one.start_at) for one in others] == [("--gpus-per-node=1", 0)]

    free = (Partition(name=name, nodes=("n3", "n4")) for name in ("spare", "other"))
    on = host(4, partitions=(Partition(name="main", is_default=True, nodes=("n1", "n2")), *free))
    on.start(submit(gpus_per_node=4, nodelist=("n1",), time_limit_s=7200))
    asked, *others = alternatives(on, "--gpus=8", "--time=2:00:00")
    assert asked.start_at == 7200
    assert {one.options for one in others} == {"--gpus=4", "--partition=spare", "--partition=other"}
    assert {one.start_at for one in others} == {0.0}


def test_the_largest_number_of_gpus_that_starts_at_once_and_the_largest_that_starts_sooner_are_shown() -> None:
    on = host(2)
    on.start(submit(gpus=1, nodelist=("n1",), time_limit_s=7200))
    on.start(submit(gpus=2, nodelist=("n2",), time_limit_s=600))
    asked, *others = alternatives(on, "--gpus=8", "--time=30:00")
    assert asked.start_at == 7200
    assert [(one.options, one.start_at) for one in others] == [("--gpus=5", 0), ("--gpus=7", 600)]


def test_the_longest_time_limit_that_fits_before_a_promised_start_is_shown_to_the_minute() -> None:
    on = host(1, scheduling=scheduling("conservative", protected_jobs=1))
    on.start(submit(gpus=2, time_limit_s=2550))
    on.submit(submit(gpus=4, time_limit_s=1800))
    on.schedule()
    asked, *others = alternatives(on, "--gpus=2", "--time=2:00:00")
    assert asked.start_at == 4350
    assert [(one.options, one.start_at) for one in others] == [("--time=42:00", 0)]


def test_a_qos_that_nobody_has_changed_is_tried_and_starts_at_once_by_preemption() -> None:
    on = host(1)
    on.start(submit(gpus=4, time_limit_s=7200))
    answer = on.study(client.WhatIf(spec=typed("--gpus=4", "--time=30:00")), peer=ROOT)
    assert isinstance(answer, client.Alternatives)
    asked, *others = answer.alternatives
    assert asked.start_at == 7200
    assert [(one.options, one.start_at, one.what) for one in others] == [
        ("--qos=high", 0, "QOS high instead of normal")
    ]
    job_id = on.submit(client.Submit(spec=typed("--gpus=4", "--time=30:00", "--qos=high")), peer=ROOT)
    on.schedule()
    assert job_id in on.cluster.claims or on.job(job_id).state is not JobState.PENDING


def test_nothing_else_is_tried_for_a_job_that_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    on = host(1)
    rehearsed = Mock(wraps=Forecast)
    monkeypatch.setattr(whatif, "Forecast", rehearsed)
    [asked] = alternatives(on, "--gpus=4", "--time=30:00")
    assert (asked.start_at, rehearsed.call_count) == (0, 2)


def test_a_search_is_bounded_in_rehearsals_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = tuple(Partition(name=f"p{number}") for number in range(3 * whatif.MAX_REHEARSED))
    on = host(1, partitions=(Partition(name="main", is_default=True), *partitions))
    on.start(submit(gpus=4, time_limit_s=7200))
    rehearsed = Mock(wraps=Forecast)
    monkeypatch.setattr(whatif, "Forecast", rehearsed)
    body = client.WhatIf(spec=typed("--gpus=4", "--time=30:00"))

    answer = on.study(body)

    assert isinstance(answer, client.Alternatives)
    assert answer.is_cut_short
    assert whatif.MAX_REHEARSED <= rehearsed.call_count <= whatif.MAX_REHEARSED + 2 + 2 * whatif.MAX_SHOWN
    monkeypatch.setattr(whatif, "MAX_SEARCH_S", 0.0)
    late = on.study(body)
    assert isinstance(late, client.Alternatives)
    assert (len(late.alternatives), late.is_cut_short) == (1, True)


def test_where_time_is_up_alternatives_are_shown_without_a_p90(monkeypatch: pytest.MonkeyPatch) -> None:
    on = host(1)
    on.start(submit(gpus=3, time_limit_s=7200))
    monkeypatch.setattr(whatif, "MAX_STUDY_S", 0.0)
    asked, fewer = alternatives(on, "--gpus=4", "--time=30:00")
    assert (asked.p90_at, fewer.options, fewer.start_at, fewer.p90_at) == (7200, "--gpus=1", 0, None)


def alternatives(on: CoreHost, *asked: str) -> tuple[Alternative, ...]:
    answer = on.study(client.WhatIf(spec=typed(*asked)))
    assert isinstance(answer, client.Alternatives)
    return answer.alternatives


def test_nothing_is_queued_by_what_if() -> None:
    on = host(1)
    before = len(on.log)
    on.study(client.WhatIf(spec=submit(gpus=1).spec))
    assert len(on.log) == before
    assert not on.cluster.jobs and not on.cluster.queue


def test_who_asks_for_starts_is_told_in_time_what_there_is() -> None:
    on = host(3, checked=False)
    on.start(submit(gpus=4, time_limit_s=600))
    for _ in range(40):
        on.submit(random_job(random.Random(_)))
    on.schedule()
    on.obey()
    request = client_request(client.EstimateStarts(), 900)
    asked = EstimateRequest(request.route, request.request_id, client.EstimateStarts(), on.now)
    on.controller.forecasts._requests.append(asked)  # as if the rehearsal took long
    on.beat(now=WAIT_S)

    turn = on.handle(Tick(), now=WAIT_S)

    [reply] = [one for one in turn.effects if isinstance(one, Reply)]
    assert reply.request_id == request.request_id
    assert isinstance(reply.body, client.StartEstimates)
    assert {one.why for one in reply.body.estimates} == {"the estimate is not ready yet; ask again in a moment"}


def test_a_question_that_is_sent_again_is_worked_on_once() -> None:
    on = host(3, checked=False)
    for seed in range(60):
        on.submit(random_job(random.Random(seed)))
    on.schedule()
    on.obey()
    body = client.WhatIf(spec=submit(gpus=2, time_limit_s=600).spec)
    for _ in range(3):
        turn = on.handle(client_request(body, 900))
        assert not [one for one in turn.effects if isinstance(one, Reply)], "it takes longer than one turn"

    replies = []
    while on.controller.forecasts.is_waited_for:
        turn = on.estimate()
        replies += [one for one in turn.effects if isinstance(one, Reply)]

    assert [one.request_id for one in replies] == [client_request(body, 900).request_id]
