"""What this node does about the GPUs of a job that become more and fewer.  Pure.

What comes is the job's at once.  What is to go is told to the job, which has until the order's instant; then it is
denied to the job, and processes that still use it are ended, until none does.  Only then is it said to be gone.
"""

from __future__ import annotations

from msgspec.structs import replace

from gq.wire.node import AttemptResized, GangMember, Launch, ResizeAttempt
from gqnode.control import reports, steps
from gqnode.control.agent_state import Ledger
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import TakeGpus, TellGpus, WidenCell
from gqnode.control.input import GpusTaken

_HERE = (Phase.STARTING, Phase.RUNNING)


def resize(ledger: Ledger, order: ResizeAttempt) -> None:
    """An order seen before repeats how far it is; with the same number only an earlier instant is news."""
    record = ledger.records.get(order.attempt_id)
    if record is None or record.phase not in _HERE:
        return
    before = record.resize
    if before is None or order.generation > before.generation:
        record = _begin(ledger, record, order)
    elif order.generation == before.generation and record.going_gpus and _is_earlier(order, before):
        record = ledger.save(replace(record, resize=replace(before, ends_at=order.ends_at)))
        ledger.take_at.pop(order.attempt_id, None)
        ledger.do(TellGpus(record=record))
    _report(ledger, record)
    meet_deadline(ledger, record)


def _is_earlier(order: ResizeAttempt, before: ResizeAttempt) -> bool:
    return order.ends_at is not None and (before.ends_at is None or order.ends_at < before.ends_at)


def _begin(ledger: Ledger, record: AttemptRecord, order: ResizeAttempt) -> AttemptRecord:
    """Told first, signalled then: who is woken by the signal finds the file as it is to be."""
    has_more = not set(order.gpus) <= set(record.launch.grant.gpus)
    launch = with_held(record.launch, order.gpus, order.cpus)
    if order.members:
        launch = with_members(record.launch, order.members)
    record = ledger.save(replace(record, launch=launch, resize=order))
    if has_more:
        ledger.do(WidenCell(launch=record.launch))
    ledger.do(TellGpus(record=record))
    wanted = record.launch.signal
    is_shrinking = bool(record.going_gpus or order.leaving)
    if is_shrinking and wanted is not None and order.attempt_id not in ledger.unmet:
        if not wanted.to_batch_shell:
            ledger.signal(order.attempt_id, wanted.signum, "steps")
        elif reports.has_script(record):
            ledger.signal(order.attempt_id, wanted.signum, "batch")
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


def _report(ledger: Ledger, record: AttemptRecord) -> None:
    if record.resize is not None:
        launch, generation = record.launch, record.resize.generation
        ledger.report(AttemptResized(attempt_id=launch.attempt_id, generation=generation, gpus=launch.grant.gpus))


def meet_deadline(ledger: Ledger, record: AttemptRecord) -> None:
    """What is to go by now is taken; it is looked at again until it is gone."""
    attempt_id, order = record.launch.attempt_id, record.resize
    if order is None or order.ends_at is None or not record.going_gpus or record.phase not in _HERE:
        ledger.take_at.pop(attempt_id, None)
        return
    at = max(order.ends_at, ledger.take_at.get(attempt_id, order.ends_at))
    if at > ledger.now:
        ledger.take_at[attempt_id] = at
        return
    ledger.take_at[attempt_id] = ledger.now + ledger.settings.resend_s
    steps.end_unattended(ledger, record, record.going_gpus)
    record = ledger.records[attempt_id]
    left = with_held(record.launch, order.keeps, order.keeps_cpus)
    ledger.do(TakeGpus(launch=left, gpus=record.going_gpus, generation=order.generation))


def taken(ledger: Ledger, found: GpusTaken) -> None:
    record = ledger.records.get(found.attempt_id)
    if record is None or record.resize is None or record.resize.generation != found.generation:
        return
    if record.phase not in _HERE or not record.going_gpus:
        return
    if not found.is_done:
        ledger.take_at[found.attempt_id] = ledger.now + ledger.settings.quiet_check_s
        return
    ledger.take_at.pop(found.attempt_id, None)
    record = ledger.save(
        replace(record, launch=with_held(record.launch, record.resize.keeps, record.resize.keeps_cpus))
    )
    ledger.do(TellGpus(record=record))
    _report(ledger, record)


def tell(ledger: Ledger, record: AttemptRecord) -> None:
    """What it has, before anything of it runs."""
    if record.launch.most_gpus is not None or record.launch.most_nodes is not None:
        ledger.do(TellGpus(record=record))


def resume(ledger: Ledger, record: AttemptRecord) -> None:
    """After a restart: the cell and the file are as the record says, and what is overdue is taken."""
    if record.phase not in _HERE:
        return
    tell(ledger, record)
    if record.resize is not None and not record.resize.members:
        ledger.do(WidenCell(launch=record.launch))
        meet_deadline(ledger, record)
