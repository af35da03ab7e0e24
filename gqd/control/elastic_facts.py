"""What facts of growing and shrinking jobs do to the cluster.  Pure; decides nothing (see `gqd.control.apply`)."""

from __future__ import annotations

from msgspec.structs import replace

from gq.model.resource import Grant
from gqd.control import limit_facts, usage_facts
from gqd.state import event, tally
from gqd.state.cluster import Attempt, Cluster, Job
from gqd.state.elastic import Elastic, staying
from gqd.state.usage import MILLION


def elastic_of(job: Job, attempt: Attempt) -> Elastic | None:
    """Of a new attempt; None: it has what it has."""
    request, grant = job.spec.resources, attempt.grants[0]
    if request.most_gpus is None:
        return None
    cpus_per_gpu = request.cpus_per_gpu or 0
    return Elastic(least=grant.gpus, most=request.most_gpus, least_cpus=grant.cpus, cpus_per_gpu=cpus_per_gpu)


def apply_added(cluster: Cluster, fact: event.GpusAdded) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    before = attempt.grants[0]
    gpus, cpus = tuple(sorted({*before.gpus, *fact.gpus})), tuple(sorted({*before.cpus, *fact.cpus}))
    _hold(cluster, attempt, replace(before, gpus=gpus, cpus=cpus), fact.at, fact.billing)
    _set(cluster, attempt, replace(_elastic(attempt), generation=_elastic(attempt).generation + 1))


def apply_decided(cluster: Cluster, fact: event.ShrinkDecided) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    one = _elastic(attempt)
    _set(
        cluster,
        attempt,
        replace(
            one,
            generation=one.generation + 1,
            keeps=fact.keeps,
            keeps_cpus=fact.keeps_cpus,
            ends_at=fact.ends_at,
            to=fact.to,
        ),
    )


def apply_accepted(cluster: Cluster, fact: event.ShrinkAccepted) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    _set(cluster, attempt, replace(_elastic(attempt), ends_at=fact.at))


def apply_given_up(cluster: Cluster, fact: event.GpusGivenUp) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    assert _elastic(attempt).keeps is not None, f"{fact.attempt_id} was to give up nothing"
    _hold(cluster, attempt, staying(attempt, attempt.grants[0]), fact.at, fact.billing)
    _set(cluster, attempt, replace(_elastic(attempt), keeps=None, keeps_cpus=None, ends_at=None, to=()))


def _elastic(attempt: Attempt) -> Elastic:
    assert attempt.elastic is not None, f"{attempt.attempt_id} holds what it holds"
    return attempt.elastic


def _set(cluster: Cluster, attempt: Attempt, one: Elastic) -> None:
    attempt.elastic = one
    attempt.view = None
    cluster.changes.attempts[attempt.attempt_id] = None


def _hold(cluster: Cluster, attempt: Attempt, grant: Grant, at: float, billing: int) -> None:
    """Everywhere where it is written what it holds.  What it has used so far is as it was billed so far."""
    job, before, one = cluster.jobs[attempt.attempt_id.job_id], attempt.grants[0], _elastic(attempt)
    assert attempt.start_at is not None, f"{attempt.attempt_id} has not started"
    since = attempt.start_at if one.changed_at is None else one.changed_at
    passed_s = max(0.0, at - since)
    attempt.elastic = replace(
        one,
        changed_at=at,
        gpu_s_before=one.gpu_s_before + len(before.gpus) * passed_s,
        billed_s_before=one.billed_s_before + attempt.billing / MILLION * passed_s,
    )
    cluster.change_grant(attempt, grant)
    tally.count_changed(cluster, job, attempt)
    usage_facts.bill_change(cluster, job, at, billing - attempt.billing)
    limit_facts.bill(cluster, job, at, billing - attempt.billing)
    attempt.billing = billing
    cluster.changes.parts[attempt.attempt_id, grant.node] = None
    cluster.changes.jobs[job.job_id] = None
