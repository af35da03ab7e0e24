"""Sentences about how a job ended; the same for jobs in memory and in the history.  Pure."""

from __future__ import annotations

import copy

from gq.model.state import Outcome
from gq.units import spoken_duration
from gqd.state.preemption import Preempted
from gqd.state.records import Attempt, Job

REQUEUED = "requeued"
"""`Attempt.why` of an attempt that its owner or an operator requeued."""


def preemption_sentence(preempted: Preempted) -> str:
    """Sentence about the latest preemption of a job that waits or runs again; instants are written as ``@{…}``."""
    whose = f"job {preempted.by}" + (f" of {preempted.user}" if preempted.user else "")
    whose += f" in reservation {preempted.reservation}" if preempted.reservation else ""
    back = ", whose account reclaimed its guarantee," if preempted.is_reclaim else ""
    times = f"; it was preempted {preempted.times} times" if preempted.times > 1 else ""
    cost = gpu_time(preempted.lost_gpu_s)
    why = f"it was preempted by {whose}{back} at @{{{int(preempted.at)}}}, which cost {cost}{times}"
    why = f"{why}, which cost {gpu_time(preempted.all_lost_gpu_s)} in all" if times else why
    return f"{why}; it was not parked: {preempted.not_parked}" if preempted.not_parked else why


def _cost(job: Job) -> str:
    return "" if job.preempted is None else f", which cost {gpu_time(job.preempted.lost_gpu_s)}"


def gpu_time(gpu_s: float) -> str:
    """GPU-seconds of lost work, in a readable unit."""
    for unit, seconds in (("GPU-hours", 3600), ("GPU-minutes", 60)):
        if gpu_s >= seconds:
            return f"{gpu_s / seconds:.1f} {unit}"
    return f"{gpu_s:.0f} GPU-seconds"


def why_again(job: Job, attempt: Attempt) -> str:
    """Sentence about why the job was queued again after this attempt; empty: a user merely asked for it."""
    match attempt.outcome:
        case Outcome.PREEMPTED if job.preempted is not None:
            return preemption_sentence(job.preempted)
        case Outcome.CANCELLED:
            return "" if attempt.why == REQUEUED else attempt.why
        case _:
            seen = copy.copy(job)
            seen.exit, seen.why, seen.failure_class = attempt.exit, attempt.why, attempt.failure_class
            return how_it_ended(seen, attempt.outcome)[0]


def how_it_ended(job: Job, outcome: Outcome | None = None) -> tuple[str, str]:
    """Return (sentence about the end, hint); `outcome`: of an attempt, or of tasks cancelled in an array's record;
    None: of the job."""
    took = f" after {spoken_duration(job.end_at - job.start_at)}" if job.start_at and job.end_at else ""
    detail = f": {job.why}" if job.why else ""
    hint = ""
    match outcome or job.outcome:
        case Outcome.COMPLETED:
            why = f"it completed{took}"
        case Outcome.FAILED if job.failure_class == "launch":
            why = f"it could not be started{detail}"
        case Outcome.FAILED if job.exit is not None and job.exit.signal:
            why = f"it was ended by signal {job.exit.signal}{took}"
        case Outcome.FAILED:
            why = f"it failed with exit code {job.exit.code if job.exit else 1}{took}"
            hint = "" if job.spec.is_interactive else f"gqlog {job.label} shows its output"
        case Outcome.CANCELLED:
            by = f" {job.why}{took}" if job.why.startswith("by ") else f"{took}, because {job.why}" if job.why else took
            why = f"it was cancelled{by}"
        case Outcome.TIMEOUT:
            why = f"it reached its time limit of {spoken_duration(job.time_limit_s or 0)}"
            hint = "ask for a longer --time"
        case Outcome.DEADLINE if job.start_at is not None:
            why = f"its deadline passed{took}"
            hint = "submit it earlier, or with a later --deadline"
        case Outcome.DEADLINE:
            why = f"it never started{f', because {job.why}' if job.why else detail}"
            hint = "submit it with a later --deadline, or with a shorter --time"
        case Outcome.OUT_OF_MEMORY:
            why = f"it exceeded its memory limit{took}{detail}"
            hint = "ask for more with --mem"
        case Outcome.NODE_FAIL:
            why = f"a node of the job was lost{took}{detail}"
            hint = "" if job.spec.is_interactive else "submit with --requeue to requeue it in this case"
        case Outcome.PREEMPTED:
            by = f"by {job.why.removeprefix('to ')}" if job.why.startswith("to ") else job.why  # "to": of older rows
            why = f"it was preempted {by}{took}{_cost(job)}"
            hint = "" if job.spec.is_interactive or job.requeue else "submit with --requeue to requeue it in this case"
        case _:
            why = f"it ended: {job.outcome.value if job.outcome else 'unknown'}{detail}"
    return why, hint
