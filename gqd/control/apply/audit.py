"""What a line of the audit trail does to the cluster: nothing.  It becomes a row (`gqd.store.rows.rows`).  Pure."""

from __future__ import annotations

from gqd.state.cluster import Cluster
from gqd.state.events import event


def apply_audited(cluster: Cluster, fact: event.Audited) -> None:
    """The trail is for people, one line each; nothing that decides reads it."""
    assert fact.action and fact.detail.isprintable(), f"{fact} is not a line of the audit trail"
