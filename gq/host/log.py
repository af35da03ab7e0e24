"""The format of the daemons' logs: one line per event on standard error, with fields; JSON by option.

The module owns the line format of both daemons, and opening the log file again after another program renamed it.  A
line's fields are in ``record.fields``, given by ``extra={"fields": …}``.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Callable
from datetime import datetime

from gq.model.text import escape_controls

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


def set_up(log: logging.Logger, level: str, as_json: bool) -> None:
    """Send the log's lines to standard error only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False
    _leave_out_what_no_line_shows()


def _leave_out_what_no_line_shows() -> None:
    """Do not collect code location and thread, which no line shows and which cost as much as the line itself."""
    logging._srcfile = None  # as the manual of logging says
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def log_reopener() -> Callable[[], None]:
    """Return a function that opens the log file again, at the path that standard error has now: for SIGHUP after a
    rotation.

    The function does nothing if standard error is no file, as under a service manager or on a terminal.
    """
    descriptor = 2
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a text is wanted
        found = os.fstat(descriptor)
        has_path = os.path.samestat(os.stat(path), found)  # noqa: PTH116 - likewise
    except OSError:  # closed, or it has no path, as a pipe
        return lambda: None
    if not has_path or not stat.S_ISREG(found.st_mode):
        return lambda: None

    def reopen() -> None:
        try:
            fresh = _open_log(path, stat.S_IMODE(found.st_mode))
        except OSError as error:
            logging.getLogger("gq").error("the log %s cannot be reopened: %s", path, error.strerror)
            return
        is_output = os.path.sameopenfile(1, descriptor)
        os.dup2(fresh, descriptor)
        if is_output:
            os.dup2(fresh, 1)
        os.close(fresh)

    return reopen


def _open_log(path: str, mode: int) -> int:
    """Open the log file, which the rotating program may have created; a new file gets `mode`, whatever the umask."""
    try:
        fresh = os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return os.open(path, _APPEND)
    os.fchmod(fresh, mode)
    return fresh


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_word(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{_instant(record)} {record.levelname.lower():7} {escape_controls(record.getMessage())}{fields}"
        return f"{line}\n{self._traceback(record)}" if record.exc_info else line

    def _traceback(self, record: logging.LogRecord) -> str:
        """Return the exception's lines, indented, so that no text in them looks like a line of the log."""
        lines = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        return "\n".join(f"    {escape_controls(line)}" for line in lines)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _word(value: object) -> str:
    """Return a value as one word, in JSON if necessary, so that it cannot look like two fields or lines."""
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
