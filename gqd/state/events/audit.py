"""The event of one line in the audit trail.  Pure."""

from __future__ import annotations

from gqd.state.events.record import EventBase


class Audited(EventBase, frozen=True, kw_only=True):
    """An entry of the audit trail (`gq.model.audit.AuditEntry`) was written; nothing else changes."""

    user: str
    uid: int | None = None
    origin: str = ""
    action: str = ""
    object: str = ""
    outcome: str = "done"
    detail: str = ""
