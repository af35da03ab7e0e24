"""`gqnode join`: this host becomes a node of a cluster, with a token.

Owns the settings and keys of a host as they are written first; afterwards gq.toml is the administrator's.  The token
opens one link, over which the node tells its own new public key; the token never leaves this process, and the node's
secret key never this host.  The secret key is written before the controller hears of it and gq.toml after it agreed,
last of all: an interrupted call is made again, with the same token, and says the same key.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from gq.config.config import Config, NodeSettings, load_config, node_lines, parse_config
from gq.config.node_tables import with_values
from gq.connection.curve import KeyPair, fresh_keys, is_ipv6, node_key_path, read_keys, server_public_path
from gq.connection.locate import SYSTEM_CONFIG, Location
from gq.connection.token import MAX_CHARACTERS, Token, parse_token
from gq.errors import GqError, ProtocolError, Refusal, Unreachable, UsageError
from gq.host import job_tmp
from gq.host.files import make_directory, write_file
from gq.model.ids import NAME
from gq.wire import node as wire
from gq.wire.codec import WIRE_VERSION

STEP_LISTEN = "tcp://*:7134"
CONNECT_WITHIN_S = 10.0
JOIN_WITHIN_S = 30.0
_AGAIN_S = 1.0
"""Between two times that it says the same, while nobody answers."""
_ENDPOINT = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_WATCHED = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)
_NEW_TOKEN = "`gqctl token create` on the controller creates another token"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command; empty: not given."""

    endpoint: str
    name: str = ""
    address: str = ""
    step_listen: str = ""
    is_login: bool = False
    is_anew: bool = False
    """Also if the host is a node of a cluster already."""


class Address(NamedTuple):
    """Address of the controller."""

    endpoint: str
    host: str
    port: int


# ── the whole way ─────────────────────────────────────────────────────────────────────────────────────────────


class Written(NamedTuple):
    """``dropped``: settings of the gq.toml before that are not in the new one, dotted."""

    node: NodeSettings
    dropped: tuple[str, ...] = ()


def join(location: Location, wish: Wish, token: Token) -> tuple[wire.Joined, Written]:
    """Become a node; what the controller said, and the settings that were written."""
    address = read_endpoint(wish.endpoint)
    name = _checked_name(wish.name) if wish.name else host_name()
    _check_fresh(location, wish.is_anew)
    seen_address = _own_address(address)
    own_address = wish.address or seen_address
    _check_settings(location, wish, name, own_address)
    _make_directories(location)
    keys = _pending_keys(location, name)
    joined = _ask(address, token, wire.Join(node=name, public_key=keys.public.decode(), version=WIRE_VERSION))
    if wish.is_login and not joined.is_login:
        _pending_path(location, name).unlink()
        raise Refusal(
            "no_login_token",
            f"the token is for {name} as a node that runs jobs, not as a login node",
            f"on the controller: `gqctl node remove {name}`, `gqctl token create --login`; then join again",
        )
    if joined.node != name:
        raise ProtocolError("unexpected_answer", f"the controller answered for {joined.node}, not for {name}")
    return joined, _write(location, wish, joined, token.server_key, own_address)


def check_root() -> None:
    if os.geteuid() != 0:
        raise Refusal(
            "needs_root", "`gqnode join` changes this host for all users: run it as root", "`sudo gqnode join`"
        )


def read_endpoint(text: str) -> Address:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise UsageError(
            "bad_value",
            f"`{text}` is not the address of a controller",
            "for example tcp://head:7133, as `gqctl token create` printed it",
        )
    return Address(text, match[1].strip("[]"), int(match[2]))


def host_name() -> str:
    """The host's own name, without its domain."""
    name = socket.gethostname().partition(".")[0]
    return _checked_name(name)


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(
            "bad_name", f"`{name}` cannot be a node's name", "give a name of letters, digits, `.`, `_`, `-` with --name"
        )
    return name


