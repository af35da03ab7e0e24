"""Gangs that want the whole cluster: the first has it, the second is told who and until when."""

from __future__ import annotations

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_state, state, submit, why

SHAPE = ("-N4", "--gpus-per-node=8", "-t", "10")
COMMAND = "gqrun -l sh -c 'echo $GQ_NODEID $CUDA_VISIBLE_DEVICES'; sleep 300"
EIGHT = "0,1,2,3,4,5,6,7"


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=4, fake_gpus=8, cpus=64)


def test_a_gang_on_all_nodes_prints_its_node_ids_and_the_next_one_waits_until_it_is_cancelled(
    cluster: PrivateCluster,
) -> None:
    first = submit(cluster, *SHAPE, wrap=COMMAND)
    wait_until(lambda: len(cluster.run("gqlog", first).stdout.splitlines()) == 4, what="four tasks have written")
    assert sorted(cluster.ok("gqlog", first).splitlines()) == [f"{rank}: {rank} {EIGHT}" for rank in range(4)]

    second = submit(cluster, *SHAPE, wrap=COMMAND)
    wait_until(lambda: why(cluster, second)["reason"] == "Resources", what="the second has been considered")
    user, ends = cluster.ok("gqstat", "-h", "-j", first, "-o", "%u %e").split()
    holder = f"job {first} ({user}) holds 32 GPUs on n1, n2, n3, n4 until {ends.rpartition('T')[2]} at the latest"
    assert holder in cluster.ok("gqwhy", second)
    assert why(cluster, second)["blockers"] == [int(first)]
    assert state(cluster, second) == "PENDING"

    cluster.ok("gqdel", first)
    await_state(cluster, second, "RUNNING")
    assert state(cluster, first) == "CANCELLED"


@pytest.mark.slow
def test_the_instant_of_a_promised_start_is_the_same_in_the_sentence_and_in_the_field(cluster: PrivateCluster) -> None:
    submit(cluster, *SHAPE, wrap="sleep 300")
    second = submit(cluster, *SHAPE, wrap="true")
    wait_until(lambda: why(cluster, second)["expected_start_at"], what="a start is promised")
    story = why(cluster, second)
    assert f"it should start by {story['expected_start_at']}" in story["why"]


@pytest.mark.slow
def test_a_fresh_cluster_offers_all_its_nodes_to_a_gang(cluster: PrivateCluster) -> None:
    first_line = cluster.ok("gqinfo").splitlines()[0]
    assert first_line == "GPUs 32/32 free: 32×fake; largest gang startable now: 8 on 1 node, 32 on 4"
