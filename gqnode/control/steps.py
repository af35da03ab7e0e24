"""How this node handles steps: wait for a client, start its tasks, stop them, report the end.  Pure.

A step is cancelled if no client attaches in time.  A step that is stopped gets TERM, and KILL at the end of its grace.
Its record stays until the controller has acknowledged its end.
"""

from __future__ import annotations

import signal

from msgspec.structs import replace

from gq.model.ids import StepId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.wire.node import LaunchStep, StepReceived, StopStep
from gqnode.control import deadline, reports
from gqnode.control.agent_state import AgentState
from gqnode.control.attempt import AttemptRecord, Phase, StepRecord
from gqnode.control.effect import ExpectStep, ForgetStep, SignalStepTasks
from gqnode.control.input import StepTasksEnded


def launch_step(state: AgentState, order: LaunchStep) -> None:
    """Accept a step; an order that was seen before repeats the report, an impossible step ends at once."""
    step_id = order.step_id
    record = state.records.get(step_id.attempt_id)
    known = record.steps.get(step_id.step) if record is not None else None
    if known is not None:
        state.report(reports.step_ended(known) if known.is_ended else StepReceived(step_id=step_id))
    elif record is None or record.phase in (Phase.STOPPING, Phase.ENDED) or state.is_step_over(step_id):
        state.report(reports.step_never_was(step_id, Outcome.CANCELLED))
    elif not _has_its_gpus(record, order):
        return  # it is not known here yet that the job has them, or they are going, and it is to be stopped
    elif len(record.steps) >= state.settings.steps_per_attempt:
        state.report(reports.step_never_was(step_id, Outcome.FAILED))
    else:
        _await_client(state, record, order)


def _has_its_gpus(record: AttemptRecord, order: LaunchStep) -> bool:
    """Whether the attempt holds all GPUs of the step here; always true for a job that is not elastic."""
    if record.launch.most_gpus is None:
        return True
    held = set(record.launch.grant.gpus).difference(record.going_gpus)
    node = record.launch.grant.node
    return all(held.issuperset(part.gpus) for part in order.layout.parts if part.node == node)


def end_unattended(state: AgentState, record: AttemptRecord, gpus: tuple[int, ...]) -> None:
    """Cancel the steps without a client whose GPUs are being revoked."""
    node = record.launch.grant.node
    for step in record.steps.values():
        has_one = any(part.node == node and not set(gpus).isdisjoint(part.gpus) for part in step.order.layout.parts)
        if has_one and not step.is_attached and not step.is_ended:
            _expire(state, state.records[record.launch.attempt_id], step)


def _await_client(state: AgentState, record: AttemptRecord, order: LaunchStep) -> None:
    step = StepRecord(order=order, expires_at=state.now + state.settings.step_wait_s)
    record = state.save_step(record, step)
    state.report(StepReceived(step_id=order.step_id))
    if record.phase is Phase.RUNNING:
        state.do(ExpectStep(step_id=order.step_id))


def expect_all(state: AgentState, record: AttemptRecord) -> None:
    """Admit clients now that the shepherd is known, also for an ended step whose output is not fetched."""
    for step in record.steps.values():
        if step.is_attached or not step.is_ended:
            state.do(ExpectStep(step_id=step.order.step_id))


def stop_step(state: AgentState, order: StopStep) -> None:
    found = state.find_step(order.step_id)
    if order.signum is not None:
        if found is not None and found[1].is_running:
            state.do(SignalStepTasks(step_id=order.step_id, signum=order.signum))
    elif found is None:
        state.report(reports.step_never_was(order.step_id, Outcome.CANCELLED))
    elif found[1].is_ended:
        state.report(reports.step_ended(found[1]))
    elif not found[1].is_attached:
        _expire(state, *found)
    else:
        _end(state, *found, Outcome.CANCELLED, order.grace_s)


