"""The terminal of a `gqrun --pty`: raw while the step has it, and as it was in every case afterwards."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import tty
from types import TracebackType

from gq.wire.step import WindowSize

DEFAULT_SIZE = WindowSize(24, 80)


class RawTerminal:
    """While entered, keys go to the tasks as they are typed; does nothing where `fd` is no terminal."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._saved: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> RawTerminal:
        if os.isatty(self._fd) and is_foreground(self._fd):
            self._saved = termios.tcgetattr(self._fd)
            tty.setraw(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved is not None:
            # Now, not when all output is read: a terminal that nobody reads any more must not keep us.
            termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
            self._saved = None


def window_size(fd: int = 0) -> WindowSize:
    """Return the size of the terminal at `fd`; 24 × 80 if there is none, or if it reports no size."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:
        return DEFAULT_SIZE
    return WindowSize(rows, columns) if rows and columns else DEFAULT_SIZE


def is_foreground(fd: int = 0) -> bool:
    """Whether reading `fd` is ours to do: a background job that reads its terminal is stopped by the kernel."""
    if not os.isatty(fd):
        return True
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not our controlling terminal: nobody stops us
        return True
