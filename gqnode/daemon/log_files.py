"""Reads pieces of jobs' output files with the permissions of the requesting user.

A daemon that runs all jobs as its own user reads in a thread.  Root's daemon of a shared cluster never opens a path
that a user named: a child with the user's identity does (`file_reader`), within a time limit.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from dataclasses import dataclass

from gq.wire.step import LogData
from gqnode.control.account import Account
from gqnode.daemon.attempt_queues import AttemptQueues
from gqnode.daemon.shepherd_link import ShepherdLink
from gqnode.daemon.spawn import Spawner
from gqnode.shepherd import file_reader
from gqnode.shepherd.frames import Head
from gqnode.shepherd.processes import send_signal
from gqnode.shepherd.specs import Identity

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Reads files for the step listener; used on the loop."""

    queues: AttemptQueues
    spawner: Spawner

    async def read(self, path: str, offset: int, max_bytes: int, account: Account | None) -> LogData:
        """Read a piece of a file; `OSError` if it fails.  `account`: None for the daemon's own permissions."""
        try:
            if account is None:
                data, is_end = await self.queues.in_thread(file_reader.read_piece, path, offset, max_bytes)
            else:
                data, is_end = await self._read_as(path, offset, max_bytes, account)
        except FileNotFoundError:
            return LogData(offset=offset, eof=True, is_missing=True)
        return LogData(offset=offset, data=data, eof=is_end)

    async def _read_as(self, path: str, offset: int, max_bytes: int, account: Account) -> tuple[bytes, bool]:
        identity = Identity(account.uid, account.gid, account.groups)
        head, data = await self._ask(file_reader.question(path, offset, max_bytes, identity))
        if head.get("is") == "read":
            return data, bool(head.get("eof"))
        number = head.get("errno", errno.EIO)
        raise OSError(number, os.strerror(number), path)

    async def _ask(self, question: Head) -> tuple[Head, bytes]:
        near, far = socket.socketpair()
        answer = _Answer(asyncio.get_running_loop().create_future())
        link = ShepherdLink(near, answer.take, lambda: answer.take({}, b""))
        try:
            with far:
                self.spawner.spawn_reader(far)
            link.send(question)
            return await asyncio.wait_for(answer.future, ANSWER_S)
        except TimeoutError:
            answer.end_reader()
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        finally:
            link.close()


class _Answer:
    """The answer of a file reader; empty if the reader ended without an answer."""

    def __init__(self, future: asyncio.Future[tuple[Head, bytes]]) -> None:
        self.future = future
        self._pid = 0

    def take(self, head: Head, data: bytes) -> None:
        if head.get("is") == "here":
            self._pid = int(head["pid"])
        elif not self.future.done():
            self.future.set_result((head, data))

    def end_reader(self) -> None:
        """KILL the reader; it has not been reaped, so its pid is still its own."""
        if self._pid:
            send_signal((self._pid,), signal.SIGKILL)
