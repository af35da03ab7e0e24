"""From nothing to jobs of two users on two nodes, by the documented commands only: what the README promises."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import pytest

from gq.host.job_tmp import own_programs
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, await_state, facts, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB
from tests.system.hosts import CONFIG_PATH, Host, Network
from tests.system.test_hosts import SNIFFER
from tests.test_readme import blocks

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(300),
]

MakeNet = Callable[[Sequence[str]], Network]
JOIN = ("gqnode", "join", "tcp://head:7133", "--start")


def states(head: Host) -> dict[str, str]:
    return {node["node"]: node["state"] for node in json.loads(head.ok("gqinfo", "-N", "--json"))}


def set_up(net: Network) -> list[Host]:
    """The README: one command on each host, with a token in a file, and one in a pipe."""
    head, first, second = net.hosts.values()
    head.ok("gqd", "init", "--start", "--cluster", net.run_name)
    first.ok("sh", "-c", "umask 077; cat > token", stdin=head.path("/var/lib/gq/token").read_text())
    first.ok(*JOIN, "--token-file", "token")
    second.ok(*JOIN, stdin=head.ok("gqctl", "token", "create"))
    wait_until(lambda: states(head) == {"n1": "IDLE", "n2": "IDLE"}, LONG_S, "both nodes are idle")
    return [head, first, second]


def test_three_commands_lead_to_a_job_of_two_nodes_that_runs_as_its_user(net: MakeNet) -> None:
    hosts = net(("head", "n1", "n2"))
    head, first, second = set_up(hosts)
    alice, bob = head.user(ALICE), head.user(BOB)

    ours = submit(alice, "-N2", wrap="gqrun sh -c 'echo $(id -un) on $(hostname)'")
    theirs = submit(bob, "-N2", wrap="gqrun sh -c 'echo $(id -un) on $(hostname)'")

    for user, job, name in ((alice, ours, "alice"), (bob, theirs, "bob")):
        assert user.run("gqwait", job).returncode == 0
        lines = sorted(user.ok("gqlog", job).splitlines())
        assert lines == [f"{name} on n1", f"{name} on n2"]
    refused = bob.run("gqlog", ours)
    assert refused.returncode == 1 and "alice" not in refused.stdout
    outputs = [host.user(ALICE).path(f"gq-{ours}.out") for host in (first, second)]
    [written] = [path for path in outputs if path.exists()]
    assert (written.stat().st_uid, written.stat().st_gid) == (ALICE.uid, ALICE.uid)


def test_the_commands_of_the_readme_set_up_a_cluster_for_a_team(net: MakeNet) -> None:
    """The lines as printed; ``| ssh root@g1`` becomes standard input of the rest, on that host."""
    hosts = net(("head", "g1", "g2"))
    head = hosts.hosts["head"]
    [_, set_up_lines, [submission]] = blocks("A cluster for your team")
    for line in set_up_lines:
        here, _, there = line.removeprefix("# ").partition(" | ssh root@")
        output = head.ok(*here.split(), *(["--cluster", hosts.run_name] if " init " in here else []))
        if there:
            name, *command = there.split()
            hosts.hosts[name].ok(*command, stdin=output)
            _add_gpus(hosts.hosts[name], 8)
    wait_until(lambda: _idle_gpus(head) == {"g1": 8, "g2": 8}, LONG_S, "both nodes have their GPUs")
    alice = head.user(ALICE)
    alice.path("train.sh").write_text("#!/bin/sh\ngqrun sh -c 'echo $(id -un) on $(hostname)'\n")

    assert alice.ok(*submission.removeprefix("$ ").split()) == "Submitted batch job 1\n"

    assert alice.run("gqwait", "1").returncode == 0
    assert sorted(alice.ok("gqlog", "1").splitlines()) == ["alice on g1", "alice on g2"]


def _add_gpus(host: Host, count: int) -> None:
    """Simulate GPUs on a node that has none: its daemon starts again with them."""
    settings = host.path(CONFIG_PATH)
    settings.write_text(settings.read_text() + "[[node.fake_gpu]]\n" * count)
    host.ok("sh", "-c", "kill $(cat /var/lib/gq/gqnode.pid)")
    host.daemon("gqnode", "--config", CONFIG_PATH)


def _idle_gpus(head: Host) -> dict[str, int]:
    nodes = json.loads(head.ok("gqinfo", "-N", "--json"))
    return {node["node"]: len(node["gpus"]) for node in nodes if node["state"] == "IDLE"}


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong_with_hosts_that_were_set_up_so(net: MakeNet) -> None:
    for host in set_up(net(("head", "n1", "n2"))):
        found = host.run("gq", "doctor", "--json")
        wrong = [line for line in json.loads(found.stdout) if line["verdict"] == "fail"]
        assert (found.returncode, wrong) == (0, []), host.name


@pytest.mark.slow
def test_nothing_of_a_script_or_a_token_can_be_read_on_the_network(net: MakeNet) -> None:
    hosts = net(("head", "n1", "n2"))
    words = ("s3cret-script", "s3cret-variable", "s3cret-task", "gqj1", "not-a-secret")
    sniffer = hosts.start_on_switch(sys.executable, "-c", SNIFFER, *words)
    assert sniffer.stdout is not None and sniffer.stdout.readline() == "ready\n"
    head, first, _ = set_up(hosts)
    alice = head.user(ALICE)

    script = "#!/bin/sh\n# s3cret-script\necho $WORD\ngqrun echo s3cret-task\n"
    job = submit(alice, "-N2", script=script, WORD="s3cret-variable")
    assert alice.run("gqwait", job).returncode == 0
    assert alice.ok("gqlog", job).splitlines() == ["s3cret-variable", "s3cret-task", "s3cret-task"]
    send = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'not-a-secret', ('{head.address}', 9))"
    first.ok(sys.executable, "-c", send)

    seen, _ = sniffer.communicate(timeout=LONG_S)
    assert seen.split() == ["not-a-secret"]


@pytest.mark.slow
def test_one_host_alone_is_a_cluster_for_its_users(net: MakeNet) -> None:
    hosts = net(("head",))
    [head] = hosts.hosts.values()
    head.ok("gqd", "init", "--start", "--node=head", "--cluster", hosts.run_name)
    alice = head.user(ALICE)

    job = submit(alice, wrap="id -un; gqrun id -un")

    assert alice.run("gqwait", job).returncode == 0
    assert alice.ok("gqlog", job) == "alice\nalice\n"


@pytest.mark.slow
def test_the_next_job_finds_nothing_in_tmp_and_shm_of_the_last_one(net: MakeNet) -> None:
    hosts = net(("head",))
    [head] = hosts.hosts.values()
    head.ok("gqd", "init", "--start", "--node=head", "--cluster", hosts.run_name)
    alice, bob = head.user(ALICE), head.user(BOB)

    first = submit(alice, wrap="echo mine > /tmp/left; echo mine > /dev/shm/left; cat /tmp/left /dev/shm/left")
    assert alice.run("gqwait", first).returncode == 0
    second = submit(bob, wrap="ls -A /tmp /dev/shm")
    assert bob.run("gqwait", second).returncode == 0

    assert alice.ok("gqlog", first) == "mine\nmine\n"
    kept = [place.split("/")[2] for place in own_programs()]  # where gq's own commands are shows
    assert bob.ok("gqlog", second).split() == ["/dev/shm:", "/tmp:", *kept]
    assert not head.path("/tmp/left").exists() and not head.path("/dev/shm/left").exists()
    assert json.loads(head.ok("gqinfo", "-N", "--json"))[0]["isolation"]["tmp"] == "private"


@pytest.mark.slow
def test_from_a_login_host_users_submit_and_nothing_runs_there(net: MakeNet) -> None:
    hosts = net(("head", "n1", "login"))
    head, first, login = hosts.hosts.values()
    head.ok("gqd", "init", "--start", "--cluster", hosts.run_name)
    first.ok(*JOIN, stdin=head.ok("gqctl", "token", "create"))
    login.ok(*JOIN, stdin=head.ok("gqctl", "token", "create", "--login", "--node-name=login"))
    alice = login.user(ALICE)

    job = submit(alice, wrap="hostname; gqrun hostname")

    assert alice.run("gqwait", job).returncode == 0
    assert alice.ok("gqlog", job) == "n1\nn1\n"
    assert states(head) == {"n1": "IDLE"}
    assert json.loads(alice.ok("gqctl", "whoami", "--json"))[0]["origin"] == "node login"


@pytest.mark.slow
def test_a_node_that_is_removed_is_out_at_once_and_its_jobs_with_it(net: MakeNet) -> None:
    hosts = net(("head", "n1", "n2"))
    head, first, _ = set_up(hosts)
    alice = head.user(ALICE)
    job = submit(alice, "-w", "n1", "--no-requeue", wrap="sleep 600")
    await_state(alice, job, "RUNNING")

    head.ok("gqctl", "node", "remove", "n1", "--reason=sold")

    assert states(head) == {"n2": "IDLE"}
    assert facts(alice, job)["state"] == "NODE_FAIL"
    turned_away = "does not accept this node's key"
    wait = f'for i in $(seq 100); do grep -q "{turned_away}" /tmp/said && break; sleep 0.2; done'
    again = first.run("sh", "-c", f"gqnode --config /etc/gq/gq.toml 2>/tmp/said & {wait}; kill $!; wait; cat /tmp/said")
    assert turned_away in again.stdout
    trail = json.loads(head.ok("gqctl", "audit", "--action=RemoveNode", "--json"))
    assert [(line["user"], line["object"], line["outcome"]) for line in trail] == [("root", "node n1", "done")]
    assert [key["name"] for key in json.loads(head.ok("gqctl", "key", "show", "--json"))] == ["n2"]
