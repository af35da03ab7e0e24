"""The node daemon's log: one line per fact on standard error, with the job as a field; JSON by option."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

from gq.model.ids import AttemptId


def set_up_logging(level: str, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    log = logging.getLogger("gqnode")
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False


def about(attempt_id: AttemptId, **facts: object) -> dict[str, object]:
    """``extra`` of a line about an attempt."""
    return {"fields": {"job": attempt_id.job_id, "attempt": attempt_id.attempt, **facts}}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_word(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{_instant(record)} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
    text = str(value)
    return json.dumps(text) if " " in text else text
