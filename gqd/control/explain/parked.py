"""Explanations about suspended victims (parked jobs), and about the jobs that run on their GPUs.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gq.model.account import PreemptMode
from gq.model.ids import JobId
from gq.model.job import JobInfo
from gq.model.state import JobState, Reason
from gq.units import counted, format_memory
from gqd.control.accounts.association import qos_named
from gqd.state.cluster import Cluster
from gqd.state.index.deadlines import time_limit_of
from gqd.state.parked import can_park, fits_beside
from gqd.state.records import Attempt, Job


def tell(cluster: Cluster, job: Job, shown: JobInfo) -> None:
    """Set the fields of a `JobInfo` about parked jobs."""
    if not cluster.parked:
        return
    known = cluster.parked.get(job.attempt_id)
    if known is not None:
        shown.reason, shown.parked_for = Reason.PARKED.value, _label(cluster, known.to)
    if job.state in (JobState.STARTING, JobState.RUNNING):
        shown.runs_on_parked = tuple(_label(cluster, lender) for lender in _lenders(cluster, job))


def suspended_facts(cluster: Cluster, job: Job) -> str:
    """The continuation of a sentence: since when, for which job, what it lends and keeps, and when it resumes."""
    known = cluster.parked[job.attempt_id]
    other = cluster.jobs.get(known.to)
    whom = f"job {known.to}" if other is None else f"job {other.label} of {other.user}"
    since = f"since @{{{int(known.at)}}}: it was preempted by {whom}"
    if known.lent is None:
        return f"{since}, and its node has not reported yet how much GPU memory it holds"
    lent = counted(len(known.lent.gpus), "GPUs") if known.lent.gpus else counted(len(known.lent.cpus), "CPUs")
    most_mib = max((mib for _, mib in known.gpu_memory), default=0)
    kept = f" (up to {format_memory(most_mib)} of the memory of each stays in use)" if most_mib else ""
    then = f"it keeps its memory, and resumes when that job has ended{_until(cluster, other)}"
    return f"{since}, which uses {lent} of it{kept}; {then}"


def _until(cluster: Cluster, other: Job | None) -> str:
    attempt = None if other is None else cluster.attempt_of(other)
    if other is None or attempt is None or attempt.start_at is None or other.state is not JobState.RUNNING:
        return ""
    limit_s = time_limit_of(other, attempt)
    at = "" if limit_s is None else f" by @{{{int(attempt.start_at + limit_s + attempt.suspended_s)}}} at the latest"
    return f",{at}" if at else ""


def guest_facts(cluster: Cluster, job: Job) -> str:
    """The continuation of a sentence about a running job; empty: no job is parked for it."""
    lenders = [_label(cluster, lender) for lender in _lenders(cluster, job)]
    if not lenders:
        return ""
    plural = "jobs " if len(lenders) > 1 else "job "
    verb = "are" if len(lenders) > 1 else "is"
    return f"; {plural}{', '.join(lenders)} {verb} suspended for it, and gets the resources back when it ends"


def _lenders(cluster: Cluster, job: Job) -> list[JobId]:
    known = cluster.parked.items()
    return [one.job_id for one, parked in known if parked.to == job.job_id and parked.lent is not None]


def _label(cluster: Cluster, job_id: JobId) -> str:
    job = cluster.jobs.get(job_id)
    return str(job_id) if job is None else job.label


def could_park(cluster: Cluster, job: Job, victims: Iterable[JobId]) -> tuple[JobId, ...]:
    """The victims that would be suspended instead of ended if the job asked for ``--min-gpu-mem``."""
    resources = job.spec.resources
    if fits_beside(resources) or not fits_beside(replace(resources, min_gpu_mem_mib=1)):
        return ()
    known = (cluster.jobs.get(job_id) for job_id in victims)
    return tuple(victim.job_id for victim in known if victim is not None and _might_park(cluster, victim))


def _might_park(cluster: Cluster, job: Job) -> bool:
    attempt = cluster.attempts.get(job.attempt_id)
    if attempt is None or attempt.end_at is not None or not can_park(cluster, attempt):
        return False
    qos = qos_named(cluster, job.qos)
    return qos is not None and qos.preempt_mode is PreemptMode.SUSPEND and not _is_reclaimed(attempt)


def _is_reclaimed(attempt: Attempt) -> bool:
    return attempt.preemption is not None and attempt.preemption.is_reclaim
