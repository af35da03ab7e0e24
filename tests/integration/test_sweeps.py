"""Sweeps on real daemons: what each task finds, what its steps find, and where the values are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import pytest

from tests.clusters import ClusterYard, PrivateCluster
from tests.integration.jobs import MakeCluster

SCRIPT = """#!/bin/bash
#GQ --sweep="lr=1e-3,1e-4 note='a b',c"
#GQ --array=%auto
#GQ --gpus=1 --time=5 --output=out-%a
echo "batch $GQ_ARRAY_TASK_ID $lr $note $GQ_SWEEP_lr"
gqrun sh -c 'echo "step $lr $note"'
lr=0.5 gqrun sh -c 'echo "changed $lr $GQ_SWEEP_lr"'
"""


pytestmark = pytest.mark.xdist_group("sweeps")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(nodes=2, fake_gpus=2, cpus=8)


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def test_each_combination_is_a_task_with_its_values_and_they_are_shown(cluster: PrivateCluster) -> None:
    (cluster.workdir / "sweep.sh").write_text(SCRIPT)
    array = cluster.ok("gqsub", "--parsable", "sweep.sh").strip()
    assert cluster.run("gqwait", array).returncode == 0

    values = list(product(("1e-3", "1e-4"), ("a b", "c")))
    for task, (lr, note) in enumerate(values):
        assert (cluster.workdir / f"out-{task}").read_text().splitlines() == [
            f"batch {task} {lr} {note} {lr}",
            f"step {lr} {note}",
            f"changed 0.5 {lr}",
        ]
    told = json.loads(cluster.ok("gqacct", "-X", "--json", "-j", array))
    assert {one["array_task_id"]: one["parameters"] for one in told} == {
        task: {"lr": lr, "note": note} for task, (lr, note) in enumerate(values)
    }
    lines = cluster.ok("gqacct", "-X", "-n", "-P", "-j", f"{array}_2", "-o", "jobid,sweep")
    assert lines == f"{array}_2|lr=1e-4 note='a b'\n"


def test_a_sweep_that_waits_shows_what_varies_and_some_of_it_can_be_queued_again(cluster: PrivateCluster) -> None:
    sweep = "--sweep=lr=1,2 bs=32,64"
    array = cluster.ok("gqsub", "--parsable", "--hold", sweep, "--array=1-2%auto", "--wrap", "true").strip()

    [shown] = json.loads(cluster.ok("gqctl", "show", "--json", array))
    assert (shown["array_tasks"], shown["array_throttle"]) == ("1-2", "auto")
    assert (shown["sweep"], shown["parameters"]) == ({"lr": ["1", "2"], "bs": ["32", "64"]}, {})
    apart = cluster.ok("gqstat", "-h", "-r", "-O", "jobarrayid:10,sweep:20").splitlines()
    assert [line.split(maxsplit=1)[1].strip() for line in apart] == ["lr=1 bs=64", "lr=2 bs=32"]
    refused = cluster.run("gqsub", sweep, "--array=3-4", "--wrap", "true")
    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        ["error: `--array`: `3-4` names tasks outside the sweep",
         "hint: the sweep has 4 combinations: tasks 0-3"],
    )  # fmt: skip
