"""Where jobs go on real daemons: linked GPUs, features and attributes, a site's program, licences, wishes."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_state, facts, submit, why

CONFIG = """
[licenses]
matlab = 1
[[topology]]
name = "leaf1"
nodes = ["n1"]
[[topology]]
name = "leaf2"
nodes = ["n2"]
[[node]]
name = "n2"
cpus = 16
memory = "4G"
gpus = []
attributes = {cuda = "11.8"}
[[node]]
name = "n1"
cpus = 16
memory = "4G"
features = ["ib"]
attributes = {cuda = "12.4"}
attribute_script = "%s"
attribute_interval = "1s"
resources = {fpga = 1, tmp = "1G"}
"""


def quads() -> str:
    """GPUs of a node: two cliques of four."""
    tables = []
    for one in range(8):
        first = one // 4 * 4
        links = [[other, 4] for other in range(first, first + 4) if other != one]
        tables.append(f"[[node.fake_gpu]]\nnvlink = {links}\nnuma = {one // 4}\n")
    return "".join(tables)


@pytest.fixture
def cluster(private_cluster: MakeCluster, tmp_path: Path) -> PrivateCluster:
    script = tmp_path / "attributes"
    script.write_text("#!/bin/sh\necho rack=r1\necho data imagenet\n")
    script.chmod(0o755)
    return private_cluster(config=CONFIG % script + quads())


def nodes_of(cluster: PrivateCluster, *options: str) -> list[str]:
    job = submit(cluster, *options, wrap="true")
    return list(await_state(cluster, job, "COMPLETED")["nodes"])


def test_jobs_get_gpus_that_are_linked_however_others_lie(cluster: PrivateCluster) -> None:
    holder = submit(cluster, "--gpus=1", wrap="echo $CUDA_VISIBLE_DEVICES; while [ ! -e go ]; do sleep 0.05; done")
    await_state(cluster, holder, "RUNNING")
    job = submit(cluster, "--gpus=4", wrap="echo $CUDA_VISIBLE_DEVICES")
    await_state(cluster, job, "COMPLETED")
    (cluster.workdir / "go").touch()

    assert (cluster.workdir / f"gq-{holder}.out").read_text() == "0\n"
    assert (cluster.workdir / f"gq-{job}.out").read_text() == "4,5,6,7\n"


@pytest.mark.slow
def test_nodes_are_found_by_what_they_are_said_to_be(cluster: PrivateCluster) -> None:
    assert nodes_of(cluster, "-C", "ib") == ["n1"]
    assert nodes_of(cluster, "-C", "!ib & cuda<12") == ["n2"]
    assert nodes_of(cluster, "-C", "rack=r1 & cuda>=12.4") == ["n1"]
    assert nodes_of(cluster, "--data=imagenet") == ["n1"]
    assert nodes_of(cluster, "--prefer=ib") == ["n1"]
    assert nodes_of(cluster, "--gres=fpga:1", "--tmp=500M") == ["n1"]
    refused = cluster.run("gqsub", "-C", "ibb", "--wrap", "true")
    assert refused.returncode == 1
    assert "no node that it may use has a feature or an attribute `ibb`" in refused.stderr
    assert "did you mean `ib`?" in refused.stderr


@pytest.mark.slow
def test_what_a_sites_program_says_anew_is_known_to_the_controller(cluster: PrivateCluster, tmp_path: Path) -> None:
    assert cluster.run("gqsub", "-C", "rack=r2", "--wrap", "true").returncode == 1
    (tmp_path / "attributes").write_text("#!/bin/sh\necho rack=r2\necho feature gds\n")

    def shown() -> dict[str, object]:
        return dict(next(one for one in json.loads(cluster.ok("gqinfo", "--json")) if one["node"] == "n1"))

    wait_until(lambda: shown()["features"] == ["ib", "gds"], 30.0, "the new feature is known")
    node = shown()
    attributes = node["attributes"]
    assert isinstance(attributes, dict)
    assert (attributes["rack"], attributes["gpus"], attributes["gpu_type"]) == ("r2", "8", "fake")
    assert (node["data"], node["switch"], node["resources_free"]) == ([], "leaf1", {"fpga": 1, "tmp": 1024})
    assert nodes_of(cluster, "-C", "gds&rack=r2") == ["n1"]


@pytest.mark.slow
def test_a_licence_is_waited_for_until_its_holder_ends(cluster: PrivateCluster) -> None:
    holder = submit(cluster, "--licenses=matlab", wrap="while [ ! -e go ]; do sleep 0.05; done")
    await_state(cluster, holder, "RUNNING")
    job = submit(cluster, "--licenses=matlab:1", wrap="true")

    story = why(cluster, job)
    assert "matlab" in story["why"] and f"job {holder}" in story["why"]
    assert facts(cluster, job)["state"] == "PENDING"
    (cluster.workdir / "go").touch()
    await_state(cluster, job, "COMPLETED")


def test_a_gang_starts_over_two_switches_when_it_has_held_out_long_enough(cluster: PrivateCluster) -> None:
    job = submit(cluster, "-N2", "--switches=1@2s", wrap="true")
    found = await_state(cluster, job, "COMPLETED")
    assert found["nodes"] == ["n1", "n2"]
    submit_at, start_at = (datetime.fromisoformat(found[name]) for name in ("submit_at", "start_at"))
    assert (start_at - submit_at).total_seconds() >= 2
