"""The procedures of gq-admin(7), run as printed on hosts of their own."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable, Sequence

import pytest

from tests.clusters import wait_until
from tests.install.test_whole_way import states
from tests.integration.jobs import LONG_S, await_state, facts, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import CONFIG_PATH, Host, Network, User
from tests.test_documents import section

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(300),
]

MakeNet = Callable[[Sequence[str]], Network]
BACKUP = "/tmp/gq-backup"
"""In the place of the page's directory, which the hosts would share with this machine."""
STAND_INS = r"""
halt() {
    [ -f /var/lib/gq/$1.pid ] || return 0
    pid=$(cat /var/lib/gq/$1.pid); kill $pid
    for i in $(seq 300); do grep -q gq /proc/$pid/cmdline 2>/dev/null || break; sleep 0.1; done
    rm -f /var/lib/gq/$1.pid
}
begin() { setsid $1 --config /etc/gq/gq.toml > /var/log/$1.log 2>&1 </dev/null & echo $! > /var/lib/gq/$1.pid; }
act() {
    program=$1; shift
    case "$*" in
    stop) halt $program ;;
    start) begin $program ;;
    restart) halt $program; begin $program ;;
    *) command $program "$@" ;;
    esac
}
gqd() { act gqd "$@"; }
gqnode() { act gqnode "$@"; }
"""
"""The hosts have no service manager: shell functions that stop, start and restart a daemon in its place."""


def script(title: str, number: int = 0) -> str:
    """A block of commands of a section of the page."""
    blocks = re.findall(r"^\.Bd -literal -offset indent\n(.*?)^\.Ed", section("gq-admin.7", title), re.M | re.S)
    return str(blocks[number]).replace(r"\e", "\\").replace("/root/gq-backup", BACKUP)


def play(host: Host, text: str) -> None:
    host.ok("sh", "-euc", STAND_INS + text)


def without(text: str, *words: str) -> str:
    """The commands that contain none of the words."""
    return "\n".join(line for line in text.splitlines() if not any(word in line for word in words))


def set_up(net: Network) -> tuple[Host, Host, User]:
    """`head` runs the controller, `n1` is a node; the user sits on `head`."""
    head, node = net.hosts["head"], net.hosts["n1"]
    head.ok("gqd", "init", "--start", "--cluster", net.run_name)
    node.ok("gqnode", "join", "tcp://head:7133", "--start", stdin=head.ok("gqctl", "token", "create"))
    wait_until(lambda: states(head) == {"n1": "IDLE"}, LONG_S, "the node is idle")
    return head, node, head.user(ALICE)


@pytest.mark.slow
def test_a_restored_controller_knows_the_jobs_of_the_backup_and_keeps_those_that_run(net: MakeNet) -> None:
    head, _, alice = set_up(net(("head", "n1")))
    running = submit(alice, wrap="sleep 600")
    await_state(alice, running, "RUNNING")
    play(head, script("BACKUP"))
    later = submit(alice, wrap="sleep 600")
    await_state(alice, later, "RUNNING")

    play(head, script("RESTORE"))
    wait_until(lambda: head.run("gqinfo").returncode == 0, LONG_S, "the controller answers")

    assert facts(alice, running)["state"] == "RUNNING"
    assert submit(alice, "--hold", wrap="true") == later, "the id is issued again"
    for path, mode in {"gq.db": 0o600, "blobs.db": 0o600, "keys": 0o700, "keys/gqd.key": 0o600}.items():
        assert stat.S_IMODE(head.path(f"/var/lib/gq/controller/{path}").stat().st_mode) == mode, path
    wait_until(lambda: states(head)["n1"] == "MIXED", LONG_S, "the node is back and runs the first job")
    assert head.ok("gq", "doctor", "--json").count('"fail"') == 0
    alice.ok("gqdel", running)
    await_state(alice, running, "CANCELLED")


@pytest.mark.slow
def test_running_jobs_continue_while_the_controller_moves_to_another_host(net: MakeNet) -> None:
    hosts = net(("head", "n1", "head2"))
    head, node, alice = set_up(hosts)
    new = hosts.hosts["head2"]
    job = submit(alice, wrap="until [ -e go ]; do sleep 0.1; done; echo ready")
    await_state(alice, job, "RUNNING")

    play(head, script("MOVING THE CONTROLLER") + script("BACKUP"))
    shutil.copytree(head.path(BACKUP), new.path(BACKUP))
    play(new, without(script("RESTORE"), "gqd stop", "mv ", "gqd start"))
    settings = new.path(CONFIG_PATH)
    settings.write_text(settings.read_text().replace('address = "head"', 'address = "head2"'))
    play(new, "gqd start")
    wait_until(lambda: new.run("gqinfo").returncode == 0, LONG_S, "the new controller answers")
    play(node, script("MOVING THE CONTROLLER", 1))

    moved = new.user(ALICE)
    wait_until(lambda: states(new) == {"n1": "MIXED"}, LONG_S, "the node has found the new controller")
    assert facts(moved, job)["state"] == "RUNNING"
    node.user(ALICE).path("go").touch()
    assert moved.run("gqwait", job).returncode == 0
    assert moved.ok("gqlog", job) == "ready\n"
    second = submit(moved, wrap="hostname")
    assert moved.run("gqwait", second).returncode == 0
    assert moved.ok("gqlog", second) == "n1\n"


@pytest.mark.slow
def test_nothing_of_a_cluster_is_left_after_it_was_uninstalled(net: MakeNet) -> None:
    head, node, alice = set_up(net(("head", "n1")))
    job = submit(alice, wrap="sleep 600")
    await_state(alice, job, "RUNNING")

    on_node, on_head, remove = (script("UNINSTALL", number) for number in range(3))
    play(node, on_node + remove)
    play(head, on_head + remove)

    for host in (head, node):
        for path in ("/etc/gq", "/var/lib/gq", "/var/log/gq", "/run/gq"):
            assert not host.path(path).exists(), f"{path} on {host.name}"
        assert host.run("pgrep", "-f", "[-]m gq(d|node) ").stdout == ""


@pytest.mark.slow
def test_a_node_is_drained_resumed_and_removed_as_the_page_says(net: MakeNet) -> None:
    head, node, _ = set_up(net(("head", "n1")))
    drain, resume = script("ADDING AND REMOVING HOSTS", 1).replace("g1", "n1").splitlines()
    leave, remove = script("ADDING AND REMOVING HOSTS", 2).replace("g1", "n1").splitlines()

    play(head, drain)
    assert states(head) == {"n1": "DRAINED"}
    play(head, resume)
    assert states(head) == {"n1": "IDLE"}
    play(node, leave)
    play(head, remove)

    assert states(head) == {}
