"""Explanations of jobs that wait for the reservation they name, or that would run into one.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gq.model.reservation import Flag
from gq.model.state import Reason
from gqd.control.accounts.association import qos_named
from gqd.control.explain.explanation import Explanation
from gqd.sched.reservation.windows import NamedReservation, named_wait
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.tally import account_path
from gqd.state.records import Job
from gqd.state.reservation import Reservation


def too_short(cluster: Cluster, job: Job, wait: planned.ReservationTooShort) -> Explanation:
    wait = replace(wait, time_limit_s=job.time_limit_s, default_limit=_default_limit(cluster, job))
    return Explanation(Reason.RESERVATION.value, (wait,), (), wait.next_at)


def not_in(cluster: Cluster, wait: planned.NotInReservation) -> Explanation:
    known = cluster.reservations.get(wait.name)
    if known is None:
        return Explanation(Reason.RESERVATION_DELETED.value, (wait,))
    is_endless = known.booking.until_at is None
    wait = replace(wait, is_known=True, has_more=_goes_on(known), is_endless=is_endless)
    is_over = wait.is_gone and not wait.has_more
    return Explanation((Reason.RESERVATION_DELETED if is_over else Reason.RESERVATION).value, (wait,))


def may_come_again(cluster: Cluster, wait: planned.Wait | None) -> bool:
    """Whether the job waits for a reservation that has more occurrences, not planned yet."""
    if not isinstance(wait, planned.NotInReservation) or not (wait.is_gone or wait.is_late):
        return False
    known = cluster.reservations.get(wait.name)
    return known is not None and _goes_on(known)


def _goes_on(series: Reservation) -> bool:
    """Whether the series' cron line has further occurrences."""
    until_at = series.booking.until_at
    return bool(series.booking.cron) and (until_at is None or until_at > (series.planned_until or 0.0) + 1)


def _default_limit(cluster: Cluster, job: Job) -> planned.DefaultTimeLimit | None:
    """The source of the time limit of a job submitted without ``--time``; None: it named a limit, or has none."""
    time_limit_s = job.time_limit_s
    if job.spec.time_limit_s is not None or time_limit_s is None:
        return None
    qos = qos_named(cluster, job.qos)
    if any(limit.resource == "time" and int(limit.most) == time_limit_s for limit in cluster.limits.values()):
        return planned.DefaultTimeLimit(time_limit_s=time_limit_s, source="limit")
    if qos is not None and qos.max_time_s == time_limit_s:
        return planned.DefaultTimeLimit(time_limit_s=time_limit_s, source="qos", name=job.qos)
    return planned.DefaultTimeLimit(time_limit_s=time_limit_s, source="partition", name=job.partition)


def runs_into(cluster: Cluster, job: Job, wait: planned.RunsIntoReservation) -> Explanation:
    longest_s = None
    if wait.ends_at is not None and job.time_limit_s is not None:
        longest_s = int(wait.clear_at - (wait.ends_at - job.time_limit_s))
    wait = replace(wait, longest_s=longest_s, default_limit=_default_limit(cluster, job))
    return Explanation(Reason.NODES_UNAVAILABLE.value, (wait,))


def usable(cluster: Cluster, job: Job, wait: planned.Insufficient) -> str:
    """A reservation that the job may use and that keeps enough of the missing resource; empty: none."""
    for holder in wait.holders:
        if holder.reservation == job.spec.reservation or (wait.resource == "GPUs" and wait.wanted > holder.gpus):
            continue
        known = cluster.reservations.get(holder.reservation)
        if known is not None and known.may_be_used_by(job.user, account_path(cluster.accounts, job.account)):
            return known.name
    return ""


class _Span(NamedTuple):
    begin_at: float
    end_at: float
    closes_at: float
    next_name: str


def wait_of(cluster: Cluster, job: Job, plan: planned.Plan) -> planned.Wait | None:
    """Why a job that names a reservation waits, if the pass has not considered it; None: no reason."""
    name = job.spec.reservation
    known = cluster.reservations.get(name)
    told = () if known is None else sorted(known.occurrences.values(), key=lambda one: one.begin_at)
    closes = {number: at for (of, number), at in plan.closes.items() if of == name}
    spans = [_Span(one.begin_at, one.end_at, *closes.get(one.number, (one.end_at, ""))) for one in told]
    is_for_it = known is not None and known.may_be_used_by(job.user, account_path(cluster.accounts, job.account))
    is_flex = known is not None and Flag.FLEX in known.booking.flags
    wait = named_wait(NamedReservation(name, spans, is_for_it, is_flex), job.user, job.time_limit_s, plan.made_at)
    head = plan.heads_inside.get(name, job.job_id)
    return wait or (None if is_flex or head == job.job_id else planned.BehindPlannedStart(head))
