"""Starts as users are told them: gqstat --start, gqsub --test-only and --what-if, gqstat --accuracy, with daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import await_state, submit

pytestmark = pytest.mark.xdist_group("estimates")  # so that the cluster is set up once


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return module_yard.make(nodes=2, fake_gpus=4, cpus=8)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def starts(cluster: PrivateCluster) -> dict[int, Any]:
    return {one["job_id"]: one for one in json.loads(cluster.ok("gqstat", "--start", "--json"))}


def at(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


def test_starts_are_told_with_their_band_and_what_came_of_them_is_measured(cluster: PrivateCluster) -> None:
    first = submit(cluster, "-N2", "--gpus-per-node=4", "-t", "10", wrap="sleep 300")
    await_state(cluster, first, "RUNNING")
    second = submit(cluster, "-N2", "--gpus-per-node=4", "-t", "5", wrap="true")
    third = submit(cluster, "-N2", "--gpus-per-node=4", "-t", "20", wrap="true")
    held = submit(cluster, "--hold", wrap="true")

    told = starts(cluster)

    ends = cluster.ok("gqstat", "-h", "-j", first, "-o", "%e").strip()
    assert told[int(second)]["expected_start_at"].startswith(ends)
    assert at(told[int(third)]["expected_start_at"]) == pytest.approx(at(told[int(second)]["expected_start_at"]) + 300)
    assert [told[int(one)]["queue_position"] for one in (second, third)] == [1, 2]
    assert at(told[int(second)]["expected_start_p90_at"]) >= at(told[int(second)]["expected_start_at"])
    assert told[int(held)]["expected_start_at"] is None
    assert told[int(held)]["why"] == "never, because its owner holds it"
    header, line, *_ = cluster.ok("gqstat", "--start").splitlines()
    assert header.split() == ["JOBID", "PARTITION", "POS", "NAME", "USER", "GPUS", "START", "P90", "WHY"]
    assert line.split()[0] == second

    cluster.ok("gqdel", first)
    await_state(cluster, third, "COMPLETED")

    lines = json.loads(cluster.ok("gqstat", "--accuracy", "--json"))
    every = next(one for one in lines if one["starts"] == "all")
    assert every["jobs"] == 2
    assert every["median_bias_s"] < 0, "they started earlier than was said, since the first was cancelled"
    assert every["within_band"] == 1.0
    assert json.loads(cluster.ok("gqstat", "--accuracy", "--since=2020-01-01", "--json")) == lines
    assert "MEDIAN-ERROR" in cluster.ok("gqstat", "--accuracy")


@pytest.mark.slow
def test_what_else_could_be_asked_for_is_told_and_nothing_is_queued(cluster: PrivateCluster) -> None:
    first = submit(cluster, "--gpus=3", "-w", "n1", "-t", "10", wrap="sleep 300")
    await_state(cluster, first, "RUNNING")
    asked = ("gqsub", "--gpus=8", "-t", "2:00:00", "--wrap", "true")

    tested = cluster.ok(*asked, "--test-only")
    options = json.loads(cluster.ok(*asked, "--what-if", "--json"))
    table = cluster.ok(*asked, "--what-if")

    assert tested.startswith("would start at ")
    assert options[0]["options"] == ""
    fewer = next(one for one in options if one["options"] == "--gpus=5")
    assert at(fewer["expected_start_at"]) < at(options[0]["expected_start_at"])
    assert fewer["nodes"] == ["n1", "n2"]
    assert max(map(len, table.splitlines())) <= 80
    assert table.splitlines()[0].split() == ["START", "P90", "END", "ALTERNATIVE", "OPTIONS"]
    assert len(json.loads(cluster.ok("gqstat", "--json"))) == 1
    queued = submit(cluster, "--gpus=4", "-t", "2:00:00", wrap="true")
    await_state(cluster, queued, "COMPLETED")


def test_what_may_never_start_and_refusals_are_told_alike(cluster: PrivateCluster) -> None:
    refused = cluster.run("gqsub", "--gpus-per-node=5", "--what-if", "--wrap", "true")
    assert refused.returncode == 1
    assert "the largest node has 4" in refused.stderr
    assert cluster.run("gqstat", "--since=2d").returncode == 2
    wait_until(lambda: starts(cluster) == {}, what="an empty queue has no starts")
