"""What a line of the audit trail does to the cluster: nothing.  It becomes a row (`gqd.store.rows`).  Pure."""

from __future__ import annotations

from gqd.state import event
from gqd.state.cluster import Cluster


def apply_audited(cluster: Cluster, fact: event.Audited) -> None:
    """The trail is for people, one line each; nothing that decides reads it."""
    assert fact.action and fact.detail.isprintable(), f"{fact} is not a line of the audit trail"
