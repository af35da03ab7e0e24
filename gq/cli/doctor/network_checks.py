"""The checks of `gq doctor` on the network: names, ports, and whether the encrypted handshake completes.

No check waits for longer than `WAIT_S`; ports of many nodes are tried at once.  A port that refuses is told from a port
that does not answer: the first has no daemon, the second is behind a firewall.
"""

from __future__ import annotations

import errno
import ipaddress
import shlex
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import zmq
from zmq.utils.monitor import recv_monitor_message

from gq.cli.doctor.private_checks import CheckResult, Verdict
from gq.cli.doctor.system import Host, join_command, restart_command, start_command
from gq.connection.curve import is_ipv6, node_key_path, node_public_path, read_keys, read_public, server_public_path
from gq.errors import Refusal
from gq.host.service import CONTROLLER, NODE

T = TypeVar("T")

WAIT_S = 2.0
_MAX_TRIED = 200
"""Nodes whose ports are tried."""
_ANY = ("*", "0.0.0.0", "::")
_LISTEN = "0A"
"""In /proc/net/tcp."""


class Endpoint(NamedTuple):
    host: str
    port: int


def endpoint(text: str) -> Endpoint:
    """``tcp://HOST:PORT``, which the configuration has checked."""
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    return Endpoint(host.strip("[]"), int(port))


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────


def within(seconds: float, function: Callable[[], T], otherwise: T) -> T:
    """Return the call's result, or `otherwise` after the time limit: unreachable name servers block for long."""
    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else otherwise


def addresses_of(name: str) -> list[str] | None:
    """None: the name means nothing here."""

    def resolve() -> list[str] | None:
        try:
            return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
        except OSError:
            return None

    return within(WAIT_S, resolve, None)


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def outward_address(towards: str) -> str:
    """The address of this host on the way to another; empty where there is no way."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as plain:
                plain.connect((towards, 9))  # of a datagram socket: sends nothing
                return str(plain.getsockname()[0])
        except OSError:
            continue
    return ""


def connect_error(at: Endpoint) -> int | None:
    """None: somebody listens there.  Else an errno; ETIMEDOUT also stands for a silent drop."""
    try:
        with socket.create_connection((at.host, at.port), timeout=WAIT_S):
            return None
    except TimeoutError:
        return errno.ETIMEDOUT
    except OSError as error:
        return error.errno or errno.EIO


def listening_on(port: int) -> list[str]:
    """The local addresses on which anything of this host listens on a port, as hexadecimal words of the kernel."""
    found = []
    for kind in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            address, _, its_port = local.rpartition(":")
            if state == _LISTEN and int(its_port, 16) == port:
                found.append(address)
    return found


def only_loopback(addresses: list[str]) -> bool:
    """Whether the addresses, in the kernel's reversed notation, are all loopback: 127.…, mapped or not, and ::1."""
    mapped, v6 = "0000000000000000FFFF0000", "00000000000000000000000001000000"
    plain = [address.removeprefix(mapped) for address in addresses]
    return bool(plain) and all(one == v6 or (len(one) == 8 and one.endswith("7F")) for one in plain)


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────


def own_name(host: Host) -> Iterator[CheckResult]:
    """Check the name by which other hosts reach this host; Debian's installer maps it to 127.0.1.1."""
    if host.config is None or not _has_other_hosts(host):
        return
    said = host.node.address if host.node is not None else host.config.controller.address
    name = said or host.name
    found = addresses_of(name)
    towards = endpoint(host.node.controller).host if host.node is not None and host.node.controller else ""
    own = outward_address(towards) if towards else _first_address()
    if found is None:
        fix = f"echo '{own} {name}' >> /etc/hosts"
        yield CheckResult("name", Verdict.FAIL, f"this host does not know the address of its own name `{name}`", fix)
    elif any(is_loopback(one) for one in found):
        trap = next(one for one in found if is_loopback(one))
        message = f"`{name}` means {trap} here, which other hosts cannot reach"
        yield CheckResult("name", Verdict.FAIL, message, _loopback_fix(trap, name, own))
    else:
        yield CheckResult("name", Verdict.OK, f"`{name}` means {', '.join(found)}")


