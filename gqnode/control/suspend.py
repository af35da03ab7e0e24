"""Suspends and resumes attempts.  Pure.

Invariant: an attempt whose record says that it is suspended is suspended again when its shepherd reports after a
restart, and every suspended attempt has such a record; the order of saving and acting follows from that.
"""

from __future__ import annotations

from msgspec.structs import replace

from gq.wire.node import SetSuspended, SuspendedSet
from gqnode.control.agent_state import AgentState
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import FreezeCell
from gqnode.control.input import CellFrozen


def set_suspended(state: AgentState, order: SetSuspended) -> None:
    """Suspend or resume the attempt, and report it even if nothing changed: an earlier report may be lost."""
    record = state.records.get(order.attempt_id)
    if record is None or record.phase is not Phase.RUNNING or order.attempt_id in state.unmet:
        return  # the controller says it again
    if not order.is_suspended:
        state.thaw(order.attempt_id)
    elif order.parked_at is not None:
        _park(state, record, order.parked_at)
        return
    elif record.suspended_at is None:
        state.save(replace(record, suspended_at=state.now))
        state.do(FreezeCell(attempt_id=order.attempt_id, is_frozen=True))
    state.report(SuspendedSet(attempt_id=order.attempt_id, is_suspended=order.is_suspended))


def _park(state: AgentState, record: AttemptRecord, parked_at: float) -> None:
    """Suspend a preempted attempt; its GPU memory is measured and reported each time, as a report may be lost."""
    if record.suspended_at is None:
        state.save(replace(record, suspended_at=state.now))
    state.do(FreezeCell(attempt_id=record.launch.attempt_id, is_frozen=True, parked_at=parked_at))


def frozen(state: AgentState, happened: CellFrozen) -> None:
    """Report that the attempt is suspended, unless it has been resumed or has ended meanwhile."""
    record = state.records.get(happened.attempt_id)
    if record is None or record.phase is not Phase.RUNNING or record.suspended_at is None:
        return
    report = SuspendedSet(
        attempt_id=happened.attempt_id,
        is_suspended=True,
        parked_at=happened.parked_at,
        gpu_memory=happened.gpu_memory,
    )
    state.report(report)


def met_again(state: AgentState, record: AttemptRecord) -> None:
    """Suspend the attempt again: the previous daemon may have died before it did so."""
    if record.suspended_at is not None and record.phase is Phase.RUNNING:
        state.do(FreezeCell(attempt_id=record.launch.attempt_id, is_frozen=True))
