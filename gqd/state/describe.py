"""Jobs and steps as they are shown, from the durable facts alone; live and from history alike.  Pure.

Why a job waits now only the planner knows: that is added by ``gqd.control.info``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gq.model.job import JobInfo, StepInfo, Usage
from gq.model.resource import Demand, Grant, least_demand
from gq.model.state import JobState, Reason, state_word
from gq.patterns import error_pattern, expand_pattern, input_pattern, output_pattern
from gqd.state.after import Hold
from gqd.state.cluster import Attempt, Job, Step
from gqd.state.ending import how_it_ended
from gqd.state.input import Peer

HOLD_REASONS = {
    Hold.USER: Reason.HELD_USER,
    Hold.ADMIN: Reason.HELD_ADMIN,
    Hold.LAUNCH: Reason.LAUNCH_FAILED_HELD,
}


def job_info(job: Job, attempt: Attempt | None, steps: Sequence[Step] = ()) -> JobInfo:
    """A job as it is shown; `attempt` is its latest."""
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
        state=state_word(job.state, job.outcome),
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
        time_limit_s=job.time_limit_s,
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
        resources=spec.resources,
        steps=tuple([step_info(step) for step in steps]),
    )


def is_of(peer: Peer, user: str, uid: int) -> bool:
    """A user is a name and a uid, and both must be the same."""
    return peer.uid == uid and peer.user == user


def as_seen_by(peer: Peer | None, shown: JobInfo) -> JobInfo:
    """The job as this user may see it (None: one who may see everything): what is private of others is blank."""
    return shown if peer is None or is_of(peer, shown.user, shown.uid) else redacted(shown)


def redacted(shown: JobInfo) -> JobInfo:
    """Without what only its owner and operators may know: what it runs and where, and what nodes said of that."""
    return msgspec.structs.replace(
        shown,
        why="",
        chdir="",
        output_path="",
        error_path="",
        input_path="",
        command="",
        args=(),
        comment="",
        submit_dir="",
        steps=tuple([msgspec.structs.replace(step, name="") for step in shown.steps]),
    )


def job_demand(job: Job, grants: tuple[Grant, ...]) -> Demand:
    """What a job holds or held last; while it waits, or if it never held anything, what it wants."""
    if not grants or job.state is JobState.PENDING:
        return least_demand(job.spec.resources)
    return held(grants)


def held(grants: tuple[Grant, ...]) -> Demand:
    """What grants come to."""
    return Demand(
        nodes=len(grants),
        tasks=sum([grant.tasks for grant in grants]),
        cpus=sum([len(grant.cpus) for grant in grants]),
        gpus=sum([len(grant.gpus) for grant in grants]),
        memory_mib=sum([grant.memory_mib for grant in grants]),
    )


def _reason(job: Job) -> str:
    if job.state is JobState.PENDING and job.hold is not None:
        return HOLD_REASONS[job.hold].value
    return job.reason


def output_paths(job: Job, attempt: Attempt | None) -> tuple[str, str, str]:
    """(output, error, input) of the batch script, as far as known; where error goes with output they are equal."""
    spec, node = job.spec, None if attempt is None else attempt.batch_node
    patterns = (output_pattern(spec), error_pattern(spec) or output_pattern(spec), input_pattern(spec))
    output, error, source = (
        expand_pattern(pattern, job_id=job.job_id, name=spec.name, user=job.user, node=node, rank=0, node_rank=0)
        for pattern in patterns
    )
    return output, error, source


def step_info(step: Step) -> StepInfo:
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
