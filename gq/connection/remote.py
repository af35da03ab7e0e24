"""Connects a command by tcp, with a key, to a controller that neither runs on this host nor has a relay on it.

The key is enrolled by the user; or, with MUNGE, it is fresh, and each link begins with an introduction.  The module
owns the meaning of the ``[client]`` table, and the messages about links with CURVE.  Only commands on machines outside
the cluster use it; all others connect to a socket of their own host.
"""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from gq.config.config import load_config
from gq.connection.curve import KeyPair, detect_lost_peer, fresh_keys, is_ipv6, read_keys
from gq.connection.locate import Location
from gq.errors import GqError, Refusal, Unreachable
from gq.model.ids import RequestId
from gq.wire import client as wire

LOST_AFTER_S = 30
"""A controller that acknowledges nothing for this time is lost."""
_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CLOSED
)


class RemoteController(NamedTuple):
    """The controller's endpoint, the key that it must prove (Z85), and the pair that authenticates the user."""

    endpoint: str
    server_key: bytes
    keys: KeyPair
    by_munge: bool = False
    """Whether the keys belong to no user until they are introduced."""
    munge_socket: str = ""


def read_remote(location: Location) -> RemoteController:
    """Read ``[client]`` of this cluster's gq.toml; `Refusal` if it cannot be used."""
    settings = load_config(location).client
    if settings.controller is None or not settings.server_key:
        raise Refusal(
            "bad_config",
            f"{location.config_path}: [client] must set both controller and server_key",
            "ask an administrator of the cluster for both: its listen_clients, and the content of its keys/gqd.pub",
        )
    if settings.munge:
        server_key = settings.server_key.encode("ascii")
        return RemoteController(settings.controller, server_key, fresh_keys(), True, settings.munge_socket)
    try:
        keys = read_keys(Path(settings.key_file).expanduser())
    except Refusal as error:
        hint = (
            "create a key with `gq key new` and enrol it with `gqctl key add` on a host of the cluster; or set `munge "
            "= true` in [client]"
        )
        raise Refusal(error.code, error.message, hint if error.code == "no_key" else error.hint) from error
    return RemoteController(settings.controller, settings.server_key.encode("ascii"), keys)


def renewed(remote: RemoteController) -> RemoteController:
    """The same controller with a fresh key pair, where MUNGE says who the user is; enrolled keys stay."""
    return remote._replace(keys=fresh_keys()) if remote.by_munge else remote


def introduction(remote: RemoteController, request_id: RequestId) -> bytes:
    """Return the introduction of a link, with a MUNGE credential for a single use.  `Refusal` if MUNGE fails."""
    from gq.connection import munge  # only where a site has it

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        message, hint = (
            (f"uid {os.geteuid()} has no name on this host"),
            "add the user to this host: the controller compares name and uid",
        )
        raise Refusal("unknown_user", message, hint) from None
    credential = munge.encode(munge.payload_of(remote.keys.public.decode("ascii")), remote.munge_socket)
    return wire.introduction(request_id, wire.Introduce(user=user, credential=credential))


def must_introduce(reply: wire.Reply) -> bool:
    """Whether the controller does not know the user of this link's key (any more)."""
    return isinstance(reply.body, wire.Refused) and reply.body.code == "introduce_first"


def dial(socket: zmq.Socket[bytes], remote: RemoteController) -> None:
    """Connect, without waiting for the link."""
    socket.setsockopt(zmq.IPV6, int(is_ipv6(remote.endpoint)))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, remote.keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, remote.keys.secret)
    socket.setsockopt(zmq.CURVE_SERVERKEY, remote.server_key)
    detect_lost_peer(socket, LOST_AFTER_S)
    socket.connect(remote.endpoint)


def link(socket: zmq.Socket[bytes], remote: RemoteController, timeout_s: float) -> None:
    """Connect and wait until linked; `Refusal` if the key is refused, `Unreachable` if no controller listens."""
    events = socket.get_monitor_socket(_FAILED)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLOUT)
    poller.register(events, zmq.POLLIN)
    deadline = time.monotonic() + timeout_s
    try:
        dial(socket, remote)
        while (left_s := deadline - time.monotonic()) > 0:
            ready = dict(poller.poll(int(left_s * 1000) + 1))
            if socket in ready:
                return
            if events in ready:
                raise _failure(int(parse_monitor_message(events.recv_multipart())["event"]), remote)
    finally:
        socket.disable_monitor()
    raise Unreachable(
        "timeout",
        f"the controller at {remote.endpoint} did not answer within {timeout_s:g} s",
        "check its address, and that its port is open to this machine",
    )


def _failure(event: int, remote: RemoteController) -> GqError:
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and remote.by_munge:
        return Refusal(
            "key_refused",
            f"the controller at {remote.endpoint} does not accept MUNGE, or has too many connections",
            "check `munge = true` in [controller] of the controller, or use a key: `gq key new`",
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return Refusal(
            "key_refused",
            f"the controller at {remote.endpoint} does not know the key {remote.keys.public.decode()[:8]}…",
            "enrol it with `gqctl key add` on a host of the cluster; `gqctl key show` there lists the keys",
        )
    if event == zmq.EVENT_CLOSED:
        return Unreachable(
            "unreachable",
            f"no controller listens at {remote.endpoint}",
            "check that gqd runs there, with [controller] listen_clients",
        )
    if remote.by_munge:
        return Unreachable(
            "not_the_controller",
            f"the server at {remote.endpoint} disconnected, or does not have the server_key that gq.toml names",
            "it may have too many connections: try again; otherwise compare [client] server_key with keys/gqd.pub of "
            "the controller",
        )
    return Unreachable(
        "not_the_controller",
        f"the server at {remote.endpoint} does not have the server_key that gq.toml names",
        "compare [client] server_key with keys/gqd.pub of the controller",
    )
