"""The deadlines of an attempt: time limit and its warning, the grace before KILL, steps waiting for a client.  Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

from gqnode.control.attempt import AttemptRecord, Phase, StepRecord


class Due(StrEnum):
    """The kinds of deadlines of an attempt."""

    WARNING = "warning"
    TIME_LIMIT = "time_limit"
    KILL = "kill"


def limit_at(record: AttemptRecord) -> float | None:
    """Return when the time limit is reached; None without a limit, before the start and while suspended."""
    if record.time_limit_s is None or record.started_at is None or record.suspended_at is not None:
        return None
    return record.started_at + record.slept_s + record.time_limit_s


def warn_at(record: AttemptRecord) -> float | None:
    at = limit_at(record)
    return None if at is None or record.launch.signal is None else at - record.launch.signal.before_s


def due(record: AttemptRecord, now: float) -> Due | None:
    """Return the first deadline that has passed; another may be due once it is handled."""
    at = _next_of_attempt(record)
    if at is None or at[0] > now:
        return None
    return at[1]


def _next_of_attempt(record: AttemptRecord) -> tuple[float, Due] | None:
    match record.phase:
        case Phase.RUNNING:
            warning, limit = warn_at(record), limit_at(record)
            if warning is not None and not record.signal_sent:
                return warning, Due.WARNING
            return None if limit is None else (limit, Due.TIME_LIMIT)
        case Phase.STOPPING:
            return None if record.kill_at is None else (record.kill_at, Due.KILL)
        case _:
            return None


def _step_due_at(record: AttemptRecord, step: StepRecord) -> float | None:
    if step.is_ended:
        return None
    if not step.is_attached:
        return None if record.suspended_at is not None else step.expires_at  # its client may stand still as well
    return step.kill_at


def due_steps(record: AttemptRecord, now: float) -> list[StepRecord]:
    """Return the steps whose client did not attach in time, and the steps whose grace has ended."""
    return [step for step in record.steps.values() if (at := _step_due_at(record, step)) is not None and at <= now]


def postponed(record: AttemptRecord, by_s: float) -> AttemptRecord:
    """Move all deadlines of the attempt by a leap of the clock, so that each has as long left as before."""
    steps = {number: _step_postponed(step, by_s) for number, step in record.steps.items()}
    slept_s = record.slept_s if record.started_at is None else record.slept_s + by_s
    kill_at = None if record.kill_at is None else record.kill_at + by_s
    suspended_at = None if record.suspended_at is None else record.suspended_at + by_s
    return replace(record, slept_s=slept_s, kill_at=kill_at, suspended_at=suspended_at, steps=steps)


def resumed(record: AttemptRecord, now: float) -> AttemptRecord:
    """End the suspension: the time limit and the steps waiting for a client have as long left as before it."""
    if record.suspended_at is None:
        return record
    by_s = max(0.0, now - record.suspended_at)
    steps = {number: replace(step, expires_at=step.expires_at + by_s) for number, step in record.steps.items()}
    return replace(record, slept_s=record.slept_s + by_s, suspended_at=None, steps=steps)


def _step_postponed(step: StepRecord, by_s: float) -> StepRecord:
    kill_at = None if step.kill_at is None else step.kill_at + by_s
    return step if step.is_ended else replace(step, kill_at=kill_at, expires_at=step.expires_at + by_s)


def next_deadline(record: AttemptRecord) -> float | None:
    """Return the time of the next deadline; None if there is none."""
    if record.phase is Phase.ENDED:
        return None
    instants = [at for step in record.steps.values() if (at := _step_due_at(record, step)) is not None]
    if (own := _next_of_attempt(record)) is not None:
        instants.append(own[0])
    return min(instants, default=None)
