"""The policy that gives turns, through the replay: its rules on cases made by hand, and what it comes to on a trace."""

from __future__ import annotations

import pytest

from gqd.sim.engine import Engine, Gap, Run
from gqd.sim.policies import read_policies
from gqd.sim.report import Replay, summary_of
from gqd.sim.trace import read_trace
from gqd.sim.workload import SimJob, those_that_fit
from tests.replay.traces import ALL, job, replayed, shared_traces

H = 3600.0
R = 60.0
TRIAL, TURN = 3 * H, 2 * H
LONG = 100 * H


def turns(jobs: list[SimJob], nodes: int = 1, gpus: int = 8, resume_s: float = R) -> Run:
    return replayed("las", jobs, {ALL: (nodes, gpus)}, resume_s=resume_s)


def stops(run: Run, place: int) -> list[float]:
    return [one.from_s for one in run.gaps if one.place == place]


def test_who_has_had_its_trial_makes_room_for_a_job_that_has_not() -> None:
    run = turns([job("old", 0, LONG, 8), job("new", 4 * H, H, 8)])

    half_a_resume = 0.5 * R
    assert run.starts_s == [0, 4 * H + half_a_resume]
    assert run.gaps == [Gap(0, 4 * H + half_a_resume, 5 * H + half_a_resume)]
    assert run.ends_s[0] == LONG + H + R, "it goes on from where it was, and pays for that"


def test_within_its_trial_nobody_makes_room() -> None:
    run = turns([job("a", 0, 4 * H, 8), job("b", H, 10.0, 8)])

    assert run.starts_s[1] == TRIAL, "in the second in which the trial of the other is over"


def test_the_longer_the_victims_are_to_pay_for_it_the_longer_a_job_waits_first() -> None:
    run = turns([job("wide", 0, LONG, 8), job("small", 4 * H, 10.0, 1)])

    assert run.starts_s[1] == 4 * H + 0.5 * R * 8


def test_who_was_submitted_first_has_its_place_back_after_a_turn_and_not_before() -> None:
    first, second = job("first", 0, LONG, 8), job("second", 1, LONG, 8)
    run = turns([first, second])

    assert run.starts_s == [0, TRIAL], "that the first one's trial is over is enough for the second"
    assert run.gaps[0] == Gap(0, TRIAL, 2 * TRIAL), "it has its place back when that of the second is over"
    assert run.gaps[1] == Gap(1, 2 * TRIAL, LONG + TRIAL + R), "and keeps it to its end"


def test_in_its_turn_a_job_gives_way_to_who_was_submitted_first_only_after_two_hours() -> None:
    """The second has a second turn while a small job keeps the first, which needs all nodes, from its own."""
    jobs = [job("first", 0, LONG, 24), job("second", 1, LONG, 16)]
    shorts = [job("gang", 10 * H, 10.0, 16), job("small", 10 * H + 46, H, 1)]
    run = turns([*jobs, *shorts], nodes=3)

    worth_it = 10 * H + 0.5 * R * 24 / 16
    again = worth_it + 10
    assert stops(run, 0) == [TRIAL, worth_it]
    assert run.gaps[:3] == [Gap(0, TRIAL, 2 * TRIAL), Gap(1, 2 * TRIAL, again), Gap(0, worth_it, again + TURN)]
    assert stops(run, 1) == [2 * TRIAL, again + TURN]


def test_who_has_had_its_trial_never_takes_from_one_that_has_not() -> None:
    jobs = [job("old", 0, LONG, 8), job("new", 5 * H, 2.9 * H, 8)]
    run = turns(jobs)

    assert not stops(run, 1)
    assert run.ends_s[1] == 5 * H + 0.5 * R + 2.9 * H


def test_a_job_has_three_resumes_worth_before_it_is_stopped() -> None:
    shorts = [job("s1", 4 * H, 10.0, 8), job("s2", 4 * H + 100, 10.0, 8)]
    run = turns([job("old", 0, LONG, 8), *shorts])

    resumed_at = 4 * H + 0.5 * R + 10
    assert run.starts_s[1:] == [4 * H + 0.5 * R, resumed_at + 3 * R]
    assert stops(run, 0) == [4 * H + 0.5 * R, resumed_at + 3 * R]


def test_a_gang_gives_its_turn_to_gangs_only() -> None:
    run = turns([job("gang", 0, 8 * H, 16), job("one", 4 * H, 10.0, 1)], nodes=2)

    assert run.starts_s[1] == 8 * H
    assert not run.gaps

    run = turns([job("gang", 0, 8 * H, 16), job("other", 4 * H, 10.0, 16)], nodes=2)

    assert run.starts_s[1] == 4 * H + 0.5 * R


def test_those_go_that_have_the_fewest_gpus_and_of_equal_ones_who_came_last() -> None:
    jobs = [job("two", 0, LONG, 2), job("a", 1, LONG, 1), job("b", 2, LONG, 1), job("four", 3, LONG, 4)]
    run = turns([*jobs, job("new", 4 * H, 10.0, 1)])

    assert [one.place for one in run.gaps] == [2]
    assert run.starts_s[4] == 4 * H + 0.5 * R


def test_one_that_does_not_fit_anywhere_else_is_stopped_on_one_node_only() -> None:
    """Not four GPUs on each of two nodes."""
    jobs = [job("a", 0, LONG, 4), job("b", 1, LONG, 8), job("c", 2, LONG, 4)]
    run = turns([*jobs, job("new", 4 * H, 10.0, 8)], nodes=2)

    assert {one.place for one in run.gaps} == {1}, "of equal cost those of whom the first came last"


def test_a_victim_starts_somewhere_else_in_the_same_second() -> None:
    """So fragments are cleared: four GPUs are free, but two on each node."""
    jobs = [job("a", 0, LONG, 6), job("b", 1, LONG, 2), job("c", 2, LONG, 4)]
    run = turns([*jobs, job("new", 4 * H, 10.0, 4)], nodes=2)

    moved = [one for one in run.gaps if one.place == 1]
    assert run.starts_s[3] <= 4 * H + 0.5 * R
    assert not moved or moved[0].from_s == moved[0].to_s


@pytest.mark.parametrize("resume_s", [60.0, 300.0])
def test_of_what_a_job_holds_no_more_than_a_third_are_resumes(resume_s: float) -> None:
    shorts = [job(f"s{one}", 4 * H + 50 * one, 20.0, 8) for one in range(300)]
    run = turns([job("old", 0, 10 * H, 8), *shorts], resume_s=resume_s)

    held = [later.from_s - gap.to_s for gap, later in zip(run.gaps, run.gaps[1:], strict=False) if gap.place == 0]
    assert len(held) > 5
    assert min(held) >= 3 * resume_s


@pytest.mark.slow
@pytest.mark.parametrize("resume_s", [60.0, 300.0])
def test_on_a_trace_of_few_and_wide_jobs_it_is_no_worse_than_who_knows_all_lengths(resume_s: float) -> None:
    """The row that is the tightest of the comparison; the others are replayed by ``make bench``."""
    trace = read_trace(shared_traces() / "helios_venus2vc_sep.csv.gz", None, "real_vc")
    jobs, dropped = those_that_fit(trace.jobs, trace.site)
    policy = read_policies(["las"], [])[0].policy

    run = Engine(trace.site, policy, jobs, resume_s=resume_s).run()

    summary = summary_of(Replay("las", jobs, run, dropped, trace.site.gpus, 1.0))
    assert summary["mean_wait_s"] <= 828 + 60, "EASY that knows them, and a minute of grace"
    assert summary["preemptions"] < 0.2 * len(jobs)
