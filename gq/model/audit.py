"""Who did what, when, from where, and what came of it.  Pure."""

from __future__ import annotations

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit trail, which is only ever added to."""

    at: float
    user: str
    """Empty where nobody proved who they are."""
    uid: int | None = None
    origin: str = ""
    """``local``, ``node n1``, ``key laptop (192.0.2.7)``, ``munge (192.0.2.7)``, or the address of a stranger."""
    action: str = ""
    """The request's name (``CancelJobs``), or what a door saw (``HandshakeRefused``, ``Impostor``, ``Malformed``)."""
    object: str = ""
    """``job 7``, ``node n1``, ``key <first characters>``."""
    outcome: str = "done"
    """``done``, or the code of the refusal."""
    detail: str = ""
    """One line, printable, at most 500 characters."""
