"""The engine: virtual nodes, time limits, the delay of a start; that it is the same each time."""

from __future__ import annotations

import msgspec
import pytest

from gqd.sim.engine import Engine
from gqd.sim.report import Replay, courses_of, jobs_csv, left_out, summary_of
from gqd.sim.workload import LeftOut, gpus_wanted
from gqd.state import invariants
from tests.effort import first
from tests.replay.traces import ALL, engine_of, job, random_case, replayed, sim_jobs

ONE_NODE = {ALL: (1, 4)}
WIDER = (LeftOut("x", "it is too wide"), LeftOut("y", "it is too wide"))


def test_what_ends_and_what_comes_in_one_second_is_planned_together() -> None:
    run = replayed("fifo", [job("a", 0, 10, 4), job("b", 10, 5, 4), job("c", 10, 5, 2)], ONE_NODE)

    assert (run.starts_s, run.ends_s) == ([0, 10, 15], [10, 15, 20])


def test_a_job_is_ended_by_a_time_limit_that_is_shorter_than_it_ran() -> None:
    run = replayed("fifo", [job("a", 0, 100, 4, limit_s=30.0), job("b", 1, 5, 4, limit_s=30.0)], ONE_NODE)

    assert (run.starts_s, run.ends_s) == ([0, 30], [30, 35])


def test_a_start_delay_holds_the_nodes_before_the_job_runs() -> None:
    run = replayed("fifo", [job("a", 0, 10, 4), job("b", 1, 5, 4)], ONE_NODE, start_delay_s=200.0)

    assert (run.starts_s, run.ends_s) == ([200, 410], [210, 415])


def test_a_job_that_the_controller_refuses_is_told_and_the_others_go_on() -> None:
    impossible = msgspec.structs.replace(gpus_wanted(2), nodelist=("elsewhere",))

    run = replayed("fifo", [job("a", 0, 10, 4), job("b", 1, 5, 2, resources=impossible)], ONE_NODE)

    assert list(run.refused) == [1]
    assert "elsewhere" in run.refused[1]
    jobs = [job("a", 0, 10, 4), job("b", 1, 5, 2)]
    assert left_out(Replay("fifo", jobs, run, WIDER, 4, 0.5)) == [*WIDER, LeftOut("b", run.refused[1])]
    assert run.ends_s[0] == 10


def test_where_nobody_overtakes_who_comes_in_behind_one_that_waits_costs_no_pass() -> None:
    first, blocked = job("a", 0, 100, 4), job("b", 1, 10, 4)
    small = [job(f"c{at}", at, 5, 1) for at in range(2, 50)]

    alone, crowded = (replayed("fifo", [first, blocked, *behind], ONE_NODE) for behind in (small[:1], small))

    assert crowded.passes - alone.passes <= len(small) / 3, "not one for each that came in, but as they ended"
    assert crowded.starts_s[1:6] == [100, 110, 110, 110, 110]


@pytest.mark.parametrize("seeds", first(1, (range(4), range(4, 20))), ids=str)
def test_leaving_such_passes_out_changes_no_start(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    for seed in seeds:
        jobs, pools = random_case(seed)
        short = replayed("fifo", sim_jobs(jobs), pools)
        with monkeypatch.context() as patch:
            patch.setattr("gqd.sched.planner.PlanningSession._is_strict", lambda _: False)
            long = replayed("fifo", sim_jobs(jobs), pools)
        assert (short.starts_s, short.ends_s) == (long.starts_s, long.ends_s), f"seed {seed}"
        assert short.passes <= long.passes


def test_all_resources_are_free_again_when_all_jobs_have_ended() -> None:
    jobs, pools = random_case(7)
    engine = engine_of(Engine, "default", sim_jobs(jobs), pools)

    engine.run()

    invariants.check(engine.controller.cluster)
    assert all(not node.held for node in engine.controller.cluster.nodes.values())


def test_the_same_input_gives_the_same_output() -> None:
    jobs, pools = random_case(11)

    first, second = (replayed("default", sim_jobs(jobs), pools) for _ in range(2))

    assert first == second


def test_the_summary_counts_waits_as_documented() -> None:
    jobs = [job("a", 0, 100, 4), job("b", 0, 4, 4), job("c", 50, 60, 2)]
    run = replayed("fifo", jobs, ONE_NODE)

    summary = summary_of(Replay("fifo", jobs, run, dropped=WIDER, gpus=4, wall_s=0.5))

    assert run.starts_s == [0, 100, 104]
    assert {key: value and round(value, 9) for key, value in summary.items()} == {
        "jobs": 3,
        "dropped": 2,
        "makespan_s": 164.0,
        "mean_wait_s": round((0 + 100 + 54) / 3, 9),
        "median_wait_s": 54.0,
        "p95_wait_s": 95.4,
        "p99_wait_s": 99.08,
        "max_wait_s": 100.0,
        "wide_p95_wait_s": None,
        "node_mean_wait_s": None,
        "node_p95_wait_s": None,
        "mean_jct_s": 106.0,
        "mean_bounded_slowdown": round((1 + 10.4 + 1.9) / 3, 9),
        "preemptions": 0,
        "gpu_utilisation": round((400 + 16 + 120) / (4 * 164), 9),
        "wall_s": 0.5,
        "jobs_per_s": 6.0,
    }
    assert jobs_csv(Replay("fifo", jobs, run, (), 4, 0.5)).splitlines() == [
        "job_id,submit_s,start_s,end_s,gpus",
        "a,0,0,100,4",
        "b,0,100,104,4",
        "c,50,104,164,2",
    ]


def test_the_course_over_time_adds_up_to_what_was_used_and_waited() -> None:
    jobs = [job("a", 0, 100, 4), job("b", 0, 60, 2), job("c", 100, 40, 2)]
    run = replayed("fifo", jobs, ONE_NODE)

    (course,) = courses_of([Replay("fifo", jobs, run, (), 4, 0.5)], pieces=4)

    assert course.span_s == 160.0
    assert course.used.tolist() == [1.0, 1.0, 1.0, 0.75]
    assert course.wait_s[0] == 50.0