def read_token(path: str, stdin: int = 0) -> tuple[Token, str]:
    """The token in a file, or on standard input; and what is wrong with the file's mode (empty: nothing)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else os.dup(stdin)
    except OSError as error:
        raise Refusal("no_token", f"{path} cannot be read: {error.strerror}", _NEW_TOKEN) from error
    with os.fdopen(descriptor, "rb") as file:
        if not path and file.isatty():
            raise UsageError(
                "no_token", "no token was given", "give --token-file FILE, or pipe the token: `… | gqnode join …`"
            )
        mode = os.fstat(descriptor).st_mode
        text = file.read(MAX_CHARACTERS).decode(errors="replace")
    is_open = stat.S_ISREG(mode) and mode & 0o077
    return parse_token(
        text
    ), f"{path or 'the token'} can be read by other users: change its mode to 0600, or remove it" * bool(is_open)


def _check_fresh(location: Location, is_anew: bool) -> None:
    path = Path(location.config_path)
    if is_anew or not path.exists():
        return
    config = load_config(location)
    if config.client.controller is not None:
        raise Refusal(
            "is_client",
            f"commands on this host use {config.client.controller}, set by [client] in {path}",
            "remove that table first",
        )
    names = ", ".join(node.name for node in config.nodes)
    if config.controller.listen is not None:
        raise Refusal(
            "is_controller",
            f"this host is the controller of cluster {config.cluster}, see {path}",
            "`gqd init --node NAME --start` also makes it a node",
        )
    raise Refusal(
        "is_node",
        f"this host is already a node ({names or 'unnamed'} of cluster {config.cluster}), by {path}",
        "to join anew: `gqctl node remove` on the controller, then join with --force",
    )


def _check_settings(location: Location, wish: Wish, name: str, own_address: str) -> None:
    """Check that the settings to be written can be read back, before the token is used."""
    likely = wire.Joined(cluster="gq", node=name)
    parse_config(_settings(location, wish, likely, own_address), location.config_path)


# ── talking ───────────────────────────────────────────────────────────────────────────────────────────────────


def _own_address(address: Address) -> str:
    """The address of this host from which it reaches the controller; nothing is sent."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise Unreachable(
            "no_such_host",
            f"the host name {address.host} cannot be resolved: {error.strerror}",
            "give its IP address instead",
        ) from error
    family, kind, *_, socket_address = found[0]
    with socket.socket(family, kind) as probe:
        try:
            probe.connect(socket_address)
        except OSError as error:
            raise _unreachable(address, error) from error
        return str(probe.getsockname()[0])


def _unreachable(address: Address, error: OSError) -> Unreachable:
    return Unreachable(
        "unreachable",
        f"cannot connect to {address.endpoint}: {error.strerror}",
        "check that gqd runs there and listens",
    )


def _ask(address: Address, token: Token, request: wire.Join) -> wire.Joined:
    """Say it, again and again, until there is an answer."""
    with _link(address, token) as talk:
        began = time.monotonic()
        while (waited_s := time.monotonic() - began) < JOIN_WITHIN_S:
            talk.say(wire.NODE_MESSAGES.encode(request))
            answer = talk.hear(time.monotonic() + _AGAIN_S)
            if answer is not None:
                return answer
            if not talk.is_connected and waited_s > CONNECT_WITHIN_S:
                raise Unreachable(
                    "unreachable",
                    f"{address.host} does not answer on port {address.port}",
                    "check the firewall",
                )
    raise Unreachable(
        "timeout",
        f"the controller at {address.endpoint} did not answer within {JOIN_WITHIN_S:g} s",
        "run the same command again: the token is still valid",
    )


