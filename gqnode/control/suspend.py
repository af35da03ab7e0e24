"""An attempt stands still, or goes on.  Pure.

Invariant: an attempt whose record says that it stands still is told to again when its shepherd is met after a restart,
and one that stands still has a record that says so: what is saved before it is done, and what is done before it is
saved, are chosen by that.
"""

from __future__ import annotations

from msgspec.structs import replace

from gq.wire.node import SetSuspended, SuspendedSet
from gqnode.control.agent_state import AgentState
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import FreezeCell
from gqnode.control.input import CellFrozen


def set_suspended(state: AgentState, order: SetSuspended) -> None:
    """Also where it is so already, since the report may have been lost."""
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
    """Reported when it does stand still; measured each time, since an earlier report may have been lost."""
    if record.suspended_at is None:
        state.save(replace(record, suspended_at=state.now))
    state.do(FreezeCell(attempt_id=record.launch.attempt_id, is_frozen=True, parked_at=parked_at))


def frozen(state: AgentState, happened: CellFrozen) -> None:
    """If it has not been let go on, or ended, meanwhile."""
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
    """Its shepherd is there: this daemon may have died before it had told it."""
    if record.suspended_at is not None and record.phase is Phase.RUNNING:
        state.do(FreezeCell(attempt_id=record.launch.attempt_id, is_frozen=True))
