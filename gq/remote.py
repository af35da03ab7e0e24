"""The way of a command to a controller that is not on this host nor reached through a node of it: tcp, with a key.

Owns the ``[client]`` table's meaning, and the words for what can go wrong with a link that proves both ends.  Only
commands on machines outside the cluster come here; all others speak to a socket of their own host.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from gq.config import load_config
from gq.curve import KeyPair, is_ipv6, read_keys
from gq.errors import GqError, Refusal, Unreachable
from gq.locate import Location

HEARTBEAT_MS = 10_000
GONE_MS = 30_000
_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CLOSED
)


class RemoteController(NamedTuple):
    """Where it is, the key that it must prove (Z85), and the pair with which the user proves who they are."""

    endpoint: str
    server_key: bytes
    keys: KeyPair


def read_remote(location: Location) -> RemoteController:
    """What ``[client]`` of this cluster's gq.toml says; `Refusal` where it cannot be used."""
    settings = load_config(location).client
    if settings.controller is None or not settings.server_key:
        raise Refusal(
            "bad_config",
            f"{location.config_path}: [client] must set both controller and server_key",
            "those who run the cluster know both: its listen_clients, and what is in its keys/gqd.pub",
        )
    try:
        keys = read_keys(Path(settings.key_file).expanduser())
    except Refusal as error:
        hint = "`gq key new` makes one, `gqctl key add` on a host of the cluster enrols it"
        raise Refusal(error.code, error.message, hint if error.code == "no_key" else error.hint) from error
    return RemoteController(settings.controller, settings.server_key.encode("ascii"), keys)


def dial(socket: zmq.Socket[bytes], remote: RemoteController) -> None:
    """Connect, without waiting until there is a link."""
    socket.setsockopt(zmq.IPV6, int(is_ipv6(remote.endpoint)))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, remote.keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, remote.keys.secret)
    socket.setsockopt(zmq.CURVE_SERVERKEY, remote.server_key)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, GONE_MS)
    socket.connect(remote.endpoint)


def link(socket: zmq.Socket[bytes], remote: RemoteController, timeout_s: float) -> None:
    """Connect and wait until linked; `Refusal` where the key is refused, `Unreachable` where nobody is there."""
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
        "is its address right, and its port open to this machine?",
    )


def _failure(event: int, remote: RemoteController) -> GqError:
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return Refusal(
            "key_refused",
            f"the controller at {remote.endpoint} does not know the key {remote.keys.public.decode()[:8]}…",
            "`gqctl key add` on a host of the cluster enrols it; `gqctl key show` there shows which are",
        )
    if event == zmq.EVENT_CLOSED:
        return Unreachable(
            "unreachable",
            f"no controller listens at {remote.endpoint}",
            "is gqd running there, with [controller] listen_clients?",
        )
    return Unreachable(
        "not_the_controller",
        f"what listens at {remote.endpoint} does not prove the server_key that gq.toml names",
        "compare [client] server_key with keys/gqd.pub of the controller",
    )
