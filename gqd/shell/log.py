"""The controller's log: one line per fact, with job and node as fields.

Owns which facts are told, and which of their values.  Only the shell logs; what the deciding code has to say are
events.
"""

from __future__ import annotations

import logging

import msgspec

from gq.host.log import set_up
from gqd.state.events import event
from gqd.state.events.event import Event

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
    event.NodeRemoved,
    event.KeyAdded,
    event.NodeJoined,
    event.KeyRevoked,
)
"""Facts that an administrator wants to see without asking; all others at level debug."""
_WORDY = frozenset({
    "at", "spec", "inventory", "ticket_key", "key", "answer", "layout", "grants", "step_public_key", "to", "body",
})  # fmt: skip
"""Fields that are too long for a line, or secret."""


def set_up_logging(level: str, as_json: bool) -> None:
    set_up(LOG, level, as_json)


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
