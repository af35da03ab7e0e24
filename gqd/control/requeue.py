"""What a job asked for of its own end: whether it waits again after it, and how long it is given to finish.  Pure."""

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
_BY_ITSELF = (PREEMPT, NODE_FAIL)
"""Of a job that may be queued again, and does not say after what."""


def refuse_bad(policy: Policy, spec: JobSpec) -> None:
    """A longer grace than the cluster's would reach into what is kept for others after the job's time limit."""
    refuse_bad_requeue(spec)
    if spec.grace_s is not None and not 0 <= spec.grace_s <= policy.timers.grace_s:
        message = f"--grace is {spec.grace_s} s, and {policy.timers.grace_s} s is the most"
        hint = "--signal=USR1@120 tells a job earlier; timers.grace_s in gq.toml is what all jobs have"
        raise Refusal("long_grace", message, hint)


def refuse_bad_requeue(spec: JobSpec) -> None:
    for cause in spec.requeue_on:
        if cause not in REQUEUE_ON:
            raise Refusal("bad_cause", f"`{cause[:80]}` is none of {', '.join(REQUEUE_ON)}", "see --requeue-on")
    if spec.max_requeue is not None and not 0 <= spec.max_requeue <= MAX_COUNT:
        raise Refusal("bad_number", f"--max-requeue is {spec.max_requeue}, which is not between 0 and {MAX_COUNT}")


def after(draft: TurnBuilder, job: Job, cause: str) -> AfterEnding:
    """What follows when the job ended for this cause (of `gq.model.job.REQUEUE_ON`).

    What ends it each time would go round for ever, as fast as nodes can; but to give way is no failure.
    """
    if not waits_again(job, cause):
        return AfterEnding.END
    if cause == PREEMPT or job.spec.max_requeue is not None:
        return AfterEnding.REQUEUE
    gave_way = 0 if job.preempted is None else job.preempted.times
    is_hopeless = job.restart_count - gave_way >= draft.policy.limits.restarts
    return AfterEnding.END if is_hopeless else AfterEnding.REQUEUE


def waits_again(job: Job, cause: str) -> bool:
    """As far as the job says itself."""
    causes = (job.spec.requeue_on or _BY_ITSELF) if job.requeue else ()
    if cause not in causes or job.spec.is_interactive:
        return False
    return job.spec.max_requeue is None or job.restart_count < job.spec.max_requeue


def after_preemption(draft: TurnBuilder, job: Job) -> AfterEnding:
    qos = association.qos_named(draft.cluster, job.qos)
    is_final = qos is not None and qos.preempt_mode is PreemptMode.CANCEL
    return AfterEnding.END if is_final else after(draft, job, PREEMPT)


def to_whom(cluster: Cluster, victim: Attempt) -> str:
    """Half a sentence: for whom it gives way."""
    way = victim.preemption
    other = None if way is None else cluster.jobs.get(way.preemptor)
    if way is None or other is None:
        return "to another job"
    reclaim = f", whose account {other.account} takes back what it is guaranteed" if way.is_reclaim else ""
    claim = cluster.claims.get(other.job_id)
    where = f" in reservation {claim.reservation}" if claim is not None and claim.reservation else ""
    return f"to job {other.label} of {other.user}{where}{reclaim}"


def grace_s(draft: TurnBuilder, job: Job) -> int:
    """From TERM to KILL."""
    most = draft.policy.timers.grace_s
    return most if job.spec.grace_s is None else min(most, job.spec.grace_s)
