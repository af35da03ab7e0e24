"""`gq status` on the hosts of a cluster for all users: what runs here, and how it stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.clusters import wait_until
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import Host, Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(120),
]

MakeNet = Callable[[Sequence[str]], Network]
JOIN = ("gqnode", "join", "tcp://a:7133", "--start")


def status(host: Host) -> dict[str, Any]:
    done = host.run("gq", "status", "--json")
    [said] = json.loads(done.stdout)
    states = {daemon["name"]: daemon["state"] for daemon in said["daemons"]}
    assert done.returncode == (0 if all(state.startswith("up") for state in states.values()) else 1)
    return {"states": states, **{key: said[key] for key in ("node", "is_answering", "cluster", "jobs_running")}}


def test_each_host_says_what_it_is_and_how_its_daemons_stand(net: MakeNet) -> None:
    hosts = net("abl")
    a, b, login = hosts.hosts.values()
    a.ok("gqd", "init", "--start", "--node=a", "--cluster", hosts.run_name)
    b.ok(*JOIN, stdin=a.ok("gqctl", "token", "create"))
    login.ok(*JOIN, stdin=a.ok("gqctl", "token", "create", "--login", "--node-name=l"))
    known = {"cluster": hosts.run_name}
    heard = {**known, "is_answering": True, "jobs_running": 0}
    unasked = {**known, "is_answering": None, "jobs_running": None}

    for caller in (a, a.user(ALICE)):
        assert status(caller) == {"states": {"gqd": "up", "gqnode": "up, idle"}, "node": "a", **heard}
    assert status(b) == {"states": {"gqnode": "up, part of the cluster"}, "node": "b", **unasked}
    assert status(login) == {"states": {"gqnode": "up, login host"}, "node": "l", **heard}
    said = b.ok("gq", "status")
    assert f"this host is node b of cluster {hosts.run_name}, by /etc/gq/gq.toml" in said
    assert "its controller is tcp://a:7133" in said
    assert json.loads(a.ok("gqctl", "audit", "--refused", "--json")) == [], "nobody was asked in vain"

    a.ok("sh", "-c", "kill $(cat /var/lib/gq/gqd.pid)")

    wait_until(lambda: status(b)["states"] == {"gqnode": "up, without its controller"})
    wait_until(lambda: status(a)["states"] == {"gqd": "down", "gqnode": "up, without its controller"})
    assert "the controller does not answer" in a.run("gq", "status").stdout
