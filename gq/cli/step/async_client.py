"""Requests to gqd from a loop that has other things to do: nothing here waits.

Owns one link to gqd's door and the questions that are not answered yet; they are sent again, as the same bytes,
until they are.  Where MUNGE says who asks, they wait until the link is introduced.  `JobWatch` is the standing
conversation of a client that holds an interactive job.
"""

from __future__ import annotations

import os
import time

import zmq

from gq.connection.client import dial
from gq.connection.locate import Location
from gq.errors import GqError
from gq.model.ids import RequestId
from gq.model.job import JobInfo
from gq.model.state import ACTIVE_WORDS
from gq.wire import client as wire

KEEP_ALIVE_S = 10.0
_RESEND_S = 5.0
_ASK_AGAIN_S = 0.5
_WAIT_S = 25.0
"""How long the controller may hold the answer to a question for a job's end."""


class AsyncClient:
    """Asks without waiting.  A controller that is away is asked again when it is back."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], location: Location) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 200)
        self._asked: dict[RequestId, tuple[bytes, float, float]] = {}
        """Bytes, when they were last sent, how long the answer may be held."""
        self._introduction: RequestId | None = None
        """While it is not answered."""
        self._introduced_at = 0.0
        self._remote = dial(self.socket, location)
        if self._remote is not None:
            self._introduce()

    def close(self, linger_ms: int = 0) -> None:
        self.socket.close(linger=linger_ms)

    def ask(self, body: wire.RequestBody, now: float, held_s: float = 0.0) -> RequestId:
        request_id = RequestId(os.urandom(wire.REQUEST_ID_BYTES))
        data = wire.request(request_id, body)
        self._asked[request_id] = (data, now, held_s)
        self._send(data)
        return request_id

    def is_open(self, request_id: RequestId | None) -> bool:
        """Whether this question still waits for its answer."""
        return request_id in self._asked

    def answers(self) -> list[tuple[RequestId, wire.ReplyBody]]:
        """Return the answers that arrived since the last call."""
        found: list[tuple[RequestId, wire.ReplyBody]] = []
        while True:
            try:
                reply = wire.REPLIES.decode(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return found
            if self._remote is not None and self._is_about_introduction(reply):
                continue
            if self._asked.pop(reply.request_id, None) is not None:
                found.append((reply.request_id, reply.body))

    def keep_up(self, now: float) -> None:
        """Send again what has been without an answer for long."""
        if self._introduction is not None:
            if time.monotonic() - self._introduced_at >= _RESEND_S:
                self._introduce()
            return
        for request_id, (data, sent_at, held_s) in self._asked.items():
            if now - sent_at >= _RESEND_S + held_s:
                self._asked[request_id] = (data, now, held_s)
                self._send(data)

    def _is_about_introduction(self, reply: wire.Reply) -> bool:
        """An answer to it, or that the controller asks for one; what was asked meanwhile is asked again."""
        from gq.connection.remote import must_introduce

        if reply.request_id == self._introduction and isinstance(reply.body, wire.Done):
            self._introduction = None
            for data, _, _ in self._asked.values():
                self._send(data)
        elif must_introduce(reply):
            self._introduce()
        else:
            return reply.request_id == self._introduction  # refused: `keep_up` tries again
        return True

    def _introduce(self) -> None:
        """Not twice at once.  Where MUNGE is away, it is tried again as everything is."""
        from gq.connection.remote import introduction

        now = time.monotonic()
        if self._introduction is not None and now - self._introduced_at < _RESEND_S:
            return
        assert self._remote is not None
        self._introduction = RequestId(os.urandom(wire.REQUEST_ID_BYTES))
        self._introduced_at = now
        try:
            self._hand_over(introduction(self._remote, self._introduction))
        except GqError:
            pass  # who began this has asked before, and was told why

    def _send(self, data: bytes) -> None:
        if self._introduction is None:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:  # nobody took the last thousand: `keep_up` tries again
            pass


class JobWatch:
    """Tells gqd that an interactive job's client is still there, and hears of the job's end."""

    def __init__(self, client: AsyncClient, job_id: int) -> None:
        self.is_over = False
        """The job has ended, or gqd does not know it (any more)."""
        self.job: JobInfo | None = None
        """The job's last known state."""
        self._client = client
        self._job_id = job_id
        self._waiting: RequestId | None = None
        self._waiting_at = 0.0
        self._alive: RequestId | None = None
        self._alive_at = 0.0

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._client.socket

    def turn(self, now: float) -> None:
        """Take what came, and say what is due; call it at least once a second."""
        for request_id, body in self._client.answers():
            if request_id == self._waiting:
                self._hear(body)
        self._client.keep_up(now)
        if self.is_over:
            return
        if now - self._waiting_at >= _ASK_AGAIN_S and not self._client.is_open(self._waiting):
            self._waiting_at = now
            question = wire.WaitJobs(job_ids=(self._job_id,), until="ended", timeout_s=_WAIT_S)
            self._waiting = self._client.ask(question, now, held_s=_WAIT_S)
        if now - self._alive_at >= KEEP_ALIVE_S and not self._client.is_open(self._alive):
            self._alive_at = now
            self._alive = self._client.ask(wire.KeepAlive(job_id=self._job_id), now)

    def _hear(self, body: wire.ReplyBody) -> None:
        match body:
            case wire.Waited(jobs=(job, *_)):
                self.job = job
                self.is_over = job.state not in ACTIVE_WORDS
            case wire.Refused(code="unknown_job" | "job_over"):
                self.is_over = True
            case _:
                pass
