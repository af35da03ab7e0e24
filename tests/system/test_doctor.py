"""`gq doctor` on the hosts of a shared cluster: each fault is planted, found by name, mended by what is printed.

`a` runs gqd, `b` is a node.  A mend is executed as it is printed; what begins with ``on the controller:`` is, there.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest

from gq.cli.gq import doctor
from tests.clusters import wait_until
from tests.conftest import FAILED, MARK
from tests.integration.jobs import LONG_S
from tests.munge import munged_argv
from tests.requires import needs_munge, needs_program, needs_root
from tests.system.accounts import ALICE, EVERYBODY, Account
from tests.system.hosts import (
    CONFIG_PATH,
    CONTROLLER_PORT,
    KEYS,
    STEP_PORT,
    Host,
    HostCluster,
    config_of,
    network,
)
from tests.system.site import ACCOUNTS as ACCOUNTS_OF_SITE
from tests.system.site import DIRECTORY, set_up_site
from tests.system.site import NAMES as NAMES_OF_SITE

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("doctor"),  # so that the cluster is set up once
    pytest.mark.timeout(120),
]

TIMERS = "heartbeat_s = 1\nprepare_ack_s = 10\ngrace_s = 2\n"
WELL_WITHIN_S = 20.0
ON_CONTROLLER = "on the controller: "


class Found(NamedTuple):
    check: str
    message: str
    mend: str


@pytest.fixture(scope="module")
def _cluster(pytestconfig: pytest.Config) -> Iterator[HostCluster]:
    with stand(pytestconfig.stash[MARK]) as cluster:
        for host in cluster.net.hosts.values():
            assert lasting_failures(host) == []
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest, _cluster: HostCluster) -> Iterator[HostCluster]:
    """A cluster that the tests share: each of them leaves it as well as it was."""
    yield _cluster
    if request.node.stash.get(FAILED, False):
        print(_cluster.net.logs())


@contextmanager
def stand(mark: str) -> Iterator[HostCluster]:
    with network("ab", mark) as net:
        cluster = HostCluster(net, config_of(net, "b", timers=TIMERS))
        cluster.add("b")
        net.hosts["b"].path(KEYS).chmod(0o700)  # made by hand here, and not by anything of gq
        yield cluster


@pytest.fixture(scope="module")
def at_login(pytestconfig: pytest.Config) -> Iterator[HostCluster]:
    """With a login host `d`, which knows alice by another number, and eve, whom the controller does not know."""
    others = tuple(one for one in EVERYBODY if one is not ALICE)
    accounts = {"d": (Account("alice", 2900), Account("eve", 2666), *others)}
    with network("abd", pytestconfig.stash[MARK], accounts) as net:
        cluster = HostCluster(net, config_of(net, "b", logins="d", timers=TIMERS))
        cluster.add_all("bd")
        for name in "bd":
            net.hosts[name].path(KEYS).chmod(0o700)
        yield cluster


@pytest.fixture
def a(cluster: HostCluster) -> Host:
    return cluster.net.hosts["a"]


@pytest.fixture
def b(cluster: HostCluster) -> Host:
    return cluster.net.hosts["b"]


def failures(host: Host) -> list[Found]:
    """What the doctor calls a failure; its exit status says the same."""
    done = host.run("gq", "doctor", "--json")
    assert done.stderr == ""
    found = [
        Found(one["check"], one["message"], one["mend"]) for one in json.loads(done.stdout) if one["verdict"] == "fail"
    ]
    assert done.returncode == (1 if found else 0)
    return found


def the_failure(host: Host, check: str, words: str) -> Found:
    """The one of this name that says so."""
    found = failures(host)
    mine = [one for one in found if one.check == check and words in one.message]
    assert len(mine) == 1, found
    assert mine[0].mend
    return mine[0]


def mend(host: Host, found: Found, controller: Host | None = None) -> None:
    """Type what it says, where it says."""
    line, where = found.mend, host
    if line.startswith(ON_CONTROLLER):
        assert controller is not None
        line, where = line.removeprefix(ON_CONTROLLER), controller
    where.ok("sh", "-c", line)


def lasting_failures(host: Host) -> list[Found]:
    """Those that do not pass: daemons that were just started may take a moment."""
    found: list[Found] = []

    def is_well() -> bool:
        found[:] = failures(host)
        return not found

    with suppress(AssertionError):
        wait_until(is_well, WELL_WITHIN_S)
    return found


def edit(host: Host, old: str, new: str) -> None:
    """In the host's gq.toml."""
    path = host.path(CONFIG_PATH)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def end(host: Host, program: str) -> None:
    """End a daemon, whoever started it."""
    pattern = f"(bin/|[-]m ){program} "
    host.run("pkill", "-f", pattern)
    wait_until(lambda: host.run("pgrep", "-f", pattern).returncode != 0, LONG_S, f"{program} has ended")


