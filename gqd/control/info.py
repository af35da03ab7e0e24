"""Jobs, nodes, partitions and the cluster as clients see them (`JobInfo`, `NodeInfo`, …).  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gq.model.ids import JobId
from gq.model.job import JobInfo
from gq.model.node import (
    ClusterInfo,
    GangSize,
    GpuInfo,
    GpuReading,
    GpuSummary,
    NodeInfo,
    PartitionInfo,
)
from gq.model.state import JobState
from gq.version import VERSION
from gqd.control import snapshot
from gqd.control.accounts.association import qos_named
from gqd.control.explain import parked
from gqd.control.explain.explain import explain_wait, wait_reason, without_private
from gqd.control.explain.explanation import in_words
from gqd.control.forecast import estimate
from gqd.sched.placement.billing import billing_of
from gqd.sched.placement.constraints import attributes_of
from gqd.sched.priority.factors import Ranking
from gqd.sched.snapshot.switches import leaf_of
from gqd.state import job_view
from gqd.state.cluster import Cluster
from gqd.state.index.tally import asked_amounts
from gqd.state.index.usage import MILLION
from gqd.state.input import Peer
from gqd.state.policy import Partition, Policy
from gqd.state.records import Job, Node
from gqd.state.volatile import Volatile


def job_info(
    cluster: Cluster,
    volatile: Volatile,
    job: Job,
    with_steps: bool = False,
    line: job_view.RecordLine | None = None,
) -> JobInfo:
    """The job, with the reason and the expected start of the last plan."""
    attempt = cluster.attempt_of(job)
    shown = job_view.job_info(job, attempt, list(attempt.steps.values()) if attempt and with_steps else (), line)
    if shown.state == job_view.PENDING_WORD:
        story = explain_wait(cluster, job, volatile.plan)
        shown.reason, shown.expected_start_at = story.reason, story.expected_start_at
        shown.why = in_words(cluster, job, story).why
        _add_forecast(cluster, volatile, job, shown)
    elif job.state is JobState.RUNNING:
        shown.expected_start_at = job.start_at
    parked.tell(cluster, job, shown)
    return shown


def _add_forecast(cluster: Cluster, volatile: Volatile, job: Job, shown: JobInfo) -> None:
    """Add the start time, range and queue position of the last forecast, if it reached the job."""
    forecast = estimate.known_start(cluster, volatile, job.job_id)
    if forecast is None:
        return
    if forecast.start_at is not None:
        shown.expected_start_at = forecast.start_at
    shown.expected_start_p90_at, shown.is_start_promised = forecast.p90_at, forecast.is_promised
    shown.queue_position = forecast.position


def brief_job_info(cluster: Cluster, volatile: Volatile, job: Job, line: job_view.RecordLine | None = None) -> JobInfo:
    """The public fields that a line of the queue shows; five times as fast as `job_info`."""
    shown = job_view.brief_job_info(job, cluster.attempt_of(job), line)
    if shown.state == job_view.PENDING_WORD:
        shown.reason = wait_reason(cluster, job, volatile.plan)
    parked.tell(cluster, job, shown)
    return shown


def job_info_for(
    peer: Peer | None,
    cluster: Cluster,
    volatile: Volatile,
    job: Job,
    with_steps: bool = False,
    line: job_view.RecordLine | None = None,
) -> JobInfo:
    """The job as this peer may see it (None: everything); every user may see why it waits."""
    whole = job_info(cluster, volatile, job, with_steps, line)
    seen = job_view.visible_to(peer, whole)
    if seen is not whole:
        seen.why = without_private(whole.why, job)
    return seen


def queue_order(cluster: Cluster, ranking: Ranking) -> Iterator[Job]:
    """Jobs in queue order: first running and completing, then pending by priority, then ended ones.

    It walks indices lazily, so the first page of a long queue is cheap.
    """
    jobs = cluster.jobs
    attempted = sorted({attempt_id.job_id for attempt_id in cluster.attempts if attempt_id.job_id in jobs})
    yield from (jobs[job_id] for job_id in attempted if jobs[job_id].holds_resources)
    yield from (jobs[job_id] for job_id in ranking.ordered_ids())
    left = [job_id for job_id in cluster.arrays if not jobs[job_id].is_waiting]
    yield from (jobs[job_id] for job_id in sorted([*left, *cluster.ended]))


def add_priorities(cluster: Cluster, policy: Policy, ranking: Ranking, shown: list[JobInfo]) -> None:
    """Add to pending jobs their priority and what they would be billed."""
    for job in shown:
        queue_index = cluster.queue.row_of(JobId(job.job_id))
        if queue_index is not None and job.state == job_view.PENDING_WORD:
            job.priority = int(ranking.priority[queue_index])
            job.billing = _would_be_billed(cluster, policy, cluster.jobs[JobId(job.job_id)]) / MILLION


def _would_be_billed(cluster: Cluster, policy: Policy, job: Job) -> int:
    qos = qos_named(cluster, job.qos)
    factor = 1.0 if qos is None else qos.usage_factor
    return billing_of(policy.billing, asked_amounts(job.spec.resources), factor)


def node_info(cluster: Cluster, policy: Policy, volatile: Volatile, node: Node, now: float) -> NodeInfo:
    inventory = node.inventory
    return NodeInfo(
        node=node.name,
        state=_node_state(node, volatile),
        reason=node.reason or ("not responding" if node.is_lost else ""),
        address=node.address,
        partitions=tuple(partition.name for partition in policy.partitions if partition.has_node(node.name)),
        cpus=inventory.cpus,
        cpus_free=node.free_cpu_mask.bit_count(),
        memory_mib=inventory.memory_mib,
        memory_free_mib=max(0, inventory.memory_mib - node.used_memory_mib),
        gpus=tuple(_gpus(node, _readings(volatile, node))),
        isolation=inventory.isolation,
        job_ids=tuple(sorted({int(partition.job_id) for partition in node.held})),
        gq_version=inventory.gq_version,
        last_heard_at=volatile.heard_at.get(node.name),
        backed_off_until=node.backoff_until if node.backoff_until > now else None,
        features=inventory.features,
        attributes=attributes_of(inventory),
        resources=inventory.resources,
        resources_free={
            name: max(0, total - node.used_resources.get(name, 0)) for name, total in inventory.resources.items()
        },
        data=inventory.data,
        switch=leaf_of(policy.topology, node.name),
    )


def _node_state(node: Node, volatile: Volatile) -> str:
    if node.is_lost or node.is_down:
        return "DOWN"
    if node.is_drained:
        return "DRAINING" if node.held else "DRAINED"
    if node.name not in volatile.links:
        return "UNKNOWN"
    if not node.held:
        return "IDLE"
    has_gpus = bool(node.inventory.gpus)
    is_full = not node.free_cpu_mask or (has_gpus and not node.free_gpu_mask)
    return "ALLOCATED" if is_full else "MIXED"


def _readings(volatile: Volatile, node: Node) -> tuple[GpuReading, ...]:
    """The newest samples of the GPUs of `node`; none while the node is not heard."""
    return volatile.gpu_readings.get(node.name, ()) if node.name in volatile.links else ()


def _gpus(node: Node, readings: tuple[GpuReading, ...] = ()) -> Iterator[GpuInfo]:
    known = {reading.index: reading for reading in readings}
    holders = {index: attempt_id.job_id for attempt_id, grant in node.held.items() for index in grant.gpus}
    for gpu in node.inventory.gpus:
        state = "ALLOCATED" if gpu.index in holders else "DRAINED" if gpu.index in node.drained_gpus else "IDLE"
        info = GpuInfo(
            index=gpu.index,
            uuid=gpu.uuid,
            type=gpu.type,
            memory_mib=gpu.memory_mib,
            state=state,
            job_id=holders.get(gpu.index),
        )
        if (reading := known.get(gpu.index)) is not None:
            info.does_answer, info.xids = reading.does_answer, reading.xids
            info.utilisation_percent, info.memory_used_mib = reading.utilisation_percent, reading.memory_used_mib
        yield info


def cluster_info(cluster: Cluster, policy: Policy, volatile: Volatile, now: float) -> ClusterInfo:
    nodes = sorted(cluster.nodes.values(), key=snapshot.natural_order)
    usable = [node for node in nodes if not snapshot.unavailable_because(node, volatile, now)]
    states = [job.state for job in cluster.jobs.values()]
    return ClusterInfo(
        cluster=policy.cluster,
        gq_version=VERSION,
        started_at=volatile.started_at,
        gpus=_summaries(nodes, usable),
        largest_gangs=_largest_gangs(usable),
        partitions=tuple(_partition_info(partition, nodes, usable) for partition in policy.partitions),
        jobs_pending=jobs_pending(cluster),
        jobs_running=sum(1 for state in states if state not in (JobState.PENDING, JobState.ENDED)),
    )


def jobs_pending(cluster: Cluster) -> int:
    """Count of pending jobs; an array's record counts as its waiting tasks."""
    records = (cluster.jobs[job_id] for job_id in cluster.arrays)
    return len(cluster.queue) + sum(record.width - 1 for record in records if record.is_waiting)


