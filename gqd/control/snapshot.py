"""The cluster as the planner may see it: an immutable copy.  Pure."""

from __future__ import annotations

from functools import lru_cache

from gq.model.state import JobState
from gqd.control import array, limit
from gqd.sched.limit import Asker, LimitView
from gqd.sched.priority import head, rank
from gqd.sched.shape import shape_in
from gqd.sched.view import NodeFacts, Overlay, PendingJob, RunningJob, Snapshot
from gqd.state.cluster import Attempt, Cluster, Job, Node
from gqd.state.deadlines import time_limit_of
from gqd.state.policy import Policy
from gqd.state.queue import member_of, startable_tasks
from gqd.state.volatile import Volatile


def take(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> Snapshot:
    """Nodes in natural order, the head of the queue, and everything that holds resources."""
    free = overlay(cluster, volatile, now)
    limits = limit.view(cluster, policy, now)
    pending, kept_back = _head_of_queue(cluster, policy, now, limits)
    return Snapshot(
        now=now,
        policy=policy,
        nodes=free.nodes,
        free_cpus=tuple(free.free_cpus),
        free_gpus=tuple(free.free_gpus),
        free_memory_mib=tuple(free.free_memory_mib),
        pending=pending,
        running=tuple(
            running for attempt in cluster.attempts.values() if (running := _running(cluster, attempt)) is not None
        ),
        array_room=array.array_room(cluster),
        array_throttle=array.array_throttle(cluster),
        limits=limits,
        kept_back=kept_back,
    )


def overlay(cluster: Cluster, volatile: Volatile, now: float) -> Overlay:
    """What is free on the nodes, to try things on."""
    nodes = sorted(cluster.nodes.values(), key=natural_order)
    return Overlay(
        tuple(_facts(node, volatile, now) for node in nodes),
        [node.free_cpu_mask for node in nodes],
        [node.free_gpu_mask & ~_drained_mask(node) for node in nodes],
        [node.inventory.memory_mib - node.used_memory_mib for node in nodes],
    )


def _head_of_queue(
    cluster: Cluster, policy: Policy, now: float, limits: LimitView
) -> tuple[tuple[PendingJob, ...], tuple[Asker, ...]]:
    """What the pass looks at, in order; and of whom limits keep back more."""
    ranking = rank(cluster, policy, now)
    places, kept_back = head(cluster, policy, now, ranking, limits)
    ids, priorities = ranking.job_ids[places].tolist(), ranking.priority[places].tolist()
    pending = [_pending(cluster.jobs[job_id], policy, points) for job_id, points in zip(ids, priorities, strict=True)]
    return tuple(pending), kept_back


def natural_order(node: Node) -> tuple[tuple[int, int | str], ...]:
    """n2 before n10."""
    return _natural_order(node.name)


@lru_cache(maxsize=16384)
def _natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    parts: list[tuple[int, int | str]] = []
    word = ""
    for one in f"{name}\0":
        if word and one.isdecimal() != word[0].isdecimal():
            parts.append((0, int(word)) if word.isdecimal() else (1, word))
            word = ""
        word += one
    return tuple(parts)


def unavailable_because(node: Node, volatile: Volatile, now: float) -> str:
    """Why the node gets no jobs; empty if it may."""
    if node.is_down:
        return f"down: {node.reason}"
    if node.is_lost:
        return "lost: not heard any more"
    if node.is_drained:
        return f"drained: {node.reason}"
    if node.name not in volatile.links:
        return "not heard since the controller started"
    if node.backoff_until > now:
        return "left out after a failed launch"
    return BEING_CLEANED if _has_strangers(node, volatile) else ""


BEING_CLEANED = "being cleaned of jobs that it ran before"


def _has_strangers(node: Node, volatile: Volatile) -> bool:
    """It has something of attempts that have no part there (it was removed, and joined again), and was told to stop it.

    What they use is in nobody's books.
    """
    return any(name == node.name and attempt_id not in node.held for attempt_id, name in volatile.stop_orders)


def _facts(node: Node, volatile: Volatile, now: float) -> NodeFacts:
    masks: dict[str, int] = {}
    drained: dict[str, int] = {}
    for gpu in node.inventory.gpus:
        of = drained if gpu.index in node.drained_gpus else masks
        of[gpu.type] = of.get(gpu.type, 0) | (1 << gpu.index)
    return NodeFacts(
        name=node.name,
        cpus=node.inventory.cpus,
        memory_mib=node.inventory.memory_mib,
        gpu_types=tuple(masks.items()),
        drained=tuple(drained.items()),
        unavailable=unavailable_because(node, volatile, now),
        backoff_until=node.backoff_until,
    )


def _drained_mask(node: Node) -> int:
    mask = 0
    for index in node.drained_gpus:
        mask |= 1 << index
    return mask


def _pending(job: Job, policy: Policy, priority: int) -> PendingJob:
    return PendingJob(
        job_id=job.job_id,
        attempt=job.attempt,
        user=job.user,
        shape=shape_in(policy, job.spec.resources, job.partition),
        time_limit_s=job.time_limit_s,
        is_held=job.hold is not None,
        begin_at=job.spec.begin_at,
        avoid=tuple(job.avoid.items()),
        account=member_of(job)[1],
        qos=job.qos,
        priority=priority,
        tasks=startable_tasks(job),
        array_job_id=job.job_id if job.array is not None else job.array_job_id,
        expected_s=job.expected_s,
        since=job.submit_at if job.accrue_at is None else job.accrue_at,
    )


def _running(cluster: Cluster, attempt: Attempt) -> RunningJob | None:
    """What the attempt still holds, and until when at most."""
    if not attempt.parts:
        return None
    job = cluster.jobs.get(attempt.attempt_id.job_id)
    is_current = job is not None and job.attempt_id == attempt.attempt_id
    ends_at = None
    if is_current and job is not None and (limit_s := time_limit_of(job, attempt)) is not None:
        ends_at = (attempt.start_at or attempt.allocated_at) + limit_s
    if is_current and job is not None and job.state is JobState.COMPLETING:
        ends_at = (attempt.end_at or attempt.allocated_at) + attempt.grace_s
    return RunningJob(
        job_id=attempt.attempt_id.job_id,
        user=job.user if job is not None else "",
        grants=tuple(part.grant for part in attempt.parts.values()),
        ends_at=ends_at,
        is_stranded=not is_current or any(part.is_stranded for part in attempt.parts.values()),
        began_at=attempt.start_at or attempt.allocated_at,
        expected_s=None if job is None else job.expected_s,
        slot=attempt.slot,
    )
