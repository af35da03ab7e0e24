"""An attacker who has taken over gqd, or runs as its user: what that is worth on the controller's host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gq.wire import node as node_wire
from tests.clusters import wait_until
from tests.conftest import MARK
from tests.integration.jobs import LONG_S, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.attacks import NOTHING, REFUSED, attack
from tests.system.hosts import CONFIG_PATH, Host, Network, network
from tests.system.speaker import Speaker
from tests.system.stage import hear, hello, say

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    needs_program("useradd"),
    pytest.mark.xdist_group("attacks_user"),  # so that the host is set up once
    pytest.mark.timeout(120),
]
AS_GQ = ("setpriv", "--reuid=gq", "--regid=gq", "--clear-groups")


class Gq(NamedTuple):
    """A program of the user that gqd runs as."""

    host: Host

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        return self.host.start(*AS_GQ, *argv, **environ)


@pytest.fixture(scope="module")
def head(pytestconfig: pytest.Config) -> Iterator[Host]:
    """Set up by `gqd init` as controller and node; daemons of root's start gqd."""
    with network(["head"], pytestconfig.stash[MARK]) as net:
        yield set_up(net)


def set_up(net: Network) -> Host:
    [host] = net.hosts.values()
    host.ok("gqd", "init", "--cluster", net.run_name, "--listen", "tcp://127.0.0.1:7999", "--node", "head")
    host.daemon("gqd", "--config", CONFIG_PATH).await_log("gqd is ready")
    host.daemon("gqnode", "--config", CONFIG_PATH, "--name", "head").await_log("is part of cluster")
    return host


def ids(host: Host, field: str) -> set[str]:
    """What /proc says of the process of gqd, each number once."""
    pid = host.ok("sh", "-c", "pgrep -x -o gqd || pgrep -o -f 'gqd --config'").strip()
    status = host.path(f"/proc/{pid}/status").read_text()
    return set(next(line for line in status.splitlines() if line.startswith(f"{field}:")).split()[1:])


@attack("Use a vulnerability of gqd to become root on the controller's host", REFUSED, NOTHING)
def test_use_a_vulnerability_of_gqd_to_become_root_on_the_controllers_host(head: Host) -> None:
    uid = head.ok("id", "-u", "gq").strip()

    assert uid != "0"
    assert (ids(head, "Uid"), ids(head, "NoNewPrivs")) == ({uid}, {"1"})
    assert ids(head, "CapEff") == ids(head, "CapPrm") == {"0000000000000000"}
    job = submit(head.user(ALICE), wrap="id -un")
    assert head.user(ALICE).run("gqwait", job).returncode == 0
    assert head.user(ALICE).ok("gqlog", job) == "alice\n"


@attack("Read a node daemon's files as the user of gqd", REFUSED, NOTHING)
def test_read_a_node_daemons_files_as_the_user_of_gqd(head: Host) -> None:
    for path in ("/var/lib/gq/keys", "/var/lib/gq/nodes/head", "/var/lib/gq/nodes"):
        assert "Permission denied" in head.run(*AS_GQ, "ls", path).stderr, path
    refused = head.run(*AS_GQ, "touch", "/run/gq/step-other.sock", "/var/lib/gq/x", "/etc/gq/x")
    assert refused.stderr.count("Permission denied") == 3


@attack("Be an administrator or a node as the user of gqd", REFUSED, "UpdateNodes: not_operator")
def test_be_an_administrator_or_a_node_as_the_user_of_gqd(head: Host) -> None:
    [identity] = json.loads(head.ok(*AS_GQ, "gqctl", "whoami", "--json"))
    assert (identity["user"], identity["role"]) == ("gq", "user")
    assert head.run(*AS_GQ, "gqctl", "node", "drain", "head", "--reason", "mine").returncode == 1
    assert head.run(*AS_GQ, "gqdel", submit(head.user(ALICE), "--hold", wrap="true")).returncode == 1
    assert "not_operator" in head.ok("gqctl", "audit", "--user", "gq")
    speaker = Speaker(Gq(head))
    try:
        line = speaker.dial("ipc:///run/gq/nodes.sock")
        say(line, hello("head"))
        answer = hear(line, within_s=1.0)
    finally:
        speaker.end()
    assert not isinstance(answer, node_wire.Welcome), answer


@attack("Make root end another process by a file that the user of gqd wrote", REFUSED, NOTHING)
def test_make_root_end_another_process_by_a_file_that_the_user_of_gqd_wrote(head: Host) -> None:
    victim = head.start("sleep", "600")
    wait_until(lambda: head.run("pgrep", "-x", "sleep").returncode == 0, what="the process runs")
    other = head.ok("pgrep", "-x", "sleep").split()[0]
    head.ok(*AS_GQ, "sh", "-c", f"cd /run/gq/controller; echo {other} > gqd.lock; echo {other} > gqd.pid")
    head.ok(*AS_GQ, "sh", "-c", f"cd /var/lib/gq/controller; echo {other} > gqd.pid")

    head.ok("gqd", "restart")

    assert victim.poll() is None
    wait_until(lambda: head.run("gqinfo").returncode == 0, LONG_S, "gqd answers again")
    head.ok("kill", other)
    victim.wait(10)
