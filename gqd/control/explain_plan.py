"""What is said of jobs that could start and do not: for a protected one, locality, idle GPUs, licences.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gq.model.state import Reason
from gqd.sched.blocked import counted
from gqd.state import plan as planned
from gqd.state.cluster import Cluster, Job

MAX_NAMED = 4


class Words(NamedTuple):
    reason: str
    why: str
    hint: str = ""
    blockers: tuple[int, ...] = ()
    expected_start_at: float | None = None


def would_delay(cluster: Cluster, job: Job, wait: planned.WouldDelay) -> Words:
    """It fits, but would be in the way of one that goes first."""
    ahead = cluster.jobs.get(wait.job_id)
    whose = f"job {wait.job_id}" if ahead is None else f"job {ahead.label} ({ahead.user}: {ahead.spec.name})"
    until = f"until @{{{int(wait.ends_at)}}}" if wait.ends_at is not None else "for as long as nobody knows"
    why = f"it would fit now, but run {until} on {names_of(wait.nodes)}, where {whose} is to start at"
    why += f" @{{{int(wait.starts_at)}}}, and that start is protected"
    return Words(Reason.PRIORITY.value, why, _hint_of_delay(job, wait), (int(wait.job_id),))


def _hint_of_delay(job: Job, wait: planned.WouldDelay) -> str:
    """A time limit that ends before the other starts."""
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


def waits_for_locality(job: Job, wait: planned.WaitsForLocality) -> Words:
    until = f"@{{{int(wait.until)}}}"
    if wait.what == "switches":
        why = f"it could start over {wait.offered} now, and holds out for {wait.wanted} until {until}"
        hint = "with a shorter wait it starts earlier, wherever it fits: --switches=COUNT@TIME"
    else:
        why = f"it could start on {wait.offered} now, and holds out for nodes that are `{wait.wanted}` until {until}"
        hint = "without --prefer it could start now"
    return Words(Reason.RESOURCES.value, why, hint, (), wait.until)


def cores_kept(wait: planned.CoresKept) -> Words:
    verb = "is" if wait.free == 1 else "are"
    why = (
        f"it needs {counted(wait.wanted, 'CPUs')}, {wait.free} {verb} free, and {wait.kept} more are kept for idle GPUs"
    )
    why += f" on {names_of(wait.nodes)}"
    hint = f"with at most {counted(wait.free, 'CPUs')} it could start now" if wait.free > 0 else ""
    return Words(Reason.RESOURCES.value, why, hint or "it starts when other CPUs come free, or these GPUs are in use")


def out_of_licenses(cluster: Cluster, wait: planned.OutOfLicenses) -> Words:
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
    return Words(Reason.LICENSES.value, why, hint, tuple(int(job_id) for job_id, _, _ in wait.holders))


def names_of(nodes: Sequence[str]) -> str:
    """The first few, and how many more."""
    named = ", ".join(nodes[:MAX_NAMED])
    return f"{named} and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else named
