"""Apply the events of keys to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.key import KeyKind
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Key


def apply_added(cluster: Cluster, fact: event.KeyAdded) -> None:
    assert fact.public not in cluster.keys, f"key {fact.public} already exists"
    key = Key(
        public=fact.public,
        kind=fact.kind,
        name=fact.name,
        added_at=fact.at,
        added_by=fact.by,
        uid=fact.uid,
        gid=fact.gid,
        is_login=fact.is_login,
        expires_at=fact.expires_at,
        note=fact.note,
    )
    cluster.add_key(key)
    _touch(cluster, fact.public)


def apply_joined(cluster: Cluster, fact: event.NodeJoined) -> None:
    token = cluster.keys[fact.token]
    token.joined = fact.public
    _touch(cluster, fact.token)
    key = Key(
        public=fact.public,
        kind=KeyKind.NODE,
        name=fact.node,
        added_at=fact.at,
        added_by=token.added_by,
        is_login=fact.is_login,
        note=token.note,
    )
    cluster.add_key(key)
    _touch(cluster, fact.public)


def apply_revoked(cluster: Cluster, fact: event.KeyRevoked) -> None:
    cluster.drop_key(fact.public)
    _touch(cluster, fact.public)


def apply_expired(cluster: Cluster, fact: event.KeysExpired) -> None:
    for public in fact.publics:
        cluster.drop_key(public)
        _touch(cluster, public)


def _touch(cluster: Cluster, public: str) -> None:
    cluster.changes.keys[public] = None
