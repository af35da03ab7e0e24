"""File descriptors of a process: standard streams that its parent closed, and the maximum that may be open."""

from __future__ import annotations

import os
import sys

_STREAMS = ((0, "stdin", os.O_RDONLY, "r"), (1, "stdout", os.O_WRONLY, "w"), (2, "stderr", os.O_WRONLY, "w"))


def open_closed_streams() -> None:
    """Give this process and its children ``/dev/null`` for each standard stream that is closed (``<&-``, ``>&-``).

    A process calls it before it opens anything: otherwise the next file or socket gets the free number, and output for
    the user is written into it.
    """
    for fd, name, mode, text_mode in _STREAMS:
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, mode)  # the lowest free number, which is `fd`
            os.dup2(opened, fd)
            os.set_inheritable(fd, True)
            if opened != fd:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, text_mode, closefd=False))


def raise_descriptor_limit() -> int:
    """Raise the soft limit of descriptors to the hard limit; return the limit (negative: unlimited).

    Links of unknown peers at a tcp listener count, too, and a low limit saves nothing.
    """
    import resource  # commands do without it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
