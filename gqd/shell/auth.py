"""Who is at the door: the kernel's word on ipc, the pinned keys on tcp.

Owns both questions; nothing that a peer says about itself is believed.  On ``ipc://`` libzmq puts the peer
credentials of the connection into every message (``localhost:UID:GID:PID``).  On tcp a peer proves a CURVE key;
`KeyCheck` lets in only keys that are pinned, and libzmq then puts the node's name into every message.
"""

from __future__ import annotations

import asyncio
import pwd
from collections.abc import Callable

import zmq
from zmq.utils import z85

from gq.curve import KeyPair, pinned_nodes
from gqd.state.input import Peer

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"gq"
ZAP_VERSION = b"1.0"


class LocalPeers:
    """Users of this machine, and whether this controller serves them: its own uid, and root."""

    def __init__(self, owner_uid: int) -> None:
        self.owner_uid = owner_uid
        self._users = {uid: user_name(uid) for uid in (owner_uid, 0)}

    def serves(self, uid: int) -> bool:
        return uid in self._users

    @property
    def owner(self) -> str:
        return self._users[self.owner_uid]

    def peer(self, uid: int, gid: int) -> Peer:
        """One who is served."""
        return Peer(uid=uid, gid=gid, user=self._users[uid])


def user_name(uid: int) -> str:
    """The account's name, or the number where there is none (containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def credentials(frame: zmq.Frame) -> tuple[int, int] | None:
    """(uid, gid) of the process at the other end, by the kernel's word; None where it gave none."""
    try:
        _, uid, gid, _ = str(frame.get("Peer-Address")).split(":")
        return int(uid), int(gid)
    except (zmq.ZMQError, ValueError):
        return None


def pinned_node(frame: zmq.Frame) -> str | None:
    """The node whose key the peer proved; None where it proved none."""
    try:
        return str(frame.get("User-Id")) or None
    except zmq.ZMQError:
        return None


def address(frame: zmq.Frame) -> str:
    """Of the host at the other end of a tcp link."""
    try:
        return _plain(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return "an unknown address"


def _plain(address: str) -> str:
    """An IPv4 address as people write it, though the door serves IPv6 too."""
    return address.removeprefix("::ffff:")


class KeyCheck:
    """Answers libzmq's question, at each handshake, whether a CURVE key may come in (ZAP, RFC 27).

    Keys are read from ``keys/nodes`` every time, so that a node can be added or removed while gqd runs.
    Must exist before a CURVE door is bound: without it libzmq would let everybody in.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], keys_dir: str, on_refused: Callable[[str], None]
    ) -> None:
        """`on_refused` is told the address of a host that proved no pinned key."""
        self._keys_dir = keys_dir
        self._on_refused = on_refused
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(int(self._socket.getsockopt(zmq.FD)), self._answer_all)
        self._loop.call_soon(self._answer_all)

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(int(self._socket.getsockopt(zmq.FD)))
            self._socket.close()

    def _answer_all(self) -> None:
        while not self._socket.closed and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._socket.send_multipart(self._answer(self._socket.recv_multipart()))

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        request_id = frames[1] if len(frames) > 1 else b""
        node = self._node_of(frames)
        if node is None:
            self._on_refused(_plain(frames[3].decode(errors="replace")) if len(frames) > 3 else "")
            return [ZAP_VERSION, request_id, b"400", b"this key is not pinned", b"", b""]
        return [ZAP_VERSION, request_id, b"200", b"OK", node.encode(), b""]

    def _node_of(self, frames: list[bytes]) -> str | None:
        """Frames: version, request id, domain, address, identity, mechanism, key."""
        if len(frames) != 7 or frames[0] != ZAP_VERSION or frames[2] != ZAP_DOMAIN or frames[5] != b"CURVE":
            return None
        return pinned_nodes(self._keys_dir).get(z85.encode(frames[6]))


def guard(socket: zmq.Socket[bytes], keys: KeyPair) -> None:
    """Make a socket a CURVE server, before it is bound."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
