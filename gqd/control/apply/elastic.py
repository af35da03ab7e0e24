"""Apply the events of elastic jobs to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from msgspec.structs import replace

from gq.model.resource import Grant, gpus_in
from gqd.control.apply import limit, usage
from gqd.state.cluster import Cluster
from gqd.state.elastic import has_joined, staying
from gqd.state.events import event
from gqd.state.index import job_tally
from gqd.state.index.usage import MILLION
from gqd.state.phases import PartPhase
from gqd.state.records import Agreement, Attempt, Elastic, Job, Left, Part


def elastic_of(job: Job, attempt: Attempt) -> Elastic | None:
    """The elastic state of a new attempt; None: the job is not elastic."""
    request, grant = job.spec.resources, attempt.grants[0]
    if request.is_elastic:
        return Elastic(most=max(request.nodes_max or 1, len(attempt.grants)), is_of_nodes=True)
    if request.most_gpus is None:
        return None
    cpus_per_gpu = request.cpus_per_gpu or 0
    return Elastic(least=grant.gpus, most=request.most_gpus, least_cpus=grant.cpus, cpus_per_gpu=cpus_per_gpu)


def apply_added(cluster: Cluster, fact: event.GpusAdded) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    before = attempt.grants[0]
    gpus, cpus = tuple(sorted({*before.gpus, *fact.gpus})), tuple(sorted({*before.cpus, *fact.cpus}))
    cluster.change_grant(attempt, replace(before, gpus=gpus, cpus=cpus))
    _count(cluster, attempt, (before,), fact.at, fact.billing)
    _set(cluster, attempt, replace(_elastic(attempt), generation=_elastic(attempt).generation + 1))


def apply_decided(cluster: Cluster, fact: event.ShrinkDecided) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    elastic = _elastic(attempt)
    _set(
        cluster,
        attempt,
        replace(
            elastic,
            generation=elastic.generation + 1,
            keeps=fact.keeps,
            keeps_cpus=fact.keeps_cpus,
            ends_at=fact.ends_at,
            to=fact.to,
        ),
    )


def apply_accepted(cluster: Cluster, fact: event.ShrinkAccepted) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    _set(cluster, attempt, replace(_elastic(attempt), ends_at=fact.at))


def apply_agreed(cluster: Cluster, fact: event.ShrinkAgreed) -> None:
    """Add the agreements; the lowest agreed number is in force."""
    attempt = cluster.attempts[fact.attempt_id]
    elastic = _elastic(attempt)
    added = tuple(Agreement(fact.agreed, user, uid) for user, uid in fact.askers)
    agreed = fact.agreed if elastic.agreed is None else min(fact.agreed, elastic.agreed)
    _set(cluster, attempt, replace(elastic, agreed=agreed, agreements=(*elastic.agreements, *added)))


def begin_askers_job(cluster: Cluster, job: Job) -> None:
    """A job starts: it becomes the asker's job of the user's agreements that have none yet."""
    job_id = job.array_job_id or job.job_id
    for attempt in _with_agreements(cluster):
        elastic = _elastic(attempt)
        agreements = tuple(
            replace(agreement, job_id=job_id) if agreement.job_id is None and _is_with(agreement, job) else agreement
            for agreement in elastic.agreements
        )
        if agreements != elastic.agreements and attempt.attempt_id.job_id != job.job_id:
            _set(cluster, attempt, replace(elastic, agreements=agreements))


def end_askers_job(cluster: Cluster, job: Job) -> None:
    """A job has ended: end the agreements that lasted until then.

    An agreement also ends when its asker cancels the last pending job: none of the asker's jobs will start.
    """
    for attempt in _with_agreements(cluster):
        elastic = _elastic(attempt)
        left = tuple(agreement for agreement in elastic.agreements if not _is_over(cluster, agreement, job))
        if left != elastic.agreements:
            agreed = min((agreement.keeps for agreement in left), default=None)
            _set(cluster, attempt, replace(elastic, agreed=agreed, agreements=left))


def _with_agreements(cluster: Cluster) -> list[Attempt]:
    return [
        attempt for attempt in cluster.elastic.values() if attempt.elastic is not None and attempt.elastic.agreements
    ]


def _is_with(agreement: Agreement, job: Job) -> bool:
    return (agreement.user, agreement.uid) == (job.user, job.uid)


def _is_over(cluster: Cluster, agreement: Agreement, ended: Job) -> bool:
    if agreement.job_id is not None:
        return agreement.job_id == ended.job_id
    if not _is_with(agreement, ended) or ended.attempt or ended.array_job_id is not None:
        return False
    return not any(_is_with(agreement, other) and other.is_waiting for other in cluster.jobs.values())


def apply_given_up(cluster: Cluster, fact: event.GpusGivenUp) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    assert _elastic(attempt).keeps is not None, f"{fact.attempt_id} has nothing to release"
    before = attempt.grants[0]
    cluster.change_grant(attempt, staying(attempt, before))
    _count(cluster, attempt, (before,), fact.at, fact.billing)
    _set(cluster, attempt, replace(_elastic(attempt), keeps=None, keeps_cpus=None, ends_at=None, to=()))


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def apply_node_added(cluster: Cluster, fact: event.NodeAdded) -> None:
    attempt, node = cluster.attempts[fact.attempt_id], fact.grant.node
    before, elastic = attempt.grants, _elastic(attempt)
    assert node not in attempt.parts, f"{fact.attempt_id} has {node} already"
    attempt.grants = (*before, fact.grant)
    attempt.parts[node] = Part(fact.grant, PartPhase.PREPARING)
    cluster.hold(attempt, fact.grant)
    cluster.changes.freed_parts.pop((fact.attempt_id, node), None)
    _count(cluster, attempt, before, fact.at, fact.billing)
    elastic = _elastic(attempt)
    joined = (*elastic.joined, (node, elastic.generation + 1))
    _set(cluster, attempt, replace(elastic, generation=elastic.generation + 1, joined=joined))


def join(cluster: Cluster, attempt: Attempt, node: str) -> None:
    """An added node's part is live: start a new generation, so that all nodes are notified."""
    if has_joined(attempt, node):
        _set(cluster, attempt, replace(_elastic(attempt), generation=_elastic(attempt).generation + 1))