def again(host: Host, program: str) -> None:
    """End a daemon, whoever started it, and start it as the test's own."""
    end(host, program)
    words = ("--name", host.name) if program == "gqnode" else ()
    daemon = host.daemon(program, "--config", CONFIG_PATH, *words)
    daemon.await_log("is part of cluster" if program == "gqnode" else "gqd is ready")


# ── well ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_doctor_is_content_with_hosts_that_are_well_and_asks_what_it_says(cluster: HostCluster) -> None:
    seen: set[str] = set()
    for host in cluster.net.hosts.values():
        seen |= {one["check"] for one in json.loads(host.ok("gq", "doctor", "--json"))}
    assert seen >= {
        "python", "config", "role", "files", "keys", "disk", "shm", "home", "gqd", "gqnode", "name", "listen",
        "network", "steps", "answer", "identity", "clock", "version", "node b", "isolation", "gpus",
    }  # fmt: skip
    assert "all is well" in cluster.head.ok("gq", "doctor") or "warning" in cluster.head.ok("gq", "doctor")


def test_an_ordinary_user_may_ask_the_doctor_too(cluster: HostCluster) -> None:
    done = cluster.head.user(ALICE).run("gq", "doctor")
    assert done.returncode == 0, done.stdout
    assert "what only root may see, were not looked at" in done.stdout


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "mode", "check", "words"),
    [
        (CONFIG_PATH, 0o666, "config", "others than root may write to /etc/gq/gq.toml"),
        ("/etc/gq", 0o775, "config", "others than root may write to /etc/gq"),
        ("/var/lib/gq", 0o700, "files", "users cannot pass through /var/lib/gq"),
        ("/var/lib/gq", 0o777, "files", "others than root may write to /var/lib/gq"),
        ("/run/gq", 0o700, "files", "users cannot pass through /run/gq"),
        (KEYS, 0o755, "secrets", f"others may enter {KEYS}"),
        (f"{KEYS}/gqd.key", 0o644, "secrets", f"others may read {KEYS}/gqd.key"),
        ("/var/lib/gq/gq.db", 0o644, "secrets", "others may read /var/lib/gq/gq.db"),
    ],
)
def test_a_wrong_mode_is_found_and_mended(a: Host, path: str, mode: int, check: str, words: str) -> None:
    a.path(path).chmod(mode)

    mend(a, the_failure(a, check, words))

    assert lasting_failures(a) == []


def test_a_configuration_of_another_owner_is_found_and_mended(b: Host) -> None:
    shutil.chown(b.path(CONFIG_PATH), 2001, 2001)

    mend(b, the_failure(b, "config", "belongs to user alice"))

    assert lasting_failures(b) == []


