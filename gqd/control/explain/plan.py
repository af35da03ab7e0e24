"""Explanations of jobs that fit but do not start: planned starts, locality, preemption, kept CPUs, licences.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gq.model.state import Reason
from gqd.control.explain import parked
from gqd.control.explain.explanation import Explanation
from gqd.sched.reasons.unschedulable import counted
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.records import Job

MAX_NAMED = 4


def would_delay(cluster: Cluster, job: Job, wait: planned.WouldDelay) -> Explanation:
    """The job fits, but would delay the planned start of a job with precedence."""
    ahead = cluster.jobs.get(wait.job_id)
    whose = f"job {wait.job_id}" if ahead is None else f"job {ahead.label} ({ahead.user}: {ahead.spec.name})"
    until = f"until @{{{int(wait.ends_at)}}}" if wait.ends_at is not None else "for as long as nobody knows"
    why = f"it would fit now, but run {until} on {names_of(wait.nodes)}, where {whose} is to start at"
    why += f" @{{{int(wait.starts_at)}}}, and that start is protected"
    return Explanation(Reason.PRIORITY.value, why, _hint_of_delay(job, wait), (int(wait.job_id),))


def _hint_of_delay(job: Job, wait: planned.WouldDelay) -> str:
    """A hint: the time limit that would end before the planned start."""
    length_s = job.time_limit_s if job.time_limit_s is not None else job.expected_s
    if wait.ends_at is not None and length_s is not None:
        minutes = int(wait.starts_at - (wait.ends_at - length_s)) // 60
        if minutes >= 1:
            return (
                f"with at most --time={minutes} (minutes) it could start now: gqctl update {job.label} --time={minutes}"
            )
    else:
        return f"with a time limit that ends before then it could start now: gqctl update {job.label} --time=MINUTES"
    return "it is considered again when that one has started"


def over_fair_share(cluster: Cluster, job: Job, wait: planned.OverFairShare) -> Explanation:
    """An auto-throttled array uses only idle resources, and another job waits for them."""
    array_id = job.job_id if job.array_job_id is None else job.array_job_id
    rival = cluster.jobs.get(wait.job_id)
    whose = f"job {wait.job_id}" if rival is None else f"job {rival.label} ({rival.user}: {rival.spec.name})"
    why = f"array {array_id} takes idle {wait.resource}, and {whose} waits for some; {job.user} holds {wait.held}"
    why += f" of the {wait.total} in partition `{wait.partition}` that its tasks could use, the fair share is"
    why += f" {_rounded(wait.share)}"
    hint = f"it goes on when nobody else waits for these, or when {job.user} holds less than the share;"
    hint += f" gqctl update {array_id} --array-throttle=0 lets it wait its turn like other jobs"
    return Explanation(Reason.ARRAY_TASK_LIMIT.value, why, hint, (int(wait.job_id),))


def _rounded(share: float) -> str:
    """``4``, ``2.7``"""
    return f"{share:.1f}".removesuffix(".0")


def waits_for_locality(job: Job, wait: planned.WaitsForLocality) -> Explanation:
    until = f"@{{{int(wait.until)}}}"
    if wait.what == "switches":
        why = f"it could start over {wait.offered} now, and holds out for {wait.wanted} until {until}"
        hint = "with a shorter wait it starts earlier, wherever it fits: --switches=COUNT@TIME"
    else:
        why = f"it could start on {wait.offered} now, and holds out for nodes that are `{wait.wanted}` until {until}"
        hint = "without --prefer it could start now"
    return Explanation(Reason.RESOURCES.value, why, hint, (), wait.until)


def preempts(cluster: Cluster, job: Job, wait: planned.Preempts) -> Explanation:
    """The job starts as soon as its victims have ended."""
    known = (cluster.jobs.get(one) for one in wait.victims)
    labels = [job.label for job in known if job is not None and _is_ending(cluster, job)]
    others = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    whose = f"job{'s' if len(labels) > 1 else ''} {', '.join(labels[:MAX_NAMED])}{others}" if labels else "others"
    what = "gives way to it" if len(labels) == 1 else "give way to it" if labels else "give up some of what they have"
    why = f"{whose} {what}, by @{{{int(wait.until)}}} at the latest; what they leave is kept for it"
    blockers = tuple(int(one) for one in wait.victims)
    return Explanation(
        Reason.RESOURCES.value, why, parked.min_gpu_mem_hint(cluster, job, wait.victims), blockers, wait.until
    )


def _is_ending(cluster: Cluster, job: Job) -> bool:
    """Whether the victim ends; else it is elastic and only shrinks, which another sentence reports."""
    attempt = cluster.attempts.get(job.attempt_id)
    return attempt is None or attempt.elastic is None or attempt.preemption is not None


def takes_later(cluster: Cluster, wait: planned.NotWorthPreemptingYet) -> Explanation:
    """Jobs that have used their time slice would make room for this job."""
    known = (cluster.jobs.get(one) for one in wait.victims)
    labels = [job.label for job in known if job is not None]
    others = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    whose = f"job{'s' if len(labels) > 1 else ''} {', '.join(labels[:MAX_NAMED])}{others}" if labels else "others"
    verb = "gives its turn" if len(labels) == 1 else "give their turns"
    why = f"{whose} {verb} to it at @{{{int(wait.at)}}} or later, when it has waited for as long as that is worth"
    return Explanation(Reason.RESOURCES.value, why, "", tuple(int(one) for one in wait.victims), wait.at)


def cores_kept(wait: planned.CoresReservedForGpus) -> Explanation:
    verb = "is" if wait.free == 1 else "are"
    why = (
        f"it needs {counted(wait.wanted, 'CPUs')}, {wait.free} {verb} free, and {wait.kept} more are kept for idle GPUs"
    )
    why += f" on {names_of(wait.nodes)}"
    hint = f"with at most {counted(wait.free, 'CPUs')} it could start now" if 0 < wait.free < wait.wanted else ""
    return Explanation(
        Reason.RESOURCES.value, why, hint or "it starts when other CPUs come free, or these GPUs are in use"
    )


def out_of_licenses(cluster: Cluster, wait: planned.OutOfLicenses) -> Explanation:
    verb = "is" if wait.free == 1 else "are"
    why = f"it needs {counted(wait.wanted, 'licences')} of `{wait.name}`, {wait.free} of {wait.total} {verb} free"
    held = []
    for job_id, user, count in wait.holders[:MAX_NAMED]:
        job = cluster.jobs.get(job_id)
        held.append(f"job {job_id if job is None else job.label} ({user}) holds {count}")
    others = len(wait.holders) - MAX_NAMED
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    why += f": {'; '.join(held)}{more}" if held else ""
    hint = f"with at most {wait.free} it could start now" if wait.free else "it starts when enough of these end"
    return Explanation(Reason.LICENSES.value, why, hint, tuple(int(job_id) for job_id, _, _ in wait.holders))


def names_of(nodes: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    named = ", ".join(nodes[:MAX_NAMED])
    return f"{named} and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else named