def _end(state: AgentState, record: AttemptRecord, step: StepRecord, outcome: Outcome, grace_s: int) -> None:
    """Send TERM, and KILL at the end of the grace; a repeated call can only shorten the grace."""
    kill_at = state.now + grace_s
    if step.stopped_as is None:
        record = state.save_step(record, replace(step, stopped_as=outcome, kill_at=kill_at))
        state.signal_step(step.order.step_id, signal.SIGTERM)
        state.signal_step(step.order.step_id, signal.SIGCONT)
    elif step.kill_at is not None and kill_at < step.kill_at:
        record = state.save_step(record, replace(step, kill_at=kill_at))
    meet_deadlines(state, record)


def _expire(state: AgentState, record: AttemptRecord, step: StepRecord) -> None:
    """Cancel a step to which no client has attached."""
    ended = replace(step, is_ended=True, outcome=Outcome.CANCELLED)
    state.save_step(record, ended)
    state.do(ForgetStep(step_id=step.order.step_id))
    state.report(reports.step_ended(ended))


def meet_deadlines(state: AgentState, record: AttemptRecord) -> None:
    """Handle the passed deadlines of one attempt's steps."""
    for step in deadline.due_steps(record, state.now):
        record = state.records[record.launch.attempt_id]
        if not step.is_attached:
            _expire(state, record, step)
        else:
            state.save_step(record, replace(step, kill_at=None))
            state.signal_step(step.order.step_id, signal.SIGKILL)


def attached(state: AgentState, step_id: StepId) -> None:
    found = state.find_step(step_id)
    if found is not None and not found[1].is_attached and not found[1].is_ended:
        state.save_step(found[0], replace(found[1], is_attached=True))


def task_failed(state: AgentState, step_id: StepId) -> None:
    """Stop the other tasks here if ``--kill-on-bad-exit`` is set (`gqrun` stops those on other nodes).

    In an attempt that is being stopped nothing is done: all its tasks end, and the stop is why this one failed.
    """
    if (found := state.find_step(step_id)) is None or found[0].phase is not Phase.RUNNING:
        return
    record, step = found
    if step.order.layout.kill_on_bad_exit and step.stopped_as is None and not step.is_ended:
        _end(state, record, replace(step, is_attached=True), Outcome.FAILED, record.launch.grace_s)


def tasks_ended(state: AgentState, ended: StepTasksEnded) -> AttemptRecord | None:
    """Record the end of a step; return the attempt's new record, or None if the step was not running here."""
    found = state.find_step(ended.step_id)
    if found is None or found[1].is_ended:
        return None
    record, step = found
    step = replace(
        step,
        is_attached=True,
        is_ended=True,
        ended_at=state.now,
        exit=ended.exit,
        outcome=reports.step_outcome(record, step, ended),
        usage=ended.usage,
        kill_at=None,
    )
    record = state.save_step(replace(record, had_oom=record.had_oom or ended.oom), step)
    state.report(reports.step_ended(step))
    return record


def gone_with_cell(state: AgentState, record: AttemptRecord) -> AttemptRecord:
    """Report the end of the steps that ended with the cell, before the attempt's end is reported."""
    outcome = Outcome.CANCELLED if record.outcome in (None, Outcome.COMPLETED) else record.outcome
    steps = {}
    for number, step in record.steps.items():
        if not step.is_ended:
            exit = reports.KILLED if step.is_attached else ExitStatus()
            step = replace(step, is_ended=True, ended_at=state.now, outcome=outcome, exit=exit)
            state.report(reports.step_ended(step))
        steps[number] = step
    return replace(record, steps=steps)


def end_heard(state: AgentState, step_id: StepId) -> None:
    """Drop a step whose end the controller has acknowledged."""
    found = state.find_step(step_id)
    if found is None or not found[1].is_ended:
        return
    state.note_step_over(step_id)
    steps = {number: step for number, step in found[0].steps.items() if number != step_id.step}
    # Not saved: at worst the end is said once more after a restart.
    state.keep(replace(found[0], steps=steps))


def given_time_again(record: AttemptRecord, expires_at: float) -> AttemptRecord:
    """Restart the waiting time of steps, whose clients could not attach while the daemon was down."""
    steps = {number: replace(step, expires_at=expires_at) for number, step in record.steps.items()}
    return replace(record, steps=steps)
