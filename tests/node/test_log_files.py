"""Readers of files for users: what becomes of one that its user holds up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from gq.wire.step import LogData
from gqnode.control.account import Account
from gqnode.daemon import log_files
from gqnode.daemon.attempt_queues import AttemptQueues
from gqnode.daemon.log_files import LogFiles
from gqnode.daemon.spawn import Spawner
from gqnode.shepherd.frames import FrameReader
from tests.clusters import wait_until

ACCOUNT = Account(user="tester", uid=os.geteuid(), gid=os.getegid(), groups=(os.getegid(),))


class StoppingSpawner(Spawner):
    """Every reader is stopped, as its user could do, as soon as it has said who it is."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = 0
        self._links: list[socket.socket] = []

    def spawn_reader(self, link: socket.socket) -> None:
        near, far = socket.socketpair()
        self._links += [near, link.dup()]
        with far:
            super().spawn_reader(far)
        first = near.recv(4096)
        (head, _) = next(FrameReader().feed(first))
        self.reader = head["pid"]
        os.kill(self.reader, signal.SIGSTOP)
        link.sendall(first)

    def close(self) -> None:
        super().close()
        for link in self._links:
            link.close()


def read(spawner: Spawner, path: Path, account: Account | None) -> LogData:
    async def inside() -> LogData:
        lanes = AttemptQueues(lambda error: pytest.fail(str(error)))
        try:
            return await LogFiles(lanes, spawner).read(str(path), 0, 100, account)
        finally:
            await lanes.close(1.0)

    return asyncio.run(inside())


def test_a_reader_that_its_user_stops_is_killed_and_the_answer_is_that_it_is_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(log_files, "ANSWER_S", 0.3)
    spawner = StoppingSpawner()
    try:
        with pytest.raises(OSError, match="timed out"):
            read(spawner, tmp_path, ACCOUNT)

        wait_until(lambda: not Path(f"/proc/{spawner.reader}").exists(), what="the reader is gone")
    finally:
        spawner.close()


def test_a_reader_that_cannot_be_forked_is_an_error_of_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spawner = Spawner()
    monkeypatch.setattr(spawner, "spawn_reader", lambda link: link.close())

    with pytest.raises(OSError, match="Input/output error"):
        read(spawner, tmp_path, ACCOUNT)


def test_a_daemon_that_is_its_users_own_reads_by_itself(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("0123456789")

    assert read(Spawner(), tmp_path / "log", None) == LogData(offset=0, data=b"0123456789", eof=True)
    assert read(Spawner(), tmp_path / "none", None) == LogData(offset=0, eof=True, is_missing=True)
