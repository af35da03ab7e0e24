"""Sentences about the reason for which a job waits: holds, partitions, precedence, preemption, arrays.  Pure."""

from __future__ import annotations

from typing import assert_never

from gq.explain import limits, reservation, resources
from gq.explain.dependency import depends_on
from gq.explain.sentence import Context, Sentence, mark, names_of, shorter_hint
from gq.model import wait as waits
from gq.units import counted

_CONSIDERED_AGAIN = "it is considered again when that job has started"


def wait_sentence(context: Context, wait: waits.Wait) -> Sentence:
    label = context.job.label
    match wait:
        case waits.Held():
            return _held(label, wait)
        case waits.BeginsLater():
            hint = f"gqctl update {label} --begin=now removes the begin time"
            return Sentence(f"its begin time is {mark(wait.at)}", hint)
        case waits.PartitionIsDown():
            why = f"partition `{wait.partition}` is down, so no job starts there"
            return Sentence(why, f"gqctl update {label} --partition=NAME moves it")
        case waits.NoNodes():
            why = f"no node of partition `{wait.partition}` that the job may use has ever registered"
            return Sentence(why, "start gqnode on a node; gqinfo -N lists the nodes")
        case waits.BehindPlannedStart():
            return _behind(context, wait)
        case waits.DependsOn():
            return depends_on(context, wait)
        case waits.OverLimit() | waits.OverQuota():
            return limits.over(label, wait)
        case waits.AccessDenied():
            hint = f"gqctl update {context.job.job_id} with another --partition, --qos or --account moves it"
            return Sentence(f"the job may no longer start: {wait.why}", hint)
        case waits.Throttled():
            named = names_of(context.labels(wait.running))
            why = f"array {wait.array_id} may run {counted(wait.most, 'tasks')} at once, and these run: {named}"
            return Sentence(why, f"gqctl update {wait.array_id} --array-throttle=COUNT changes the limit")
        case waits.OverFairShare():
            return _over_fair_share(context, wait)
        case waits.WouldDelay():
            return _would_delay(context, wait)
        case waits.Preempts():
            return _preempts(context, wait)
        case waits.NotWorthPreemptingYet():
            return _preempts_later(context, wait)
        case waits.Infeasible():
            return Sentence(f"it can never start: {wait.why}", wait.hint)
        case waits.Insufficient() | waits.Unavailable() | waits.OutOfLicenses() | waits.CoresReservedForGpus():
            return resources.sentence(context, wait)
        case waits.WaitsForLocality():
            return resources.waits_for_locality(wait)
        case (
            waits.ReservationBegins()
            | waits.ReservationTooShort()
            | waits.NotInReservation()
            | waits.RunsIntoReservation()
        ):
            return reservation.sentence(label, wait)
        case _ as never:
            assert_never(never)


def _held(label: str, wait: waits.Held) -> Sentence:
    last = f"; last: {wait.message}" if wait.message else ""
    if wait.is_workdir_missing:
        why = f"it is held because its working directory does not exist on the node{last}"
        return Sentence(why, f"create the directory, then gqctl release {label}; or submit it with another --chdir")
    if wait.by == "launch":
        why = f"it is held because its launch failed {counted(wait.launch_failures, 'times')}{last}"
        return Sentence(why, f"correct the cause, then gqctl release {label}")
    if wait.by == "admin":
        return Sentence("an administrator holds it", "ask an administrator to release it")
    return Sentence("its owner holds it", f"gqctl release {label}")


def _behind(context: Context, wait: waits.BehindPlannedStart) -> Sentence:
    ahead = context.name_of(wait.job_id)
    if ahead is None:
        return Sentence("another job is ahead of it in the queue")
    why = f"{context.described(wait.job_id)} is ahead of it in the queue and waits for the same nodes"
    both = f"{ahead.label},{context.job.label}"
    hint = f"gqprio -j {both} compares their priorities, gqwhy {ahead.label} explains why that job waits"
    return Sentence(why, hint)


def _would_delay(context: Context, wait: waits.WouldDelay) -> Sentence:
    until = f"until {mark(wait.ends_at)}" if wait.ends_at is not None else "without a known end"
    why = f"it would fit now, but would run {until} on {names_of(wait.nodes)}, where {context.described(wait.job_id)}"
    why += f" has a protected planned start at {mark(wait.starts_at)}"
    return Sentence(why, shorter_hint(context.job.label, wait.longest_s) or _CONSIDERED_AGAIN)


def _over_fair_share(context: Context, wait: waits.OverFairShare) -> Sentence:
    user = context.job.user
    rival = context.described(wait.job_id)
    why = f"array {wait.array_id} uses only idle {wait.resource}, and {rival} waits for {wait.resource};"
    why += f" {user} holds {wait.held} of the {wait.total} in partition `{wait.partition}` that its tasks could use,"
    why += f" the fair share is {f'{wait.share:.1f}'.removesuffix('.0')}"
    hint = f"it continues when no other job waits for these, or when {user} holds less than the share;"
    hint += f" gqctl update {wait.array_id} --array-throttle=0 schedules it like other jobs"
    return Sentence(why, hint)


def _preempts(context: Context, wait: waits.Preempts) -> Sentence:
    labels = context.labels(wait.ending)
    what = (
        "is preempted for it" if len(labels) == 1 else "are preempted for it" if labels else "release resources for it"
    )
    why = f"{_jobs(labels)} {what} by {mark(wait.until)} at the latest; these resources are kept for it"
    if not wait.could_park:
        return Sentence(why)
    parkable = f"job {context.label_of(wait.could_park[0])}"
    whose = parkable if len(wait.could_park) == 1 else f"{len(wait.could_park)} of them"
    return Sentence(why, f"with --min-gpu-mem, {whose} could be suspended instead of ended")


def _preempts_later(context: Context, wait: waits.NotWorthPreemptingYet) -> Sentence:
    labels = context.labels(wait.victims)
    why = f"{_jobs(labels)} may be preempted for it at {mark(wait.at)} or later, when it has waited long enough"
    return Sentence(why)


def _jobs(labels: list[str]) -> str:
    return f"job{'s' if len(labels) > 1 else ''} {names_of(labels)}" if labels else "other jobs"
