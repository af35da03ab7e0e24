"""Clocks of the orders that nodes have not confirmed: when each was sent, and so when it is repeated.  Pure.

After a restart there are none: a node is sent all orders that it is owed when it says hello.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from gq.model.ids import AttemptId, StepId
from gqd.state.owed_order import OwedKey

Id = TypeVar("Id", bound=Hashable)


@dataclass(frozen=True)
class OrderKind(Generic[Id]):
    """A kind of order; `Id` identifies what an order of this kind is about."""

    name: str


PART: Final = OrderKind[AttemptId]("part")  # what the phase of a part requires
STEP: Final = OrderKind[StepId]("step")  # to launch or to end a step
TIME_LIMIT: Final = OrderKind[AttemptId]("time limit")
SUSPEND: Final = OrderKind[AttemptId]("suspend")  # to suspend or to resume
RESIZE: Final = OrderKind[AttemptId]("resize")  # a change of an elastic job
STOP_ORPHAN: Final = OrderKind[AttemptId]("stop orphan")  # to stop what the controller does not know
ONE_OFF: Final = OrderKind[OwedKey]("one-off")  # an order of `Cluster.owed_orders`


@dataclass(slots=True)
class OrderClock:
    """When an order that is owed to a node was sent."""

    first_sent_at: float
    last_sent_at: float
    is_received: bool = False


class OrderClocks:
    """The clock of each unconfirmed order, by kind, id and node."""

    def __init__(self) -> None:
        self._clocks: defaultdict[str, dict[tuple[Hashable, str], OrderClock]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._clocks.values()))

    def start(self, kind: OrderKind[Id], id_: Id, node: str, now: float) -> None:
        """Start the clock of an order that is sent now."""
        self._clocks[kind.name][id_, node] = OrderClock(now, now)

    def stop(self, kind: OrderKind[Id], id_: Id, node: str) -> bool:
        """Forget an order that is confirmed, or not owed any more; False: it had no clock."""
        return self._clocks[kind.name].pop((id_, node), None) is not None

    def get(self, kind: OrderKind[Id], id_: Id, node: str) -> OrderClock | None:
        return self._clocks[kind.name].get((id_, node))

    def owed(self, kind: OrderKind[Id]) -> list[tuple[Id, str, OrderClock]]:
        """Return (id, node, clock) of the unconfirmed orders of a kind, in the sequence of their first sending."""
        return [(cast(Id, id_), node, clock) for (id_, node), clock in self._clocks[kind.name].items()]

    def forget_part(self, attempt_id: AttemptId, node: str) -> None:
        """Forget the orders about an attempt's part, of which nothing is left."""
        for clocks in self._clocks.values():
            clocks.pop((attempt_id, node), None)

    def forget_node(self, node: str) -> None:
        """Forget the orders to a node that was removed."""
        for clocks in self._clocks.values():
            for key in [key for key in clocks if key[1] == node]:
                del clocks[key]

    def leap(self, by_s: float) -> None:
        """Shift all instants by a leap of the clock."""
        for clocks in self._clocks.values():
            for clock in clocks.values():
                clock.first_sent_at += by_s
                clock.last_sent_at += by_s
