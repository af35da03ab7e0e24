"""Orders that were promised to a user and that their node has not confirmed: signals, lines, ends of steps.  Pure.

All other orders follow from the phase of a part (`gqd.control.orders`) and need not be remembered.  These do not: the
user's request is acknowledged once the order is on disk, and the order is repeated until the node confirms it by the
order's id, or has nothing left of the attempt.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gq.model.ids import AttemptId
from gq.wire.node import OneOffOrder


class OwedKey(NamedTuple):
    attempt_id: AttemptId
    node: str
    order_id: bytes
    """Id of the user's request: one request sends a node at most one order about an attempt."""


OwedOrders: TypeAlias = dict[OwedKey, OneOffOrder]
