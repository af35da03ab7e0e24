"""Jobs that give way in a replay go on from where they were, and pay for it."""

from __future__ import annotations

import msgspec

from gq.model.account import PreemptMode, QosInfo
from gq.wire import client
from gqd.sim.engine import Engine, Gap
from gqd.sim.policies import read_policies
from gqd.sim.report import Replay, courses_of, left_out, summary_of
from gqd.sim.workload import LeftOut, Pool, SimJob, setup_for, site_of
from tests.replay.traces import ALL, job, replayed

ONE_NODE = {ALL: (1, 4)}
TWO_NODES = {ALL: (2, 4)}


def low(name: str, submit_s: float, duration_s: float, gpus: int) -> SimJob:
    return job(name, submit_s, duration_s, gpus, qos="scavenger")


def test_a_job_that_gave_way_runs_for_what_it_had_left_and_what_it_costs_to_resume() -> None:
    jobs = [low("a", 0, 100, 4), job("b", 40, 10, 4)]

    run = replayed("fifo-skip", jobs, ONE_NODE, resume_s=60.0)

    assert (run.starts_s, run.ends_s) == ([0, 40], [50 + 60 + 60, 50])
    assert run.gaps == [Gap(0, 40, 50)]


def test_one_that_is_stopped_while_it_resumes_pays_again() -> None:
    jobs = [low("a", 0, 100, 4), job("b", 40, 10, 4), job("c", 70, 10, 4)]

    run = replayed("fifo-skip", jobs, ONE_NODE, resume_s=60.0)

    held = [40, 20, 100 + 2 * 60 - 40 - 20]
    assert run.gaps == [Gap(0, 40, 50), Gap(0, 70, 80)]
    assert run.ends_s == [80 + held[2], 50, 80]


def test_a_gang_that_gives_way_is_stopped_once() -> None:
    jobs = [low("gang", 0, 100, 8), job("b", 30, 20, 3)]

    run = replayed("fifo-skip", jobs, TWO_NODES, resume_s=5.0)

    assert (run.starts_s, run.ends_s) == ([0, 30], [50 + 70 + 5, 50])


def test_a_job_that_ends_in_the_second_in_which_another_comes_is_not_stopped() -> None:
    run = replayed("fifo-skip", [low("a", 0, 40, 4), job("b", 40, 10, 4)], ONE_NODE, resume_s=60.0)

    assert (run.ends_s, run.gaps) == ([40, 50], [])


def test_while_it_is_stopped_a_job_uses_nothing() -> None:
    jobs = [low("a", 0, 100, 4), job("b", 40, 10, 4)]
    replay = Replay("fifo-skip", jobs, replayed("fifo-skip", jobs, ONE_NODE, resume_s=60.0), (), 4, 0.5)

    summary, (course,) = summary_of(replay), courses_of([replay], pieces=17)

    assert (summary["preemptions"], summary["gpu_utilisation"]) == (1, 1.0)
    assert course.used.round(9).tolist() == [1.0] * 17
    assert summary["mean_wait_s"] == (10 + 60) / 2, "what it waits for the other, and for itself"


def test_a_job_that_is_ended_for_another_is_told_as_lost() -> None:
    jobs = [low("a", 0, 100, 4), job("b", 40, 10, 4)]
    site = site_of([Pool(pool=ALL, nodes=1, gpus_per_node=4)])
    ended = QosInfo(name="scavenger", preempt_mode=PreemptMode.CANCEL)
    site = msgspec.structs.replace(site, setup=(*setup_for(jobs), client.SetQos(qos=ended, is_new=False)))

    run = Engine(site, read_policies(["fifo-skip"], [])[0].policy, jobs).run()

    assert run.ends_s[1] == 50
    assert left_out(Replay("fifo-skip", jobs, run, (), 4, 0.5)) == [LeftOut("a", "it did not end within the replay")]
