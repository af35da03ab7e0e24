"""What teams get over weeks of endless work is what their shares say, whoever they are and however they submit.

``GQ_SIM_ROUNDS`` (``make sim ROUNDS=…``) makes it go on: half a week for each round, half a year at most.
"""

from __future__ import annotations

import os

import pytest

from gqd.sched.priority.fairshare import fair_tree
from tests.builders import SHARED
from tests.simulation.teams import WEEK, BusyCluster, Team

WEEKS = min(max(3.0, 0.5 * int(os.environ.get("GQ_SIM_ROUNDS", "0"))), 26.0)
VISION = Team("vision", ("anna",), shares=2)
SPEECH = Team("speech", ("ben",), shares=1)


def ratio(cluster: BusyCluster, weeks: float = WEEKS) -> float:
    """GPU-hours of the first team for each of the second."""
    cluster.run(weeks * WEEK)
    first, second = cluster.gpu_hours.values()
    print(f"{cluster.gpu_hours} GPU-hours in {weeks:g} weeks; seed 1")
    return first / second


def test_two_teams_with_shares_two_to_one_get_two_to_one() -> None:
    assert ratio(BusyCluster(SHARED, [VISION, SPEECH])) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    "teams",
    [
        pytest.param([Team("vision", ("anna",), shares=2, tasks=200), SPEECH], id="of-the-larger-part"),
        pytest.param(
            [VISION, Team("speech", ("ben",), shares=1, tasks=200)], id="of-the-smaller-part", marks=pytest.mark.slow
        ),
    ],
)
def test_arrays_get_no_other_part_than_single_jobs(teams: list[Team]) -> None:
    assert ratio(BusyCluster(SHARED, teams)) == pytest.approx(2.0, rel=0.05)


@pytest.mark.slow
def test_a_team_of_ten_gets_no_more_than_a_team_of_one() -> None:
    many = Team("many", tuple(f"user{number}" for number in range(10)), queued=2)
    single = Team("single", ("solo",))
    cluster = BusyCluster(SHARED, [many, single])
    assert ratio(cluster) == pytest.approx(1.0, rel=0.05)
    of_many = [hours for user, hours in cluster.user_hours.items() if user != "solo"]
    assert max(of_many) < 1.25 * min(of_many)


@pytest.mark.slow
def test_long_jobs_get_no_other_part_than_short_ones() -> None:
    long = Team("vision", ("anna",), shares=2, hours=(10.0, 30.0))
    assert ratio(BusyCluster(SHARED, [long, SPEECH]), 2 * WEEKS) == pytest.approx(2.0, rel=0.05)


def test_who_was_away_is_made_up_for_what_others_took() -> None:
    cluster = BusyCluster(SHARED, [VISION, Team("speech", ("ben",), queued=0)])
    cluster.run(WEEK)
    assert cluster.gpu_hours["speech"] == 0.0
    cluster.teams["speech"].queued = 3
    before = cluster.gpu_hours["vision"]
    cluster.run(WEEK / 2)

    # One third is due to it; it gets all that the slot for the oldest does not give by arrival.
    assert cluster.gpu_hours["speech"] > 1.5 * (cluster.gpu_hours["vision"] - before)
    tree = fair_tree(cluster.cluster, cluster.now)
    assert tree.accounts["speech"].level_fs >= tree.accounts["vision"].level_fs
