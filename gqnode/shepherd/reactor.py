"""The shepherd's event loop for file descriptors and timers."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
LONGEST_WAIT_S = 3600.0


class Reactor:
    """Calls one callback per ready file descriptor and one per expired timer key."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._events: dict[int, int] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Call back whenever one of `events` (or a hang-up) occurs; replaces an earlier watch of this `fd`."""
        if fd not in self._events:
            self._epoll.register(fd, events)
        elif self._events[fd] != events:
            self._epoll.modify(fd, events)
        self._events[fd] = events
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        """Stop watching; to be called before `fd` is closed."""
        if self._callbacks.pop(fd, None) is not None:
            del self._events[fd]
            self._epoll.unregister(fd)

    def after(self, key: str, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back once after a delay; replaces the timer that has this key."""
        self._timers[key] = (time.monotonic() + delay_s, callback)

    def cancel(self, key: str) -> None:
        self._timers.pop(key, None)

    def turn(self) -> None:
        """Wait for events, and call back for each of them."""
        for fd, _ in self._epoll.poll(self._wait_s()):
            callback = self._callbacks.get(fd)
            if callback is not None:  # an earlier callback of this turn may have closed it
                callback()
        now = time.monotonic()
        for key, (at, callback) in list(self._timers.items()):
            if at <= now and self._timers.get(key) == (at, callback):
                del self._timers[key]
                callback()

    def _wait_s(self) -> float:
        if not self._timers:
            return LONGEST_WAIT_S
        return max(0.0, min(at for at, _ in self._timers.values()) - time.monotonic())
