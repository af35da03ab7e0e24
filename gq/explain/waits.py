"""Sentences about the reason for which a job waits: holds, partitions, precedence, preemption, arrays.  Pure."""

from __future__ import annotations

from typing import assert_never

from gq.explain import limits, reservation, resources
from gq.explain.dependency import depends_on
from gq.explain.sentence import Context, Sentence, mark, names_of, shorter_hint
from gq.model import wait as waits
from gq.units import counted

_CONSIDERED_AGAIN = "it is considered again when that one has started"


def wait_sentence(context: Context, wait: waits.Wait) -> Sentence:
    label = context.job.label
    match wait:
        case waits.Held():
            return _held(label, wait)
        case waits.BeginsLater():
            hint = f"gqctl update {label} --begin=now lets it start earlier"
            return Sentence(f"it was asked to begin at {mark(wait.at)}, not before", hint)
        case waits.PartitionIsDown():
            why = f"partition `{wait.partition}` is down: nothing starts there"
            return Sentence(why, f"move it: gqctl update {label} --partition=NAME")
        case waits.NoNodes():
            why = f"partition `{wait.partition}` has no node that has ever registered and that it may use"
            return Sentence(why, "start gqnode on a node; gqinfo -N lists them")
        case waits.BehindPlannedStart():
            return _behind(context, wait)
        case waits.DependsOn():
            return depends_on(context, wait)
        case waits.OverLimit() | waits.OverQuota():
            return limits.over(label, wait)
        case waits.AccessDenied():
            hint = f"gqctl update {context.job.job_id} with another --partition, --qos or --account moves it"
            return Sentence(f"it may not start where it is: {wait.why}", hint)
        case waits.Throttled():
            named = names_of(context.labels(wait.running))
            why = f"{counted(wait.most, 'tasks')} of array {wait.array_id} may run at once, and as many do: {named}"
            return Sentence(why, f"gqctl update {wait.array_id} --array-throttle=COUNT changes that")
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
        why = f"it is held since its working directory is missing where it would run{last}"
        return Sentence(why, f"make the directory there, then gqctl release {label}; or submit it with another --chdir")
    if wait.by == "launch":
        why = f"it is held since its launch failed {counted(wait.launch_failures, 'times')}{last}"
        return Sentence(why, f"mend the cause, then gqctl release {label}")
    if wait.by == "admin":
        return Sentence("an administrator holds it", "ask them")
    return Sentence("its owner holds it", f"gqctl release {label}")


def _behind(context: Context, wait: waits.BehindPlannedStart) -> Sentence:
    ahead = context.name_of(wait.job_id)
    if ahead is None:
        return Sentence("another job goes first")
    why = f"{context.described(wait.job_id)} goes first and waits for the same nodes"
    both = f"{ahead.label},{context.job.label}"
    return Sentence(why, f"gqprio -j {both} shows why it goes first, gqwhy {ahead.label} what it waits for")


def _would_delay(context: Context, wait: waits.WouldDelay) -> Sentence:
    until = f"until {mark(wait.ends_at)}" if wait.ends_at is not None else "for as long as nobody knows"
    why = f"it would fit now, but run {until} on {names_of(wait.nodes)}, where {context.described(wait.job_id)} is"
    why += f" to start at {mark(wait.starts_at)}, and that start is protected"
    return Sentence(why, shorter_hint(context.job.label, wait.longest_s) or _CONSIDERED_AGAIN)


def _over_fair_share(context: Context, wait: waits.OverFairShare) -> Sentence:
    user = context.job.user
    why = f"array {wait.array_id} takes idle {wait.resource}, and {context.described(wait.job_id)} waits for some;"
    why += f" {user} holds {wait.held} of the {wait.total} in partition `{wait.partition}` that its tasks could use,"
    why += f" the fair share is {f'{wait.share:.1f}'.removesuffix('.0')}"
    hint = f"it goes on when nobody else waits for these, or when {user} holds less than the share;"
    hint += f" gqctl update {wait.array_id} --array-throttle=0 lets it wait its turn like other jobs"
    return Sentence(why, hint)


def _preempts(context: Context, wait: waits.Preempts) -> Sentence:
    labels = context.labels(wait.ending)
    what = "gives way to it" if len(labels) == 1 else "give way to it" if labels else "give up some of what they have"
    why = f"{_jobs(labels)} {what}, by {mark(wait.until)} at the latest; what they leave is kept for it"
    if not wait.could_park:
        return Sentence(why)
    parkable = f"job {context.label_of(wait.could_park[0])}"
    whose = parkable if len(wait.could_park) == 1 else f"{len(wait.could_park)} of them"
    return Sentence(why, f"with --min-gpu-mem {whose} could stand still meanwhile, and would not be ended")


def _preempts_later(context: Context, wait: waits.NotWorthPreemptingYet) -> Sentence:
    labels = context.labels(wait.victims)
    verb = "gives its turn" if len(labels) == 1 else "give their turns"
    why = f"{_jobs(labels)} {verb} to it at {mark(wait.at)} or later, when it has waited for as long as that is worth"
    return Sentence(why)


def _jobs(labels: list[str]) -> str:
    return f"job{'s' if len(labels) > 1 else ''} {names_of(labels)}" if labels else "others"
