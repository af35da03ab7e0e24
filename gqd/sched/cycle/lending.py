"""What is reserved and idle, lent to jobs that may be asked to go at any time.  Pure.

When everybody else has been considered, jobs whose QOS borrows are tried again as if nothing were kept that may be
lent: neither by an occurrence that is under way, nor by one that their limits reach into.  They keep off what is never
lent, and put off nobody who was promised a start outside.  Who starts so is marked, and from then on stands in the way
of no job of a reservation: one that wants to start on what the borrower has, has it give way
(`gqd.sched.preemption.preempt`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gq.model.account import PreemptMode, QosInfo
from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import overlap
from gqd.sched.preemption.nominations import with_decided
from gqd.sched.reservation.scope import Some, outside, with_running
from gqd.sched.snapshot.model import Booked, Overlay, Snapshot
from gqd.state.index.queue import Integers
from gqd.state.plan import Plan, Start

if TYPE_CHECKING:
    from gqd.sched.cycle.scheduling_pass import SchedulingPass


def may_borrow(qos: str, known: Mapping[str, QosInfo]) -> bool:
    own = known.get(qos)
    return own is not None and own.borrows_reserved and own.preempt_mode is not PreemptMode.OFF


def borrower_view(snapshot: Snapshot) -> Snapshot:
    """For who borrows: of what is reserved only what is never lent is there."""
    return outside(replace(snapshot, booked=tuple(one for one in snapshot.booked if not one.is_lent)))


def borrowers(last: SchedulingPass) -> Integers:
    """By place in the queue: who may borrow, of those that the pass outside of all reservations has dealt with."""
    snapshot, columns = last.snapshot, last.scan.columns
    may = np.array([may_borrow(name, snapshot.qos) for name in columns.names_of_qos], np.bool_)
    if not may.any() or not any(one.is_lent for one in snapshot.booked):
        return np.zeros(0, np.int64)
    return np.flatnonzero(may[columns.qos] & (columns.reservation == 0) & ~last.scan.is_candidate)


def snapshot_for_borrowers(snapshot: Snapshot, last: SchedulingPass, places: Integers) -> Snapshot:
    """What they meet after that pass.  `snapshot`: as it was before it, in and out of reservations.

    Where the pass was cut short, what is free outside may be for those whom it has not reached.
    """
    there = with_running(snapshot, last.started_jobs())
    for one in last.preempting.decided if last.preempting else ():
        there = with_decided(there, one.claim, one.victims, one.gifts)
    view = borrower_view(there)
    if last.resumes_at is not None:
        view = _without(view, last.guard.now)
    columns = last.scan.columns
    return replace(
        view,
        pending=Some(snapshot.pending, places),
        columns=columns.only(places),
        protected=(),
        kept_back=(),
        resumes_at=None,
    )


def _without(view: Snapshot, free: Overlay) -> Snapshot:
    """As if somebody had what is free there."""
    return replace(
        view,
        free_cpus=tuple(own & ~other for own, other in zip(view.free_cpus, free.free_cpus, strict=True)),
        free_gpus=tuple(own & ~other for own, other in zip(view.free_gpus, free.free_gpus, strict=True)),
    )


def add_protected_windows(within: SchedulingPass, last: SchedulingPass) -> None:
    """Of those who wait outside everybody keeps the start that was worked out; borrowers have no others give way."""
    last.protection.settle()
    windows = last.guard.windows
    within.protection.promise((one.job, one.told()) for one in windows if one.is_promise)
    own = set(within.scan.columns.job_id.tolist())
    for one in windows:
        if not one.is_promise and one.job.job_id not in own:
            within.guard.add(replace(one, profile=None), may_move=False)


def with_lenders(snapshot: Snapshot, starts: Sequence[Start], limits_s: Mapping[JobId, float]) -> list[Start]:
    """With what each of them borrows."""
    lent = [one for one in snapshot.booked if one.is_lent]
    return [
        msgspec.structs.replace(one, borrows=lenders(lent, one.grants, snapshot.now, limits_s.get(one.job_id, inf)))
        for one in starts
    ]


def lenders(booked: Collection[Booked], grants: tuple[Grant, ...], now: float, limit_s: float) -> tuple[str, ...]:
    """The reservations that keep some of it before a job would be over that starts now."""
    met = (one for one in booked if one.clear_at < now + limit_s and one.end_at > now)
    return tuple(sorted({one.name for one in met if overlap(grants, one.grants)}))


def with_borrower_starts(plan: Plan, started: Collection[JobId]) -> Plan:
    """Those of whom nothing waits any more are told as starting."""
    if not started:
        return plan
    return msgspec.structs.replace(
        plan,
        starting=plan.starting | frozenset(started),
        waits={job_id: wait for job_id, wait in plan.waits.items() if job_id not in started},
        heads={partition: job_id for partition, job_id in plan.heads.items() if job_id not in started},
        protected=tuple(one for one in plan.protected if one.job_id not in started),
    )
