"""Orders that are sent once (signals, messages, ends of steps) that survive a crash of the controller.  Pure.

See `gqd.state.owed_order`.  A gqnode too old to confirm them (`Inventory.confirms_orders`) gets each order once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.wire import node as wire
from gqd.control import orders
from gqd.state.effect import SendOrder
from gqd.state.events.owed_order import OrderConfirmed, OrderOwed
from gqd.state.order_clocks import ONE_OFF
from gqd.state.owed_order import OwedKey
from gqd.state.records import Attempt

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def send(draft: TurnBuilder, attempt: Attempt, node: str, order: wire.OneOffOrder) -> None:
    """Send the order, and again until the node confirms it; `order` has the id of the user's request."""
    remember(draft, attempt, node, order)
    draft.enqueue(SendOrder(node=node, order=order))


def remember(draft: TurnBuilder, attempt: Attempt, node: str, order: wire.OneOffOrder) -> None:
    """Keep an order that another message carries the first time, so that it is sent again until confirmed."""
    known = draft.cluster.nodes.get(node)
    if known is not None and known.inventory.confirms_orders and order.order_id and node in attempt.parts:
        key = OwedKey(attempt.attempt_id, node, order.order_id)
        if key not in draft.cluster.owed_orders:
            draft.emit(OrderOwed(at=draft.now, attempt_id=attempt.attempt_id, node=node, order=order))
        draft.volatile.order_clocks.start(ONE_OFF, key, node, draft.now)


def on_confirmed(draft: TurnBuilder, node: str, report: wire.OrderConfirmed) -> None:
    """The node has carried out the order: forget it."""
    key = OwedKey(report.attempt_id, node, report.order_id)
    draft.volatile.order_clocks.stop(ONE_OFF, key, node)
    if key in draft.cluster.owed_orders:
        draft.emit(OrderConfirmed(at=draft.now, attempt_id=key.attempt_id, node=node, order_id=key.order_id))


def repeat_for(draft: TurnBuilder, node: str) -> None:
    """Send the node's unconfirmed orders again after its hello: it may have missed them."""
    for key in [key for key in draft.cluster.owed_orders if key.node == node]:
        orders.send(draft, ONE_OFF, key, node, _owed(draft, key, node))


def tick(draft: TurnBuilder) -> None:
    """Repeat unconfirmed orders."""
    orders.repeat(draft, ONE_OFF, _owed)


def _owed(draft: TurnBuilder, key: OwedKey, node: str) -> wire.OneOffOrder | None:
    return draft.cluster.owed_orders.get(key)