def test_a_typing_error_in_the_configuration_is_found_and_the_hint_names_the_word(a: Host) -> None:
    edit(a, "heartbeat_s", "hartbeat_s")

    found = the_failure(a, "config", "`timers.hartbeat_s` is not a setting of [timers]")
    assert found.mend.startswith("did you mean `heartbeat_s`?")
    edit(a, "hartbeat_s", "heartbeat_s")

    assert lasting_failures(a) == []


def test_a_role_for_somebody_who_does_not_exist_is_found_and_mended(a: Host, b: Host) -> None:
    edit(a, "[access]\n", '[access]\noperators = ["carol", "nosuchuser"]\n')

    mend(a, the_failure(a, "access", "`nosuchuser` in [access] operators is no user of this host"))

    assert 'operators = ["carol"]' in a.path(CONFIG_PATH).read_text()
    assert lasting_failures(a) == []
    edit(a, 'operators = ["carol"]\n', "")


def test_a_key_that_is_missing_is_found_and_said_to_be_had_by_joining(b: Host) -> None:
    key = b.path(f"{KEYS}/node-b.key")
    aside = key.with_suffix(".aside")
    key.rename(aside)

    found = the_failure(b, "keys", f"{KEYS}/node-b.key is missing")
    assert found.mend.startswith("on the controller: gqctl token create --node-name=b; here, ")
    aside.rename(key)

    assert lasting_failures(b) == []


# ── daemons ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_controller_that_does_not_run_is_found_and_started(a: Host, b: Host) -> None:
    end(a, "gqd")

    found = the_failure(a, "gqd", "gqd does not run")
    assert the_failure(b, "network", "refuses: no gqd listens there")
    mend(a, found)

    assert lasting_failures(a) == []
    assert lasting_failures(b) == []


def test_a_node_daemon_that_does_not_run_is_found_and_started(a: Host, b: Host) -> None:
    end(b, "gqnode")

    mend(b, the_failure(b, "gqnode", "gqnode does not run"))

    assert lasting_failures(b) == []
    assert lasting_failures(a) == []


def test_sockets_that_somebody_removed_are_found_and_made_again(a: Host, b: Host) -> None:
    a.path("/run/gq/gqd.sock").unlink()

    mend(a, the_failure(a, "answer", "its socket /run/gq/gqd.sock is gone"))

    assert lasting_failures(a) == []


# ── network ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_controller_that_only_its_own_host_can_reach_is_found_and_mended(a: Host, b: Host) -> None:
    edit(a, f'listen = "tcp://{a.address}:', 'listen = "tcp://127.0.0.1:')
    again(a, "gqd")

    the_failure(b, "network", "refuses: no gqd listens there")
    mend(a, the_failure(a, "listen", "gqd listens on 127.0.0.1, which other hosts cannot reach"))

    assert lasting_failures(a) == []
    assert lasting_failures(b) == []


def test_a_firewall_before_the_controller_is_found_and_told_from_a_port_that_refuses(a: Host, b: Host) -> None:
    b.ok("ip", "route", "add", "prohibit", a.address)

    found = the_failure(b, "network", f"port {CONTROLLER_PORT} does not answer: a firewall drops it")
    assert str(CONTROLLER_PORT) in found.mend
    b.ok("ip", "route", "del", "prohibit", a.address)

    assert lasting_failures(b) == []


def test_a_name_that_means_this_very_host_is_found_and_mended(b: Host) -> None:
    address = f'address = "{b.address}"\n'
    edit(b, address, "")
    hosts = b.path("/etc/hosts")
    hosts.write_text(hosts.read_text().replace(f"{b.address} b", "127.0.1.1 b.example b"))

    found = the_failure(b, "name", "`b` means 127.0.1.1 here, which other hosts cannot reach")
    mend(b, found)

    assert f"{b.address} b\n" in hosts.read_text()
    assert lasting_failures(b) == []
    edit(b, 'name = "b"\n', f'name = "b"\n{address}')


