"""Converts orders that a node has not confirmed to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.ids import AttemptId
from gq.wire.node import OneOffOrder
from gqd.state.cluster import Cluster
from gqd.state.index.changes import Changes
from gqd.state.owed_order import OwedKey
from gqd.store.protocol import Row

_order_of = msgspec.json.Decoder(OneOffOrder).decode


def owed_orders_of(rows: Iterable[Row]) -> dict[OwedKey, OneOffOrder]:
    return {
        OwedKey(AttemptId(job_id, attempt), node, bytes(order_id)): _order_of(order)
        for job_id, attempt, node, order_id, order in rows
    }


def upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    owed = cluster.owed_orders
    rows = [(*_columns(key), msgspec.json.encode(owed[key]).decode()) for key in changes.owed_orders if key in owed]
    return {"owed_orders": tuple(rows)}


def deletes(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    return {"owed_orders": tuple([_columns(key) for key in changes.owed_orders if key not in cluster.owed_orders])}


def _columns(key: OwedKey) -> Row:
    return (key.attempt_id.job_id, key.attempt_id.attempt, key.node, key.order_id)
