"""Requests for the audit trail: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.audit import AuditEntry


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class QueryAudit(_Body, frozen=True, kw_only=True):
    """Query the audit trail, newest last (operators).  → `AuditTrail`, paged by ``after`` as in `ListJobs`"""

    user: str = ""
    action: str = ""
    outcome: str = ""
    """``refused`` selects every outcome except ``done``."""
    since: float | None = None
    until: float | None = None
    after: int = 0
    limit: int = 2000


class AuditTrail(_Body, frozen=True, kw_only=True):
    """A page of the audit trail; ``last`` is the ``after`` of the next request while ``more`` is true."""

    entries: tuple[AuditEntry, ...]
    last: int = 0
    more: bool = False
