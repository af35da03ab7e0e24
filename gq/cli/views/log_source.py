"""Reads a job's output: from the file, if this host sees it, else from the daemon of its node.

It owns a reading position in one file of one attempt.  An expired ticket is renewed; a file that does not exist yet
counts as empty.
"""

from __future__ import annotations

import os
import time

import zmq

from gq.cli.framework.connection import ask
from gq.connection.client import Client
from gq.connection.curve import is_ipv6
from gq.errors import Refusal, Unreachable
from gq.wire import step as wire
from gq.wire.client import AccessLog, LogAccess

_CHUNK = 256 * 1024
_ANSWER_S = 10.0
_CLOCKS_DIFFER_S = 60.0
"""At most, between the hosts of a cluster."""


class LogSource:
    """Reads the file of a `LogAccess` from its beginning."""

    def __init__(self, client: Client, access: LogAccess, asked: AccessLog) -> None:
        self.access = access
        self.offset = 0
        self._client = client
        self._asked = asked
        self._link: _LogLink | None = None

    def read(self) -> bytes:
        """Return the next bytes; empty at the present end of the file."""
        if not self.access.path:
            return b""
        data = self._read_here()
        if data is None:
            data = self._read_there()
        self.offset += len(data)
        return data

    def _read_here(self) -> bytes | None:
        """Read from this host's file system; None if the file is not visible here."""
        try:
            with open(self.access.path, "rb") as file:  # noqa: PTH123 - unbuffered habits do not help here
                status = os.fstat(file.fileno())
                if self._is_older(status.st_mtime):
                    return None
                if status.st_size < self.offset:
                    self.offset = 0  # written anew from its beginning
                file.seek(self.offset)
                return file.read(_CHUNK)
        except FileNotFoundError:
            return None if self.access.endpoint else b""
        except OSError as error:
            if self.access.endpoint:
                return None
            raise Refusal("unreadable", f"cannot read {self.access.path}: {error.strerror}") from error

    def _is_older(self, changed_at: float) -> bool:
        """Without a shared file system, hosts may have files of the same name: this one is no output of the attempt."""
        began_at = self.access.allocated_at
        is_elsewhere = self.access.endpoint.startswith("tcp://")
        return is_elsewhere and began_at is not None and changed_at < began_at - _CLOCKS_DIFFER_S

    def _read_there(self) -> bytes:
        if self._link is None:
            self._link = _LogLink(self.access)
        answer = self._link.ask(self.access.ticket, self.offset)
        if isinstance(answer, wire.StepRefused) and answer.code == "busy":
            return b""
        if isinstance(answer, wire.StepRefused):
            self._link = self._renewed(answer)
            answer = self._link.ask(self.access.ticket, self.offset)
        match answer:
            case wire.LogData():
                return answer.data
            case wire.StepRefused():
                raise Refusal(answer.code, f"node {self.access.node}: {answer.message}")
            case _:
                return b""

    def _renewed(self, refusal: wire.StepRefused) -> _LogLink:
        """Connect again with a new ticket: the old one expired, or the node's daemon was restarted."""
        fresh = ask(self._client, self._asked, LogAccess)
        if fresh.attempt != self.access.attempt or not fresh.ticket:
            raise Refusal(refusal.code, f"node {self.access.node}: {refusal.message}")
        self.close()
        self.access = fresh
        return _LogLink(fresh)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class _LogLink:
    """The link to a node's step door."""

    def __init__(self, access: LogAccess) -> None:
        self._node = access.node
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        if access.public_key:
            public, secret = zmq.curve_keypair()
            self._socket.setsockopt(zmq.IPV6, int(is_ipv6(access.endpoint)))
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, access.public_key.encode())
        self._socket.connect(access.endpoint)

    def ask(self, ticket: bytes, offset: int) -> wire.FromDoor:
        """Return a piece of the file; `Unreachable` if the node does not answer."""
        self._socket.send(wire.TO_DOOR.encode(wire.OpenLog(ticket=ticket, offset=offset)))
        deadline = time.monotonic() + _ANSWER_S
        while (left := deadline - time.monotonic()) > 0:
            if not self._socket.poll(int(left * 1000) + 1):
                break
            answer = wire.FROM_DOOR.decode(self._socket.recv())
            if not isinstance(answer, wire.LogData) or answer.offset == offset:
                return answer
        raise Unreachable("node_silent", f"node {self._node} does not answer", "`gqinfo -N` shows its state")

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()
