"""What this node does about the GPUs of a job that become more and fewer.  Pure.

What comes is the job's at once.  What is to go is told to the job, which has until the order's instant; then it is
denied to the job, and processes that still use it are ended, until none does.  Only then is it said to be gone.
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
    """An order seen before repeats how far it is; with the same number only an earlier instant is news."""
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
    """Told first, signalled then: who is woken by the signal finds the file as it is to be."""
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
    """As it would be launched with these; it is on one node.  CPUs None: as before."""
    grant = replace(launch.grant, gpus=gpus, cpus=launch.grant.cpus if cpus is None else cpus)
    members = tuple(replace(one, gpus=len(gpus), cpus=len(grant.cpus)) for one in launch.members)
    return replace(launch, grant=grant, members=members)


def with_members(launch: Launch, members: tuple[GangMember, ...]) -> Launch:
    """As it would be launched on these; what it has here stays."""
    own = [one.node for one in members]
    node = launch.grant.node
    return replace(launch, members=members, node_rank=own.index(node) if node in own else launch.node_rank)


def _report(state: AgentState, record: AttemptRecord) -> None:
    if record.resize is not None:
        launch, generation = record.launch, record.resize.generation
        state.report(AttemptResized(attempt_id=launch.attempt_id, generation=generation, gpus=launch.grant.gpus))


def meet_deadline(state: AgentState, record: AttemptRecord) -> None:
    """What is to go by now is taken; it is looked at again until it is gone."""
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
    """What it has, before anything of it runs."""
    if record.launch.most_gpus is not None or record.launch.most_nodes is not None:
        state.do(WriteElasticFile(record=record))


def resume(state: AgentState, record: AttemptRecord) -> None:
    """After a restart: the cell and the file are as the record says, and what is overdue is taken."""
    if record.phase not in _HERE:
        return
    tell(state, record)
    if record.resize is not None and not record.resize.members:
        state.do(WidenCell(launch=record.launch))
        meet_deadline(state, record)
