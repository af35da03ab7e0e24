"""The one form in which a daemon's command line complains: ``error: …`` and ``hint: …`` on stderr.

Commands have theirs in `gq.cli`, which daemons must not load.
"""

from __future__ import annotations

import shutil
import sys
import textwrap

from gq.errors import GqError

_LEAST_ROOM = 20


def complain(error: GqError) -> int:
    """Say it, on a terminal in lines that fit; its exit status."""
    for mark, text in (("error", error.message), ("hint", error.hint)):
        for line in f"{mark}: {text}".split("\n") if text else []:
            for part in _folded(line):
                sys.stderr.write(f"{part}\n")
    return error.exit_status


def _folded(line: str) -> list[str]:
    if not sys.stderr.isatty():
        return [line]
    room = max(shutil.get_terminal_size().columns, _LEAST_ROOM)
    return textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [line]
