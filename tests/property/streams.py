"""Random clusters on which jobs come and end, planned without a controller: snapshot → plan → what happens next."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gq.model.scheduling import PRESETS, Scheduling
from gqd.sched.planner import Planner
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.plan import Plan
from gqd.state.policy import Policy

MEMORY_MIB = 1000
POLICIES = ("default", "easy", "fifo", *sorted(set(PRESETS) - {"default", "easy", "fifo"}))
"""All presets.  The first three differ most and cost little: a plan that promises a start to every job takes long."""


def node(number: int, cpus: int, gpus: int) -> NodeFacts:
    return NodeFacts(f"n{number}", cpus, MEMORY_MIB, (("a", (1 << gpus) - 1),))


@dataclass
class Stream:
    """One cluster; the same seed gives the same life."""

    seed: int
    scheduling: Scheduling
    have_limits: bool = True
    nodes: tuple[NodeFacts, ...] = ()
    now: float = 0.0
    pending: list[PendingJob] = field(default_factory=list)
    running: dict[JobId, RunningJob] = field(default_factory=dict)
    ends: dict[JobId, float] = field(default_factory=dict)
    plan: Plan | None = None
    started_at: dict[JobId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        pick = self.random
        self.nodes = self.nodes or tuple(
            node(number, pick.choice((4, 8)), gpus)
            for number, gpus in enumerate(pick.choices((0, 2, 4, 4, 8), k=pick.randint(1, 6)))
        )
        self.policy = Policy(owner_uid=0, scheduling=self.scheduling)
        self._last = 0

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────

    def arrive(self, request: ResourceRequest | None = None, limit_s: int | None = None) -> PendingJob:
        self._last += 1
        limit_s = limit_s or self.random.choice((10, 60, 60, 300, 1000))
        job = PendingJob(
            job_id=JobId(self._last),
            attempt=0,
            user="ada",
            shape=shape_of(request or self._request(), "main"),
            time_limit_s=limit_s if self.have_limits else None,
            is_held=False,
            begin_at=None,
            expected_s=float(self.random.choice((limit_s, limit_s, limit_s // 2))),
            since=self.now,
        )
        self.pending.append(job)
        return job

    def _request(self) -> ResourceRequest:
        pick = self.random
        match pick.randrange(7):
            case 0:
                return ResourceRequest(nodes_min=pick.randint(1, 3), gpus_per_node=pick.randint(1, 4))
            case 1:
                return ResourceRequest(gpus=pick.randint(1, 12), is_dense=True)
            case 2:
                return ResourceRequest(ntasks=pick.randint(1, 12), mem_per_cpu_mib=pick.choice((None, 100, 300)))
            case 3:
                return ResourceRequest(nodes_min=pick.randint(1, 2), is_exclusive=True)
            case 4:
                return ResourceRequest(cpus_per_task=pick.randint(1, 2), mem_per_node_mib=pick.choice((200, 500, 800)))
            case _:
                return ResourceRequest(gpus=pick.randint(1, 4), mem_per_gpu_mib=pick.choice((None, None, 200)))

    def end(self, job_id: JobId) -> None:
        del self.running[job_id]
        del self.ends[job_id]

    def go_on(self) -> None:
        """To the next end, or to somewhere before it where a few jobs arrive."""
        next_end = self.next_instant()
        if self.random.random() < 0.5:
            self.now += self.random.random() * (next_end - self.now)
            for _ in range(self.random.randint(1, 4)):
                self.arrive()
        else:
            self.now = next_end
            for job_id in [one for one, at in self.ends.items() if at <= self.now]:
                self.end(job_id)

    def next_instant(self) -> float:
        """When a job ends; as long as nothing runs, some time passes."""
        return min(self.ends.values(), default=self.now + 50.0)

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> Snapshot:
        cpus = [(1 << node.cpus) - 1 for node in self.nodes]
        gpus = [node.gpu_mask for node in self.nodes]
        memory = [node.memory_mib for node in self.nodes]
        places = {node.name: place for place, node in enumerate(self.nodes)}
        for job in self.running.values():
            for grant in job.grants:
                place = places[grant.node]
                cpus[place] &= ~sum(1 << one for one in grant.cpus)
                gpus[place] &= ~sum(1 << one for one in grant.gpus)
                memory[place] -= grant.memory_mib
        return Snapshot(
            now=self.now,
            policy=self.policy,
            nodes=self.nodes,
            free_cpus=tuple(cpus),
            free_gpus=tuple(gpus),
            free_memory_mib=tuple(memory),
            pending=self._in_order(),
            running=tuple(self.running.values()),
            protected=() if self.plan is None else self.plan.protected,
            resumes_at=None if self.plan is None else self.plan.resumes_at,
        )

    def _in_order(self) -> tuple[PendingJob, ...]:
        if self.scheduling.order != "shortest":
            return tuple(self.pending)
        return tuple(sorted(self.pending, key=lambda job: (job.expected_s, job.job_id)))

    def schedule(self, explains: bool = True, skip_planned_starts: bool = False) -> Plan:
        """Plan and start; each job ends at its limit, or some time before, or just when it was known to end."""
        plan = self.plan = sliced(self.snapshot(), 10**9, not explains, skip_planned_starts)
        by_id = {job.job_id: job for job in self.pending}
        for start in plan.starts:
            self.start(by_id[start.job_id], start.grants, start.slot)
        return plan

    def start(self, job: PendingJob, grants: tuple[Grant, ...], slot: str = "") -> None:
        self.pending.remove(job)
        self.started_at[job.job_id] = self.now
        limit_s = job.time_limit_s or 1000
        limit_at = self.now + limit_s if job.time_limit_s else None
        self.running[job.job_id] = RunningJob(
            job.job_id, job.user, grants, limit_at, began_at=self.now, expected_s=job.expected_s, slot=slot
        )
        runs_s = limit_s * self.random.choice((1.0, 1.0, 0.7, 0.1))
        is_known = self.scheduling.expect == "exact" and job.expected_s is not None
        self.ends[job.job_id] = self.now + (job.expected_s or 0.0 if is_known else runs_s)


def sliced(snapshot: Snapshot, budget: int, skip_reasons: bool = False, skip_planned_starts: bool = False) -> Plan:
    planner = Planner()
    planner.begin(snapshot, skip_reasons, skip_planned_starts=skip_planned_starts)
    while (plan := planner.step(budget)) is None:
        pass
    return plan


def scheduling(policy: str, **changes: object) -> Scheduling:
    return Scheduling(policy=policy, **{**PRESETS[policy], **changes})
