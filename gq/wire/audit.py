"""Who did what: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.audit import AuditEntry


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class QueryAudit(_Body, frozen=True, kw_only=True):
    """The audit trail, newest last (operators).  → `AuditTrail`, paged by ``after`` as in `ListJobs`"""

    user: str = ""
    action: str = ""
    outcome: str = ""
    """``refused``: everything but ``done``."""
    since: float | None = None
    until: float | None = None
    after: int = 0
    limit: int = 2000


class AuditTrail(_Body, frozen=True, kw_only=True):
    """``last``: ask on with ``after`` = this, while ``more`` is true."""

    entries: tuple[AuditEntry, ...]
    last: int = 0
    more: bool = False