def test_a_name_that_nobody_knows_is_found_and_mended(b: Host) -> None:
    hosts = b.path("/etc/hosts")
    hosts.write_text("\n".join(line for line in hosts.read_text().splitlines() if not line.endswith(" b")) + "\n")
    address = f'address = "{b.address}"\n'
    edit(b, address, "")

    mend(b, the_failure(b, "name", "does not know the address of its own name `b`"))

    assert lasting_failures(b) == []
    edit(b, 'name = "b"\n', f'name = "b"\n{address}')


def test_a_node_whose_key_the_controller_does_not_know_is_found_on_both_hosts_and_mended(a: Host, b: Host) -> None:
    a.path(f"{KEYS}/nodes/b.pub").unlink()

    found = the_failure(b, "network", "the controller does not know this node's key, or has revoked it")

    def warnings() -> list[str]:
        told = json.loads(a.run("gq", "doctor", "--json").stdout)
        return [one["message"] for one in told if one["check"] == "refused" and one["verdict"] == "warn"]

    wait_until(warnings, WELL_WITHIN_S, "the audit trail has it")
    assert any(b.address in message for message in warnings())
    mend(b, found, controller=a)
    mend(b, the_failure(b, "gqnode", "gqnode does not run"))  # a node that is no longer one has ended

    assert lasting_failures(b) == []


def test_a_node_that_has_the_key_of_another_controller_is_found(a: Host, b: Host) -> None:
    right = b.path(f"{KEYS}/gqd.pub")
    kept = right.read_text()
    right.write_text(a.path(f"{KEYS}/nodes/b.pub").read_text())

    found = the_failure(b, "network", f"fails: {KEYS}/gqd.pub is not that controller's key")
    assert f"cat {KEYS}/gqd.pub" in found.mend
    right.write_text(kept)

    assert lasting_failures(b) == []


def test_a_step_door_that_nobody_else_reaches_is_found_and_mended(a: Host, b: Host) -> None:
    edit(b, f"tcp://{b.address}:{STEP_PORT}", f"tcp://127.0.0.1:{STEP_PORT}")
    again(b, "gqnode")

    the_failure(a, "steps", f"the step door of b, {b.address} port {STEP_PORT}, refuses")
    mend(b, the_failure(b, "steps", "gqnode listens on 127.0.0.1, which other hosts cannot reach"))

    assert lasting_failures(b) == []
    assert lasting_failures(a) == []


OWN_ACCOUNTS = """
[ "$(stat -f -c %T /etc)" = tmpfs ] && [ ! -L /etc/passwd ] || exit 1
for file in passwd- group- shadow- gshadow gshadow- subuid subuid- subgid subgid-; do rm -f /etc/$file; done
"""
"""The files that usermod(8) writes are this host's own; what is removed are links to the machine's."""


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_user_with_another_number_is_found_by_root_and_by_the_user_and_mended(at_login: HostCluster) -> None:
    d = at_login.net.hosts["d"]
    own = d.user(Account("alice", 2900)).run("gq", "doctor", "--json")
    told = [one for one in json.loads(own.stdout) if one["verdict"] == "fail"]
    assert [one["check"] for one in told] == ["identity"]
    assert "user alice has uid 2900 on d and uid 2001 on the controller's host" in told[0]["message"]

    d.ok("sh", "-c", OWN_ACCOUNTS)
    mend(d, the_failure(d, "identity", "user alice has uid 2900"))

    assert d.ok("id", "-u", "alice").strip() == "2001"
    assert not [one for one in failures(d) if "alice" in one.message]
    assert d.path("/run/home/alice").stat().st_uid == 2001


@pytest.mark.slow
def test_a_user_whom_the_controller_does_not_know_is_found_and_mended(at_login: HostCluster) -> None:
    a, d = at_login.net.hosts["a"], at_login.net.hosts["d"]

    a.ok("sh", "-c", OWN_ACCOUNTS)
    mend(d, the_failure(d, "identity", "user eve (uid 2666"), controller=a)

    wait_until(lambda: not [one for one in failures(d) if "eve" in one.message], 70, "the controller has looked again")
    assert a.ok("id", "-u", "eve").strip() == "2666"


