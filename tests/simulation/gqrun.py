"""Clients of steps in the simulated world, and the tasks that they have on its machines.

A client comes to each node of its step a little after it was told of it, or never; its tasks end by themselves, by a
signal, or with their cell.  A node's daemon hears of them only while it is there.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus
from gq.model.step import StepPart
from gq.wire import client
from gqnode.control import input

if TYPE_CHECKING:
    from tests.simulation.world import World

PATIENCE = 20
"""How often a client knocks at a door, once a second."""


@dataclass
class Tasks:
    """What a step has on one node."""

    gpus: tuple[int, ...]
    shares: bool
    exit: ExitStatus | None = None
    """None: they run."""

    @property
    def runs(self) -> bool:
        return self.exit is None


class Gqrun:
    def __init__(self, world: World) -> None:
        self._world = world
        self._doors: set[tuple[str, str, StepId]] = set()
        """(node, life of its daemon, step): a client may come."""
        self.tasks: dict[tuple[str, StepId], Tasks] = {}

    def created(self, body: client.StepCreated) -> None:
        """The client has its answer."""
        step_id = StepId(body.job_id, body.attempt, body.step)  # type: ignore[arg-type]
        for part in body.layout.parts:
            if self._world.random.random() < 0.9:
                self._knock(part, step_id, body.layout.overlap, PATIENCE)

    def _knock(self, part: StepPart, step_id: StepId, shares: bool, times: int) -> None:
        def knock() -> None:
            if not self._is_open(part.node, step_id):
                if times:
                    self._knock(part, step_id, shares, times - 1)
            elif (part.node, step_id) not in self.tasks:
                self._start(part, step_id, shares)

        self._world.after(self._world.random.uniform(0.1, 1.0), knock)

    def _is_open(self, name: str, step_id: StepId) -> bool:
        daemon = self._world.daemons[name]
        has_shepherd = step_id.attempt_id in self._world.machines[name].shepherds
        return daemon is not None and has_shepherd and (name, daemon.incarnation, step_id) in self._doors

    def _start(self, part: StepPart, step_id: StepId, shares: bool) -> None:
        name, world = part.node, self._world
        self.tasks[name, step_id] = Tasks(part.gpus, shares)
        world.tell_agent(name, input.StepAttached(step_id=step_id))
        status = ExitStatus(code=world.random.choice((0, 0, 0, 1)))
        world.after(world.random.uniform(0.0, 15.0), lambda: self._end(name, step_id, status))

    def _end(self, name: str, step_id: StepId, status: ExitStatus) -> None:
        tasks = self.tasks.get((name, step_id))
        if tasks is not None and tasks.exit is None:
            tasks.exit = status
            self._world.tell_agent(name, input.StepTasksEnded(step_id=step_id, exit=status))

    # ── what the daemon does ──────────────────────────────────────────────────────────────────────────────────

    def expect(self, name: str, life: str, step_id: StepId) -> None:
        """Of tasks that are there already a new daemon hears at once."""
        self._doors.add((name, life, step_id))
        tasks = self.tasks.get((name, step_id))
        if tasks is not None and tasks.exit is None:
            self._world.tell_agent(name, input.StepAttached(step_id=step_id))
        elif tasks is not None and tasks.exit is not None:
            self._world.tell_agent(name, input.StepTasksEnded(step_id=step_id, exit=tasks.exit))

    def forget(self, name: str, life: str, step_id: StepId) -> None:
        self._doors.discard((name, life, step_id))

    def signal(self, name: str, step_id: StepId, signum: int) -> None:
        if signum == signal.SIGKILL or (signum == signal.SIGTERM and self._world.random.random() < 0.7):
            self._end(name, step_id, ExitStatus(signal=signum))

    def signal_all(self, name: str, attempt_id: AttemptId, signum: int) -> None:
        for node, step_id in list(self.tasks):
            if node == name and step_id.attempt_id == attempt_id:
                self.signal(name, step_id, signum)

    def kill_users(self, name: str, attempt_id: AttemptId, gpus: set[int]) -> bool:
        """Tasks that have one of these; False: there are none."""
        found = [
            step_id
            for (node, step_id), tasks in self.tasks.items()
            if node == name and step_id.attempt_id == attempt_id and tasks.runs and gpus & set(tasks.gpus)
        ]
        for step_id in found:
            self.signal(name, step_id, signal.SIGKILL)
        return bool(found)

    def attempts_with_tasks(self, name: str) -> set[AttemptId]:
        """Whose tasks run on the machine."""
        return {step_id.attempt_id for (node, step_id), tasks in self.tasks.items() if node == name and tasks.runs}

    def cell_is_gone(self, name: str, attempt_id: AttemptId | None = None) -> None:
        """Of one attempt, or (None) all of the machine."""
        for node, step_id in list(self.tasks):
            if node == name and attempt_id in (None, step_id.attempt_id):
                del self.tasks[node, step_id]

    # ── judging ───────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self) -> None:
        """Tasks stay within their cell, and steps that do not share have GPUs of their own."""
        used: dict[tuple[str, int], StepId] = {}
        for (name, step_id), tasks in self.tasks.items():
            if tasks.exit is not None:
                continue
            cell = self._world.machines[name].cells.get(step_id.attempt_id)
            assert cell is not None, f"tasks of step {step_id} run on {name} without a cell"
            assert set(tasks.gpus) <= set(cell), f"step {step_id} uses GPUs {tasks.gpus} of {name}, its job has {cell}"
            for gpu in () if tasks.shares else tasks.gpus:
                assert (name, gpu) not in used, f"GPU {gpu} of {name} is in steps {used[name, gpu]} and {step_id}"
                used[name, gpu] = step_id
