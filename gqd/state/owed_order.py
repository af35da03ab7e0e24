"""Orders that were promised to a user and that their node has not confirmed: signals, lines, ends of steps.  Pure.

All other orders follow from the phase of a part (`gqd.control.orders`) and need not be stored.  Owed orders are stored:
the user's request is acknowledged once the order is on disk, and the order is repeated until the node confirms its id,
or has no part of the attempt any more.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gq.model.ids import AttemptId
from gq.wire.node import OneOffOrder


class OwedKey(NamedTuple):
    """Identifies an owed order."""

    attempt_id: AttemptId
    node: str
    order_id: bytes
    """Id of the user's request: one request sends a node at most one order about an attempt."""


OwedOrders: TypeAlias = dict[OwedKey, OneOffOrder]
