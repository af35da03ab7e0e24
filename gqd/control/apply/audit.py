"""Apply an entry of the audit trail: it changes nothing, and becomes a row (`gqd.store.rows.rows`).  Pure."""

from __future__ import annotations

from gqd.state.cluster import Cluster
from gqd.state.events import event


def apply_audited(cluster: Cluster, fact: event.Audited) -> None:
    """Check the entry; the audit trail is for people, and no decision reads it."""
    assert fact.action and fact.detail.isprintable(), f"{fact} is not a line of the audit trail"
