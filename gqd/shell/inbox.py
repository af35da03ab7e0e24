"""The bounded queue of inputs that wait for the loop.

Owns the bound: while the inbox is full no listener is read, so that the peers' own queues fill and they wait.  Nothing
in the inbox has been acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gqd.state.input import Input


class Item(NamedTuple):
    """An input, and the blobs that must be stored before it is handled."""

    input: Input
    blobs: dict[str, bytes]


class Inbox:
    """Calls `on_item` for each new input, and `on_room` when there is room again after it was full."""

    def __init__(self, limit: int, on_item: Callable[[], None], on_room: Callable[[], None]) -> None:
        self._items: deque[Item] = deque()
        self._limit = limit
        self._on_item = on_item
        self._on_room = on_room
        self._was_full = False

    def __len__(self) -> int:
        return len(self._items)

    def has_room(self) -> bool:
        """Whether an input may be put; if not, `on_room` will be called later."""
        if len(self._items) < self._limit:
            return True
        self._was_full = True
        return False

    def put(self, input: Input, blobs: dict[str, bytes] | None = None) -> None:
        self._items.append(Item(input, blobs or {}))
        self._on_item()

    def take(self, most: int) -> list[Item]:
        items = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        if self._was_full and len(self._items) <= self._limit // 2:
            self._was_full = False
            self._on_room()
        return items
