"""Explanations about elastic jobs, for their owners and for the jobs for which they shrink.  Pure."""

from __future__ import annotations

from gq.explain.sentence import MAX_NAMED
from gq.model.explanation import Shrinking, ShrinkingJob
from gq.units import counted
from gqd.state.cluster import Cluster
from gqd.state.elastic import givers_to
from gqd.state.phases import PartPhase
from gqd.state.records import Attempt, Elastic, Job


def shrinking_for(cluster: Cluster, job: Job) -> Shrinking | None:
    """The elastic jobs that give up resources for a pending job; None: none does."""
    claim = cluster.claims.get(job.job_id)
    givers = [] if claim is None else givers_to(cluster, claim)
    if not givers:
        return None
    givers.sort(key=lambda giver: (giver.ends_at, giver.attempt_id.job_id))
    shrinking = (
        ShrinkingJob(
            job_id=giver.attempt_id.job_id, node=giver.node, gpus=giver.gpus, cpus=giver.cpus, ends_at=giver.ends_at
        )
        for giver in givers[:MAX_NAMED]
    )
    return Shrinking(jobs=tuple(shrinking), count=len(givers))


def of_holder(cluster: Cluster, job: Job) -> str:
    """The continuation of a sentence about a running job: its size and its resize; empty: it is not elastic."""
    attempt = cluster.attempts[job.attempt_id]
    one = attempt.elastic
    if one is None:
        return ""
    if one.is_of_nodes:
        return _of_nodes(cluster, attempt, one)
    held = f"; it has {counted(len(attempt.grants[0].gpus), 'GPUs')}"
    if one.keeps is None or one.ends_at is None:
        is_full = len(attempt.grants[0].gpus) >= one.takes
        return f"{held}, its maximum" if is_full else f"{held}, and takes up to {one.takes} while they are idle"
    whom = f", which are kept for {kept}" if (kept := _kept_for(cluster, attempt)) else ""
    return f"{held}, and keeps {len(one.keeps)} of them: it gives up the others by @{{{int(one.ends_at)}}}{whom}"


def _of_nodes(cluster: Cluster, attempt: Attempt, elastic: Elastic) -> str:
    coming = [node for node, _ in elastic.joined if attempt.parts[node].phase is not PartPhase.LIVE]
    held = f"; it has {counted(len(attempt.grants) - len(coming), 'nodes')}"
    if coming:
        held = f"{held}, and {', '.join(coming[:MAX_NAMED])} {'is' if len(coming) == 1 else 'are'} being added"
    if elastic.going and elastic.ends_at is not None:
        kept = _kept_for(cluster, attempt)
        what = f"node{'s' if len(elastic.going) > 1 else ''} {', '.join(elastic.going)}"
        whom = f", kept for {kept}" if kept else ""
        return f"{held}, and gives up {what} by @{{{int(elastic.ends_at)}}}{whom}"
    is_full = len(attempt.grants) >= elastic.takes
    return f"{held}, its maximum" if is_full else f"{held}, and takes up to {elastic.takes} while they are idle"


def _kept_for(cluster: Cluster, attempt: Attempt) -> str:
    """The jobs for which the attempt gives up resources; empty: none."""
    others = [
        cluster.jobs[to].label
        for to, claim in cluster.claims.items()
        if any(giver.attempt_id == attempt.attempt_id for giver in givers_to(cluster, claim))
    ]
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    return f"{_jobs(others)}{more}" if others else ""


def _jobs(labels: list[str]) -> str:
    return f"job{'s' if len(labels) > 1 else ''} {', '.join(labels[:MAX_NAMED])}"
