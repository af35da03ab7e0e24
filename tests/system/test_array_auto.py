"""An array that takes what is idle, and a stream of rivals: on real daemons, by two users of a shared cluster."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import wait_until
from tests.conftest import FAILED, MARK
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB
from tests.system.hosts import FAKE_GPUS, HostCluster, User, config_of, network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(300),
]

GPUS = FAKE_GPUS
SHARE = GPUS // 2
LONG_S = 60.0
"""On a machine that does nothing else it takes a second or two, and a task's length."""
TASK_S = 1
TASK = f"mkdir /tmp/held-$CUDA_VISIBLE_DEVICES || exit 9; sleep {TASK_S}; rmdir /tmp/held-$CUDA_VISIBLE_DEVICES"
"""It fails if somebody else has its GPU."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[HostCluster]:
    with network("ab", pytestconfig.stash[MARK]) as net:
        cluster = HostCluster(net, config_of(net, "b", timers="heartbeat_s = 1\nprepare_ack_s = 10\ngrace_s = 2\n"))
        cluster.add("b")
        yield cluster
        if request.node.stash.get(FAILED, False):
            print(net.logs())


def submit(user: User, *options: str) -> str:
    return user.ok("gqsub", "--parsable", "--gpus=1", "-t5", "-D/", "-o/dev/null", *options, "--wrap", TASK).strip()


def queue(user: User) -> list[dict[str, Any]]:
    return list(json.loads(user.ok("gqstat", "--json")))


def running(lines: list[dict[str, Any]]) -> Counter[str]:
    """GPUs that jobs run on, by user."""
    states = ("RUNNING", "CONFIGURING")
    return Counter(one["user"] for one in lines if one["state"] in states for _ in range(one["gpus"]))


def await_gpus(user: User, least: int, most: int) -> None:
    """Until the user has so many."""
    name = user.account.name
    wait_until(lambda: least <= running(queue(user))[name] <= most, LONG_S, f"{name} has {least} to {most} GPUs")


@pytest.mark.slow
def test_it_grows_to_all_idle_gpus_falls_back_as_tasks_end_and_grows_again(cluster: HostCluster) -> None:
    alice, bob = (cluster.head.user(account) for account in (ALICE, BOB))
    array = submit(alice, "--array=1-400%auto")
    await_gpus(alice, GPUS, GPUS)
    assert re.search(rf"{array}_\[\d+-400%auto\]", alice.ok("gqstat"))

    rivals = [submit(bob) for _ in range(6)]
    await_gpus(bob, SHARE, GPUS)
    for _ in range(5):  # while rivals wait
        lines = queue(alice)
        if any(one["user"] == "bob" and one["state"] == "PENDING" for one in lines):
            assert running(lines)["alice"] <= SHARE
        time.sleep(TASK_S / 4)

    assert bob.run("gqwait", *rivals, timeout_s=120).returncode == 0
    await_gpus(alice, GPUS, GPUS)
    alice.ok("gqctl", "update", array, "--array-throttle=1")
    await_gpus(alice, 0, 1)
    assert "%1]" in alice.ok("gqstat")

    alice.ok("gqdel", f"{array}_[1-400]")
    wait_until(lambda: not running(queue(alice)), LONG_S, "all is over")
    ends = Counter(one["state"] for one in json.loads(alice.ok("gqacct", "-X", "--json", "-j", array)))
    assert set(ends) <= {"COMPLETED", "CANCELLED"}
    assert ends["COMPLETED"] >= GPUS
