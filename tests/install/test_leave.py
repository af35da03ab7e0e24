"""`gqnode leave`: a host is no node any more, and nothing of the cluster is left on it but what it said before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from gq.config.config import parse_config
from tests.clusters import wait_until
from tests.integration.jobs import await_state, facts, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import CONFIG_PATH, KEYS, Host, Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(180),
]

MakeNet = Callable[[Sequence[str]], Network]
JOIN = ("gqnode", "join", "tcp://a:7133", "--start")
RUNNING = "pgrep -f '[-]m gqnode '"


def states(head: Host) -> dict[str, str]:
    return {node["node"]: node["state"] for node in json.loads(head.ok("gqinfo", "-N", "--json"))}


def joined(net: Network, *words: str) -> tuple[Host, Host]:
    a, b = net.hosts.values()
    a.ok("gqd", "init", "--start", "--cluster", net.run_name)
    b.ok(*JOIN, stdin=a.ok("gqctl", "token", "create", *words))
    return a, b


def test_a_node_leaves_and_says_what_the_administrator_has_to_do(net: MakeNet) -> None:
    a, b = joined(net("ab"))
    wait_until(lambda: states(a) == {"b": "IDLE"})

    said = b.ok("gqnode", "leave").splitlines()

    assert said[0].startswith("this host is no longer node b of cluster ")
    assert said[1:] == ["on the controller, as an administrator:", "  gqctl node remove b"]
    assert b.run("sh", "-c", RUNNING).stdout == ""
    assert list(b.path(KEYS).iterdir()) == []
    assert not b.path(CONFIG_PATH).exists() and not b.path("/var/lib/gq/nodes/b").exists()
    assert parse_config(b.path(f"{CONFIG_PATH}.old").read_text(), CONFIG_PATH).node("b")
    a.ok("gqctl", "node", "remove", "b")
    assert states(a) == {}
    assert b.run("gqnode", "leave").returncode == 1, "there is nothing to leave any more"
    b.ok(*JOIN, stdin=a.ok("gqctl", "token", "create"))
    wait_until(lambda: states(a) == {"b": "IDLE"}, what="it comes back")


def test_jobs_keep_it_unless_their_end_is_wanted(net: MakeNet) -> None:
    a, b = joined(net("ab"))
    alice = a.user(ALICE)
    job = submit(alice, "--no-requeue", wrap="sleep 600")
    await_state(alice, job, "RUNNING")

    refused = b.run("gqnode", "leave")
    assert refused.returncode == 1
    assert f"job {job} is on this node" in refused.stderr and "--force ends running jobs" in refused.stderr
    assert facts(alice, job)["state"] == "RUNNING"
    b.ok("gqnode", "leave", "--force")

    assert b.run("pgrep", "-f", "[s]leep 600").stdout == ""
    assert not b.path(CONFIG_PATH).exists()
    a.ok("gqctl", "node", "remove", "b")
    assert facts(alice, job)["state"] == "NODE_FAIL"


@pytest.mark.slow
def test_on_the_host_of_the_controller_the_node_is_removed_there_and_the_controller_stays(net: MakeNet) -> None:
    [a] = net("a").hosts.values()
    a.ok("gqd", "init", "--start", "--node=a")
    a.path(CONFIG_PATH).write_text(f"{a.path(CONFIG_PATH).read_text()}\n# mine\n[timers]\ngrace_s = 7\n")

    said = a.ok("gqnode", "leave")

    assert said == "this host is no longer node a of cluster gq\n"
    assert states(a) == {}
    text = a.path(CONFIG_PATH).read_text()
    config = parse_config(text, CONFIG_PATH)
    assert (config.nodes, config.timers.grace_s, config.controller.listen) == ((), 7, "tcp://*:7133")
    assert not any(path.is_file() for path in a.path(KEYS).rglob("*"))
    kept = a.path("/var/lib/gq/controller/keys")
    assert sorted(path.name for path in kept.rglob("*") if path.is_file()) == ["gqd.key", "gqd.pub"]


def test_an_ordinary_user_cannot(net: MakeNet) -> None:
    _, b = joined(net("ab"))

    refused = b.user(ALICE).run("gqnode", "leave")

    assert refused.returncode == 1 and "run it as root" in refused.stderr
    assert b.path(CONFIG_PATH).exists()