class _JoinLink:
    """A connection that only the controller of the token can open, and what happens to it."""

    def __init__(self, address: Address, link: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        self.is_connected = False
        """Whether a server answered, which may still be another than the token's controller."""
        self._is_up = False
        """Whether the token's controller has completed the handshake."""
        self._address = address
        self._link = link
        self._monitor = monitor
        self._poller = zmq.Poller()
        self._poller.register(link, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def say(self, data: bytes) -> None:
        if self._link.poll(0, zmq.POLLOUT):
            self._link.send(data, zmq.NOBLOCK)

    def hear(self, until: float) -> wire.Joined | None:
        """None: nothing came.  A handshake that succeeds ends the wait, since now something can be said."""
        while (left_s := until - time.monotonic()) > 0:
            ready = dict(self._poller.poll(int(left_s * 1000) + 1))
            if self._monitor in ready and self._is_open(recv_monitor_message(self._monitor)["event"]):
                return None
            if self._link in ready:
                return _read(self._link.recv())
        return None

    def _is_open(self, event: int) -> bool:
        """Whether the handshake is done; raises why it will never be."""
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_up = True
                return True
            case zmq.EVENT_DISCONNECTED if self._is_up:
                self._is_up = False  # it restarts, perhaps; libzmq connects again
            case zmq.EVENT_CONNECTED:
                self.is_connected = True
            case zmq.EVENT_CONNECT_RETRIED:
                if not self.is_connected:
                    _diagnose(self._address)
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise Refusal(
                    "token_refused",
                    "the controller does not know this token: it has expired or was revoked",
                    _NEW_TOKEN,
                )
            case _:
                raise Refusal(
                    "wrong_controller",
                    f"{self._address.endpoint} closed the link: it is not the controller that created this token",
                    _NEW_TOKEN,
                )
        return False


def _diagnose(address: Address) -> None:
    """Why nobody opened; a controller that is there would note a caller who says nothing."""
    try:
        socket.create_connection((address.host, address.port), timeout=CONNECT_WITHIN_S).close()
    except OSError as error:
        raise _unreachable(address, error) from error


@contextmanager
def _link(address: Address, token: Token) -> Iterator[_JoinLink]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = context.socket(zmq.DEALER)
    link.setsockopt(zmq.LINGER, 0)
    link.setsockopt(zmq.IMMEDIATE, 1)
    link.setsockopt(zmq.MAXMSGSIZE, wire.MAX_NODE_MESSAGE_BYTES)
    link.setsockopt(zmq.IPV6, int(is_ipv6(address.endpoint)))
    link.setsockopt(zmq.CURVE_PUBLICKEY, token.join_keys.public)
    link.setsockopt(zmq.CURVE_SECRETKEY, token.join_keys.secret)
    link.setsockopt(zmq.CURVE_SERVERKEY, token.server_key)
    monitor = link.get_monitor_socket(_WATCHED)
    try:
        link.connect(address.endpoint)
        yield _JoinLink(address, link, monitor)
    finally:
        link.disable_monitor()
        context.destroy(linger=0)


def _read(data: bytes) -> wire.Joined:
    match wire.CONTROLLER_MESSAGES.decode(data):
        case wire.Joined() as joined:
            return joined
        case wire.Unwelcome(why=why):
            raise Refusal("unwelcome", f"the controller refuses: {why}")
        case other:
            raise ProtocolError("unexpected_answer", f"the controller answered with {type(other).__name__}")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _make_directories(location: Location) -> None:
    make_directory(Path(location.config_path).parent, 0o755, is_ours=location.config_path == SYSTEM_CONFIG)
    make_directory(Path(location.state_dir), 0o711)
    make_directory(Path(location.keys_dir), 0o700)


def _pending_path(location: Location, name: str) -> Path:
    path = node_key_path(location.keys_dir, name)
    return path.with_name(f"{path.name}.new")


def _pending_keys(location: Location, name: str) -> KeyPair:
    """On disk before anybody hears of them; those of an interrupted call are used again, those of a done one never."""
    pending, settled = _pending_path(location, name), node_key_path(location.keys_dir, name)
    is_over = Path(location.config_path).exists() and settled.exists() and pending.exists()
    if not pending.exists() or (is_over and read_keys(pending) == read_keys(settled)):
        write_file(pending, f"{fresh_keys().secret.decode()}\n", 0o600)
    return read_keys(pending)


def _write(location: Location, wish: Wish, joined: wire.Joined, server_key: bytes, own_address: str) -> Written:
    """All that makes this host a node.  Once gq.toml is there it is one."""
    config = Path(location.config_path)
    text = _settings(location, wish, joined, own_address)
    before = config.read_text("utf-8") if config.exists() else ""
    if before:
        text = _kept(before, text, joined, location.config_path) or text
        write_file(config.with_name(f"{config.name}.old"), before, 0o644)
    node = parse_config(text, location.config_path).node(joined.node)
    write_file(server_public_path(location.keys_dir), f"{server_key.decode()}\n", 0o644)
    pending = _pending_path(location, joined.node)
    write_file(node_key_path(location.keys_dir, joined.node), pending.read_text(), 0o600)
    write_file(config, text, 0o644)
    pending.unlink()
    return Written(node, _dropped(before, text, location.config_path))


_OF_JOINING = ("name", "address", "controller", "step_listen")
"""Settings of a node that joining writes; all others are the administrator's."""


def _kept(before: str, fresh: str, joined: wire.Joined, path: str) -> str:
    """The former file with what joining sets; empty: it is of another kind, or not to be changed by rule."""
    try:
        old = parse_config(before, path)
        is_alike = len(old.nodes) == 1 and old.nodes[0].login == joined.is_login
        if not is_alike or old.controller.listen is not None or old.client.controller is not None:
            return ""
        [node] = tomllib.loads(fresh)["node"]
        values = {key: _toml(node[key]) for key in _OF_JOINING if key in node}
        defaults = {"private_tmp": _toml(node["private_tmp"])} if "private_tmp" in node else {}
        text = with_values(before, values, defaults, joined.cluster) or ""
        return text if text and parse_config(text, path).node(joined.node) else ""
    except GqError:  # the former file is wrong: a good one takes its place
        return ""


def _toml(value: str | bool) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _dropped(before: str, text: str, path: str) -> tuple[str, ...]:
    """Names of nodes are no part of it: another name is no setting lost."""
    try:
        old, new = parse_config(before, path), parse_config(text, path)
    except GqError:
        return ()
    return tuple(sorted(_without_names(old) - _without_names(new)))


def _without_names(config: Config) -> set[str]:
    keys = set(config.keys_set)
    for prefix in [f"node.{node.name}." for node in config.nodes]:
        keys = {f"node.{key.removeprefix(prefix)}" if key.startswith(prefix) else key for key in keys}
    return keys


def _settings(location: Location, wish: Wish, joined: wire.Joined, address: str) -> str:
    step_listen = "" if joined.is_login else wish.step_listen or STEP_LISTEN
    why_shared_tmp = "" if joined.is_login else job_tmp.why_not(location.state_dir)
    return config_text(joined, wish.endpoint, address, step_listen, why_shared_tmp)


def config_text(joined: wire.Joined, endpoint: str, address: str, step_listen: str, why_shared_tmp: str) -> str:
    listen = f'step_listen = "{step_listen}"'
    step = f"{listen:<32} # for gqrun and gqlog of other hosts, encrypted\n" if step_listen else ""
    held_apart = "" if joined.is_login else node_lines(why_shared_tmp)
    login = "login = true                     # runs no jobs; its users submit from here\n" if joined.is_login else ""
    return f"""\
# A node of a gq cluster, written by `gqnode join`.  It is yours to change: edit, then `gqnode restart`.
# Every setting is described in gq.toml(5).  Nothing in it is secret.

cluster = "{joined.cluster}"

[[node]]
name = "{joined.node}"
{f'address = "{address}"':<32} # how other nodes reach this one
controller = "{endpoint}"
{step}{login}{held_apart}"""


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────


def is_part_of_cluster(location: Location, node: str) -> bool:
    """Whether the node's daemon says that it is linked; the controller would refuse root of a compute node."""
    try:
        pid = int(Path(location.member_path(node)).read_text())
    except (OSError, ValueError):
        return False
    return Path(f"/proc/{pid}").exists()
