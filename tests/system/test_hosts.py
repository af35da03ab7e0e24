"""A cluster of several hosts, each with a network and files of its own, set up as the manual says.

`a` runs gqd, `b` and `c` are nodes, from `d` users only look and submit, and `e` belongs to somebody else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters import wait_until
from tests.conftest import FAILED, MARK
from tests.integration.jobs import LONG_S, await_state, facts, node_facts, submit, why
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import (
    CONFIG_PATH,
    CONTROLLER_PORT,
    KEYS,
    STEP_PORT,
    SUBNET,
    SUBNET_6,
    WORKDIR,
    Host,
    HostCluster,
    Network,
    config_of,
    network,
)

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("hosts"),  # so that the cluster is set up once
    pytest.mark.timeout(300),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "small-cluster" / "gq.toml"
QUIET_TIMERS = "heartbeat_s = 1\nprepare_ack_s = 10\ngrace_s = 2\n"
SOON_S = 15.0
"""Less than what a request may be held that nobody remembers."""
BOTH = ("-N2", "--gpus-per-node=2")
RENDEZVOUS = """
import os, socket, sys, time
rank, size = int(os.environ["GQ_PROCID"]), int(os.environ["GQ_NTASKS"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(address) as server:
        for _ in range(size - 1):
            peer, (host, _) = server.accept()
            print(f"{peer.recv(100).decode()} from {host} to {address[0]}", flush=True)
            peer.sendall(b"welcome")
else:
    for _ in range(600):
        try:
            master = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    master.sendall(f"rank {rank} on {os.uname().nodename}".encode())
    assert master.recv(100) == b"welcome"
"""
SNIFFER = """
import socket, sys, threading
tokens, seen = [word.encode() for word in sys.argv[1:]], set()
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, 33, 2**26)
def look():
    while True:
        packet = tap.recv(2**17)
        seen.update(token for token in tokens if token in packet)
threading.Thread(target=look, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print(*sorted(token.decode() for token in seen))
"""


MakeNet = Callable[[Sequence[str]], Network]


def stand(
    net: Network, nodes: str, logins: str = "", timers: str = "", limits: str = "", away: str = ""
) -> HostCluster:
    """A cluster of these hosts; those that are `away` are in its gq.toml and have not joined."""
    cluster = HostCluster(net, config_of(net, nodes, logins, timers, limits))
    cluster.add_all([name for name in nodes + logins if name not in away])
    return cluster


@pytest.fixture(scope="module")
def net(pytestconfig: pytest.Config) -> Iterator[Network]:
    with network("abcde", pytestconfig.stash[MARK]) as net:
        yield net


@pytest.fixture(scope="module")
def _cluster(net: Network) -> HostCluster:
    return stand(net, "bc", logins="de", timers=QUIET_TIMERS, away="e")


@pytest.fixture
def cluster(request: pytest.FixtureRequest, _cluster: HostCluster) -> Iterator[HostCluster]:
    yield _cluster
    if request.node.stash.get(FAILED, False):
        print(_cluster.net.logs())


@pytest.fixture
def lone_net(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[MakeNet]:
    """`lone_net("abc")` → three hosts for one test alone."""
    with ExitStack() as stack:

        def make(names: Sequence[str]) -> Network:
            net = stack.enter_context(network(names, pytestconfig.stash[MARK]))
            stack.callback(lambda: print(net.logs()) if request.node.stash.get(FAILED, False) else None)
            return net

        yield make


def states(host: Host) -> dict[str, str]:
    return {node["node"]: node["state"] for node in json.loads(host.ok("gqinfo", "-N", "--json"))}


def await_text(host: Host, path: str, words: str) -> str:
    """Until a file of the host has these words; what is in it."""
    file = host.path(path)
    try:
        wait_until(lambda: file.exists() and words in file.read_text(), LONG_S)
    except AssertionError:
        there = repr(file.read_text()) if file.exists() else "nothing"
        raise AssertionError(f"{path} of {host.name} has not {words!r} but {there}") from None
    return file.read_text()


def go(*hosts: Host) -> None:
    """What the tasks of a job wait for."""
    for host in hosts:
        host.path(f"{WORKDIR}/go").touch()


@pytest.fixture(autouse=True)
def clean_desks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hosts that tests share have no files of the last one."""
    yield
    if "net" in request.fixturenames:
        for host in request.getfixturevalue("net").hosts.values():
            for path in host.path(WORKDIR).iterdir():
                path.unlink()


# ── the cluster stands ────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_of_other_hosts_register_and_a_login_host_is_none(cluster: HostCluster) -> None:
    assert states(cluster.head) == {"b": "IDLE", "c": "IDLE"}
    assert "GPUs 8/8 free" in cluster.head.ok("gqinfo")


def test_nothing_listens_but_the_doors_of_the_configuration(cluster: HostCluster) -> None:
    ports = {name: host.listening() for name, host in cluster.net.hosts.items()}
    assert ports == {"a": {CONTROLLER_PORT}, "b": {STEP_PORT}, "c": {STEP_PORT}, "d": set(), "e": set()}


@pytest.mark.parametrize("name", "ad")
def test_from_the_controllers_host_and_from_a_login_host_jobs_are_submitted_looked_at_and_cancelled(
    cluster: HostCluster, name: str
) -> None:
    host = cluster.net.hosts[name]
    runs = submit(host, "--gpus=1", wrap="sleep 600")
    held = submit(host, "-H", wrap="true")
    await_state(host, runs, "RUNNING")

    assert host.ok("gqstat", "-h", "-o", "%i %u %t").splitlines() == [f"{runs} root R", f"{held} root PD"]
    assert why(host, held)["reason"] == "JobHeldUser"

    host.ok("gqdel", runs, held)
    assert [await_state(host, job, "CANCELLED")["user"] for job in (runs, held)] == ["root", "root"]


def test_a_host_that_runs_jobs_speaks_for_nobody_who_has_none_there(cluster: HostCluster) -> None:
    refused = cluster.net.hosts["b"].run("gqsub", "--wrap", "true")

    assert refused.returncode == 1
    assert "node b cannot vouch for root: it is not a login node" in refused.stderr


def test_a_relayed_request_that_is_refused_says_why_as_anywhere(cluster: HostCluster) -> None:
    refused = cluster.net.hosts["d"].run("gqsub", "-N3", "--wrap", "true")

    assert refused.returncode == 1
    assert refused.stderr == cluster.head.run("gqsub", "-N3", "--wrap", "true").stderr != ""


# ── gangs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tasks_of_a_gang_meet_over_the_network(cluster: HostCluster) -> None:
    b, c, d = (cluster.net.hosts[name] for name in "bcd")
    for node in (b, c):
        node.path(f"{WORKDIR}/meet.py").write_text(RENDEZVOUS)
    job = submit(d, *BOTH, "--ntasks-per-node=2", wrap=f"gqrun {sys.executable} meet.py")

    await_state(d, job, "COMPLETED")
    lines = sorted(b.path(f"{WORKDIR}/gq-{job}.out").read_text().splitlines())
    assert lines == [
        f"rank 1 on b from {b.address} to {b.address}",
        f"rank 2 on c from {c.address} to {b.address}",
        f"rank 3 on c from {c.address} to {b.address}",
    ]


def test_every_task_is_told_the_addresses_of_all_nodes(cluster: HostCluster) -> None:
    b, c, d = (cluster.net.hosts[name] for name in "bcd")
    job = submit(d, *BOTH, wrap="gqrun -l sh -c 'echo $(hostname) $GQ_NODE_ADDRS $MASTER_ADDR $CUDA_VISIBLE_DEVICES'")

    await_state(d, job, "COMPLETED")
    facts_of_all = f"{b.address},{c.address} {b.address} 0,1"
    assert sorted(d.ok("gqlog", job).splitlines()) == [f"0: b {facts_of_all}", f"1: c {facts_of_all}"]


def test_output_of_another_host_arrives_while_the_task_runs_and_the_highest_code_is_the_jobs(
    cluster: HostCluster,
) -> None:
    b, c, d = (cluster.net.hosts[name] for name in "bcd")
    task = "echo began on $(hostname); while [ ! -e go ]; do sleep 0.1; done; exit $((3 + GQ_PROCID))"
    job = submit(d, *BOTH, "--kill-on-bad-exit=0", wrap=f"gqrun -l sh -c '{task}'")

    await_text(b, f"{WORKDIR}/gq-{job}.out", "1: began on c\n")
    await_text(b, f"{WORKDIR}/gq-{job}.out", "0: began on b\n")
    assert facts(d, job)["state"] == "RUNNING"
    go(b, c)

    assert d.run("gqwait", job).returncode == 4
    assert (facts(d, job)["state"], facts(d, job)["exit_code"]) == ("FAILED", 4)
    assert not c.path(f"{WORKDIR}/gq-{job}.out").exists()


def test_a_user_of_a_login_host_runs_tasks_on_the_nodes_and_types_to_them(cluster: HostCluster) -> None:
    d = cluster.net.hosts["d"]
    done = d.run(
        "gqrun", "-N2", "--label", "--input=all", "sh", "-c", "read word; echo $(hostname) $word", stdin="hello\n"
    )

    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: b hello", "1: c hello"]), done.stderr


def test_a_user_of_a_login_host_allocates_nodes_and_works_on_them_from_there(cluster: HostCluster) -> None:
    d = cluster.net.hosts["d"]
    done = d.run("gqalloc", *BOTH, "sh", "-c", "hostname; gqrun hostname; gqrun -N1 hostname; exit 3")

    assert done.returncode == 3, done.stderr
    here, first, second, alone = done.stdout.splitlines()
    assert (here, {first, second}, alone) == ("d", {"b", "c"}, "b")


def test_gqalloc_shows_the_jobs_gpus_on_its_nodes_and_none_elsewhere(cluster: HostCluster) -> None:
    d, c = cluster.net.hosts["d"], cluster.net.hosts["c"]
    other = submit(d, "-w", "c", wrap="sleep 600")  # a node that is no login host serves users who have a job there
    await_state(d, other, "RUNNING")
    command = ("gqalloc", "-w", "c", "--gpus=1", "sh", "-c", "echo $(hostname) [$CUDA_VISIBLE_DEVICES] ${GQ_CELL##*/}")

    outside, inside = d.run(*command), c.run(*command)

    assert outside.stdout == "d []\n", outside.stderr
    assert "this host is not a node of job" in outside.stderr
    assert inside.returncode == 0, inside.stderr
    job = inside.stderr.split("allocation ")[1].split()[0]
    assert inside.stdout == f"c [0] {job}.1.0\n"
    d.ok("gqdel", other)


def test_a_task_that_fails_on_another_host_gives_gqrun_its_code(cluster: HostCluster) -> None:
    done = cluster.net.hosts["d"].run("gqrun", "-N2", "sh", "-c", "[ $(hostname) = b ] || exit 9")
    assert done.returncode == 9, done.stderr


# ── output without a shared file system ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", "ad")
def test_output_is_shown_on_hosts_that_do_not_have_the_file(cluster: HostCluster, name: str) -> None:
    host = cluster.net.hosts[name]
    job = submit(cluster.net.hosts["d"], "-w", "c", wrap="seq 1 50000")
    await_state(host, job, "COMPLETED")

    assert host.ok("gqlog", job) == "".join(f"{number}\n" for number in range(1, 50001))
    assert not host.path(f"{WORKDIR}/gq-{job}.out").exists()


def test_a_file_of_another_host_that_only_has_the_same_name_is_not_shown(cluster: HostCluster) -> None:
    d = cluster.net.hosts["d"]
    job = submit(d, "-w", "c", wrap="echo ours")
    await_state(d, job, "COMPLETED")
    theirs = d.path(f"{WORKDIR}/gq-{job}.out")
    theirs.write_text("of another cluster\n")
    os.utime(theirs, (0, 0))

    assert d.ok("gqlog", job) == "ours\n"


@pytest.mark.slow
def test_output_that_no_node_shows_any_more_is_said_to_be_elsewhere(lone_net: MakeNet) -> None:
    net = lone_net("ab")
    a, b = net.hosts.values()
    stand(net, "b", timers=QUIET_TIMERS, limits="ended_job_keep_s = 1\n")
    job = submit(a, wrap="echo hello")
    await_state(a, job, "COMPLETED")
    wait_until(lambda: a.run("gqlog", job).returncode != 0, LONG_S, "the job has left memory")

    done = a.run("gqlog", job)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the output of job {job} is in {WORKDIR}/gq-{job}.out on node b, not on this host" in done.stderr
    assert a.run("gqlog", "-f", job).stderr == done.stderr
    assert b.path(f"{WORKDIR}/gq-{job}.out").read_text() == "hello\n"


@pytest.mark.parametrize("name", "ad")
def test_output_is_followed_from_the_queue_to_the_end_of_the_job(cluster: HostCluster, name: str) -> None:
    host, c = cluster.net.hosts[name], cluster.net.hosts["c"]
    script = "echo began; while [ ! -e go ]; do sleep 0.1; done; echo ends; exit 6"
    job = submit(host, "-H", "-w", "c", wrap=script)
    following = host.start("gqlog", "-f", job)
    assert following.stdout is not None
    host.ok("gqctl", "release", job)

    assert following.stdout.readline() == "began\n"
    assert following.poll() is None
    go(c)

    assert following.communicate(timeout=LONG_S)[0] == "ends\n"
    assert following.returncode == 6


# ── strangers ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stranger(cluster: HostCluster) -> Iterator[Host]:
    """A host that has the cluster's gq.toml and no keys; the cluster does not suffer from it."""
    host = cluster.net.hosts["e"]
    cluster.configure(host)
    yield host
    for daemon in host.daemons:
        daemon.kill()
    shutil.rmtree(host.path(KEYS))
    for path in cluster.head.path(KEYS).rglob("*e.*"):
        path.unlink()
    assert states(cluster.head) == {"b": "IDLE", "c": "IDLE"}
    job = submit(cluster.head, *BOTH, wrap="gqrun hostname")
    await_state(cluster.head, job, "COMPLETED")


@pytest.mark.slow
def test_a_host_with_an_unknown_key_is_kept_out_and_both_sides_say_so_until_the_key_is_added(
    cluster: HostCluster, stranger: Host
) -> None:
    stranger.ok("gqd", "keygen", "--node", "e")
    cluster.copy_key("gqd.pub", stranger)
    gqnode = cluster.start_gqnode(stranger)

    gqnode.await_log("does not accept this node's key")
    cluster.gqd.await_log(f"a host at {stranger.address} was rejected: its key is not known")
    assert "is part of cluster" not in gqnode.log

    shutil.copy(stranger.path(f"{KEYS}/nodes/e.pub"), cluster.head.path(f"{KEYS}/nodes"))
    gqnode.await_log("is part of cluster")
    stranger.ok("gqstat")


def test_a_host_that_has_another_key_of_the_controller_says_so(cluster: HostCluster, stranger: Host) -> None:
    cluster.new_keys("e")
    cluster.copy_key("node-e.key", stranger)
    stranger.ok("gqd", "keygen")
    gqnode = cluster.start_gqnode(stranger)

    gqnode.await_log("keys/gqd.pub")
    assert "is part of cluster" not in gqnode.log


def test_a_node_that_speaks_for_another_is_turned_away_and_both_sides_say_so(
    cluster: HostCluster, stranger: Host
) -> None:
    cluster.new_keys("e")
    cluster.copy_key("node-e.key", stranger, to="node-c.key")
    cluster.copy_key("gqd.pub", stranger)
    stranger.path(CONFIG_PATH).write_text(cluster.config.replace(f"{SUBNET}.3", stranger.address))
    gqnode = cluster.start_gqnode(stranger, "c")

    gqnode.await_log("this key belongs to node e, not to c")
    assert gqnode.process.wait(LONG_S) == 1
    cluster.gqd.await_log("was rejected: this key belongs to node e, not to c")


def test_a_second_host_with_the_keys_of_a_node_that_is_there_is_turned_away(
    cluster: HostCluster, stranger: Host
) -> None:
    cluster.copy_key("node-c.key", stranger)
    cluster.copy_key("gqd.pub", stranger)
    stranger.path(CONFIG_PATH).write_text(cluster.config.replace(f"{SUBNET}.3", stranger.address))
    gqnode = cluster.start_gqnode(stranger, "c")

    gqnode.await_log(f"node c is already connected from {cluster.net.hosts['c'].address}")
    assert gqnode.process.wait(LONG_S) == 1


def test_nothing_of_a_job_can_be_read_on_the_network(cluster: HostCluster) -> None:
    b, d = cluster.net.hosts["b"], cluster.net.hosts["d"]
    script, variable, task, open_word = "s3cret-script", "s3cret-variable", "s3cret-task", "not-a-secret"
    sniffer = cluster.net.start_on_switch(sys.executable, "-c", SNIFFER, script, variable, task, open_word)
    assert sniffer.stdout is not None and sniffer.stdout.readline() == "ready\n"
    text = f"#!/bin/sh\n# {script}\necho {script} $WORD\ngqrun echo {task}\n"

    job = submit(d, *BOTH, script=text, WORD=variable)
    await_state(d, job, "COMPLETED")
    assert d.ok("gqlog", job).splitlines() == [f"{script} {variable}", task, task]
    send = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'{open_word}', ('{d.address}', 9))"
    b.ok(sys.executable, "-c", send)

    seen, _ = sniffer.communicate(timeout=LONG_S)
    assert seen.split() == [open_word]


# ── broken links ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_goes_on_while_the_network_is_away_and_its_end_is_heard_after(cluster: HostCluster) -> None:
    b, d = cluster.net.hosts["b"], cluster.net.hosts["d"]
    job = submit(d, "--gpus=2", "-w", "b", wrap="echo began; while [ ! -e go ]; do sleep 0.1; done; echo ends; exit 7")
    await_text(b, f"{WORKDIR}/gq-{job}.out", "began")
    await_state(d, job, "RUNNING")  # the node's report may arrive after the output

    with cluster.net.without(b):
        cluster.nodes["b"].await_log("no message from the controller")
        go(b)
        await_text(b, f"{WORKDIR}/gq-{job}.out", "ends")
        assert facts(d, job)["state"] == "RUNNING"

    ended = await_state(d, job, "FAILED")
    assert (ended["exit_code"], ended["restart_count"]) == (7, 0)
    assert d.ok("gqlog", job) == "began\nends\n"


def test_a_step_goes_on_while_one_of_its_hosts_is_cut_off_and_no_output_is_lost(cluster: HostCluster) -> None:
    b, c, d = (cluster.net.hosts[name] for name in "bcd")
    task = "echo began; while [ ! -e go ]; do sleep 0.1; done; seq 1 20000; touch written"
    job = submit(d, *BOTH, wrap=f"gqrun -l sh -c '{task}'")
    await_text(b, f"{WORKDIR}/gq-{job}.out", "1: began")

    with cluster.net.without(c):
        cluster.nodes["c"].await_log("no message from the controller")
        go(b, c)
        wait_until(lambda: b.path(f"{WORKDIR}/written").exists(), LONG_S)

    assert d.run("gqwait", job).returncode == 0
    lines = b.path(f"{WORKDIR}/gq-{job}.out").read_text().splitlines()
    wanted = ["began", *map(str, range(1, 20001))]
    for rank in "01":
        assert [line.removeprefix(f"{rank}: ") for line in lines if line.startswith(f"{rank}: ")] == wanted


@pytest.mark.slow
def test_a_controller_that_was_killed_finds_its_nodes_and_jobs_again(lone_net: MakeNet) -> None:
    net = lone_net("abcd")
    b, c, d = (net.hosts[name] for name in "bcd")
    cluster = stand(net, "bc", logins="d", timers=QUIET_TIMERS)
    task = "echo began; while [ ! -e go ]; do sleep 0.1; done; echo ends on $(hostname)"
    job = submit(d, *BOTH, wrap=f"gqrun sh -c '{task}'")
    wait_until(lambda: d.ok("gqlog", job) == "began\nbegan\n", LONG_S)

    waiting = d.start("gqwait", job)
    wait_until(lambda: d.callers() > 0, LONG_S, "gqwait is at the door")
    cluster.gqd.kill()
    cluster.gqd = cluster.start_gqd()
    wait_until(lambda: states(cluster.head) == {"b": "MIXED", "c": "MIXED"}, LONG_S)
    assert facts(d, job)["state"] == "RUNNING"
    go(b, c)

    waiting.communicate(timeout=SOON_S)
    assert waiting.returncode == 0
    assert sorted(d.ok("gqlog", job).splitlines()) == ["began", "began", "ends on b", "ends on c"]
    assert facts(d, job)["restart_count"] == 0


@pytest.mark.slow
def test_a_node_daemon_that_is_killed_during_a_step_takes_it_up_again_and_no_output_is_lost(
    lone_net: MakeNet,
) -> None:
    net = lone_net("abcd")
    b, c, d = (net.hosts[name] for name in "bcd")
    cluster = stand(net, "bc", logins="d", timers=QUIET_TIMERS)
    running = d.start("gqrun", "-N2", "-l", "sh", "-c", "echo began; while [ ! -e go ]; do sleep 0.1; done; seq 20000")
    assert running.stdout is not None
    assert sorted(running.stdout.readline() for _ in range(2)) == ["0: began\n", "1: began\n"]

    cluster.nodes["c"].kill()
    go(b, c)
    cluster.nodes["c"].start_again().await_log("is part of cluster")

    lines = [line for line in running.communicate(timeout=LONG_S)[0].splitlines() if line[:3] in ("0: ", "1: ")]
    assert running.returncode == 0
    for rank in "01":
        assert [line[3:] for line in lines if line[0] == rank] == [str(number) for number in range(1, 20001)]


@pytest.mark.slow
def test_a_host_that_lost_power_is_a_node_again_and_its_jobs_are_lost_or_begin_anew(lone_net: MakeNet) -> None:
    net = lone_net("abc")
    a, b, _ = net.hosts.values()
    cluster = stand(net, "bc", timers=QUIET_TIMERS)
    command = "echo began; while [ ! -e go ]; do sleep 0.1; done"
    again = submit(a, "-w", "b", "--gpus=1", "--requeue", wrap=command)
    lost = submit(a, "-w", "b", "--gpus=1", "--no-requeue", wrap=command)
    gang = submit(a, *BOTH, "--no-requeue", wrap=f"gqrun sh -c '{command}'")
    for job in (again, lost, gang):
        await_state(a, job, "RUNNING")

    b.power_cut()
    cluster.nodes["b"] = cluster.start_gqnode(b)

    for job in (lost, gang):
        assert await_state(a, job, "NODE_FAIL")["restart_count"] == 0
    wait_until(lambda: facts(a, again)["restart_count"] == 1, LONG_S)
    await_state(a, again, "RUNNING")
    go(b)
    await_state(a, again, "COMPLETED")
    assert states(a) == {"b": "IDLE", "c": "IDLE"}


OF_ONE_ATTEMPT = """#!/bin/sh
trap '' TERM
if [ -e last ] && kill -0 "$(cat last)" 2>/dev/null; then echo overlaps; else echo alone; fi
echo $$ > last
while [ ! -e go ]; do sleep 0.1; done
"""


@pytest.mark.slow
def test_a_host_that_was_lost_ends_its_old_processes_before_its_gpus_are_given_again(lone_net: MakeNet) -> None:
    net = lone_net("abc")
    a, b, _ = net.hosts.values()
    stand(net, "bc", timers="heartbeat_s = 0.5\nnode_lost_s = 5\nprepare_ack_s = 10\ngrace_s = 1\n")
    keeps = submit(a, "-w", "b", "--gpus=2", "--requeue", script=OF_ONE_ATTEMPT)
    gives_up = submit(a, "-w", "b", "--gpus=1", "--no-requeue", wrap="trap '' TERM; echo $$ > given-up; sleep 600")
    gang = submit(a, "-N2", "--gpus-per-node=1", "--requeue", wrap="trap '' TERM; gqrun sleep 600")
    for job in (keeps, gives_up, gang):
        await_state(a, job, "RUNNING")
    await_text(b, f"{WORKDIR}/given-up", "\n")

    with net.without(b):
        wait_until(lambda: states(a)["b"].startswith("DOWN"), LONG_S, "b is lost")
        assert facts(a, gives_up)["state"] == "NODE_FAIL"
        assert facts(a, keeps)["state"] == "PENDING"
        a.ok("gqdel", gang)
        await_state(a, gang, "CANCELLED")
        wait_until(lambda: node_facts(a, "c")["cpus_free"] == 16, LONG_S, "c has ended its part")
        everything = submit(a, "-w", "b", "--gpus=4", wrap="true")
        assert b.run("sh", "-c", "kill -0 $(cat last given-up)").returncode == 0, "b cannot know"

    running = await_state(a, keeps, "RUNNING")
    assert running["restart_count"] == 1
    assert "overlaps" not in await_text(b, f"{WORKDIR}/gq-{keeps}.out", "DUE TO JOB REQUEUE ***\nalone\n")
    assert b.run("sh", "-c", "kill -0 $(cat given-up)").returncode != 0
    assert facts(a, everything)["state"] == "PENDING"
    go(b)
    await_state(a, everything, "COMPLETED")
    assert facts(a, keeps)["state"] == "COMPLETED"
    assert states(a) == {"b": "IDLE", "c": "IDLE"}


# ── what is configured is what there is ───────────────────────────────────────────────────────────────────────


def test_a_cluster_without_tcp_in_its_configuration_binds_no_port(lone_net: MakeNet) -> None:
    net = lone_net("a")
    [a] = net.hosts.values()
    a.path(CONFIG_PATH).parent.mkdir()
    a.path(CONFIG_PATH).write_text(f'cluster = "{net.run_name}"\n[access]\nroot_jobs = true\n[[node]]\nname = "a"\n')
    a.daemon("gqd", "--config", CONFIG_PATH).await_log("gqd is ready")
    a.daemon("gqnode", "--config", CONFIG_PATH, "--name", "a").await_log("is part of cluster")
    job = submit(a, wrap="gqrun sh -c 'echo began; while [ ! -e go ]; do sleep 0.1; done'")
    await_text(a, f"{WORKDIR}/gq-{job}.out", "began")

    assert a.listening() == set()
    go(a)
    await_state(a, job, "COMPLETED")


@pytest.mark.slow
def test_hosts_may_speak_ipv6_listen_on_every_interface_and_be_called_by_name(lone_net: MakeNet) -> None:
    net = lone_net("abc")
    config = config_of(net, "bc", timers=QUIET_TIMERS).replace(f'listen = "tcp://{SUBNET}.1', 'listen = "tcp://*')
    head_by_ipv6, head_by_name = f"[{SUBNET_6}:1]", "a"
    config = config.replace(f'controller = "tcp://{SUBNET}.1', f'controller = "tcp://{head_by_ipv6}', 1)
    config = config.replace(f'controller = "tcp://{SUBNET}.1', f'controller = "tcp://{head_by_name}', 1)
    config = config.replace(f"tcp://{SUBNET}.2:{STEP_PORT}", f"tcp://[{SUBNET_6}:2]:{STEP_PORT}")
    config = config.replace(f"tcp://{SUBNET}.3:{STEP_PORT}", f"tcp://0.0.0.0:{STEP_PORT}")
    for host in ("*", head_by_ipv6, head_by_name, f"[{SUBNET_6}:2]", "0.0.0.0"):
        assert config.count(f"tcp://{host}:") == 1
    cluster = HostCluster(net, config)
    cluster.add_all("bc")

    job = submit(cluster.head, *BOTH, wrap="gqrun hostname")
    await_state(cluster.head, job, "COMPLETED")
    assert sorted(cluster.head.ok("gqlog", job).splitlines()) == ["b", "c"]


@pytest.mark.slow
def test_the_example_of_a_small_cluster_works_as_it_lies_there(lone_net: MakeNet) -> None:
    net = lone_net(("head", "g1", "g2"))
    config = EXAMPLE.read_text().replace("10.0.0.", f"{SUBNET}.").replace('"lab"', f'"{net.run_name}"')
    cluster = HostCluster(net, config)
    cluster.add_all(("g1", "g2"))

    alice = cluster.head.user(ALICE)
    job = submit(alice, "-N2", wrap="gqrun hostname")
    await_state(cluster.head, job, "COMPLETED")
    assert sorted(alice.ok("gqlog", job).splitlines()) == ["g1", "g2"]
    quick = submit(alice, "-p", "quick", wrap="hostname")
    await_state(cluster.head, quick, "COMPLETED")
    assert alice.ok("gqlog", quick) == "g1\n"