def _has_other_hosts(host: Host) -> bool:
    assert host.config is not None
    return host.is_remote_node or any(node.controller is not None for node in host.config.nodes)


def _loopback_fix(trap: str, name: str, own: str) -> str:
    """/etc/hosts cannot always be replaced (containers mount it), so it is written in place."""
    edit = f"sed -E '/^{trap}[[:space:]].*\\b{name}\\b/d' /etc/hosts > /tmp/hosts.$$"
    return f"{edit} && echo '{own or 'ADDRESS'} {name}' >> /tmp/hosts.$$ && cat /tmp/hosts.$$ > /etc/hosts"


def _first_address() -> str:
    """Towards a documentation address: whatever the default route, or the only network, makes of it."""
    return outward_address("192.0.2.1")


# ── the controller, from a node ───────────────────────────────────────────────────────────────────────────────


def controller_port(host: Host) -> Iterator[CheckResult]:
    """From another host: is the name known, does the port answer, does a node's handshake complete?"""
    address = _controller_address(host)
    if address is None:
        return
    at = endpoint(address)
    found = addresses_of(at.host)
    if found is None:
        fix = f"echo 'ADDRESS {at.host}' >> /etc/hosts, with the controller's address"
        yield CheckResult("network", Verdict.FAIL, f"the controller's name `{at.host}` is not known here", fix)
        return
    if not host.is_controller and all(is_loopback(one) for one in found):
        message = f"the controller's name `{at.host}` means {found[0]} here, which is this host"
        yield CheckResult("network", Verdict.FAIL, message, _loopback_fix(found[0], at.host, ""))
        return
    code = connect_error(at)
    if code is not None:
        yield _unreachable(at, code)
    elif host.node is not None:
        yield from _handshake(host, at)
    else:
        yield CheckResult("network", Verdict.OK, f"{at.host} port {at.port} answers")


def _controller_address(host: Host) -> str | None:
    """None: it is this very host, or nobody knows."""
    if host.node is not None:
        return host.node.controller
    return host.config.client.controller if host.config is not None and host.is_outside else None


def _unreachable(at: Endpoint, code: int) -> CheckResult:
    where = f"{at.host} port {at.port}"
    match code:
        case errno.ECONNREFUSED:
            message = f"{where} refuses: no gqd listens there"
            fix = "on the controller: gq doctor"
        case errno.ETIMEDOUT | errno.EACCES | errno.EPERM:
            message = f"{where} does not answer: a firewall drops it, or the host is down"
            fix = f"on the controller: {open_port(at.port)}"
        case errno.EHOSTUNREACH | errno.ENETUNREACH:
            message = f"there is no way to {where}: the host is down, or the network between is"
            fix = f"ping {at.host}; ip route get {at.host}"
        case _:
            message = f"{where}: {errno.errorcode.get(code, code)}"
            fix = f"ping {at.host}"
    return CheckResult("network", Verdict.FAIL, message, fix)


def open_port(port: int) -> str:
    """Return the command that opens a port with this host's firewall; hosts of a cluster are mostly alike."""
    if shutil.which("firewall-cmd"):
        return f"firewall-cmd --permanent --add-port={port}/tcp && firewall-cmd --reload"
    if shutil.which("ufw"):
        return f"ufw allow {port}/tcp"
    if shutil.which("iptables"):
        return f"iptables -I INPUT -p tcp --dport {port} -j ACCEPT"
    return f"let tcp port {port} through its firewall"


