"""Build the `JobInfo` and `StepInfo` values of replies from durable records, live or from history.  Pure.

``gqd.control.info`` adds why a pending job waits, which only the last plan knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.dependency import format_dependency
from gq.model.job import BriefJobInfo, JobInfo, StepInfo, Usage
from gq.model.resource import Demand, Grant, min_demand
from gq.model.state import JobState, Outcome, Reason, state_word
from gq.model.tasks import format_tasks, parse_tasks
from gq.request.patterns import error_pattern, expand_pattern, input_pattern, output_pattern
from gqd.state.end_reason import how_it_ended
from gqd.state.index.deadlines import time_limit_of
from gqd.state.index.usage import MILLION
from gqd.state.input import Peer
from gqd.state.phases import Hold
from gqd.state.records import ArrayTasks, Attempt, Job, Step

PENDING_WORD = state_word(JobState.PENDING, None)
SUSPENDED_WORD = "SUSPENDED"
MAX_TASK_RANGES = 256
"""Maximum number of ranges in a list of array tasks; further ones are abbreviated to ``...``."""

HOLD_REASONS = {
    Hold.USER: Reason.HELD_USER,
    Hold.ADMIN: Reason.HELD_ADMIN,
    Hold.LAUNCH: Reason.LAUNCH_FAILED_HELD,
}


def tasks_asked(text: str) -> int:
    """Parse the array tasks that a request names; raise `Refusal` if the text is wrong."""
    try:
        return parse_tasks(text)
    except ValueError as error:
        raise Refusal("bad_tasks", f"{error}", "for example 7_3, 7_[1-5] or 7_[1-9:2]") from None


class RecordLine(NamedTuple):
    """A line that job lists show for an array's record: its waiting tasks, or its cancelled tasks."""

    state: str
    tasks: int


def record_lines(job: Job, asked: int = -1) -> list[RecordLine]:
    """Return the lines of an array's record for the tasks `asked` (-1: all); empty if no such task is in the record."""
    array = job.array
    if array is None:
        return []
    word = state_word(JobState.ENDED, cancelled_outcome(job))
    lines = (RecordLine(PENDING_WORD, array.waiting & asked), RecordLine(word, array.cancelled & asked))
    return [line for line in lines if line.tasks]


def cancelled_outcome(record: Job) -> Outcome:
    """Outcome of the tasks that were cancelled in the array's record."""
    return Outcome.DEADLINE if record.reason == Reason.DEADLINE.value else Outcome.CANCELLED


def job_info(job: Job, attempt: Attempt | None, steps: Sequence[Step] = (), line: RecordLine | None = None) -> JobInfo:
    """Describe a job; `attempt` is its latest attempt, `line` the part of an array's record to show."""
    shown = _job_info(job, attempt, steps)
    if job.array is not None:
        _show_record(shown, job, job.array, line)
    return shown


def word_of(job: Job, attempt: Attempt | None) -> str:
    """Return Slurm's long state name, or SUSPENDED for a running job whose processes are suspended."""
    if job.state is JobState.RUNNING and attempt is not None and attempt.suspended_at is not None:
        return SUSPENDED_WORD
    return state_word(job.state, job.outcome)


def brief_job_info(job: Job, attempt: Attempt | None, line: RecordLine | None = None) -> JobInfo:
    """Describe a job with only the fields of a line of the queue, none of which is private."""
    spec = job.spec
    grants = attempt.grants if attempt is not None else ()
    demand = job_demand(job, grants)
    shown = BriefJobInfo(
        job_id=job.job_id,
        name=spec.name,
        user=job.user,
        uid=job.uid,
        partition=job.partition,
        state=word_of(job, attempt),
        reason=_reason(job),
        attempt=job.attempt,
        restart_count=job.restart_count,
        grants=grants,
        nodes_wanted=demand.nodes,
        tasks=demand.tasks,
        cpus=demand.cpus,
        gpus=demand.gpus,
        memory_mib=demand.memory_mib,
        gpu_type=spec.resources.gpu_type,
        time_limit_s=job.time_limit_s,
        submit_at=job.submit_at,
        eligible_at=job.eligible_at,
        start_at=job.start_at,
        end_at=job.end_at,
        is_held=job.hold is not None,
        account=job.account,
        qos=job.qos,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        expected_s=job.expected_s,
        open_asks=sum(ask.is_open for ask in job.asks),
        suspended_at=None if attempt is None else attempt.suspended_at,
        suspended_s=0.0 if attempt is None else attempt.suspended_s,
    )
    if job.array is not None:
        _show_record(shown, job, job.array, line)
        shown.why = ""
    return shown


