"""What elastic jobs do with their GPUs in the simulated world, and what of that its judge sees.

Some give up what they are told to, some say so, and some use it until it is taken; what comes they use a little later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.ids import AttemptId
from gq.wire import client
from gqnode.control import input
from gqnode.control.attempt import AttemptRecord
from gqnode.control.effect import RevokeGpus

if TYPE_CHECKING:
    from tests.simulation.world import World


class Users:
    """By node and attempt: the GPUs that its processes use, whether or not they may."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.used: dict[tuple[str, AttemptId], set[int]] = {}

    def begin(self, name: str, attempt_id: AttemptId, gpus: tuple[int, ...]) -> None:
        self.used[name, attempt_id] = set(gpus)

    def told(self, name: str, record: AttemptRecord) -> None:
        """The job reads its file; what it finds there is what it does a little later."""
        attempt_id, going = record.launch.attempt_id, set(record.going_gpus)
        if record.resize is not None and record.resize.leaving:
            self._accept_nodes(attempt_id, record.resize.generation)
            return
        ready, world = set(record.launch.grant.gpus) - going, self._world
        world.after(world.random.uniform(0.0, 3.0), lambda: self._use_more(name, attempt_id, ready))
        if going and world.random.random() < 0.6:
            generation = None if record.resize is None else record.resize.generation
            world.after(world.random.uniform(0.0, 12.0), lambda: self._give_up(name, attempt_id, going, generation))

    def _accept_nodes(self, attempt_id: AttemptId, generation: int) -> None:
        """Any node of the job may say so."""
        world = self._world
        if world.random.random() < 0.3:
            body = client.GiveUpGpus(job_id=attempt_id.job_id, generation=generation)
            world.after(world.random.uniform(0.0, 12.0), lambda: world.controller is None or world.ask(body))

    def _use_more(self, name: str, attempt_id: AttemptId, ready: set[int]) -> None:
        used = self.used.get((name, attempt_id))
        if used is not None:
            used |= ready & set(self._world.machines[name].cells[attempt_id])

    def _give_up(self, name: str, attempt_id: AttemptId, going: set[int], generation: int | None) -> None:
        """One that has been told something else by now may still mean the older change."""
        used, world = self.used.get((name, attempt_id)), self._world
        if used is None:
            return
        used -= going
        if world.random.random() < 0.7 and world.controller is not None:
            world.ask(client.GiveUpGpus(job_id=attempt_id.job_id, generation=generation))

    def take(self, name: str, order: RevokeGpus) -> None:
        """Nobody may use them any more; those who did are killed, and looked for again."""
        attempt_id, world = order.launch.attempt_id, self._world
        if attempt_id in world.machines[name].cells:
            world.machines[name].cells[attempt_id] = order.launch.grant.gpus
        used = self.used.get((name, attempt_id), set())
        has_steps = world.gqrun.kill_users(name, attempt_id, set(order.gpus))
        is_done = used.isdisjoint(order.gpus) and not has_steps
        used -= set(order.gpus)
        taken = input.GpusTaken(attempt_id=attempt_id, generation=order.generation, is_done=is_done)
        world.tell_agent(name, taken)

    def end(self, name: str, attempt_id: AttemptId | None = None) -> None:
        """Of one attempt, or (None) all of the machine."""
        for key in [one for one in self.used if one[0] == name and attempt_id in (None, one[1])]:
            del self.used[key]

    def gpus(self, name: str, attempt_id: AttemptId) -> set[int]:
        return self.used.get((name, attempt_id), set())
