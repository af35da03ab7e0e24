"""The one form in which a daemon's command line complains: ``error: …`` and ``hint: …`` on stderr.

Commands complain in `gq.cli`, which daemons must not load, and fold their lines likewise.
"""

from __future__ import annotations

import sys
from typing import TextIO

from gq.errors import GqError

_LEAST_ROOM = 20


def complain(error: GqError) -> int:
    """Say it, on a terminal in lines that fit; its exit status."""
    for mark, text in (("error", error.message), ("hint", error.hint)):
        for line in f"{mark}: {text}".split("\n") if text else []:
            for part in folded(line, sys.stderr):
                sys.stderr.write(f"{part}\n")
    return error.exit_status


def folded(text: str, stream: TextIO, indent: int = 0) -> list[str]:
    """The lines of a text that begins in column `indent`: on a terminal none is wider, unless one word is."""
    if not stream.isatty():
        return [text]
    import shutil
    import textwrap

    room = max(shutil.get_terminal_size().columns - indent, _LEAST_ROOM)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]
