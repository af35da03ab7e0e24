"""The daemon's log: one line per fact, with job and node as fields; JSON by option.

Owns the form of the lines.  Only the shell logs; what the deciding code has to say are events.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

import msgspec

from gqd.state import event
from gqd.state.event import Event

LOG = logging.getLogger("gqd")

_TOLD = (
    event.LaunchFailed,
    event.JobStarted,
    event.JobEnded,
    event.JobRequeued,
    event.PartStranded,
    event.NodeRegistered,
    event.NodeLost,
    event.NodeDrained,
    event.NodeSetDown,
    event.NodeResumed,
    event.NodeBackedOff,
)
"""Facts that an administrator wants to see without asking; all others at level debug."""
_WORDY = frozenset({"at", "spec", "inventory", "ticket_key", "key", "answer", "layout", "grants", "step_public_key"})
"""Fields that are too long for a line, or secret."""


def set_up_logging(level: str, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    LOG.handlers = [handler]
    LOG.setLevel(level.upper())
    LOG.propagate = False


def log_facts(events: tuple[Event, ...]) -> None:
    """One line per event, when it has become durable."""
    for fact in events:
        level = logging.INFO if isinstance(fact, _TOLD) else logging.DEBUG
        if LOG.isEnabledFor(level):
            LOG.log(level, "%s", type(fact).__name__, extra={"fields": _fields(fact)})


def _fields(fact: Event) -> dict[str, object]:
    """The event's values as words; attempts and steps as the job and the number in it."""
    fields: dict[str, object] = {}
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        if name in ("attempt_id", "step_id"):
            fields["job"] = value.job_id
            fields[name.removesuffix("_id")] = (
                value.attempt if name == "attempt_id" else f"{value.attempt}.{value.step}"
            )
        elif name == "job_id":
            fields["job"] = value
        elif name not in _WORDY and value not in (None, "", ()):
            fields[name] = msgspec.to_builtins(value)
    return fields


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_word(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{_instant(record)} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
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
    text = str(value) if not isinstance(value, dict | list) else json.dumps(value)
    return json.dumps(text) if " " in text else text