def _show_record(shown: JobInfo, job: Job, array: ArrayTasks, line: RecordLine | None) -> None:
    tasks = (array.waiting or array.cancelled) if line is None else line.tasks
    shown.array_job_id = job.job_id
    shown.array_tasks, shown.array_task_count = format_tasks(tasks, MAX_TASK_RANGES), tasks.bit_count()
    shown.array_throttle, shown.array_auto = array.throttle, job.spec.array_auto
    if line is None:
        return
    shown.state, shown.exit_code, shown.signal = line.state, None, None
    if line.state == PENDING_WORD:
        shown.end_at = None
    else:
        shown.reason, shown.why = job.reason, how_it_ended(job, cancelled_outcome(job))[0]


def _job_info(job: Job, attempt: Attempt | None, steps: Sequence[Step]) -> JobInfo:
    spec = job.spec
    grants = attempt.grants if attempt is not None else ()
    demand = job_demand(job, grants)
    output, error, source = output_paths(job, attempt)
    return JobInfo(
        job_id=job.job_id,
        name=spec.name,
        user=job.user,
        uid=job.uid,
        partition=job.partition,
        state=word_of(job, attempt),
        reason=_reason(job),
        why=how_it_ended(job)[0] if job.state is JobState.ENDED else job.why,
        attempt=job.attempt,
        restart_count=job.restart_count,
        grants=grants,
        nodes_wanted=demand.nodes,
        tasks=demand.tasks,
        cpus=demand.cpus,
        gpus=demand.gpus,
        memory_mib=demand.memory_mib,
        gpu_type=spec.resources.gpu_type,
        time_limit_s=_time_limit_s(job, attempt),
        dependency="" if job.dependency is None else format_dependency(job.dependency),
        kill_on_invalid_dep=bool(spec.kill_on_invalid_dep),
        deadline_at=spec.deadline_at,
        borrows=attempt.borrows if attempt is not None and job.holds_resources else (),
        preempted=0 if job.preempted is None else job.preempted.times,
        preempted_by="" if job.preempted is None else job.preempted.by,
        preempted_at=None if job.preempted is None else job.preempted.at,
        lost_gpu_s=0.0 if job.preempted is None else job.preempted.all_lost_gpu_s,
        resume_s=spec.resume_s if job.resumed is None else job.resumed.cost_s,
        submit_at=job.submit_at,
        eligible_at=job.eligible_at,
        start_at=job.start_at,
        end_at=job.end_at,
        exit_code=None if job.exit is None else job.exit.code,
        signal=None if job.exit is None else job.exit.signal,
        failure_class=job.failure_class,
        nice=spec.nice,
        is_held=job.hold is not None,
        requeue=job.requeue,
        begin_at=spec.begin_at,
        chdir=spec.chdir,
        output_path=output,
        error_path=error,
        input_path=source,
        command=spec.command,
        args=spec.args,
        comment=spec.comment,
        submit_dir=spec.submit_dir,
        submit_host=spec.submit_host,
        is_interactive=spec.is_interactive,
        usage=Usage() if attempt is None else attempt.usage,
        billing=0.0 if attempt is None or job.state is JobState.PENDING else attempt.billing / MILLION,
        priority=0 if attempt is None or job.state is JobState.PENDING else attempt.priority,
        resources=spec.resources,
        steps=tuple([step_info(step) for step in steps]),
        account=job.account,
        qos=job.qos,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        expected_s=job.expected_s,
        sweep=spec.sweep,
        fail_fast=spec.fail_fast,
        hook=job.hook,
        cron=spec.cron,
        reservation=_reservation(job, attempt),
        open_asks=sum(ask.is_open for ask in job.asks),
        suspended_at=None if attempt is None else attempt.suspended_at,
        suspended_s=0.0 if attempt is None else attempt.suspended_s,
    )


