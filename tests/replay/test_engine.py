"""The engine: virtual nodes, time limits, the delay of a start; that it is the same each time."""

from __future__ import annotations

import msgspec

from gqd.sim.report import Replay, courses_of, jobs_csv, summary_of
from gqd.sim.workload import SimJob, gpus_wanted
from tests.replay.traces import engine_of, random_case, replayed, sim_jobs

ONE_NODE = {"all": (1, 4)}


def job(name: str, submit_s: float, duration_s: float, gpus: int, **fields: object) -> SimJob:
    own = SimJob(
        name=name,
        user="ada",
        account="all",
        partition="all",
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        resources=gpus_wanted(gpus),
    )
    return msgspec.structs.replace(own, **fields)


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
    assert run.ends_s[0] == 10


def test_all_resources_are_free_again_when_all_jobs_have_ended() -> None:
    jobs, pools = random_case(7)
    engine = engine_of("default", sim_jobs(jobs), pools)

    engine.run()

    engine.controller.cluster.check()
    assert all(not node.held for node in engine.controller.cluster.nodes.values())


def test_the_same_input_gives_the_same_output() -> None:
    jobs, pools = random_case(11)

    first, second = (replayed("default", sim_jobs(jobs), pools) for _ in range(2))

    assert first == second


def test_the_summary_counts_waits_as_documented() -> None:
    jobs = [job("a", 0, 100, 4), job("b", 0, 4, 4), job("c", 50, 60, 2)]
    run = replayed("fifo", jobs, ONE_NODE)

    summary = summary_of(Replay("fifo", jobs, run, dropped=2, gpus=4, wall_s=0.5))

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
        "gpu_utilisation": round((400 + 16 + 120) / (4 * 164), 9),
        "wall_s": 0.5,
        "jobs_per_s": 6.0,
    }
    assert jobs_csv(Replay("fifo", jobs, run, 0, 4, 0.5)).splitlines() == [
        "job_id,submit_s,start_s,end_s,gpus",
        "a,0,0,100,4",
        "b,0,100,104,4",
        "c,50,104,164,2",
    ]


def test_the_course_over_time_adds_up_to_what_was_used_and_waited() -> None:
    jobs = [job("a", 0, 100, 4), job("b", 0, 60, 2), job("c", 100, 40, 2)]
    run = replayed("fifo", jobs, ONE_NODE)

    (course,) = courses_of([Replay("fifo", jobs, run, 0, 4, 0.5)], pieces=4)

    assert course.span_s == 160.0
    assert course.used.tolist() == [1.0, 1.0, 1.0, 0.75]
    assert course.wait_s[0] == 50.0