def _handshake(host: Host, at: Endpoint) -> Iterator[CheckResult]:
    """Try the encrypted handshake with this node's key, as gqnode does; no message is sent."""
    assert host.node is not None and host.node.controller is not None
    if not host.is_root:
        yield CheckResult("network", Verdict.OK, f"{at.host} port {at.port} answers")
        return
    keys_dir, name = host.location.keys_dir, host.node.name
    try:
        own = read_keys(node_key_path(keys_dir, name))
        server = read_public(server_public_path(keys_dir))
    except Refusal:
        return  # `keys` and `secrets` tell
    happened = handshake(host.node.controller, own.public, own.secret, server)
    match happened:
        case zmq.Event.HANDSHAKE_SUCCEEDED:
            yield CheckResult("network", Verdict.OK, f"{at.host} port {at.port} knows this node's key")
        case zmq.Event.HANDSHAKE_FAILED_AUTH:
            message = f"the controller does not know this node's key, or has revoked it ({own.public.decode()[:8]}…)"
            yield CheckResult("network", Verdict.FAIL, message, _key_fix(host, own.public.decode()))
        case _:
            path = server_public_path(keys_dir)
            message = f"the handshake with {at.host} port {at.port} fails: {path} is not that controller's key"
            there = server_public_path(host.controller.keys_dir)
            fix = f"ssh {at.host} cat {there} > {path}; then here: gqnode restart"
            yield CheckResult("network", Verdict.FAIL, message, fix)


def _key_fix(host: Host, public: str) -> str:
    """A host that joined joins again; where one gq.toml lies on all hosts, keys are placed by hand."""
    assert host.config is not None and host.node is not None
    if host.config.controller.listen is None:
        return join_command(host)
    file = node_public_path(host.controller.keys_dir, host.node.name)
    return f"on the controller: echo {shlex.quote(public)} > {file}"


def handshake(address: str, public: bytes, secret: bytes, server: bytes) -> int:
    """The event of libzmq that ended the first try; 0: none did within `WAIT_S`."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = context.socket(zmq.DEALER)
    link.setsockopt(zmq.IPV6, int(is_ipv6(address)))
    link.setsockopt(zmq.CURVE_PUBLICKEY, public)
    link.setsockopt(zmq.CURVE_SECRETKEY, secret)
    link.setsockopt(zmq.CURVE_SERVERKEY, server)
    link.setsockopt(zmq.RECONNECT_IVL, -1)
    ends = (
        zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    )  # fmt: skip
    monitor = link.get_monitor_socket(ends)
    try:
        link.connect(address)
        if not monitor.poll(int(WAIT_S * 1000)):
            return 0
        return int(recv_monitor_message(monitor)["event"])
    finally:
        link.disable_monitor()
        link.close(linger=0)
        context.destroy(linger=0)


# ── what this host listens on ─────────────────────────────────────────────────────────────────────────────────


def controller_listens(host: Host) -> Iterator[CheckResult]:
    """On the controller's host: nodes of other hosts find an open door at an address that they can reach."""
    if host.config is None or not host.is_controller:
        return
    listen = host.config.controller.listen
    others = [node.name for node in host.config.nodes if node.controller is not None]
    path = host.location.config_path
    if listen is None:
        if others:
            fix = f'add listen = "tcp://*:7133" under [controller] in {path}; {restart_command(host, CONTROLLER)}'
            message = f"[controller] listen is not set: {', '.join(others[:5])} cannot reach gqd"
            yield CheckResult("listen", Verdict.FAIL, message, fix)
        return
    at = endpoint(listen)
    bound = listening_on(at.port)
    everywhere = f"sed -i 's|^ *listen *=.*|listen = \"tcp://*:{at.port}\"|' {path}"
    fix = f"{everywhere} && {restart_command(host, CONTROLLER)}"
    if others and (only_loopback(bound) or (not bound and is_loopback(at.host))):
        yield CheckResult("listen", Verdict.FAIL, f"gqd listens on {at.host}, which other hosts cannot reach", fix)
    elif not bound and host.process(CONTROLLER) is not None:
        yield CheckResult("listen", Verdict.FAIL, f"gqd does not listen on {listen}", restart_command(host, CONTROLLER))
    elif not bound and at.host not in _ANY and not _is_own(at.host):
        yield CheckResult("listen", Verdict.FAIL, f"{at.host} is no address of this host", fix)
    elif bound:
        yield CheckResult("listen", Verdict.OK, f"gqd listens on {listen}")


