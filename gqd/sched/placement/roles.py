"""Place the roles of a heterogeneous job, one after the other on one overlay, all or nothing.  Pure.

This module owns the order in which roles are placed and the merging of their shares of a node into one grant; a single
role is placed like an ordinary job.  If a role finds no room because of one placed before it, another try places it
earlier, or keeps the other role off one of its nodes.  The number of tries is bounded, so a job that fits only in an
unusual arrangement may wait longer than necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gq.model.resource import Amount, Grant, RoleShare
from gqd.sched.placement.feasible import admits
from gqd.sched.request import Shape, wanted_in_all
from gqd.sched.snapshot.model import Overlay

Place = Callable[[Overlay, Shape, list[int]], tuple[Grant, ...] | None]
"""The function that places a role."""
MAX_TRIES = 32
"""Maximum number of further tries after one for each order of the roles."""
_Placed = dict[str, tuple[Grant, ...]]
"""Grants by role."""


def place_roles(overlay: Overlay, gang: Shape, candidates: list[int], place: Place) -> tuple[Grant, ...] | None:
    """Place all roles: a grant for each node, the first role's first node first; None: not all roles have room.

    The overlay is restored afterwards.
    """
    if homeless_role(overlay, gang, candidates, place) is not gang:
        return None
    places = {overlay.nodes[candidate].name: candidate for candidate in candidates}
    attempt = _Attempt(overlay, gang, candidates, places, place)
    for order in _orders(gang):
        if grants := attempt.run(order):
            return grants
    return attempt.run_around()


def _orders(gang: Shape) -> Iterator[list[str]]:
    """Orders to try: by demand, the highest first; then the same with each of the other roles moved to the front."""
    order = [name for name, _ in sorted(gang.roles, key=lambda role: _ease(role[1]))]
    yield order
    for name in order[1:]:
        yield [name, *(one for one in order if one != name)]


def _ease(role: Shape) -> tuple[bool, bool, int, int]:
    """Sort key: exclusive roles and roles with a node list have the least choice, then those with the largest
    demand."""
    gpus, cpus = wanted_in_all(role)
    return (not role.is_exclusive, not role.nodelist, -gpus, -cpus)


@dataclass(slots=True)
class _Attempt:
    """The tries to place one heterogeneous job."""

    overlay: Overlay
    gang: Shape
    candidates: list[int]
    places: dict[str, int]
    place: Place
    seen: list[tuple[list[str], _Placed]] = field(default_factory=list)
    """The orders that failed, with the roles placed before the failure."""

    def run(self, order: list[str], kept_off: tuple[str, int] | None = None) -> tuple[Grant, ...] | None:
        """Place the roles in this order, with one role kept off one node; None: a role found no room."""
        checkpoint = self.overlay.checkpoint()
        placed = self._place(order, kept_off)
        self.overlay.rollback(checkpoint)
        if len(placed) < len(order):
            self.seen.append((order, placed))
            return None
        merged = merge(self.gang, placed)
        return merged if len(merged) <= self.gang.nodes_max else None

    def run_around(self) -> tuple[Grant, ...] | None:
        """Retry each order with one role kept off one of the nodes that it took."""
        tries = [
            (order, (name, self.places[grant.node]))
            for order, placed in self.seen
            for name, grants in placed.items()
            for grant in grants
        ]
        return next((grants for try_ in tries[:MAX_TRIES] if (grants := self.run(*try_))), None)

    def _place(self, order: list[str], kept_off: tuple[str, int] | None) -> _Placed:
        """Place the roles one after the other, up to the first that finds no room."""
        shapes = dict(self.gang.roles)
        is_bound = self.gang.nodes_max < sum(role.nodes_max for role in shapes.values())
        placed: _Placed = {}
        chosen: list[int] = []
        for name in order:
            own = [candidate for candidate in self.candidates if admits(shapes[name], self.overlay.nodes[candidate])]
            own = [one for one in own if (name, one) != kept_off]
            grants = None
            if is_bound and chosen:  # the gang may have so many nodes and no more: better those that it has already
                grants = self.place(self.overlay, shapes[name], [one for one in own if one in chosen])
            if grants is None:
                grants = self.place(self.overlay, shapes[name], own)
            if grants is None:
                return placed
            self.overlay.take_all(self.places, grants)
            placed[name] = grants
            chosen += [self.places[grant.node] for grant in grants if self.places[grant.node] not in chosen]
        return placed


def homeless_role(overlay: Overlay, shape: Shape, candidates: list[int], place: Place) -> Shape:
    """The first role that has no room even alone; the shape itself if each role has room, or if it has no roles."""
    for _, role in shape.roles:
        own = [candidate for candidate in candidates if admits(role, overlay.nodes[candidate])]
        if place(overlay, role, own) is None:
            return role
    return shape


def merge(gang: Shape, placed: _Placed) -> tuple[Grant, ...]:
    """Merge the roles' grants into one grant for each node, in the order of the roles and of their nodes."""
    by_node: dict[str, list[tuple[str, Grant]]] = {}
    for name, _ in gang.roles:
        for grant in placed[name]:
            by_node.setdefault(grant.node, []).append((name, grant))
    return tuple(_merged(node, shares) for node, shares in by_node.items())


def _merged(node: str, shares: list[tuple[str, Grant]]) -> Grant:
    grants = [grant for _, grant in shares]
    return Grant(
        node=node,
        tasks=sum(grant.tasks for grant in grants),
        cpus=tuple(sorted(cpu for grant in grants for cpu in grant.cpus)),
        gpus=tuple(sorted(gpu for grant in grants for gpu in grant.gpus)),
        memory_mib=sum(grant.memory_mib for grant in grants),
        resources=_sum(amount for grant in grants for amount in grant.resources),
        roles=tuple(
            RoleShare(role=name, tasks=grant.tasks, cpus=grant.cpus, gpus=grant.gpus, memory_mib=grant.memory_mib)
            for name, grant in shares
        ),
    )


def _sum(amounts: Iterator[Amount]) -> tuple[Amount, ...]:
    counts: dict[str, int] = {}
    for amount in amounts:
        counts[amount.name] = counts.get(amount.name, 0) + amount.count
    return tuple(Amount(name, count) for name, count in counts.items())
