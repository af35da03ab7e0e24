"""The format of errors on a daemon's command line: ``error: …`` and ``hint: …`` on stderr.

Commands write errors in `gq.cli`, which daemons must not load, with the same folding of lines.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from gq.errors import GqError, UsageError
from gq.host.fd_limit import open_closed_streams

if TYPE_CHECKING:
    from typer import Typer

_MIN_COLUMNS = 20


def complain(error: GqError) -> int:
    """Write the error to stderr, folded on a terminal; return its exit status."""
    for mark, text in (("error", error.message), ("hint", error.hint)):
        for line in f"{mark}: {text}".split("\n") if text else []:
            for part in folded(line, sys.stderr):
                sys.stderr.write(f"{part}\n")
    return error.exit_status


def run_command_line(app: Typer, program: str) -> int:
    """Run a daemon's command line; write usage errors in the format of every other error."""
    import re

    from click import ClickException

    open_closed_streams()
    try:
        status = app(prog_name=program, standalone_mode=False)
    except ClickException as error:
        sentences = dict.fromkeys(re.split(r"(?<=[.?]) ", error.format_message()))  # a suggestion may come twice
        message = " ".join(sentences).rstrip(".")
        hint = f"`{program} --help` shows the usage"
        return complain(UsageError("usage", f"{message[:1].lower()}{message[1:]}", hint))
    except GqError as error:
        return complain(error)
    return status if isinstance(status, int) else 0


def folded(text: str, stream: TextIO, indent: int = 0) -> list[str]:
    """Fold a text that begins in column `indent`: on a terminal, only a line with a single long word is wider."""
    if not stream.isatty():
        return [text]
    import shutil
    import textwrap

    columns = max(shutil.get_terminal_size().columns - indent, _MIN_COLUMNS)
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [text]
