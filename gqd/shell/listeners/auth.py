"""Authentication of peers: kernel credentials on ipc, CURVE keys on tcp.

Nothing that a peer says about itself is trusted.  On ``ipc://`` libzmq adds the peer credentials of the connection to
every message (`gq.connection.input_queue.credentials`).  On tcp a peer proves a CURVE key; `KeyCheck` admits only keys
that the `KeyRing` knows, each at the listener that it is for, and libzmq adds the key to every message.  With MUNGE, a
listener also admits some unknown keys, whose messages `gqd.shell.listeners.guest_listener` checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import zmq
from zmq.utils import z85

from gq.connection.curve import KeyPair, detect_lost_peer
from gq.model.key import KeyKind
from gqd.shell.listeners.keys import KeyHolder

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
NODE_DOMAIN = b"nodes"
CLIENT_DOMAIN = b"clients"
KINDS: Mapping[bytes, frozenset[KeyKind]] = {
    NODE_DOMAIN: frozenset({KeyKind.NODE, KeyKind.JOIN}),
    CLIENT_DOMAIN: frozenset({KeyKind.USER}),
}
"""The kinds of keys that each listener (by its ZAP domain) admits."""
BACKLOG = 512
LOST_AFTER_S = 60
"""The link of a host that acknowledges nothing for this time is closed; else it would stay for ever."""

NOT_KNOWN = "its key is not known"

WhyNoGuest = Callable[[bytes], str]
"""Why a listener (by its ZAP domain) rejects an unknown key; empty: it admits the key."""
RefusedKey = Callable[[str, str], None]
"""Called with the address of a rejected host and the reason."""


def proven_key(frame: zmq.Frame) -> str:
    """The public key (Z85) that the peer proved in the handshake; empty: none."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


def address(frame: zmq.Frame) -> str:
    """The address of the host at the other end of a tcp link."""
    try:
        return _plain(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return "an unknown address"


def _plain(address: str) -> str:
    """An address without the IPv6 prefix of IPv4 addresses."""
    return address.removeprefix("::ffff:")


class KeyCheck:
    """Answers libzmq's question, at each handshake, whether a CURVE key is admitted (ZAP, RFC 27).

    It must exist before a CURVE listener is bound: without it libzmq would admit every key.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        holder: Callable[[str], KeyHolder | None],
        on_refused: RefusedKey,
        why_no_guest: WhyNoGuest = lambda domain: NOT_KNOWN,
    ) -> None:
        self._holder = holder
        self._on_refused = on_refused
        self._why_no_guest = why_no_guest
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
        """The answer to a request with the frames version, request id, domain, address, identity, mechanism, key."""
        request_id = frames[1] if len(frames) > 1 else b""
        if len(frames) != 7 or frames[0] != ZAP_VERSION or frames[5] != b"CURVE":
            return _refusal(request_id)
        public = z85.encode(frames[6]).decode("ascii")
        why = self._why_not(public, frames[2])
        if why:
            self._on_refused(_plain(frames[3].decode(errors="replace")), why)
            return _refusal(request_id)
        return [ZAP_VERSION, request_id, b"200", b"OK", public.encode(), b""]

    def _why_not(self, public: str, domain: bytes) -> str:
        """Why the key is rejected; empty: it is admitted."""
        found = self._holder(public)
        if found is None:
            return self._why_no_guest(domain)
        if found.kind not in KINDS.get(domain, ()):
            holder = found.name or "(a token)"
            return f"the key of {found.kind.value} {holder} is not valid on the listener {domain.decode()}"
        return ""


def _refusal(request_id: bytes) -> list[bytes]:
    return [ZAP_VERSION, request_id, b"400", b"this key is not known here", b"", b""]


def guard(socket: zmq.Socket[bytes], keys: KeyPair, domain: bytes) -> None:
    """Configure a socket as a CURVE server, before it is bound."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    detect_lost_peer(socket, LOST_AFTER_S)