def _is_own(name: str) -> bool:
    """Whether it can be bound here."""
    for address in addresses_of(name) or ():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as plain:
                plain.bind((address, 0))
                return True
        except OSError:
            continue
    return False


def step_door(host: Host) -> Iterator[CheckResult]:
    """On a node: where gqrun and gqlog of other hosts bring and fetch bytes."""
    node = host.node
    if node is None or node.login:
        return
    path = host.location.config_path
    if node.step_listen is None:
        if node.controller is not None:
            message = "step_listen is not set: gqrun and gqlog of other hosts do not reach what runs here"
            fix = f'add step_listen = "tcp://*:7134" to [[node]] {node.name} in {path}; {restart_command(host, NODE)}'
            yield CheckResult("steps", Verdict.WARN, message, fix)
        return
    at = endpoint(node.step_listen)
    bound = listening_on(at.port)
    if only_loopback(bound) and node.controller is not None:
        edit = f"sed -i 's|{node.step_listen}|tcp://*:{at.port}|' {path}"
        message = f"gqnode listens on {at.host}, which other hosts cannot reach"
        yield CheckResult("steps", Verdict.FAIL, message, f"{edit} && {restart_command(host, NODE)}")
    elif not bound:
        running = host.process(NODE) is not None
        fix = restart_command(host, NODE) if running else start_command(host, NODE)
        yield CheckResult("steps", Verdict.FAIL, f"nothing listens on {node.step_listen}", fix)
    else:
        yield CheckResult("steps", Verdict.OK, f"gqnode listens on {node.step_listen}")


def nodes_answer(host: Host) -> Iterator[CheckResult]:
    """From the controller's host: the nodes are heard, and their step doors can be reached."""
    if host.answer is None or host.config is None or not host.is_controller:
        return
    yield from _states(host)
    doors = {}
    for settings in host.config.nodes[:_MAX_TRIED]:
        node = host.answer.nodes.get(settings.name)
        if settings.step_listen is not None and node is not None and node.address and node.state != "DOWN":
            doors[settings.name] = Endpoint(node.address, endpoint(settings.step_listen).port)
    for name, code in _try_all(doors).items():
        at = doors[name]
        why = "refuses" if code == errno.ECONNREFUSED else "does not answer (a firewall?)"
        fix = f"on {name}: {'gq doctor' if code == errno.ECONNREFUSED else open_port(at.port)}"
        yield CheckResult("steps", Verdict.FAIL, f"the step door of {name}, {at.host} port {at.port}, {why}", fix)


def _states(host: Host) -> Iterator[CheckResult]:
    assert host.answer is not None and host.config is not None
    for settings in host.config.nodes:
        if settings.login:
            continue
        node = host.answer.nodes.get(settings.name)
        check = f"node {settings.name}"
        if node is None or node.state == "UNKNOWN":
            yield CheckResult(check, Verdict.FAIL, "has not been heard of", f"on {settings.name}: gq doctor")
        elif node.state == "DOWN":
            reason = f": {node.reason}" if node.reason else ""
            yield CheckResult(check, Verdict.FAIL, f"is down{reason}", f"on {settings.name}: gq doctor")
        elif node.state in ("DRAINED", "DRAINING"):
            fix = f"gqctl node resume {settings.name}"
            yield CheckResult(check, Verdict.WARN, f"is {node.state.lower()}: {node.reason}", fix)
        else:
            yield CheckResult(check, Verdict.OK, f"is {node.state.lower()}, enforces {node.isolation.summary()}")


def _try_all(doors: dict[str, Endpoint]) -> dict[str, int]:
    """At once; by name, what went wrong."""
    codes: dict[str, int] = {}

    def try_one(name: str, at: Endpoint) -> None:
        code = connect_error(at)
        if code is not None:
            codes[name] = code

    threads = [threading.Thread(target=try_one, args=one, daemon=True) for one in doors.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S + 1)
    return dict(sorted(codes.items()))
