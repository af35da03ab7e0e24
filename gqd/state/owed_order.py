"""Orders that were promised to a user and that their node has not confirmed: signals, lines, ends of steps.  Pure.

All other orders follow from the phase of a part (`gqd.control.orders`) and need not be remembered.  These do not: the
user's request is acknowledged once the order is on disk, and the order is repeated until the node confirms it by the
order's id, or has nothing left of the attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gq.model.ids import AttemptId
from gq.wire.node import OneOffOrder
from gqd.state.events.record import EventBase

if TYPE_CHECKING:
    from gqd.state.cluster import Cluster


class OwedKey(NamedTuple):
    attempt_id: AttemptId
    node: str
    order_id: bytes
    """Id of the user's request: one request sends a node at most one order about an attempt."""


OwedOrders: TypeAlias = dict[OwedKey, OneOffOrder]


class OrderOwed(EventBase, frozen=True, kw_only=True):
    attempt_id: AttemptId
    node: str
    order: OneOffOrder


class OrderConfirmed(EventBase, frozen=True, kw_only=True):
    """The node has carried the order out, or nothing is left to carry it out on."""

    attempt_id: AttemptId
    node: str
    order_id: bytes


def apply_owed(cluster: Cluster, fact: OrderOwed) -> None:
    key = OwedKey(fact.attempt_id, fact.node, fact.order.order_id)
    cluster.owed_orders[key] = fact.order
    cluster.changes.owed_orders[key] = None


def apply_confirmed(cluster: Cluster, fact: OrderConfirmed) -> None:
    key = OwedKey(fact.attempt_id, fact.node, fact.order_id)
    del cluster.owed_orders[key]
    cluster.changes.owed_orders[key] = None


def forget_part(cluster: Cluster, attempt_id: AttemptId, node: str) -> None:
    """The node has nothing of the attempt any more."""
    for key in [key for key in cluster.owed_orders if (key.attempt_id, key.node) == (attempt_id, node)]:
        del cluster.owed_orders[key]
        cluster.changes.owed_orders[key] = None


def check_owed_orders(cluster: Cluster) -> None:
    for key in cluster.owed_orders:
        attempt = cluster.attempts.get(key.attempt_id)
        assert attempt is not None and key.node in attempt.parts, (
            f"{key} is owed to a node that has nothing of the attempt"
        )
