"""What jobs ask of their nodes beside numbers, on real daemons: from the option to where the job runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.clusters import ClusterYard, PrivateCluster
from tests.integration.jobs import MakeCluster, await_state, config, submit, why

FAST = """
features = ["fast"]
attributes = { cuda = "12.10" }
resources = { fpga = 1, tmp = "10G" }
data = ["c4"]"""


pytestmark = pytest.mark.xdist_group("what_is_asked")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    text = config(nodes=2, cpus=4, gpus=2, head="[licenses]\nsolver = 2\n")
    return make(config=text.replace('name = "n2"', f'name = "n2"{FAST}'))


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def where(cluster: PrivateCluster, *options: str) -> list[str]:
    """The nodes of a job with these options that has ended."""
    return list(await_state(cluster, submit(cluster, *options, wrap="true"), "COMPLETED")["nodes"])


@pytest.mark.parametrize(
    "options",
    [
        ("--constraint=fast",), ("-C", "fast&cuda>=12.9"), ("--gres=fpga:1",), ("--tmp=5G",), ("--data=c4",),
        ("--prefer=fast",), ("--role=a:1,constraint=fast",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_job_runs_on_the_node_that_has_what_it_asks_for(cluster: PrivateCluster, options: tuple[str, ...]) -> None:
    assert where(cluster, *options) == ["n2"]
    assert where(cluster, "--constraint=!fast") == ["n1"]


@pytest.mark.parametrize(
    ("option", "word"),
    [("--constraint=quick", "quick"), ("--gres=fpga:2", "fpga"), ("--licenses=solver:3", "solver"),
     ("--tmp=11G", "11G"), ("--licenses=other", "other"), ("--gpus=1 --min-gpu-mem=1T", "GPU")],
)  # fmt: skip
def test_what_no_node_can_give_is_refused_at_once(cluster: PrivateCluster, option: str, word: str) -> None:
    done = cluster.run("gqsub", *option.split(), "--wrap", "true")

    assert (done.returncode, word in done.stderr) == (1, True), done.stderr


def test_licences_are_held_while_a_job_runs_and_an_update_can_do_without(cluster: PrivateCluster) -> None:
    holder = submit(cluster, "-L", "solver:2", wrap="exec sleep 600")
    await_state(cluster, holder, "RUNNING")
    waiting = submit(cluster, "--licenses=solver", "-C", "fast", wrap="true")
    assert why(cluster, waiting)["reason"] == "Licenses"
    assert cluster.ok("gqstat", "-h", "-j", waiting, "-o", "%W %f").split() == ["solver:1", "fast"]

    cluster.ok("gqctl", "update", waiting, "--licenses=", "Features=!fast")

    assert await_state(cluster, waiting, "COMPLETED")["nodes"] == ["n1"]
    assert cluster.ok("gqacct", "-nXPj", waiting, "--format=Constraints,Licenses").strip() == "!fast|"
    [shown] = json.loads(cluster.ok("gqctl", "show", holder, "--json"))
    assert (shown["licenses"], shown["grants"][0]["licenses"]) == ({"solver": 2}, {"solver": 2})


def test_the_numbers_of_a_gang_cannot_be_changed_but_its_licences_can(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--role=a:1", "--role=b:1,gpus=1", "--hold", wrap="true")

    refused = cluster.run("gqctl", "update", job, "--ntasks=2")
    assert "the resources of a job with roles cannot be changed" in refused.stderr
    cluster.ok("gqctl", "update", job, "--licenses=solver:1")
    [shown] = json.loads(cluster.ok("gqctl", "show", job, "--json"))

    assert (shown["licenses"], [role["role"] for role in shown["roles"]]) == ({"solver": 1}, ["a", "b"])