def _reservation(job: Job, attempt: Attempt | None) -> str:
    """Reservation in which the job runs, even without having asked for it; of a pending job the one asked for."""
    if attempt is None or job.state is JobState.PENDING or attempt.occurrence is None:
        return job.spec.reservation
    return attempt.occurrence.name


def _time_limit_s(job: Job, attempt: Attempt | None) -> int | None:
    """Time limit in seconds; of an attempt before a deadline it may be shorter than requested."""
    if attempt is None or job.state is JobState.PENDING:
        return job.time_limit_s
    return time_limit_of(job, attempt)


def is_of(peer: Peer, user: str, uid: int) -> bool:
    """Whether the job's owner is this caller; both name and uid must match."""
    return peer.uid == uid and peer.user == user


def visible_to(peer: Peer | None, shown: JobInfo) -> JobInfo:
    """Return the job as this user may see it, without private fields of other users' jobs; None: all fields."""
    return shown if peer is None or is_of(peer, shown.user, shown.uid) else without_private_fields(shown)


def without_private_fields(shown: JobInfo) -> JobInfo:
    """Blank what only the owner and operators may see: what the job runs, where, and what nodes reported."""
    return msgspec.structs.replace(
        shown,
        why="",
        chdir="",
        output_path="",
        error_path="",
        input_path="",
        command="",
        args=(),
        sweep=(),
        open_asks=0,
        comment="",
        hook="",
        cron="",
        submit_dir="",
        steps=tuple([msgspec.structs.replace(step, name="") for step in shown.steps]),
    )


def job_demand(job: Job, grants: tuple[Grant, ...]) -> Demand:
    """Resources that the job holds or held last; of a job that is pending or never held any, its minimum demand."""
    if not grants or job.state is JobState.PENDING:
        return min_demand(job.spec.resources)
    return held(grants)


def held(grants: tuple[Grant, ...]) -> Demand:
    """Sum of the grants."""
    if len(grants) == 1:
        grant = grants[0]
        return Demand(1, grant.tasks, len(grant.cpus), len(grant.gpus), grant.memory_mib)
    return Demand(
        nodes=len(grants),
        tasks=sum([grant.tasks for grant in grants]),
        cpus=sum([len(grant.cpus) for grant in grants]),
        gpus=sum([len(grant.gpus) for grant in grants]),
        memory_mib=sum([grant.memory_mib for grant in grants]),
    )


def hold_reason(job: Job, hold: Hold) -> Reason:
    """Slurm's reason for a hold; after failed launches the launch failure's own reason, if it has one."""
    if hold is Hold.LAUNCH and job.reason == Reason.BAD_WORKDIR.value:
        return Reason.BAD_WORKDIR
    return HOLD_REASONS[hold]


def _reason(job: Job) -> str:
    if job.state is JobState.PENDING and job.hold is not None:
        return hold_reason(job, job.hold).value
    return job.reason


def output_paths(job: Job, attempt: Attempt | None) -> tuple[str, str, str]:
    """Return the batch script's (output, error, input) paths as far as known; equal if error goes to output."""
    spec, node = job.spec, None if attempt is None else attempt.batch_node
    patterns = (output_pattern(spec), error_pattern(spec) or output_pattern(spec), input_pattern(spec))
    output, error, source = (
        expand_pattern(
            pattern,
            job_id=job.job_id,
            name=spec.name,
            user=job.user,
            node=node,
            rank=0,
            node_rank=0,
            array_job_id=job.array_job_id,
            array_task_id=job.array_task_id,
        )
        for pattern in patterns
    )
    return output, error, source


def step_info(step: Step) -> StepInfo:
    """Describe a step."""
    parts = step.layout.parts
    return StepInfo(
        job_id=step.step_id.job_id,
        attempt=step.step_id.attempt,
        step=step.step_id.step,
        name=step.layout.name,
        state="RUNNING" if step.outcome is None else step.outcome.value,
        nodes=tuple([part.node for part in parts]),
        tasks=step.layout.ntasks,
        cpus=sum([len(part.cpus) for part in parts]),
        gpus=sum([len(part.gpus) for part in parts]),
        start_at=step.start_at,
        end_at=step.end_at,
        exit_code=None if step.exit is None else step.exit.code,
        signal=None if step.exit is None else step.exit.signal,
        usage=step.usage,
    )
