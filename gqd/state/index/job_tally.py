"""Count a cluster's jobs in its tallies (`gqd.state.index.tally`): waiting, holding resources, billed.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState
from gqd.state.cluster import Cluster
from gqd.state.index.tally import (
    Amounts,
    Tallies,
    TallyKey,
    account_path,
    add,
    asked_amounts,
    granted_amounts,
    tally_keys,
)
from gqd.state.records import Attempt, Job


def tally_keys_of_job(cluster: Cluster, job: Job) -> list[TallyKey]:
    """Keys of all tallies that count the job."""
    cached = cluster.tallies.cached_keys
    key = (job.user, job.account, job.qos)
    if key not in cached:
        cached[key] = tally_keys(job.user, account_path(cluster.accounts, job.account), job.qos)
    return cached[key]


def count_waiting(cluster: Cluster, job: Job, count: int) -> None:
    """Add `count` waiting jobs or tasks of this record; a negative count removes them."""
    if count:
        cluster.tallies.wait(tally_keys_of_job(cluster, job), asked_amounts(job.spec.resources), count)


def count_held(cluster: Cluster, job: Job, attempt: Attempt) -> None:
    """Count a job that waited and was given an attempt."""
    cluster.tallies.hold(tally_keys_of_job(cluster, job), job.job_id, granted(cluster, attempt.grants))


def count_changed(cluster: Cluster, job: Job, attempt: Attempt) -> None:
    """Count a changed grant of the job's attempt."""
    cluster.tallies.change(tally_keys_of_job(cluster, job), job.job_id, granted(cluster, attempt.grants))


def count_freed(cluster: Cluster, job: Job) -> None:
    """Count a job that has left its attempt, and waits again or has ended."""
    asked = None if job.state is JobState.PENDING else asked_amounts(job.spec.resources)
    cluster.tallies.free(tally_keys_of_job(cluster, job), job.job_id, asked)


def count_billed(cluster: Cluster, job: Job, rate: int) -> None:
    """Add `rate` to the billing rates of the tallies that count the job."""
    if rate:
        cluster.tallies.bill(tally_keys_of_job(cluster, job), rate)


def granted(cluster: Cluster, grants: Iterable[Grant]) -> Amounts:
    """Amounts that the grants add up to, by the present GPU types of the nodes."""
    types = {}
    for grant in grants:
        if grant.gpus and grant.node in cluster.nodes:
            types[grant.node] = {gpu.index: gpu.type for gpu in cluster.nodes[grant.node].inventory.gpus}
    return granted_amounts(grants, types)


def recount(cluster: Cluster, held_by: Mapping[JobId, Amounts] | None = None) -> Tallies:
    """Build the tallies from the jobs; `held_by`: known amounts of attempts, whose GPU types may have changed since."""
    tallies = Tallies()
    for job, amounts, count in _waiting_alike(cluster):
        tallies.add_waiting(tally_keys_of_job(cluster, job), amounts, count)
    for job in cluster.jobs.values():
        if job.state in (JobState.PENDING, JobState.ENDED):
            continue
        keys, attempt = tally_keys_of_job(cluster, job), cluster.attempts[job.attempt_id]
        tallies.wait(keys, asked_amounts(job.spec.resources), 1)
        tallies.hold(keys, job.job_id, (held_by or {}).get(job.job_id) or granted(cluster, attempt.grants))
        if attempt.start_at is not None and attempt.end_at is None and attempt.billing:
            tallies.bill(keys, attempt.billing)
    return tallies


def _waiting_alike(cluster: Cluster) -> list[tuple[Job, Amounts, int]]:
    """(job, amounts of all, count) for the pending jobs of each user, account and QOS, of which there may be very
    many."""
    widths: dict[tuple[tuple[str, str, str], ResourceRequest], int] = {}
    samples: dict[tuple[str, str, str], Job] = {}
    for job in cluster.jobs.values():
        if job.state is JobState.PENDING:
            holder = (job.user, job.account, job.qos)
            samples.setdefault(holder, job)
            key = (holder, job.spec.resources)
            widths[key] = widths.get(key, 0) + job.width
    sums: dict[tuple[str, str, str], Amounts] = {holder: {} for holder in samples}
    for (holder, request), count in widths.items():
        add(sums[holder], asked_amounts(request), count)
    return [(samples[holder], amounts, amounts["jobs"]) for holder, amounts in sums.items() if amounts]


def rebuild(cluster: Cluster) -> None:
    """Rebuild the tallies, after loading or after a change of the tree of accounts."""
    held_by = cluster.tallies.held_by
    cluster.tallies.cached_keys.clear()
    tallies = recount(cluster, held_by)
    tallies.cached_keys = cluster.tallies.cached_keys
    cluster.tallies = tallies
