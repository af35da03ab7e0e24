"""People in the simulated world: they submit, steer and end jobs and nodes at random, and hold interactive jobs."""

from __future__ import annotations

from typing import Any

from gq.model.ask import AskAnswer
from gq.model.ids import JobId
from gq.model.state import JobState
from gq.model.step import StepRequest
from gq.wire import client
from gqd.state.input import Peer
from tests.builders import ALICE, BOB, OLGA, OWNER, submit
from tests.simulation.world import World

KEEP_ALIVE_S = 10.0
USERS = (ALICE, BOB)
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"gpus": 1},
    {"gpus": 4},
    {"nodes_min": 2, "gpus_per_node": 2},
    {"nodes_min": 3, "gpus_per_node": 4, "no_kill": True},
    {"nodes_min": 1, "nodes_max": 3, "gpus_per_node": 1, "cpus_per_task": 4, "no_kill": True},
    {"ntasks": 6, "gpus_per_task": 1},
    {"gpus": 1, "is_interactive": True},
    {"nodes_min": 2, "gpus_per_node": 1, "is_interactive": True},
    {"gpus": 2, "is_held": True},
    {"gpus": 2, "requeue": False},
    {"gpus": 3, "ntasks": 5, "nice": 3},
    {"gpus": 1, "most_gpus": 4},
    {"gpus": 2, "most_gpus": 8},
    {"gpus": 1, "array": "1-6"},
    {"gpus": 2, "array": "0-12:3", "array_throttle": 2, "fail_fast": True},
    {"nodes_min": 2, "gpus_per_node": 1, "array": "3,5", "requeue": False},
    {"gpus": 1, "array": "0-5", "array_auto": True, "sweep": (("lr", ("1", "2")), ("bs", ("a", "b", "c")))},
)


class Operator:
    def __init__(self, world: World, jobs: int) -> None:
        self._world = world
        self._random = world.random
        self._jobs_left = jobs

    def act(self) -> None:
        """One thing that somebody does."""
        world, random = self._world, self._random
        if world.controller is None:
            return
        if self._jobs_left and random.random() < 0.4:
            self._submit()
        elif random.random() < 0.3:
            self._administrate()
        elif jobs := [one.job_id for one in world.controller.cluster.jobs.values() if one.state is not JobState.ENDED]:
            self._steer(random.choice(jobs))

    def _submit(self) -> None:
        world = self._world
        assert world.controller is not None
        self._jobs_left -= 1
        job_id = world.store.load().next_job_id
        fields, peer = self._random.choice(SHAPES), self._random.choice(USERS)
        world.ask(submit(f"job{job_id}", **fields, time_limit_s=self._random.choice((20, 40))), peer)
        if fields.get("is_interactive") and world.store.load().next_job_id > job_id:
            self._hold(job_id, peer)

    def _hold(self, job_id: int, peer: Peer) -> None:
        """The client of an interactive job: it ends the job, or is heard no more."""
        world = self._world
        leaves_at = world.now + self._random.uniform(5.0, 120.0)
        vanishes = self._random.random() < 0.3

        def again() -> None:
            if world.now < leaves_at:
                world.ask(client.KeepAlive(job_id=job_id), peer)
            elif vanishes:
                return
            elif world.controller is not None:
                world.ask(client.EndInteractive(job_id=job_id), peer)
                return
            world.after(KEEP_ALIVE_S, again)

        world.after(KEEP_ALIVE_S, again)

    def _steer(self, job_id: int) -> None:
        random = self._random
        step = StepRequest(
            name="step",
            ntasks=random.choice((None, 2)),
            gpus_per_task=random.choice((None, 0, 1)),
            cpus_per_task=1,
            overlap=random.random() < 0.2,
        )
        bodies: tuple[client.RequestBody, ...] = (
            client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))),
            client.RequeueJobs(job_ids=(job_id,)),
            client.HoldJobs(job_ids=(job_id,)),
            client.ReleaseJobs(job_ids=(job_id,)),
            client.UpdateJob(job_id=job_id, time_limit_s=random.choice((10, 30, 60))),
            client.UpdateJob(job_id=job_id, nice=random.choice((0, 5))),
            client.UpdateJob(job_id=job_id, begin_at=self._world.now + random.uniform(0.0, 30.0)),
            client.SignalStep(job_id=job_id, step=random.choice((0, 1))),
            client.SuspendJobs(job_ids=(job_id,)),
            client.ResumeJobs(job_ids=(job_id,)),
            client.ExtendJob(job_id=job_id, by_s=random.choice((10, 60))),
            client.AskJob(job_id=job_id, text="please"),
            client.AnswerAsks(job_id=job_id, answer=AskAnswer.RELEASE, requeue=random.random() < 0.5),
        )
        steps = (client.CreateStep(job_id=job_id, step=step),) * 6
        if self._is_array(job_id) and random.random() < 0.8:
            steps = bodies = self._for_tasks(job_id)
        self._world.ask(random.choice((*bodies, *steps)), random.choice((*USERS, *USERS, OLGA, OWNER)))

    def _is_array(self, job_id: int) -> bool:
        controller = self._world.controller
        assert controller is not None
        return controller.cluster.jobs[JobId(job_id)].array is not None

    def _for_tasks(self, job_id: int) -> tuple[client.RequestBody, ...]:
        random = self._random
        which = random.choice(("1", "3", "2-4", "0-99", "5-6,9"))
        tasks = {job_id: which}
        return (
            client.CancelJobs(filter=client.JobFilter(tasks=tasks)),
            client.RequeueJobs(job_ids=(), tasks=tasks),
            client.HoldJobs(job_ids=(), tasks=tasks),
            client.ReleaseJobs(job_ids=(), tasks=tasks),
            client.UpdateJob(job_id=job_id, tasks=which, nice=random.choice((0, 5))),
            client.UpdateJob(job_id=job_id, array_throttle=random.choice((0, 1, 3))),
        )

    def _administrate(self) -> None:
        random = self._random
        name = random.choice(sorted(self._world.machines))
        if random.random() < 0.15:
            self._world.members.remove(name)
            return
        action = random.choice(("drain", "down", "resume", "resume", "resume"))
        gpu = random.choice((None, None, 0)) if action != "down" else None
        self._world.ask(client.UpdateNodes(names=(name,), action=action, reason="test", gpu=gpu))

    def make_good(self) -> None:
        """Whatever was held or taken out of service may run again."""
        world = self._world
        assert world.controller is not None
        pending = [one.job_id for one in world.controller.cluster.jobs.values() if one.state is JobState.PENDING]
        world.ask(client.ReleaseJobs(job_ids=tuple(pending)))
        for name in world.machines:
            world.ask(client.UpdateNodes(names=(name,), action="resume"))
            world.ask(client.UpdateNodes(names=(name,), action="resume", gpu=0))
