"""Whom a daemon hangs up on when it has grown: the hungriest first, and nobody twice where that does not help."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from gq.connection import memory_guard

BEGIN = 100 * 1024 * 1024
GROWN = BEGIN + memory_guard.MAX_GROWTH_BYTES + 1


class Watched:
    """One door with a link from each of these addresses; its memory is what the test says."""

    def __init__(self, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: Callable[[], int] = lambda: BEGIN
        self.greedy: list[str] = []
        self._due: list[Callable[[], None]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.links: dict[str, socket.socket] = {}
        self._accepted: list[socket.socket] = []
        for one in addresses:
            self.dial(one)
        monkeypatch.setattr(memory_guard, "resident_bytes", lambda: self.memory())
        door = f"tcp://*:{self._listener.getsockname()[1]}"
        self.appetites = memory_guard.MemoryGuard([door], self._call_later, lambda peer, _: self._note(peer))

    def dial(self, address: str) -> None:
        self.links[address] = socket.create_connection(self._listener.getsockname(), source_address=(address, 0))
        self._accepted.append(self._listener.accept()[0])

    def turn(self, times: int = 20) -> None:
        """Time goes on."""
        for _ in range(times):
            self._due.pop()()

    def has(self, address: str) -> bool:
        """Whether this link still stands."""
        link = self.links[address]
        link.setblocking(False)
        try:
            return link.recv(1) != b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        self.appetites.close()
        for one in (self._listener, *self.links.values(), *self._accepted):
            one.close()

    def _call_later(self, after_s: float, then: Callable[[], None]) -> memory_guard.Timer:
        self._due.append(then)
        return _NoTimer()

    def _note(self, peer: str) -> None:
        self.greedy.append(peer)


class _NoTimer:
    def cancel(self) -> None:
        pass


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    one = Watched(("127.0.0.1", "127.0.0.2", "127.0.0.3"), monkeypatch)
    yield one
    one.close()


def test_who_has_more_to_say_is_hung_up_on_and_the_others_are_not_if_that_was_it(watched: Watched) -> None:
    watched.links["127.0.0.2"].sendall(b"more")
    watched.memory = lambda: GROWN if watched.has("127.0.0.2") else BEGIN
    watched.turn()

    assert watched.greedy == ["127.0.0.2"]
    assert [one for one in watched.links if watched.has(one)] == ["127.0.0.1", "127.0.0.3"]


def test_who_has_filled_the_memory_and_fallen_silent_is_found_behind_others(watched: Watched) -> None:
    watched.links["127.0.0.1"].sendall(b"innocent")
    watched.memory = lambda: GROWN if watched.has("127.0.0.2") else BEGIN
    watched.turn()

    assert watched.greedy == ["127.0.0.2"]
    assert [one for one in watched.links if watched.has(one)] == ["127.0.0.3"]


def test_a_machine_that_is_busy_may_take_its_time_to_give_the_memory_back(watched: Watched) -> None:
    watched.links["127.0.0.2"].sendall(b"more")
    late = iter([GROWN] * (memory_guard.QUIET_LOOKS - 1))
    watched.memory = lambda: GROWN if watched.has("127.0.0.2") else next(late, BEGIN)
    watched.turn()

    assert watched.greedy == ["127.0.0.2"]
    assert [one for one in watched.links if watched.has(one)] == ["127.0.0.1", "127.0.0.3"]


def test_a_daemon_that_has_grown_by_itself_hangs_up_once_and_lets_it_be(watched: Watched) -> None:
    watched.memory = lambda: GROWN
    watched.turn()
    assert not any(watched.has(one) for one in watched.links) and watched.greedy == []

    watched.dial("127.0.0.4")
    watched.turn()
    assert watched.has("127.0.0.4")


def test_while_it_has_not_grown_by_much_nobody_is_hung_up_on(watched: Watched) -> None:
    watched.memory = lambda: GROWN - 1
    watched.turn()

    assert all(watched.has(one) for one in watched.links)


def test_nobody_is_at_the_other_end_of_a_tcp_link_whose_descriptor_was_given_to_a_local_socket() -> None:
    """libzmq's threads close and open links between two looks at a descriptor."""
    near, far = socket.socketpair()
    seen = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=os.dup(near.fileno()))
    with near, far, seen, pytest.raises(OSError, match="now belongs to a local socket"):
        memory_guard.peer_name(seen)
