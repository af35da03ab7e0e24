"""What is only counted (memory, generic resources, licences), and how much of it is left over a time.  Pure.

Of CPUs and GPUs it is enough to know who uses them at all before somebody is over.  What is counted is a level that
goes up and down: what some take one after the other does not add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TypeAlias

from gq.model.resource import Grant
from gqd.sched.snapshot.model import Overlay

Item: TypeAlias = tuple[str, int]
"""(name, place of the node); memory has no name, and a licence no node."""
Items: TypeAlias = Mapping[Item, int]
_MEMORY, _ANYWHERE = "", -1


def scalar_items(places: Mapping[str, int], grants: Iterable[Grant]) -> dict[Item, int]:
    """How much of each they take."""
    items: dict[Item, int] = {}
    for grant in grants:
        place = places.get(grant.node)
        if place is None:
            continue
        if grant.memory_mib:
            _add(items, (_MEMORY, place), grant.memory_mib)
        for one in grant.resources:
            _add(items, (one.name, place), one.count)
        for one in grant.licenses:
            _add(items, (one.name, _ANYWHERE), one.count)
    return items


def memory_item(place: int) -> Item:
    return _MEMORY, place


def _add(items: dict[Item, int], item: Item, count: int) -> None:
    items[item] = items.get(item, 0) + count


def free_amount(overlay: Overlay, item: Item) -> int:
    """How much of it is free."""
    name, place = item
    if place == _ANYWHERE:
        return (overlay.free_licenses or {}).get(name, 0)
    if name == _MEMORY:
        return overlay.free_memory_mib[place]
    free = overlay.free_resources.get(name)
    return 0 if free is None else int(free[place])


def set_free_amount(overlay: Overlay, item: Item, count: int) -> None:
    name, place = item
    more = count - free_amount(overlay, item)
    if not more:
        return
    if place == _ANYWHERE:
        overlay.give_masks(0, 0, 0, 0, (), ((name, -more),))
    elif name == _MEMORY:
        overlay.give_masks(place, 0, 0, more)
    else:
        overlay.give_masks(place, 0, 0, 0, ((name, -more),))


def lowest_levels(
    at: float, taken: Iterable[tuple[float, float, Items]], given_back: Iterable[tuple[float, Items]]
) -> dict[Item, int]:
    """By item that is `taken` (from when, until when, how much): the lowest level from `at` on, less that at `at`."""
    changes: list[tuple[float, bool, Item, int]] = []
    for opens_at, until, items in taken:
        for item, count in items.items():
            changes.append((max(at, opens_at), True, item, -count))
            if until < inf:
                changes.append((until, False, item, count))
    wanted = {item for _, _, item, _ in changes}
    for gives_at, items in given_back:
        changes += [(gives_at, False, item, count) for item, count in items.items() if item in wanted]
    levels: dict[Item, int] = {}
    lowest: dict[Item, int] = {}
    for _, _, item, change in sorted(changes):  # at one instant what is given back comes first
        now = levels[item] = levels.get(item, 0) + change
        lowest[item] = min(lowest.get(item, 0), now)
    return lowest
