"""The controller's log: one line for each event, with job and node as fields.

Owns which events and which of their fields are logged.  Only the shell logs; the deciding code emits events.
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
"""Events that are logged at level info; all others at level debug."""
_WORDY = frozenset({
    "at", "spec", "inventory", "ticket_key", "key", "answer", "layout", "grants", "step_public_key", "to", "body",
})  # fmt: skip
"""Fields that are not logged, since they are long or secret."""


def set_up_logging(level: str, as_json: bool) -> None:
    set_up(LOG, level, as_json)


def log_facts(events: tuple[Event, ...]) -> None:
    """Log one line for each event; call it when the events are durable."""
    for fact in events:
        level = logging.INFO if isinstance(fact, _TOLD) else logging.DEBUG
        if LOG.isEnabledFor(level):
            LOG.log(level, "%s", type(fact).__name__, extra={"fields": _fields(fact)})


def _fields(fact: Event) -> dict[str, object]:
    """The event's fields as plain values; attempt and step ids become the job id and a number."""
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
