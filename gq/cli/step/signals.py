"""Signals as something to poll for: a pipe that says which ones came.

Owns the handlers of the signals it is given, and puts the former ones back.  Nothing happens inside a handler, so
nothing can be interrupted half-way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any


class SignalPipe:
    """While entered, the given signals only show up in `taken`; `fd` polls readable when there are any."""

    def __init__(self, signums: Iterable[int]) -> None:
        self._signums = tuple(signums)
        self._former: dict[int, Any] = {}  # what signal.signal gives back: a function, a number or None
        self._former_fd = -1
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> SignalPipe:
        self._former_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in self._signums:
            self._former[signum] = signal.signal(signum, _note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._former.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._former_fd)
        os.close(self.fd)
        os.close(self._write_fd)

    def taken(self) -> list[int]:
        """The signals that came since the last call, in order."""
        try:
            data = os.read(self.fd, 4096)
        except BlockingIOError:
            return []
        return [signum for signum in data if signum in self._former]


def _note(signum: int, frame: FrameType | None) -> None:
    """Being handled is enough: the wake-up pipe tells the loop."""


def name_of(signum: int) -> str:
    """``SIGTERM``; ``signal 40`` for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def describe(signum: int) -> str:
    """Return a shell's description of the signal that ended a process: ``Killed``, ``Segmentation fault``."""
    return signal.strsignal(signum) or name_of(signum)