def _summaries(nodes: list[Node], usable: list[Node]) -> tuple[GpuSummary, ...]:
    """GPUs by type: all, and the free ones (on usable nodes, neither allocated nor drained)."""
    total: dict[str, int] = {}
    free: dict[str, int] = {}
    for node in nodes:
        for gpu in node.inventory.gpus:
            total[gpu.type] = total.get(gpu.type, 0) + 1
    for node in usable:
        for shown in _gpus(node):
            if shown.state == "IDLE":
                free[shown.type] = free.get(shown.type, 0) + 1
    return tuple(
        GpuSummary(type=gpu_type, total=count, free=free.get(gpu_type, 0)) for gpu_type, count in sorted(total.items())
    )


def _largest_gangs(usable: list[Node]) -> tuple[GangSize, ...]:
    """The largest gang that could start now on one node, then the largest over several nodes, if that is larger.

    A gang uses one GPU type and the same number of GPUs on each node, as ``-N n --gpus-per-node=g`` asks.
    """
    free: dict[str, list[int]] = {}
    for node in usable:
        idle = [gpu.type for gpu in _gpus(node) if gpu.state == "IDLE"]
        for gpu_type in dict.fromkeys(idle):
            free.setdefault(gpu_type, []).append(idle.count(gpu_type))
    single = max((max(counts) for counts in free.values()), default=0)
    if not single:
        return ()
    widest = GangSize(gpus=single, nodes=1)
    for counts in free.values():
        for position, per_node in enumerate(sorted(counts, reverse=True), 1):
            if per_node * position > widest.gpus:
                widest = GangSize(gpus=per_node * position, nodes=position)
    return (GangSize(gpus=single, nodes=1),) if widest.nodes == 1 else (GangSize(gpus=single, nodes=1), widest)


def _partition_info(partition: Partition, nodes: list[Node], usable: list[Node]) -> PartitionInfo:
    own = [node for node in nodes if partition.has_node(node.name)]
    own_usable = [node for node in usable if partition.has_node(node.name)]
    return PartitionInfo(
        partition=partition.name,
        is_default=partition.is_default,
        state="UP" if partition.is_up else "DOWN",
        nodes=tuple(node.name for node in own),
        default_time_s=partition.implied_time_s,
        max_time_s=partition.max_time_s,
        cpus=sum(node.inventory.cpus for node in own),
        cpus_free=sum(node.free_cpu_mask.bit_count() for node in own_usable),
        gpus=_summaries(own, own_usable),
    )
