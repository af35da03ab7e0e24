"""Builds the node's reports on an attempt or a step from its record, by pure functions."""

from __future__ import annotations

from gq.model.ids import StepId
from gq.model.job import ExitStatus, Usage
from gq.model.state import Outcome
from gq.wire.node import (
    AttemptEnded,
    AttemptStatus,
    CellEmptied,
    GoReceived,
    Prepared,
    PrepareReceived,
    ReportBody,
    Started,
    StepEnded,
)
from gqnode.control.attempt import AttemptRecord, Phase, StepRecord
from gqnode.control.input import ProcessEnded, StepTasksEnded

KILLED = ExitStatus(signal=9)

_STATUS_WORDS = {
    Phase.PREPARING: "preparing",
    Phase.PREPARED: "prepared",
    Phase.STARTING: "running",
    Phase.RUNNING: "running",
    Phase.STOPPING: "stopping",
    Phase.ENDED: "ended",
}


def is_batch_node(record: AttemptRecord) -> bool:
    return record.launch.node_rank == 0


def has_script(record: AttemptRecord) -> bool:
    """Whether the batch script runs on this node; its standard error is the job's."""
    return is_batch_node(record) and not record.launch.is_interactive


def stop_message(record: AttemptRecord, node: str, text: str) -> str:
    """Return Slurm's line for the job's standard error, which users' tools look for."""
    return f"*** JOB {record.launch.attempt_id.job_id} ON {node} {text} ***"


def status(record: AttemptRecord) -> AttemptStatus:
    """Return the attempt's state for `Hello`."""
    return AttemptStatus(
        attempt_id=record.launch.attempt_id,
        phase="running" if record.go and record.phase is Phase.PREPARING else _STATUS_WORDS[record.phase],
        time_limit_s=record.time_limit_s,
        generation=0 if record.resize is None else record.resize.generation,
        is_suspended=record.suspended_at is not None,
    )


def standing(record: AttemptRecord) -> ReportBody | None:
    """Return the report that answers an order seen before; None while the attempt's end is still to be reported."""
    attempt_id = record.launch.attempt_id
    match record.phase:
        case Phase.PREPARING:
            return PrepareReceived(attempt_id=attempt_id)
        case Phase.PREPARED:
            return Prepared(attempt_id=attempt_id, master_port=own_port(record))
        case Phase.STARTING:
            return GoReceived(attempt_id=attempt_id)
        case Phase.RUNNING:
            return started(record) or GoReceived(attempt_id=attempt_id)
        case Phase.STOPPING:
            return None if record.stop_ordered else started(record)
        case Phase.ENDED:
            return record.last_report


def started(record: AttemptRecord) -> Started | None:
    """Return the report of the start; only the batch node sends it."""
    if not is_batch_node(record) or record.started_at is None:
        return None
    return Started(attempt_id=record.launch.attempt_id, at=record.started_at, master_port=record.master_port)


def own_port(record: AttemptRecord) -> int:
    """Return the leased port, on the node that leased it; 0 on other nodes."""
    return record.master_port if is_batch_node(record) else 0


def last_report(record: AttemptRecord, cell_usage: Usage, now: float) -> ReportBody:
    """Return the last report, once the cell is empty; after a `Stop` it has the script's exit status if known."""
    usage = larger(record.usage, cell_usage)
    if record.stop_ordered and not (has_script(record) and record.exit is not None):
        return CellEmptied(attempt_id=record.launch.attempt_id, usage=usage, join=record.launch.join)
    was_killed = has_script(record) and record.started_at is not None
    return AttemptEnded(
        attempt_id=record.launch.attempt_id,
        outcome=record.outcome or Outcome.NODE_FAIL,
        exit=record.exit or (KILLED if was_killed else ExitStatus()),
        usage=usage,
        started_at=record.started_at,
        ended_at=record.ended_at or now,
        why=record.why,
        launch_failure=record.launch_failure,
        cell_emptied=True,
    )


def larger(usage: Usage, other: Usage) -> Usage:
    """Return the larger of two measurements of the same processes, either of which may have missed some."""
    return Usage(
        user_cpu_s=max(usage.user_cpu_s, other.user_cpu_s),
        system_cpu_s=max(usage.system_cpu_s, other.system_cpu_s),
        max_rss_mib=max(usage.max_rss_mib, other.max_rss_mib),
    )


def end_outcome(record: AttemptRecord, ended: ProcessEnded) -> Outcome:
    """Return the outcome of an attempt whose process ended by itself and whose end was seen."""
    if ended.why:
        return Outcome.BOOT_FAIL
    if ended.oom:
        return Outcome.OUT_OF_MEMORY
    if ended.exit.is_success:
        return Outcome.COMPLETED
    # A script that failed after one of its steps ran out of memory failed of that.
    return Outcome.OUT_OF_MEMORY if record.had_oom else Outcome.FAILED


def step_outcome(record: AttemptRecord, step: StepRecord, ended: StepTasksEnded) -> Outcome:
    if ended.oom:
        return Outcome.OUT_OF_MEMORY
    if step.stopped_as is not None:
        return step.stopped_as
    if ended.exit.is_success:
        return Outcome.COMPLETED
    if record.phase is Phase.STOPPING and record.outcome not in (None, Outcome.COMPLETED):
        return record.outcome
    return Outcome.FAILED


def step_ended(step: StepRecord) -> StepEnded:
    return StepEnded(
        step_id=step.order.step_id,
        exit=step.exit,
        outcome=step.outcome,
        usage=step.usage,
        was_attached=step.is_attached,
        ended_at=step.ended_at,
    )


def step_never_was(step_id: StepId, outcome: Outcome) -> StepEnded:
    """Return the report for a step that this node does not have and will not run."""
    return StepEnded(step_id=step_id, outcome=outcome, was_attached=False)
