"""`gqnode join` against a controller that `gqd init --start` set up: what it writes, and why it does not join."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest
import zmq

from gq.config.config import parse_config
from gq.connection.curve import fresh_keys
from gq.connection.token import format_token, parse_token
from tests.clusters import wait_until
from tests.effort import first_rows
from tests.requires import needs_program, needs_root
from tests.system.hosts import CONFIG_PATH, KEYS, Host, Network

pytestmark = [needs_root, needs_program("ip"), needs_program("nsenter"), pytest.mark.xdist_group("join")]

CONTROLLER = "tcp://a:7133"
STRANGER = format_token(zmq.curve_keypair()[0], fresh_keys().secret)
"""Well formed, of no controller."""
RUNNING = "pgrep -f '[-]m gq(d|node) '"
"""The daemons of a host, which sees only its own processes."""


@pytest.fixture
def hosts(hosts: dict[str, Host], shared_net: Network) -> Iterator[dict[str, Host]]:
    """On `a` a controller runs."""
    hosts["a"].ok("gqd", "init", "--start", "--cluster", shared_net.run_name)
    yield hosts
    for host in hosts.values():
        host.run("sh", "-c", f"kill $({RUNNING})")
        wait_until(lambda host=host: host.run("sh", "-c", RUNNING).stdout == "", what="its daemons have ended")


def token(a: Host, *words: str) -> str:
    return a.ok("gqctl", "token", "create", *words)


def keys(a: Host) -> dict[str, str]:
    """Public key → node."""
    return {key["public"]: key["name"] for key in json.loads(a.ok("gqctl", "key", "show", "--json"))}


def public_of(host: Host, name: str) -> str:
    secret = host.path(f"{KEYS}/node-{name}.key").read_bytes().strip()
    return zmq.curve_public(secret).decode()


def no_settings(host: Host) -> bool:
    return not host.path(CONFIG_PATH).exists()


def await_nodes(a: Host, *names: str) -> None:
    """Until these are there and idle, and no others."""

    def found() -> dict[str, str]:
        return {node["node"]: node["state"] for node in json.loads(a.ok("gqinfo", "-N", "--json"))}

    wait_until(lambda: found() == dict.fromkeys(names, "IDLE"), what=f"{names} are idle")


# ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_joins_with_a_token_on_standard_input_and_is_a_node(hosts: dict[str, Host], shared_net: Network) -> None:
    a, b = hosts.values()
    said = b.ok("gqnode", "join", CONTROLLER, "--start", stdin=token(a))

    assert said.splitlines()[0] == f"node b of cluster {shared_net.run_name}: {CONFIG_PATH}, {KEYS}"
    await_nodes(a, "b")
    config = parse_config(b.path(CONFIG_PATH).read_text(), CONFIG_PATH)
    [node] = config.nodes
    assert (config.cluster, node.name, node.controller) == (shared_net.run_name, "b", CONTROLLER)
    assert (node.address, node.step_listen, node.login) == (b.address, "tcp://*:7134", False)
    assert node.private_tmp
    assert keys(a) == {public_of(b, "b"): "b"}
    assert json.loads(a.ok("gqctl", "audit", "--refused", "--json")) == [], "nothing about it was odd"


def test_what_it_writes_is_readable_by_those_who_need_it_and_no_token_stays(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    secret = token(a)
    b.ok("sh", "-c", f"umask 0; gqnode join {CONTROLLER}", stdin=secret)

    modes = {
        path: stat.S_IMODE(b.path(path).stat().st_mode)
        for path in ("/etc/gq", CONFIG_PATH, "/var/lib/gq", KEYS, f"{KEYS}/node-b.key", f"{KEYS}/gqd.pub")
    }
    assert list(modes.values()) == [0o755, 0o644, 0o711, 0o700, 0o600, 0o644]
    assert sorted(path.name for path in b.path(KEYS).iterdir()) == ["gqd.pub", "node-b.key"]
    assert b.path(f"{KEYS}/gqd.pub").read_text().strip().encode() == parse_token(secret).server_key
    assert b.run("grep", "-rq", secret.strip()[4:60], "/etc/gq", "/var/lib/gq").returncode == 1


def test_a_token_in_a_file_works_and_one_that_others_can_read_is_warned_of(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    path = b.path("/tmp/token")
    path.write_text(token(a))
    path.chmod(0o644)

    done = b.run("gqnode", "join", CONTROLLER, "--token-file", "/tmp/token", "--name=g1", "--address=10.0.0.9")
    path.unlink()

    assert done.returncode == 0
    assert done.stderr == "warning: /tmp/token can be read by other users: change its mode to 0600, or remove it\n"
    node = parse_config(b.path(CONFIG_PATH).read_text(), CONFIG_PATH).node("g1")
    assert node.address == "10.0.0.9"
    assert list(keys(a).values()) == ["g1"]


def test_a_login_token_makes_a_host_that_runs_nothing(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    said = b.ok("gqnode", "join", CONTROLLER, "--login", stdin=token(a, "--login"))

    assert said.startswith("login node b of cluster ")
    node = parse_config(b.path(CONFIG_PATH).read_text(), CONFIG_PATH).node("b")
    assert (node.login, node.step_listen) == (True, None)


def test_a_call_that_was_interrupted_is_made_again_with_the_same_token(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    secret = token(a)
    b.ok("gqnode", "join", CONTROLLER, stdin=secret)
    before = public_of(b, "b")
    b.path(f"{KEYS}/node-b.key").rename(b.path(f"{KEYS}/node-b.key.new"))
    b.path(CONFIG_PATH).unlink()

    b.ok("gqnode", "join", CONTROLLER, "--start", stdin=secret)

    assert public_of(b, "b") == before
    await_nodes(a, "b")


def test_a_node_that_was_removed_joins_again_with_a_new_token_and_a_new_key(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    b.ok("gqnode", "join", CONTROLLER, "--start", stdin=token(a))
    await_nodes(a, "b")
    before = public_of(b, "b")
    a.ok("gqctl", "node", "remove", "b", "--reason=test")
    wait_until(lambda: b.run("sh", "-c", RUNNING).stdout == "", what="b has ended")
    await_nodes(a)
    assert keys(a) == {}

    refused = b.run("gqnode", "join", CONTROLLER, "--start", stdin=token(a))
    assert refused.returncode == 1
    assert "this host is already a node (b of cluster " in refused.stderr and "--force" in refused.stderr
    again = b.run("gqnode", "join", CONTROLLER, "--force", "--start", stdin=token(a))

    assert again.stderr == f"the old {CONFIG_PATH} is saved as {CONFIG_PATH}.old\n"
    await_nodes(a, "b")
    assert public_of(b, "b") != before
    assert "controller" in b.path(f"{CONFIG_PATH}.old").read_text()


def test_joining_again_keeps_what_the_administrator_had_set(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    b.ok("gqnode", "join", CONTROLLER, "--address=10.0.0.9", stdin=token(a))
    text = b.path(CONFIG_PATH).read_text().replace("no_new_privs", "max_processes = 99\nno_new_privs")
    b.path(CONFIG_PATH).write_text(f"{text}# by me\n[timers]\ngrace_s = 7\n")
    a.ok("gqctl", "node", "remove", "b")

    again = b.run("gqnode", "join", CONTROLLER, "--force", stdin=token(a))

    assert again.stderr == f"the old {CONFIG_PATH} is saved as {CONFIG_PATH}.old\n", "and nothing is lost"
    text = b.path(CONFIG_PATH).read_text()
    config = parse_config(text, CONFIG_PATH)
    node = config.node("b")
    assert (node.max_processes, node.no_new_privs, config.timers.grace_s) == (99, True, 7)
    assert (node.address, node.controller, node.private_tmp) == (b.address, CONTROLLER, True)
    assert "# by me\n" in text


def test_settings_that_cannot_be_kept_are_named(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    b.ok("gqnode", "join", CONTROLLER, stdin=token(a))
    text = b.path(CONFIG_PATH).read_text()
    b.path(CONFIG_PATH).write_text(f'{text}max_processes = 99\n[[node]]\nname = "second"\ncpus = 1\n')
    a.ok("gqctl", "node", "remove", "b")

    again = b.run("gqnode", "join", CONTROLLER, "--force", stdin=token(a))

    assert again.stderr.splitlines()[1] == "warning: the new file lacks: node.cpus, node.max_processes"
    assert "max_processes = 99" in b.path(f"{CONFIG_PATH}.old").read_text()


# ── not joining ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("endpoint", "message", "status"),
    first_rows(
        1,
        [
            ("a:7133", "`a:7133` is not the address of a controller", 2),
            ("tcp://a:0", "`tcp://a:0` is not the address of a controller", 2),
            ("tcp://nowhere.invalid:7133", "the host name nowhere.invalid cannot be resolved", 3),
            ("tcp://a:7199", "cannot connect to tcp://a:7199: Connection refused", 3),
        ],
    ),
)
def test_at_an_endpoint_where_no_controller_is_no_settings_are_written(
    hosts: dict[str, Host], endpoint: str, message: str, status: int
) -> None:
    b = hosts["b"]
    done = b.run("gqnode", "join", endpoint, stdin=STRANGER)

    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"error: {message}") and "\nhint: " in done.stderr
    assert no_settings(b)


def _expired(a: Host) -> str:
    made = token(a, "--ttl=1s")
    wait_until(lambda: not json.loads(a.ok("gqctl", "token", "list", "--json"))[1:], what="the token has expired")
    return made


def _revoked(a: Host) -> str:
    made = token(a)
    a.ok("gqctl", "token", "revoke", parse_token(made).join_keys.public.decode()[:8])
    return made


def _used(a: Host) -> str:
    made = token(a)
    a.ok("sh", "-c", f"mkdir -p /tmp/x; unshare -m sh -c '{_AS_ANOTHER_HOST}'", stdin=made)
    return made


_AS_ANOTHER_HOST = (
    "mount -t tmpfs x /etc/gq; mount -t tmpfs x /var/lib/gq; gqnode join tcp://127.0.0.1:7133 --name other"
)


def _for_another(a: Host) -> str:
    return token(a, "--node-name=c")


@pytest.mark.parametrize(
    ("make", "message"),
    first_rows(
        2,
        [
            (_expired, "the controller does not know this token: it has expired or was revoked"),
            (_revoked, "the controller does not know this token: it has expired or was revoked"),
            (_used, "the controller refuses: this token was already used by a node"),
            (_for_another, "the controller refuses: "),
            (lambda a: STRANGER, "it is not the controller that created this token"),
        ],
    ),
)
def test_a_token_that_is_not_good_lets_nobody_in(
    hosts: dict[str, Host], make: Callable[[Host], str], message: str
) -> None:
    a, b = hosts.values()
    before = keys(a)
    bad = make(a)
    done = b.run("gqnode", "join", CONTROLLER, stdin=bad)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert no_settings(b) and "b" not in keys(a).values()
    assert set(keys(a).values()) - {"other"} == set(before.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the token is not valid: it is empty"),
        ("hello\n", "the token is not valid: it does not begin with `gqj1`"),
        (STRANGER[:50], "the token is not valid: it is cut off"),
    ],
    ids=["nothing", "words", "a part"],
)
def test_what_is_no_token_is_refused_and_not_repeated(hosts: dict[str, Host], text: str, message: str) -> None:
    done = hosts["b"].run("gqnode", "join", CONTROLLER, stdin=text)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr and STRANGER[10:40] not in done.stderr
    assert no_settings(hosts["b"])


def test_a_token_on_the_command_line_is_not_taken(hosts: dict[str, Host]) -> None:
    for words in ([f"--token={STRANGER}"], [STRANGER]):
        done = hosts["b"].run("gqnode", "join", CONTROLLER, *words, stdin="")

        assert done.returncode == 2
        assert no_settings(hosts["b"])


def test_a_host_that_wants_to_run_no_jobs_does_not_join_with_a_token_for_one_that_does(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    done = b.run("gqnode", "join", CONTROLLER, "--login", stdin=token(a))

    assert done.returncode == 1
    assert "not as a login node" in done.stderr and "gqctl token create --login" in done.stderr
    assert no_settings(b)
    a.ok("gqctl", "node", "remove", "b")
    b.ok("gqnode", "join", CONTROLLER, "--login", stdin=token(a, "--login"))


@pytest.mark.parametrize(
    ("words", "message"),
    first_rows(
        1,
        [
            (["--name=../x"], "`../x` cannot be a node's name"),
            (["--step-listen=7134"], "`7134` is not tcp://ADDRESS:PORT"),
            (["--token-file=/nowhere"], "/nowhere cannot be read"),
        ],
    ),
)
def test_a_bad_value_is_refused_before_the_token_is_used(
    hosts: dict[str, Host], words: Sequence[str], message: str
) -> None:
    a, b = hosts.values()
    good = token(a)
    done = b.run("gqnode", "join", CONTROLLER, *words, stdin=good)

    assert done.returncode != 0
    assert message in done.stderr
    assert no_settings(b) and keys(a) == {}
    b.ok("gqnode", "join", CONTROLLER, stdin=good)


def test_the_controllers_own_host_and_ordinary_users_are_told_what_to_do(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    own = a.run("gqnode", "join", "tcp://127.0.0.1:7133", stdin=token(a))
    user = b.run("setpriv", "--reuid=2001", "--regid=2001", "--clear-groups", "gqnode", "join", CONTROLLER, stdin="x")

    assert (own.returncode, user.returncode) == (1, 1)
    assert "`gqd init --node NAME --start`" in own.stderr
    assert "as root" in user.stderr or "run it as root" in user.stderr


def test_a_host_whose_commands_go_to_another_cluster_is_not_made_a_node_of_this_one(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    b.path("/etc/gq").mkdir()
    b.path(CONFIG_PATH).write_text('[client]\ncontroller = "tcp://far:1"\n')

    done = b.run("gqnode", "join", CONTROLLER, stdin=token(a))

    assert done.returncode == 1
    assert "commands on this host use tcp://far:1, set by [client] in" in done.stderr


NO_CONTROLLER = """
import socket, sys
with socket.create_server(("0.0.0.0", 7200)) as server:
    print("listens", flush=True)
    peer, _ = server.accept()
    peer.sendall(b"SSH-2.0-OpenSSH_9.2\\r\\n")
    peer.close()
    sys.stdin.read()
"""


def test_a_service_that_is_no_controller_is_said_to_be_none(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    other = a.start(sys.executable, "-c", NO_CONTROLLER)
    assert other.stdout is not None and other.stdout.readline() == "listens\n"

    done = b.run("gqnode", "join", "tcp://a:7200", stdin=token(a))
    other.communicate()

    assert done.returncode == 1
    assert "tcp://a:7200 closed the link: it is not the controller that created this token" in done.stderr
    assert no_settings(b)


def test_a_node_name_that_is_taken_is_not_given_again(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    a.ok("gqd", "init", "--node=here", "--start")
    await_nodes(a, "here")

    done = b.run("gqnode", "join", CONTROLLER, "--name=here", stdin=token(a))

    assert done.returncode == 1
    assert "the controller refuses: " in done.stderr and "here" in done.stderr
    assert no_settings(b)
