"""The audit trail: who did what, when, from where, and the outcome.  Pure."""

from __future__ import annotations

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the audit trail, which is append-only."""

    at: float
    user: str
    """Empty: the caller is not authenticated."""
    uid: int | None = None
    origin: str = ""
    """``local``, ``node n1``, ``key laptop (192.0.2.7)``, ``munge (192.0.2.7)``, or an unknown caller's address."""
    action: str = ""
    """The request (``CancelJobs``), or the event of a listener (``HandshakeRefused``, ``Impostor``, ``Malformed``)."""
    object: str = ""
    """``job 7``, ``node n1``, ``key <first characters>``."""
    outcome: str = "done"
    """``done``, or the code of the refusal."""
    detail: str = ""
    """A printable line of at most 500 characters."""
