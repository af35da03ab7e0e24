"""The node's link to gqd: announces the node, keeps the link alive, carries reports up and orders down.

It owns the socket and its renewal, and never gives up on a controller that is away.  A message that cannot be sent now
is dropped, because reports are repeated; nothing here knows what a message means to an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, Protocol, assert_never

import zmq
from zmq.utils.monitor import recv_monitor_message

from gq.connection.curve import KeyPair, detect_lost_peer, is_ipv6
from gq.connection.input_queue import make_boundless
from gq.connection.loop_socket import Context, LoopSocket, Socket
from gq.errors import ProtocolError
from gq.wire import node as wire
from gqnode.daemon.sockets import LOST_AFTER_S, log_flood

log = logging.getLogger(__name__)

HELLO_AGAIN_S = 1.0
"""Interval between hellos until the controller has sent `Welcome`."""
MISSED_HEARTBEATS = 3
"""The link is renewed after this many heartbeat intervals without a message."""
WELCOME_WITHIN_S = 10.0
"""A link without `Welcome` by then is renewed: libzmq gives up on a controller that refused the key."""
_WATCHED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class ControllerAddress(NamedTuple):
    """The controller's endpoint; ``keys`` and ``server_key`` (Z85) on tcp, None on ipc."""

    endpoint: str
    keys: KeyPair | None = None
    server_key: bytes | None = None


class Home(Protocol):
    """The daemon as the link uses it; the link calls it on the loop."""

    def hello(self) -> wire.Hello: ...

    def heartbeat(self) -> wire.Heartbeat: ...

    def on_welcome(self, welcome: wire.Welcome) -> None: ...

    def on_parted(self) -> None: ...

    def on_unwelcome(self, why: str, is_removed: bool) -> None: ...

    def on_ack(self, seqs: tuple[int, ...]) -> None: ...

    def on_orders(self, orders: wire.Orders) -> None: ...

    def on_relay_reply(self, reply: wire.RelayReply) -> None: ...


class Link:
    def __init__(self, context: Context, address: ControllerAddress, home: Home) -> None:
        self._context = context
        self._address = address
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._socket: LoopSocket | None = None
        self._monitor: Socket | None = None
        self._is_welcome = False
        self._heartbeat_s = HELLO_AGAIN_S
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True
        self._complaint = ""
        self._owes_hello = False
        self.malformed = 0
        self._open()

    @property
    def is_up(self) -> bool:
        return self._is_welcome

    def send(self, message: wire.Report | wire.Relay) -> bool:
        """Send a message; False if the controller is away or has not welcomed the node, and nothing was sent."""
        return self._is_welcome and self._send(message)

    def hello_again(self) -> None:
        """Announce a change of the node, at each heartbeat until the controller has received it."""
        self._owes_hello = True
        if self._is_welcome:
            self._send(self._home.hello())

    def close(self) -> None:
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._hang_up(linger_s=0.5)

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is kept for a controller that is away: it would be stale
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        socket.setsockopt(zmq.MAXMSGSIZE, wire.MAX_NODE_MESSAGE_BYTES)
        make_boundless(socket)
        socket.setsockopt(zmq.SNDHWM, 100_000)
        if self._address.keys is not None and self._address.server_key is not None:
            socket.setsockopt(zmq.IPV6, int(is_ipv6(self._address.endpoint)))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, self._address.keys.public)
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._address.keys.secret)
            socket.setsockopt(zmq.CURVE_SERVERKEY, self._address.server_key)
            detect_lost_peer(socket, LOST_AFTER_S)
        self._monitor = socket.get_monitor_socket(_WATCHED)
        self._loop.add_reader(int(self._monitor.getsockopt(zmq.FD)), self._on_monitor)
        self._socket = LoopSocket(socket, self._loop, self._on_frame, log_flood)
        self._raw = socket
        socket.connect(self._address.endpoint)
        self._heard_at = self._loop.time()
        self._beat_in(HELLO_AGAIN_S)
        self._loop.call_soon(self._on_monitor)

    def _part(self) -> None:
        if self._is_welcome:
            self._is_welcome = False
            self._home.on_parted()

    def _hang_up(self, linger_s: float = 0.0) -> None:
        self._part()
        if self._monitor is not None:
            self._loop.remove_reader(int(self._monitor.getsockopt(zmq.FD)))
            self._raw.disable_monitor()
            self._monitor = None
        if self._socket is not None:
            self._socket.close(linger_s)
            self._socket = None

    def _on_monitor(self) -> None:
        """The link came up, or broke: the next controller there may be another one."""
        while self._monitor is not None:
            try:
                happening = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            except zmq.Again:
                return
            match happening["event"]:
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._part()
                    self._say_hello()
                case zmq.EVENT_DISCONNECTED:
                    if self._is_welcome:
                        log.warning("the link to the controller was lost")
                    self._part()
                case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                    self._complain("does not accept this node's key: add its public key to keys/nodes there")
                case _:
                    if self._address.server_key is not None:
                        self._complain("breaks off the handshake: is keys/gqd.pub here its public key?")

    def _complain(self, of_what: str) -> None:
        """Log an error once, since the link is tried again and again."""
        if of_what != self._complaint:
            self._complaint = of_what
            log.error("the controller at %s %s", self._address.endpoint, of_what)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _beat_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        if not self._is_open:
            return
        silence_s = self._loop.time() - self._heard_at
        if silence_s > (MISSED_HEARTBEATS * self._heartbeat_s if self._is_welcome else WELCOME_WITHIN_S):
            if self._is_welcome:
                log.warning("no message from the controller for %.0f s: reconnecting", silence_s)
            self._hang_up()
            self._open()
        elif self._is_welcome:
            self._send(self._home.hello() if self._owes_hello else self._home.heartbeat())
            self._beat_in(self._heartbeat_s)
        else:
            self._say_hello()

    def _say_hello(self) -> None:
        self._send(self._home.hello())
        self._beat_in(HELLO_AGAIN_S)

    def _send(self, message: wire.NodeMessage) -> bool:
        return self._socket is not None and self._socket.send(wire.NODE_MESSAGES.encode(message))

    # ── what comes ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, _: bytes, frame: zmq.Frame) -> None:
        try:
            message = wire.CONTROLLER_MESSAGES.decode(frame.buffer)
        except ProtocolError as error:
            self.malformed += 1
            log.error("the controller sent an invalid message: %s", error.message)
            return
        self._heard_at = self._loop.time()
        self._take(message)

    def _take(self, message: wire.ControllerMessage) -> None:
        match message:
            case wire.Welcome():
                self._is_welcome = True
                self._owes_hello = False
                self._complaint = ""
                self._heartbeat_s = max(0.05, message.heartbeat_s)
                self._beat_in(self._heartbeat_s)
                self._home.on_welcome(message)
            case wire.Unwelcome():
                self._home.on_unwelcome(message.why, message.is_removed)
            case wire.WhoIsThere():
                self._part()
                self._say_hello()
            case wire.HeartbeatSeen():
                pass
            case wire.Ack():
                self._home.on_ack(message.seqs)
            case wire.Orders():
                self._home.on_orders(message)
            case wire.RelayReply():
                self._home.on_relay_reply(message)
            case wire.Joined():
                pass  # an answer to `gqnode join`, which has a link of its own
            case _:
                assert_never(message)
