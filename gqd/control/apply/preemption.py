"""Apply the events of preemption to the cluster.  Pure."""

from __future__ import annotations

from gq.model.state import Outcome
from gqd.control.apply import nomination
from gqd.control.apply.job import move
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.parked import NOT_PARKED
from gqd.state.preemption import Preempted, PreemptionNotice, Resumed
from gqd.state.records import Attempt, Job, Nomination


def apply_decided(cluster: Cluster, fact: event.PreemptionDecided) -> None:
    move(cluster, cluster.jobs[fact.job_id], event.PreemptionDecided)
    cluster.claims[fact.job_id] = Nomination(
        job_id=fact.job_id,
        grants=fact.grants,
        victims=tuple(attempt_id for attempt_id, _ in fact.victims),
        made_at=fact.at,
        reservation=fact.reservation,
        occurrence=fact.occurrence,
    )
    cluster.changes.claims[fact.job_id] = None
    for attempt_id, ends_at in fact.victims:
        way = PreemptionNotice(
            preemptor=fact.job_id,
            notified_at=fact.at,
            ends_at=ends_at,
            is_reclaim=fact.is_reclaim,
            parks=attempt_id in fact.parks,
        )
        nomination.set_preemption(cluster, attempt_id, way)


def apply_dropped(cluster: Cluster, fact: event.PreemptionDropped) -> None:
    move(cluster, cluster.jobs[fact.job_id], event.PreemptionDropped)
    nomination.end_claim(cluster, fact.job_id)


def apply_checkpointed(cluster: Cluster, fact: event.JobCheckpointed) -> None:
    attempt = cluster.attempts[fact.attempt_id]
    attempt.checkpoint_at = fact.at
    attempt.view = None
    cluster.changes.attempts[fact.attempt_id] = None


def apply_caught_up(cluster: Cluster, fact: event.JobCaughtUp) -> None:
    job = cluster.jobs[fact.attempt_id.job_id]
    before = fact.resume_s if job.resumed is None else job.resumed.cost_s
    job.resumed = Resumed(fact.attempt_id.attempt, (before + fact.resume_s) / 2)
    cluster.attempts[fact.attempt_id].view = None
    cluster.changes.jobs[job.job_id] = None


def give_way(cluster: Cluster, job: Job, attempt: Attempt, fact: event.JobEnding) -> None:
    """Record in the job of a preempted attempt what the preemption cost."""
    notice = attempt.preemption
    if fact.outcome is not Outcome.PREEMPTED or notice is None:
        return
    attempt.lost_gpu_s = fact.lost_gpu_s
    before, preemptor, claim = job.preempted, cluster.jobs.get(notice.preemptor), cluster.claims.get(notice.preemptor)
    job.preempted = Preempted(
        by=str(notice.preemptor) if preemptor is None else preemptor.label,
        user="" if preemptor is None else preemptor.user,
        at=fact.at,
        lost_gpu_s=fact.lost_gpu_s,
        is_reclaim=notice.is_reclaim,
        reservation="" if claim is None else claim.reservation,
        not_parked=fact.why.partition(NOT_PARKED)[2] if notice.parks else "",
        times=1 if before is None else before.times + 1,
        all_lost_gpu_s=fact.lost_gpu_s + (0.0 if before is None else before.all_lost_gpu_s),
    )
