"""Scalar resources: memory, generic resources and licences, of which only amounts matter, over time.  Pure.

A CPU or GPU is either used by another job within an interval or not.  The free amount of a scalar resource rises and
falls instead: jobs that use it one after the other do not add up, so its lowest value over the interval counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TypeAlias

from gq.model.resource import Grant
from gqd.sched.snapshot.model import Overlay

Item: TypeAlias = tuple[str, int]
"""(name, node index); memory has the name "", and a licence, which belongs to no node, the index -1."""
Items: TypeAlias = Mapping[Item, int]
"""Amount of each item; memory in MiB."""
_MEMORY, _ANYWHERE = "", -1


def scalar_items(node_indices: Mapping[str, int], grants: Iterable[Grant]) -> dict[Item, int]:
    """Return the amount of each item that the grants take; grants on nodes that `node_indices` lacks are ignored."""
    items: dict[Item, int] = {}
    for grant in grants:
        node_index = node_indices.get(grant.node)
        if node_index is None:
            continue
        if grant.memory_mib:
            _add(items, (_MEMORY, node_index), grant.memory_mib)
        for amount in grant.resources:
            _add(items, (amount.name, node_index), amount.count)
        for amount in grant.licenses:
            _add(items, (amount.name, _ANYWHERE), amount.count)
    return items


def memory_item(node_index: int) -> Item:
    return _MEMORY, node_index


def _add(items: dict[Item, int], item: Item, count: int) -> None:
    items[item] = items.get(item, 0) + count


def free_amount(overlay: Overlay, item: Item) -> int:
    """Return the amount of the item that is free."""
    name, node_index = item
    if node_index == _ANYWHERE:
        return (overlay.free_licenses or {}).get(name, 0)
    if name == _MEMORY:
        return overlay.free_memory_mib[node_index]
    free = overlay.free_resources.get(name)
    return 0 if free is None else int(free[node_index])


def set_free_amount(overlay: Overlay, item: Item, count: int) -> None:
    """Set the amount of the item that is free."""
    name, node_index = item
    change = count - free_amount(overlay, item)
    if not change:
        return
    if node_index == _ANYWHERE:
        overlay.give_masks(0, 0, 0, 0, (), ((name, -change),))
    elif name == _MEMORY:
        overlay.give_masks(node_index, 0, 0, change)
    else:
        overlay.give_masks(node_index, 0, 0, 0, ((name, -change),))


def lowest_levels(
    at: float, taken: Iterable[tuple[float, float, Items]], given_back: Iterable[tuple[float, Items]]
) -> dict[Item, int]:
    """Return, for each taken item, its lowest free amount from `at` on, relative to that at `at`.

    `taken`: (from when, until when, amounts); `given_back`: (when, amounts).  Example: 3 licences taken from 10 to 20
    and 2 from 20 to 30 give -3.
    """
    changes: list[tuple[float, bool, Item, int]] = []
    for opens_at, until, items in taken:
        for item, count in items.items():
            changes.append((max(at, opens_at), True, item, -count))
            if until < inf:
                changes.append((until, False, item, count))
    taken_items = {item for _, _, item, _ in changes}
    for gives_at, items in given_back:
        changes += [(gives_at, False, item, count) for item, count in items.items() if item in taken_items]
    levels: dict[Item, int] = {}
    lowest: dict[Item, int] = {}
    for _, _, item, change in sorted(changes):  # at one instant, amounts given back are counted first
        level = levels[item] = levels.get(item, 0) + change
        lowest[item] = min(lowest.get(item, 0), level)
    return lowest