def test_the_doctor_asks_as_many_questions_as_its_help_says() -> None:
    assert len(doctor.host_checks()) + 2 == doctor.QUESTIONS


# ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────


def test_shared_memory_as_small_as_containers_have_it_is_found_and_mended(b: Host) -> None:
    b.ok("mount", "-o", "remount,size=64M", "/dev/shm")

    mend(b, the_failure(b, "shm", "/dev/shm has 64M"))

    assert lasting_failures(b) == []


def test_shared_memory_that_users_cannot_write_to_is_found_and_mended(b: Host) -> None:
    b.path("/dev/shm").chmod(0o755)

    mend(b, the_failure(b, "shm", "users cannot write to /dev/shm"))

    assert lasting_failures(b) == []


# ── where MUNGE says who users are ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def desk(pytestconfig: pytest.Config) -> Iterator[Host]:
    """A host of the site that runs nothing of gq; `systemctl` starts munged there, as the package's unit does."""
    with network(NAMES_OF_SITE, pytestconfig.stash[MARK], ACCOUNTS_OF_SITE) as net:
        site = set_up_site(net)
        site.desk.path(CONFIG_PATH).parent.mkdir()
        site.desk.path(CONFIG_PATH).write_text(site.client_config)
        program = site.desk.path("/run/pretended/systemctl")
        program.parent.mkdir()
        argv = shlex.join(one for one in munged_argv(DIRECTORY) if one != "--foreground")
        program.write_text(f'#!/bin/sh\n[ "$*" = "start munge" ] && exec {argv}\n')
        program.chmod(0o755)
        yield site.desk
        site.client.close()
        site.reader.end()


@needs_munge
def test_a_munged_that_does_not_run_is_found_by_root_and_by_users_and_started(desk: Host) -> None:
    assert lasting_failures(desk) == []
    desk.ok("sh", "-c", f"kill $(cat {DIRECTORY}/munged.pid)")
    wait_until(lambda: not desk.path(f"{DIRECTORY}/socket").exists(), LONG_S)

    assert desk.user(ALICE).run("gq", "doctor").returncode == 1
    found = the_failure(desk, "munge", "munged does not answer")
    desk.ok("sh", "-c", f"PATH=/run/pretended:$PATH; {found.mend}")

    assert lasting_failures(desk) == []
    assert "you are alice (uid 2001), user" in desk.user(ALICE).ok("gq", "doctor")


# ── set up by the documented commands ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_doctor_is_content_with_a_cluster_as_the_commands_set_it_up_and_a_removed_node_joins_again_by_its_mend(
    pytestconfig: pytest.Config,
) -> None:
    with network("ab", pytestconfig.stash[MARK]) as net:
        a, b = net.hosts.values()
        a.ok("gqd", "init", "--start", "--cluster", net.run_name, "--address", a.address)
        join(a, b)
        for host in (a, b):
            assert lasting_failures(host) == []

        a.ok("gqctl", "node", "remove", "b")
        wait_until(lambda: b.run("pgrep", "-f", "bin/gqnode").returncode != 0, LONG_S, "b is no node any more")
        found = the_failure(b, "network", "the controller does not know this node's key, or has revoked it")
        there, here = found.mend.removeprefix(ON_CONTROLLER).split("; here, with that on standard input: ")
        b.ok("sh", "-c", here, stdin=a.ok("sh", "-c", there))

        for host in (a, b):
            assert lasting_failures(host) == []


def join(controller: Host, host: Host) -> None:
    """The token goes from hand to hand."""
    token = controller.ok("gqctl", "token", "create", f"--node-name={host.name}")
    host.ok("gqnode", "join", f"tcp://{controller.address}:7133", "--start", stdin=token)
