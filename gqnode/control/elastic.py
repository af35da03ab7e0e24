"""How this node grows and shrinks the GPUs of an elastic job.  Pure.

Added GPUs are usable at once.  GPUs to give up are listed in the job's file, and the job has until the order's
deadline.  Then the GPUs are denied to the job and processes that still use them are killed until none does; only then
are the GPUs reported as free.
"""

from __future__ import annotations

from msgspec.structs import replace

from gq.wire.node import AttemptResized, GangMember, Launch, ResizeAttempt
from gqnode.control import reports, steps
from gqnode.control.agent_state import AgentState
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import RevokeGpus, WidenCell, WriteElasticFile
from gqnode.control.input import GpusTaken

_HERE = (Phase.STARTING, Phase.RUNNING)


def resize(state: AgentState, order: ResizeAttempt) -> None:
    """Carry out a resize order.

    An order that was seen before repeats the report; one with the same generation can only bring the deadline forward.
    """
    record = state.records.get(order.attempt_id)
    if record is None or record.phase not in _HERE:
        return
    before = record.resize
    if before is None or order.generation > before.generation:
        record = _begin(state, record, order)
    elif order.generation == before.generation and record.going_gpus and _is_earlier(order, before):
        record = state.save(replace(record, resize=replace(before, ends_at=order.ends_at)))
        state.take_at.pop(order.attempt_id, None)
        state.do(WriteElasticFile(record=record))
    _report(state, record)
    meet_deadline(state, record)


def _is_earlier(order: ResizeAttempt, before: ResizeAttempt) -> bool:
    return order.ends_at is not None and (before.ends_at is None or order.ends_at < before.ends_at)


def _begin(state: AgentState, record: AttemptRecord, order: ResizeAttempt) -> AttemptRecord:
    """Begin a resize: write the job's file first and send the signal then, so that a handler finds the new file."""
    has_more = not set(order.gpus) <= set(record.launch.grant.gpus)
    launch = with_held(record.launch, order.gpus, order.cpus)
    if order.members:
        launch = with_members(record.launch, order.members)
    record = state.save(replace(record, launch=launch, resize=order))
    if has_more:
        state.do(WidenCell(launch=record.launch))
    state.do(WriteElasticFile(record=record))
    wanted = record.launch.signal
    is_shrinking = bool(record.going_gpus or order.leaving)
    if is_shrinking and wanted is not None and order.attempt_id not in state.unmet:
        if not wanted.to_batch_shell:
            state.signal(order.attempt_id, wanted.signum, "steps")
        elif reports.has_script(record):
            state.signal(order.attempt_id, wanted.signum, "batch")
    return record


def with_held(launch: Launch, gpus: tuple[int, ...], cpus: tuple[int, ...] | None) -> Launch:
    """Return the launch with these GPUs and CPUs (None: unchanged CPUs), for a job on one node."""
    grant = replace(launch.grant, gpus=gpus, cpus=launch.grant.cpus if cpus is None else cpus)
    members = tuple(replace(member, gpus=len(gpus), cpus=len(grant.cpus)) for member in launch.members)
    return replace(launch, grant=grant, members=members)


def with_members(launch: Launch, members: tuple[GangMember, ...]) -> Launch:
    """Return the launch with these members; the GPUs and CPUs on this node stay."""
    own = [member.node for member in members]
    node = launch.grant.node
    return replace(launch, members=members, node_rank=own.index(node) if node in own else launch.node_rank)


def _report(state: AgentState, record: AttemptRecord) -> None:
    if record.resize is not None:
        launch, generation = record.launch, record.resize.generation
        state.report(AttemptResized(attempt_id=launch.attempt_id, generation=generation, gpus=launch.grant.gpus))


def meet_deadline(state: AgentState, record: AttemptRecord) -> None:
    """Revoke the GPUs whose deadline has passed; the check is repeated until no process uses them."""
    attempt_id, order = record.launch.attempt_id, record.resize
    if order is None or order.ends_at is None or not record.going_gpus or record.phase not in _HERE:
        state.take_at.pop(attempt_id, None)
        return
    at = max(order.ends_at, state.take_at.get(attempt_id, order.ends_at))
    if at > state.now:
        state.take_at[attempt_id] = at
        return
    state.take_at[attempt_id] = state.now + state.settings.resend_s
    steps.end_unattended(state, record, record.going_gpus)
    record = state.records[attempt_id]
    left = with_held(record.launch, order.keeps, order.keeps_cpus)
    state.do(RevokeGpus(launch=left, gpus=record.going_gpus, generation=order.generation))


def taken(state: AgentState, found: GpusTaken) -> None:
    record = state.records.get(found.attempt_id)
    if record is None or record.resize is None or record.resize.generation != found.generation:
        return
    if record.phase not in _HERE or not record.going_gpus:
        return
    if not found.is_done:
        state.take_at[found.attempt_id] = state.now + state.settings.quiet_check_s
        return
    state.take_at.pop(found.attempt_id, None)
    record = state.save(replace(record, launch=with_held(record.launch, record.resize.keeps, record.resize.keeps_cpus)))
    state.do(WriteElasticFile(record=record))
    _report(state, record)


def tell(state: AgentState, record: AttemptRecord) -> None:
    """Write the elastic job's file before any of its processes run."""
    if record.launch.most_gpus is not None or record.launch.most_nodes is not None:
        state.do(WriteElasticFile(record=record))


def resume(state: AgentState, record: AttemptRecord) -> None:
    """Restore the cell and the job's file from the record after a restart, and revoke GPUs that are overdue."""
    if record.phase not in _HERE:
        return
    tell(state, record)
    if record.resize is not None and not record.resize.members:
        state.do(WidenCell(launch=record.launch))
        meet_deadline(state, record)
