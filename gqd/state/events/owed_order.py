"""Events of orders that are owed to nodes (`gqd.state.owed_order`).  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId
from gq.wire.node import OneOffOrder
from gqd.state.events.record import EventBase


class OrderOwed(EventBase, frozen=True, kw_only=True):
    attempt_id: AttemptId
    node: str
    order: OneOffOrder


class OrderConfirmed(EventBase, frozen=True, kw_only=True):
    """The node has carried the order out, or nothing is left to carry it out on."""

    attempt_id: AttemptId
    node: str
    order_id: bytes
