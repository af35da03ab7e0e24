"""The blocking client: requests to gqd and their answers.

The client owns one connection (a DEALER socket): to the listener of this host, or by tcp to the controller's.  A
request is sent as the same bytes, with the same request id, as often as needed, so that a repeated request is carried
out once.  A link that gqd closed (it restarted) is noticed within `_SLICE_S` and made anew.  With MUNGE, each link
begins with an introduction, and is made anew when the controller asks for one.  The client prints nothing and never
interprets a refusal.

Every command pays for the start-up of this module: it imports only zmq and msgspec, unless the controller is reached by
tcp.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import zmq

from gq.connection.locate import (
    NOBODY_LISTENS,
    Location,
    describe_cluster,
    explain_choice,
    has_system_cluster,
    probe_socket,
    why_chosen,
)
from gq.errors import ProtocolError, Refusal, Unreachable
from gq.model.ids import RequestId
from gq.wire import client as wire
from gq.wire.codec import MAX_MESSAGE_BYTES, OLDEST_WIRE_VERSION, WIRE_VERSION

if TYPE_CHECKING:
    from gq.connection.remote import RemoteController

A = TypeVar("A", bound=wire.ReplyBody)

_SLICE_S = 0.1
"""Interval at which a waiting client checks its link."""
_FIRST_RESEND_S = 5.0
"""A local link loses no messages; behind a relay, gqd may restart unseen."""
_MAX_RESEND_S = 20.0
_WINDOW_BYTES = 16 * 1024 * 1024
_RETRY_S = 0.1
_MAX_REMOTE_RETRY_S = 2.0
"""Many clients may have been disconnected at once, and must not all reconnect at once."""
_FIRST_LINK_S = 0.05
_NEXT_LINK_S = 2.0
_MAX_INTRODUCTIONS = 3
"""Maximum number of introductions without another answer between them."""


def expect(answer: wire.ReplyBody, kind: type[A]) -> A:
    """Return the answer, which must be of this kind; else raise `ProtocolError`."""
    if not isinstance(answer, kind):
        got, wanted = type(answer).__name__, kind.__name__
        raise ProtocolError("unexpected_answer", f"the controller answered with {got} instead of {wanted}")
    return answer


class Client:
    """A connection to the controller.  Several threads must not use it at once.

    `timeout_s`: time for one answer.  `patience_s`: how long to try to connect while no controller listens (gqd
    restarts); `on_wait` is then called once with the reason, so that the caller can report the wait.
    `first_patience_s`: the same until the first link is established; None is `patience_s`.
    """

    def __init__(
        self,
        location: Location,
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
        on_wait: Callable[[Unreachable], None] | None = None,
        first_patience_s: float | None = None,
    ) -> None:
        self.location = location
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._first_patience_s = patience_s if first_patience_s is None else first_patience_s
        self._on_wait = on_wait
        self._reconnect_s = 0.0
        """How long a lost link is made anew inside of `reconnecting`."""
        self.has_been_linked = False
        """Whether a link has ever been established."""
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._remote: RemoteController | None = None
        """The controller's address and keys, once they are read; None unless it is reached by tcp."""
        self._socket: zmq.Socket[bytes] | None = None
        self._introductions = 0
        """Number of introductions since the last other answer."""
        self._forgotten: weakref.finalize[..., Client] | None = None
        self._before_close: list[Callable[[], object]] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._before_close:
            self._before_close.pop()()
        self._hang_up()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    @contextlib.contextmanager
    def reconnecting(self, for_s: float, on_wait: Callable[[Unreachable], None]) -> Iterator[None]:
        """Within this block, make a lost link anew for up to `for_s` seconds, each time it is lost.

        The very first link is tried only for ``first_patience_s``.  `on_wait` is called once for each outage.
        """
        before = self._reconnect_s, self._on_wait
        self._reconnect_s, self._on_wait = for_s, on_wait
        try:
            yield
        finally:
            self._reconnect_s, self._on_wait = before

    def before_close(self, call: Callable[[], object]) -> None:
        """Have `close` run `call` first, so that requests on another thread end before."""
        self._before_close.append(call)

    def not_before_close(self, call: Callable[[], object]) -> None:
        """Remove a call that `before_close` added."""
        if call in self._before_close:
            self._before_close.remove(call)

    def ask(self, body: wire.RequestBody, timeout_s: float | None = None) -> wire.ReplyBody:
        """Return the answer to one request; raise a refusal as `Refusal`, silence as `Unreachable`."""
        for answer in self.ask_many([body], timeout_s=timeout_s):
            if isinstance(answer, Refusal):
                raise answer
            return answer
        raise AssertionError("one request has one answer")

    def ask_for(self, body: wire.RequestBody, kind: type[A]) -> A:
        """Return the answer to one request, which must be of this kind; else raise `ProtocolError`."""
        return expect(self.ask(body), kind)

    def ask_many(
        self, bodies: Iterable[wire.RequestBody], window: int = 256, timeout_s: float | None = None
    ) -> Iterator[wire.ReplyBody | Refusal]:
        """Yield answers in the order of the requests, of which up to `window` are in flight at once.

        A refusal is an item, not raised.  `timeout_s` starts again whenever an answer comes.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        pipeline = _Pipeline(iter(bodies), window)
        self._connect()
        while pipeline.fill(self._send):
            self._await_answer(pipeline, limit_s)
            yield from pipeline.ready()

    # ── one exchange ──────────────────────────────────────────────────────────────────────────────────────────

    def _await_answer(self, pipeline: _Pipeline, limit_s: float) -> None:
        """Receive until the oldest request is answered; reconnect and resend when that is due.

        Behind a relay, gqd's absence looks like silence on an established link, so `reconnecting` bounds silence, too.
        """
        now = silent_since = time.monotonic()
        held_s = pipeline.held_s
        max_silence_s = limit_s + held_s
        has_reported = False
        pause_s = _FIRST_RESEND_S
        resend_at = now + held_s + pause_s
        while not pipeline.is_oldest_answered:
            frames = self._receive(_SLICE_S)
            now = time.monotonic()
            if frames is not None and self._wants_introduction(frames):
                self._hang_up()
                self._connect()
                self._send_all(pipeline)
            elif frames is not None:
                if pipeline.take(frames):
                    self._introductions = 0
                    silent_since, resend_at, has_reported = now, now + held_s + pause_s, False
                continue
            silent_s = now - silent_since
            if silent_s >= max(max_silence_s, self._reconnect_s):
                raise self._silence(max(max_silence_s, self._reconnect_s))
            if silent_s >= max_silence_s and not has_reported and self._on_wait is not None:
                self._on_wait(self._silence(max_silence_s))
                has_reported = True
            if not self._is_linked():
                self._hang_up()
                self._connect()
                self._send_all(pipeline)
                now, pause_s = time.monotonic(), _FIRST_RESEND_S
                silent_since, has_reported = now, False
                resend_at = now + pause_s  # a relay that has just started may drop requests
            elif now >= resend_at:
                pause_s = min(2 * pause_s, _MAX_RESEND_S)
                resend_at = now + pause_s
                self._send_all(pipeline)

    def _send_all(self, pipeline: _Pipeline) -> None:
        for data in pipeline.unanswered():
            self._send(data)

    def _silence(self, waited_s: float) -> Unreachable:
        endpoint = self.location.client_socket if self._remote is None else self._remote.endpoint
        return Unreachable(
            "timeout",
            f"the controller at {endpoint} did not answer within {waited_s:g} s ({describe_cluster(self.location)})",
            f"it may be busy or stopped; the request may or may not have been carried out; "
            f"{why_chosen(self.location, os.environ)}",
        )

    # ── the link ──────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        """Establish a link; while no controller listens, try again as long as the caller permits."""
        again_s = max(self._patience_s, self._reconnect_s)
        patience_s = again_s if self.has_been_linked else self._first_patience_s
        until = time.monotonic() + patience_s
        has_reported = False
        pause_s = _RETRY_S
        while self._socket is None:
            try:
                self._open()
            except Unreachable as error:
                if time.monotonic() >= until:
                    raise
                if not has_reported and self._on_wait is not None:
                    self._on_wait(error)
                has_reported = True
                time.sleep(pause_s)
                if self._remote is not None:
                    pause_s = min(_MAX_REMOTE_RETRY_S, pause_s * (1.2 + os.urandom(1)[0] / 256))
        self.has_been_linked = True

    def _open(self) -> None:
        if self.location.is_remote:
            self._open_remote()
        else:
            self._open_local()

    def _open_remote(self) -> None:
        # A heavy import, which clients with a socket on their host do not need.
        from gq.connection.remote import link, read_remote, renewed

        if self._remote is None:
            self._remote = read_remote(self.location)
        for _ in range(_MAX_INTRODUCTIONS):
            self._socket = self._fresh_socket()
            try:
                link(self._socket, self._remote, self._timeout_s)
                if not self._remote.by_munge or self._introduce(self._remote):
                    return
            except Unreachable as error:
                self._hang_up()
                raise self._explained(error) from None
            except BaseException:
                self._hang_up()
                raise
            self._hang_up()
            # The controller may still check the credential of the lost link, and refuses a second one of the same key.
            self._remote = renewed(self._remote)
        message = f"the controller at {self._remote.endpoint} closed the connection before it identified the user"
        raise self._explained(Unreachable("unreachable", message, "it may have too many connections; try again"))

    def _explained(self, error: Unreachable) -> Unreachable:
        """Return the error with the cluster that was chosen, and why."""
        hint = f"{why_chosen(self.location, os.environ)}; {error.hint}"
        return Unreachable(error.code, f"{error.message} ({describe_cluster(self.location)})", hint)

    def _introduce(self, remote: RemoteController) -> bool:
        """Introduce the key of a fresh link and wait for the answer; False: the link is lost."""
        from gq.connection.remote import introduction

        assert self._socket is not None
        request_id = RequestId(os.urandom(wire.REQUEST_ID_BYTES))
        self._introductions += 1
        try:
            self._socket.send(introduction(remote, request_id), zmq.NOBLOCK)
        except zmq.Again:  # the link is lost again, and would never become writable
            return False
        deadline = time.monotonic() + self._timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and self._is_linked():
            data = self._receive(min(left_s, _SLICE_S))
            reply = wire.REPLIES.decode(data) if data is not None else None
            if reply is not None and reply.request_id == request_id:
                answer = _unwrap(reply.body)
                if isinstance(answer, Refusal):
                    raise answer
                return True
        if self._is_linked():
            raise self._silence(self._timeout_s)
        return False

    def _wants_introduction(self, data: bytes) -> bool:
        """Whether the controller asks for an introduction, since it restarted or the last one is too old."""
        if self._remote is None or not self._remote.by_munge or self._introductions >= _MAX_INTRODUCTIONS:
            return False
        from gq.connection.remote import must_introduce

        return must_introduce(wire.REPLIES.decode(data))

    def _open_local(self) -> None:
        """Connect, and wait until linked; a plain connect tells a socket without listener from a busy one."""
        path = self.location.client_socket
        if not os.path.exists(path):  # noqa: PTH110 - a Path costs more than the check
            _knock(self.location)
        deadline = time.monotonic() + self._timeout_s
        within_s = _FIRST_LINK_S
        while True:
            self._socket = self._fresh_socket()
            self._socket.connect(self.location.client_endpoint)
            try:
                if self._socket.poll(int(within_s * 1000), zmq.POLLOUT):
                    return
                _knock(self.location)
                if time.monotonic() >= deadline:
                    raise self._silence(self._timeout_s)
            except BaseException:
                self._hang_up()
                raise
            self._hang_up()
            within_s = min(deadline - time.monotonic(), _NEXT_LINK_S)

    def _fresh_socket(self) -> zmq.Socket[bytes]:
        if self._context is None:
            self._context = zmq.Context()
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # writable only while linked, which shows a lost link
        socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a lost link stays lost, since its requests must be sent again
        socket.setsockopt(zmq.SNDHWM, 0)  # the window bounds the requests in flight
        socket.setsockopt(zmq.RCVHWM, 0)
        # If the caller does not close this client, the collector may end the context first, which waits for its sockets
        # for ever.
        self._forgotten = weakref.finalize(self, _close, socket, self._context)
        self._forgotten.atexit = False
        return socket

    def _is_linked(self) -> bool:
        return self._socket is not None and bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def _send(self, data: bytes) -> None:
        """Send the bytes; if the link is lost, disconnect: the waiting loop reconnects and sends again."""
        if self._socket is None:
            return
        try:
            self._socket.send(data, zmq.NOBLOCK, copy=len(data) < 65536)
        except zmq.Again:
            self._hang_up()

    def _receive(self, within_s: float) -> bytes | None:
        if self._socket is None:
            return None
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            pass
        if not self._socket.poll(int(within_s * 1000), zmq.POLLIN):
            return None
        return self._socket.recv()

    def _hang_up(self) -> None:
        if self._forgotten is not None:
            self._forgotten.detach()
            self._forgotten = None
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None


def _close(socket: zmq.Socket[bytes], context: zmq.Context[zmq.Socket[bytes]]) -> None:
    socket.close(linger=0)
    context.term()


def dial(socket: zmq.Socket[bytes], location: Location) -> RemoteController | None:
    """Connect a socket of the caller's to the controller, without waiting for the link.

    Returns the controller if its links begin with an introduction, which the caller must send.
    """
    if not location.is_remote:
        socket.connect(location.client_endpoint)
        return None
    from gq.connection import remote  # a heavy import

    controller = remote.read_remote(location)
    remote.dial(socket, controller)
    return controller if controller.by_munge else None


class _Pipeline:
    """Requests in flight and answers not yet handed out, in order.  The class knows no socket."""

    def __init__(self, bodies: Iterator[wire.RequestBody], window: int) -> None:
        self._bodies = bodies
        self._window = window
        self._waiting: dict[RequestId, bytes] = {}
        """Unanswered requests in order of sending."""
        self._order: deque[RequestId] = deque()
        """Requests sent whose answers are not handed out, oldest first."""
        self._answers: dict[RequestId, wire.ReplyBody | Refusal] = {}
        self._bytes = 0
        self.held_s = 0.0
        """Maximum time that the controller may hold the answers."""

    def fill(self, send: Callable[[bytes], None]) -> bool:
        """Send as many more requests as the window allows; False when all answers are handed out."""
        while len(self._order) < self._window and (self._bytes < _WINDOW_BYTES or not self._order):
            body = next(self._bodies, None)
            if body is None:
                break
            request_id, data = _encode(body)
            self._order.append(request_id)
            self._waiting[request_id] = data
            self._bytes += len(data)
            self.held_s = max(self.held_s, _held_s(body))
            send(data)
        return bool(self._order)

    @property
    def is_oldest_answered(self) -> bool:
        return self._order[0] in self._answers

    def unanswered(self) -> list[bytes]:
        return list(self._waiting.values())

    def take(self, frame: bytes) -> bool:
        """Record an answer; False if no request waits for it."""
        reply = wire.REPLIES.decode(frame)
        if not OLDEST_WIRE_VERSION <= reply.version <= WIRE_VERSION:
            raise ProtocolError("wrong_version", f"the controller uses version {reply.version} of the protocol")
        data = self._waiting.pop(reply.request_id, None)
        if data is None:
            return False
        self._bytes -= len(data)
        self._answers[reply.request_id] = _unwrap(reply.body)
        return True

    def ready(self) -> Iterator[wire.ReplyBody | Refusal]:
        """Yield the answers that are next in order."""
        while self._order and self.is_oldest_answered:
            yield self._answers.pop(self._order.popleft())


def _encode(body: wire.RequestBody) -> tuple[RequestId, bytes]:
    request_id = RequestId(os.urandom(wire.REQUEST_ID_BYTES))
    data = wire.request(request_id, body)
    if len(data) > MAX_MESSAGE_BYTES:
        raise Refusal(
            "too_large",
            f"the request is {len(data)} bytes long, the limit is {MAX_MESSAGE_BYTES}",
            "make the script or the environment smaller",
        )
    return request_id, data


def _unwrap(body: wire.ReplyBody) -> wire.ReplyBody | Refusal:
    if isinstance(body, wire.Refused):
        refusal = Refusal(body.code, body.message, body.hint)
        refusal.offers = body.offers
        return refusal
    return body


def _held_s(body: wire.RequestBody) -> float:
    """Return how long the controller may hold the answer on purpose."""
    match body:
        case wire.WaitJobs():
            return body.timeout_s
        case wire.CreateStep() | wire.QueryEvents():
            return body.wait_s
        case _:
            return 0.0


def _knock(location: Location) -> None:
    """Raise `Unreachable` if no controller listens at the client socket, `Refusal` if this user may not connect."""
    path = location.client_socket
    code = probe_socket(path)
    if code in NOBODY_LISTENS:
        raise Unreachable(
            "unreachable",
            f"no controller listens at {path}, the socket of {describe_cluster(location)}",
            explain_choice(location, os.environ),
        )
    if code in (errno.EACCES, errno.EPERM):
        other = "unset GQ_DIR and GQ_CONFIG to find a cluster that you may use"
        raise Refusal(
            "not_served",
            f"you may not connect to {path}: {describe_cluster(location)} serves only its owner",
            other if has_system_cluster() else f"{other}, or start one with `gq up`",
        )
