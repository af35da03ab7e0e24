"""What waits between libzmq and who handles it: nothing of a peer without bound, and nothing within libzmq."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gq.connection.input_queue import InputQueue
from gq.connection.loop_socket import router
from gq.connection.memory_guard import Timer
from gq.connection.user_block import UserBlock, access_list
from tests.clusters import wait_until

MAX_WAITING = 100
WITHIN_S = 10.0


class Reader:
    """A ROUTER on this host, and what became of what came."""

    def __init__(self, path: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.endpoint = f"ipc://{path}"
        self.malformed = 0
        self.greedy: list[str] = []
        self.got: list[bytes] = []
        self._socket = router(self.context, 1 << 20)
        self._socket.bind(self.endpoint)
        self.backlog = InputQueue(self._socket, self._on_malformed, self.greedy.append, _never, MAX_WAITING)

    def dial(self, **options: bytes) -> zmq.Socket[bytes]:
        dealer = self.context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, -1)
        for name, value in options.items():
            dealer.set(getattr(zmq.SocketOption, name), value)
        dealer.connect(self.endpoint)
        return dealer

    def read(self) -> None:
        self.backlog.read()
        while (message := self.backlog.take()) is not None:
            self.got.append(message.frame.bytes)

    def await_words(self, *words: bytes) -> None:
        def have_come() -> bool:
            self.read()
            return set(words) <= set(self.got)

        wait_until(have_come, WITHIN_S, f"{words} have come")

    def _on_malformed(self) -> None:
        self.malformed += 1


class _NoTimer:
    def cancel(self) -> None:
        pass


def _never(after_s: float, then: Callable[[], None]) -> Timer:
    return _NoTimer()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path / "door.sock")
    yield one
    one.context.destroy(linger=0)


def test_a_listening_socket_leaves_no_message_to_wait_within_libzmq() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    assert router(context, 1000).getsockopt(zmq.RCVHWM) == 0
    context.destroy(linger=0)


def test_who_brings_too_much_is_hung_up_on_and_others_are_heard(reader: Reader) -> None:
    honest, greedy = reader.dial(), reader.dial()
    honest.send(b"first")
    reader.await_words(b"first")
    for number in range(MAX_WAITING * 2):
        greedy.send(b"%d" % number)
    monitor = greedy.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    wait_until(lambda: (reader.backlog.read(), reader.greedy)[1] != [], WITHIN_S, "it was noticed")
    assert monitor.poll(int(WITHIN_S * 1000)), "its link has ended"
    honest.send(b"second")
    reader.await_words(b"second")

    assert reader.greedy == [f"uid {os.getuid()}"]
    assert reader.got.count(b"%d" % (MAX_WAITING - 1)) == 1
    assert b"%d" % MAX_WAITING not in reader.got


def test_who_waits_for_answers_may_bring_any_number_in_time(reader: Reader) -> None:
    client = reader.dial()
    for number in range(MAX_WAITING * 3):
        client.send(b"%d" % number)
        reader.await_words(b"%d" % number)

    assert reader.greedy == []


def test_messages_of_several_frames_are_counted_and_left_out(reader: Reader) -> None:
    client = reader.dial()
    client.send_multipart([b"one", b"two", b"three"])
    client.send(b"four")
    reader.await_words(b"four")

    assert (reader.malformed, reader.got) == (1, [b"four"])


def test_messages_of_a_link_older_than_zmtp_3_are_counted_and_left_out(reader: Reader) -> None:
    """libzmq does not say which link brought them, so nothing could be asked of the link or done to it."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x01\x05"  # ZMTP 2.0, DEALER
    with socket.socket(socket.AF_UNIX) as old:
        old.connect(reader.endpoint.removeprefix("ipc://"))
        old.sendall(greeting + bytes(2) + b"\0\x03old" * (MAX_WAITING + 1))
        wait_until(lambda: reader.read() or reader.malformed > MAX_WAITING, WITHIN_S, "all are counted")
        dealer = reader.dial()
        dealer.send(b"new")
        reader.await_words(b"new")

    assert reader.got == [b"new"]
    assert reader.greedy == []


def test_two_links_of_one_name_are_both_heard(reader: Reader) -> None:
    twins = [reader.dial(ROUTING_ID=b"twin") for _ in range(2)]
    for twin, words in zip(twins, (b"first", b"second"), strict=True):
        twin.send(words)
        reader.await_words(words)

    assert (reader.malformed, reader.got) == (0, [b"first", b"second"])


def test_an_access_list_says_what_the_mode_says_but_for_those_who_are_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for mode, kept_out in ((0o666, {1001, 1002}), (0o660, {7}), (0o666, set[int]())):
        path.chmod(mode)
        try:
            os.setxattr(path, "system.posix_acl_access", access_list(mode, kept_out))
        except OSError:
            pytest.skip("this file system has no access lists")
        assert path.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can be another user")
def test_who_is_kept_out_cannot_connect_until_the_time_is_over() -> None:
    due: list[Callable[[], None]] = []

    def call_later(after_s: float, then: Callable[[], None]) -> Timer:
        due.append(then)
        return _NoTimer()

    with tempfile.TemporaryDirectory(prefix="gq-bar-") as directory, socket.socket(socket.AF_UNIX) as door:
        Path(directory).chmod(0o755)
        path = Path(directory, "door.sock")
        door.bind(str(path))
        door.listen()
        path.chmod(0o666)
        bar = UserBlock(str(path), call_later)
        assert may_connect(path, 2998) and may_connect(path, 2999)
        bar.block(2999)
        bar.block(2999)
        assert may_connect(path, 2998) and not may_connect(path, 2999)
        assert len(due) == 1
        due.pop()()
        assert may_connect(path, 2999)


def may_connect(path: Path, uid: int) -> bool:
    words = f"import os, socket; os.setuid({uid}); socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0