def apply_nodes_going(cluster: Cluster, fact: event.NodesGoing) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    elastic = _elastic(attempt)
    changed = replace(elastic, generation=elastic.generation + 1, going=fact.nodes, ends_at=fact.ends_at, to=fact.to)
    _set(cluster, attempt, changed)


def apply_nodes_left(cluster: Cluster, fact: event.NodesLeft) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    before = attempt.grants
    attempt.grants = tuple(grant for grant in before if grant.node not in fact.nodes)
    for node in fact.nodes:
        attempt.parts[node].phase = PartPhase.STOPPING
        cluster.changes.parts[fact.attempt_id, node] = None
    _count(cluster, attempt, before, fact.at, fact.billing)
    elastic = _elastic(attempt)
    going = tuple(node for node in elastic.going if node not in fact.nodes)
    left = tuple(Left(grant, fact.ends_at) for grant in before if grant.node in fact.nodes)
    elastic = replace(
        elastic,
        generation=elastic.generation + 1,
        joined=tuple(each for each in elastic.joined if each[0] not in fact.nodes),
        going=going,
        left=(*elastic.left, *left),
        ends_at=elastic.ends_at if going else None,
        to=elastic.to if going else (),
    )
    _set(cluster, attempt, elastic)


def empty(attempt: Attempt, node: str) -> None:
    """The node holds nothing of the attempt any more: forget that it left."""
    elastic = attempt.elastic
    if elastic is not None and elastic.left:
        attempt.elastic = replace(elastic, left=tuple(each for each in elastic.left if each.grant.node != node))


# ── both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _elastic(attempt: Attempt) -> Elastic:
    assert attempt.elastic is not None, f"{attempt.attempt_id} holds what it holds"
    return attempt.elastic


def _set(cluster: Cluster, attempt: Attempt, elastic: Elastic) -> None:
    attempt.elastic = elastic
    attempt.view = None
    cluster.changes.attempts[attempt.attempt_id] = None


def _count(cluster: Cluster, attempt: Attempt, before: tuple[Grant, ...], at: float, billing: int) -> None:
    """Update tallies, usage and budgets after a change of the attempt's grants.

    The time until now is billed at the old rate.
    """
    job, elastic = cluster.jobs[attempt.attempt_id.job_id], _elastic(attempt)
    assert attempt.start_at is not None, f"{attempt.attempt_id} has not started"
    since = attempt.start_at if elastic.changed_at is None else elastic.changed_at
    passed_s = max(0.0, at - since)
    attempt.elastic = replace(
        elastic,
        changed_at=at,
        gpu_s_before=elastic.gpu_s_before + gpus_in(before) * passed_s,
        cpu_s_before=elastic.cpu_s_before + sum(len(grant.cpus) for grant in before) * passed_s,
        billed_s_before=elastic.billed_s_before + attempt.billing / MILLION * passed_s,
    )
    job_tally.count_changed(cluster, job, attempt)
    usage.bill_change(cluster, job, at, billing - attempt.billing)
    limit.bill(cluster, job, at, billing - attempt.billing)
    attempt.billing = billing
    for grant in attempt.grants:
        if grant.node in attempt.parts:
            cluster.changes.parts[attempt.attempt_id, grant.node] = None
    cluster.changes.jobs[job.job_id] = None
