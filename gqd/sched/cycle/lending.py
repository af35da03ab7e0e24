"""Lending: idle reserved resources go to jobs that may be preempted at any time.  Pure.

After all other jobs, jobs whose QOS may borrow are tried again as if lendable reservations did not exist: neither
active occurrences nor later ones that they could still run into.  They do not use reservations that are never lent,
and delay no guaranteed planned start outside.  A job that starts so is marked as a borrower.  From then on it blocks
no job of a reservation: such a job preempts the borrower if it needs the resources (`gqd.sched.preemption.preempt`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

import msgspec
import numpy as np

from gq.model.account import PreemptMode, QosInfo
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import overlap
from gqd.sched.cycle.state import PassState
from gqd.sched.preemption.nominations import with_decided
from gqd.sched.reservation.scope import Some, outside, with_running
from gqd.sched.snapshot.model import Overlay, ReservedOccurrence, Snapshot
from gqd.state.index.queue import Integers
from gqd.state.plan import Plan, Start


def may_borrow(qos: str, qos_by_name: Mapping[str, QosInfo]) -> bool:
    """Return whether jobs of the QOS may start on reserved resources: it must allow that, and be preemptible."""
    info = qos_by_name.get(qos)
    return info is not None and info.borrows_reserved and info.preempt_mode is not PreemptMode.OFF


def borrower_view(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as borrowers see it: without the occurrences that are lent."""
    return outside(
        replace(snapshot, booked=tuple(occurrence for occurrence in snapshot.booked if not occurrence.is_lent))
    )


def borrowers(outside_state: PassState) -> Integers:
    """Return the queue indices of the jobs that may borrow, of those that the pass outside reservations has tried."""
    snapshot, columns = outside_state.snapshot, outside_state.scan.columns
    may = np.array([may_borrow(name, snapshot.qos) for name in columns.names_of_qos], np.bool_)
    if not may.any() or not any(occurrence.is_lent for occurrence in snapshot.booked):
        return np.zeros(0, np.int64)
    return np.flatnonzero(may[columns.qos] & (columns.reservation == 0) & ~outside_state.scan.is_candidate)


def snapshot_for_borrowers(snapshot: Snapshot, outside_state: PassState, indices: Integers) -> Snapshot:
    """Return what borrowers see after the pass outside reservations; `snapshot`: the whole cluster before that pass.

    If the pass ran out of steps, borrowers get nothing that is free outside: jobs it has not reached may use that.
    """
    after = with_running(snapshot, outside_state.started_jobs())
    for decision in outside_state.decided:
        after = with_decided(after, decision.claim, decision.victims, decision.shrinks)
    view = borrower_view(after)
    if outside_state.resumes_at is not None:
        view = _without(view, outside_state.backfill.now)
    columns = outside_state.scan.columns
    return replace(
        view,
        pending=Some(snapshot.pending, indices),
        columns=columns.only(indices),
        protected=(),
        kept_back=(),
        resumes_at=None,
    )


def _without(view: Snapshot, free: Overlay) -> Snapshot:
    """Return the view without what is free in `free`."""
    return replace(
        view,
        free_cpus=tuple(own & ~other for own, other in zip(view.free_cpus, free.free_cpus, strict=True)),
        free_gpus=tuple(own & ~other for own, other in zip(view.free_gpus, free.free_gpus, strict=True)),
    )


def add_protected_windows(state: PassState, outside_state: PassState) -> None:
    """Keep the planned starts of the pass outside reservations, so that borrowers delay none of them."""
    outside_state.planned_starts.resolve()
    windows = outside_state.backfill.windows
    state.planned_starts.promise((window.job, window.as_protected()) for window in windows if window.is_promise)
    borrower_ids = set(state.scan.columns.job_id.tolist())
    for window in windows:
        if not window.is_promise and window.job.job_id not in borrower_ids:
            state.backfill.add(replace(window, profile=None), may_move=False)


def with_lenders(snapshot: Snapshot, starts: Sequence[Start], limits_s: Mapping[JobId, float]) -> list[Start]:
    """Return the starts, each with the reservations from which it borrows; `limits_s`: time limits by job."""
    lent = [occurrence for occurrence in snapshot.booked if occurrence.is_lent]
    return [
        msgspec.structs.replace(
            start, borrows=lenders(lent, start.grants, snapshot.now, limits_s.get(start.job_id, inf))
        )
        for start in starts
    ]


def lenders(
    booked: Collection[ReservedOccurrence], grants: tuple[Grant, ...], now: float, limit_s: float
) -> tuple[str, ...]:
    """Return the names of the reservations that hold some of the grants at a time when a job started now could run."""
    met = (occurrence for occurrence in booked if occurrence.clear_at < now + limit_s and occurrence.end_at > now)
    return tuple(sorted({occurrence.name for occurrence in met if overlap(grants, occurrence.grants)}))


def with_borrower_starts(plan: Plan, started: Collection[JobId]) -> Plan:
    """Return the plan with these borrowers listed as starting and no longer as waiting."""
    if not started:
        return plan
    return msgspec.structs.replace(
        plan,
        starting=plan.starting | frozenset(started),
        waits={job_id: wait for job_id, wait in plan.waits.items() if job_id not in started},
        heads={partition: job_id for partition, job_id in plan.heads.items() if job_id not in started},
        protected=tuple(start for start in plan.protected if start.job_id not in started),
    )
