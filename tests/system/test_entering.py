"""`gq ssh` in a shared cluster: the owner of a job, and nobody else, goes into its cell and sees its own `/tmp`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters import wait_until
from tests.conftest import MARK
from tests.integration.jobs import LONG_S
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB
from tests.system.hosts import HostCluster, User, config_of, network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def cluster(pytestconfig: pytest.Config) -> Iterator[HostCluster]:
    """Users sit on `d`; `b` and `c` give each job a `/tmp` of its own."""
    with network("abcd", pytestconfig.stash[MARK]) as net:
        text = config_of(net, "bc", logins="d", timers="heartbeat_s = 1\nprepare_ack_s = 10\ngrace_s = 2\n")
        cluster = HostCluster(net, text.replace("cpus = 16\n", "cpus = 16\nprivate_tmp = true\n"))
        for name in "bcd":
            cluster.add(name)
        yield cluster


def begin(user: User) -> str:
    """A job over both nodes; each of its tasks leaves a file in its `/tmp`."""
    task = "gqrun sh -c 'echo secret of $GQ_NODENAME > /tmp/left; exec sleep 600'"
    job = user.ok("gqsub", "--parsable", "-N2", "--gpus-per-node=2", "-D/", "-o/dev/null", "--wrap", task).strip()

    def has_begun() -> bool:
        return all(user.run("gq", "ssh", f"{job}.{index}", "cat", "/tmp/left").returncode == 0 for index in (0, 1))

    wait_until(has_begun, LONG_S, f"job {job} runs on both nodes")
    return job


def test_the_owner_enters_a_job_on_each_of_its_nodes_and_others_do_not(cluster: HostCluster) -> None:
    alice, bob = (cluster.net.hosts["d"].user(account) for account in (ALICE, BOB))
    job = begin(alice)
    script = "id -un; hostname; cat /tmp/left; echo $CUDA_VISIBLE_DEVICES; cat /proc/self/cgroup"

    for node, where in (("b", job), ("c", f"{job}.1")):
        user, host, left, gpus, *cells = alice.ok("gq", "ssh", where, "sh", "-c", script).splitlines()
        assert (user, host, left, gpus) == ("alice", node, f"secret of {node}", "0,1")
        assert any(f"/{job}.1" in cell for cell in cells)
        assert not cluster.net.hosts[node].path("/tmp/left").exists()

    refused = bob.run("gq", "ssh", job, "id")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "job" in refused.stderr and "alice" in refused.stderr
    alice.ok("gqdel", job)
