"""Apply functions of orders that are owed to nodes (`gqd.state.owed_order`).  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId
from gqd.state.cluster import Cluster
from gqd.state.events.owed_order import OrderConfirmed, OrderOwed
from gqd.state.owed_order import OwedKey


def apply_owed(cluster: Cluster, fact: OrderOwed) -> None:
    key = OwedKey(fact.attempt_id, fact.node, fact.order.order_id)
    cluster.owed_orders[key] = fact.order
    cluster.changes.owed_orders[key] = None


def apply_confirmed(cluster: Cluster, fact: OrderConfirmed) -> None:
    key = OwedKey(fact.attempt_id, fact.node, fact.order_id)
    del cluster.owed_orders[key]
    cluster.changes.owed_orders[key] = None


def forget_part(cluster: Cluster, attempt_id: AttemptId, node: str) -> None:
    """Forget the orders for an attempt that the node holds nothing of any more."""
    for key in [key for key in cluster.owed_orders if (key.attempt_id, key.node) == (attempt_id, node)]:
        del cluster.owed_orders[key]
        cluster.changes.owed_orders[key] = None
