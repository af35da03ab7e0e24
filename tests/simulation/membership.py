"""Which key each simulated node has, and the administrator who removes nodes and lets them join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.wire import client
from gqd.state.input import NodeJoin, Route
from tests.builders import join, public_key

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRY_S = 5.0


class Membership:
    def __init__(self, world: World, nodes: list[str]) -> None:
        self._world = world
        self.keys = dict.fromkeys(nodes, "")
        """Of each node; empty: pinned by a file on the controller's host."""
        self._unpinned: set[str] = set()
        """Nodes whose file is gone."""
        self._tries: dict[str, NodeJoin] = {}
        """What each node that is no member said last."""
        self._made = 0

    def is_good(self, name: str, key: str) -> bool:
        """The door asks for each message."""
        controller = self._world.controller
        assert controller is not None
        if key:
            return key in controller.cluster.keys
        return name not in self._unpinned and name not in controller.cluster.void_key_files

    def remove(self, name: str) -> None:
        self._world.ask(client.RemoveNode(name=name, reason="test"))
        self._world.after(self._world.random.uniform(1.0, 60.0), lambda: self._join(name))

    def unpin(self, name: str) -> None:
        self._unpinned.add(name)

    def joined(self, route: Route) -> None:
        """The answer has come; the next time the node speaks, it is with its new key."""
        name = next((name for name, said in self._tries.items() if said.route == route), None)
        if name is not None:
            self.keys[name] = self._tries.pop(name).join.public_key

    def _join(self, name: str) -> None:
        """Until the node is a member: the same words again, since the answer may have been lost, or a new token."""
        world = self._world
        if world.controller is not None and self.is_good(name, self.keys[name]):
            return
        if name not in self._tries or world.random.random() < 0.3:
            self._made += 1
            self._tries[name] = join(name, public_key(self._made), public_key(500_000 + self._made))
        said = self._tries[name]
        world.ask(client.CreateToken(public=said.token, node=world.random.choice(("", name)), ttl_s=600))
        world.tell_controller(said)
        world.after(RETRY_S, lambda: self._join(name))
