"""The requeue policy: whether a job waits again after its end, and how long it may take to finish.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.account import PreemptMode
from gq.model.job import REQUEUE_ON, JobSpec
from gqd.control.accounts import association
from gqd.state.cluster import Cluster
from gqd.state.phases import AfterEnding
from gqd.state.policy import Policy
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_COUNT = 2**31 - 1
PREEMPT, NODE_FAIL, TIMEOUT = "preempt", "node_fail", "timeout"
_DEFAULT_CAUSES = (PREEMPT, NODE_FAIL)
"""Causes after which a job with --requeue, but without --requeue-on, is queued again."""


def refuse_bad(policy: Policy, spec: JobSpec) -> None:
    """`Refusal` for bad requeue options, or a grace longer than the cluster's.

    A longer grace would delay planned starts on the job's nodes after its time limit.
    """
    refuse_bad_requeue(spec)
    if spec.grace_s is not None and not 0 <= spec.grace_s <= policy.timers.grace_s:
        message = f"--grace is {spec.grace_s} s; the maximum is {policy.timers.grace_s} s"
        hint = "--signal=USR1@120 signals a job earlier; timers.grace_s in gq.toml sets the maximum"
        raise Refusal("long_grace", message, hint)


def refuse_bad_requeue(spec: JobSpec) -> None:
    for cause in spec.requeue_on:
        if cause not in REQUEUE_ON:
            raise Refusal("bad_cause", f"`{cause[:80]}` is not one of {', '.join(REQUEUE_ON)}", "see --requeue-on")
    if spec.max_requeue is not None and not 0 <= spec.max_requeue <= MAX_COUNT:
        raise Refusal("bad_number", f"--max-requeue is {spec.max_requeue}, which is not between 0 and {MAX_COUNT}")


def after(draft: TurnBuilder, job: Job, cause: str) -> AfterEnding:
    """Decide what becomes of a job that ended for this cause (one of `gq.model.job.REQUEUE_ON`).

    `limits.restarts` ends jobs that fail again and again; preemptions do not count as failures.
    """
    if not waits_again(job, cause):
        return AfterEnding.END
    if cause == PREEMPT or job.spec.max_requeue is not None:
        return AfterEnding.REQUEUE
    gave_way = 0 if job.preempted is None else job.preempted.times
    is_hopeless = job.restart_count - gave_way >= draft.policy.limits.restarts
    return AfterEnding.END if is_hopeless else AfterEnding.REQUEUE


def waits_again(job: Job, cause: str) -> bool:
    """Whether the job's own options let it wait again after this cause."""
    causes = (job.spec.requeue_on or _DEFAULT_CAUSES) if job.requeue else ()
    if cause not in causes or job.spec.is_interactive:
        return False
    return job.spec.max_requeue is None or job.restart_count < job.spec.max_requeue


def after_preemption(draft: TurnBuilder, job: Job) -> AfterEnding:
    """Decide what becomes of a preempted job: with PreemptMode CANCEL it ends."""
    qos = association.qos_named(draft.cluster, job.qos)
    is_final = qos is not None and qos.preempt_mode is PreemptMode.CANCEL
    return AfterEnding.END if is_final else after(draft, job, PREEMPT)


def preemptor_phrase(cluster: Cluster, victim: Attempt) -> str:
    """The preemptor of a victim, as the end of a sentence: "by job 7 of ada"."""
    notice = victim.preemption
    preemptor = None if notice is None else cluster.jobs.get(notice.preemptor)
    if notice is None or preemptor is None:
        return "by another job"
    reclaim = f", whose account {preemptor.account} reclaims its guarantee" if notice.is_reclaim else ""
    claim = cluster.claims.get(preemptor.job_id)
    where = f" in reservation {claim.reservation}" if claim is not None and claim.reservation else ""
    return f"by job {preemptor.label} of {preemptor.user}{where}{reclaim}"


def grace_s(draft: TurnBuilder, job: Job) -> int:
    """Seconds from TERM to KILL."""
    max_s = draft.policy.timers.grace_s
    return max_s if job.spec.grace_s is None else min(max_s, job.spec.grace_s)
