"""Explanations of jobs that wait for the reservation they name, or that would run into one.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from gq.model.reservation import Flag
from gq.model.state import Reason
from gq.units import spoken_duration
from gqd.control.accounts.association import qos_named
from gqd.control.explain.explanation import Explanation
from gqd.control.explain.plan import names_of
from gqd.sched.reservation.windows import NamedReservation, named_wait
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.tally import account_path
from gqd.state.records import Job
from gqd.state.reservation import Reservation


def begins(wait: planned.ReservationBegins) -> Explanation:
    why = f"it names reservation `{wait.name}`, which begins at {_mark(wait.at)}"
    hint = "without --reservation it could start wherever there is room"
    return Explanation(Reason.RESERVATION.value, why, hint, (), wait.at)


def too_short(cluster: Cluster, job: Job, wait: planned.ReservationTooShort) -> Explanation:
    limit = "without a time limit" if job.time_limit_s is None else f"for up to {spoken_duration(job.time_limit_s)}"
    end = f"is to be clear for reservation `{wait.for_next}` at" if wait.for_next else "ends at"
    why = f"it would run {limit}, and reservation `{wait.name}`, which it names, {end} {_mark(wait.ends_at)}"
    minutes = wait.longest_s // 60
    hint = f"at most --time={minutes} (minutes) would do: gqctl update {job.label} --time={minutes}"
    if minutes < 1:
        hint = _elsewhere(job)
    why += _took_limit(cluster, job)
    if wait.next_at is not None:
        why += f"; it is long enough again at {_mark(wait.next_at)}"
    return Explanation(Reason.RESERVATION.value, why, hint, (), wait.next_at)


def not_in(cluster: Cluster, job: Job, wait: planned.NotInReservation) -> Explanation:
    known = cluster.reservations.get(wait.name)
    names = f"it names reservation `{wait.name}`"
    if known is not None and wait.is_gone and _goes_on(known):
        later = "; later ones come" if known.booking.until_at is None else ""
        hint = f"gqresv show {wait.name} tells more of it; {_elsewhere(job)}"
        return Explanation(Reason.RESERVATION.value, f"{names}, of which nothing is planned now{later}", hint)
    is_there = known is not None and not wait.is_gone
    reason = Reason.RESERVATION if is_there else Reason.RESERVATION_DELETED
    why = "that is over, or was skipped" if known is not None and wait.is_gone else wait.why
    hint = wait.hint or f"{_elsewhere(job)}; `gqresv list` shows what there is"
    return Explanation(reason.value, f"{names}, and {why}", hint)


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


def _elsewhere(job: Job) -> str:
    return f"gqctl update {job.label} --reservation=none lets it start elsewhere"


def _took_limit(cluster: Cluster, job: Job) -> str:
    """The source of the time limit of a job submitted without ``--time``; empty: it named one, or has none."""
    if job.spec.time_limit_s is not None or job.time_limit_s is None:
        return ""
    qos, time = qos_named(cluster, job.qos), spoken_duration(job.time_limit_s)
    if any(one.resource == "time" and int(one.most) == job.time_limit_s for one in cluster.limits.values()):
        counts = f"the {time} that gqctl limit show tells of"
    elif qos is not None and qos.max_time_s == job.time_limit_s:
        counts = f"QOS `{job.qos}`'s {time}"
    else:
        counts = f"partition `{job.partition}`'s {time}"
    return f"; it names no time limit, so it counts with {counts}"


def runs_into(cluster: Cluster, job: Job, wait: planned.RunsIntoReservation) -> Explanation:
    until = f"until {_mark(wait.ends_at)}" if wait.ends_at is not None else "for as long as nobody knows"
    why = f"it would fit now, but run {until}, and reservation `{wait.name}` keeps {names_of(wait.nodes)}"
    why += f" from {_mark(wait.begins_at)}"
    if wait.clear_at < wait.begins_at:
        why += f", for which that is to be clear at {_mark(wait.clear_at)}"
    return Explanation(Reason.NODES_UNAVAILABLE.value, why + _took_limit(cluster, job), _hint_of_end(job, wait))


def _hint_of_end(job: Job, wait: planned.RunsIntoReservation) -> str:
    """A hint: the time limit that would end before the reservation begins."""
    if wait.ends_at is None or job.time_limit_s is None:
        return f"with a time limit that ends before then it could start now: gqctl update {job.label} --time=MINUTES"
    minutes = int(wait.clear_at - (wait.ends_at - job.time_limit_s)) // 60
    if minutes < 1:
        return "it is considered again when that is over"
    return f"with at most --time={minutes} (minutes) it could start now: gqctl update {job.label} --time={minutes}"


def kept(one: planned.Holder, amount: str, nodes: str) -> str:
    """The reservation that keeps resources that no job holds."""
    verb = "is" if amount.startswith("1 ") or "memory" in amount else "are"
    until = "" if one.ends_at is None else f" until {_mark(one.ends_at)}"
    return f"{amount} {verb} kept for reservation {one.reservation} on {nodes}{until}"


def may_name(cluster: Cluster, job: Job, wait: planned.Insufficient) -> str:
    """A hint: a reservation that the job may use and that keeps enough of the missing resource; empty: none."""
    for one in wait.holders:
        known = None if one.reservation == job.spec.reservation else cluster.reservations.get(one.reservation)
        if wait.resource == "GPUs" and wait.wanted > one.gpus:
            continue
        if known is not None and known.may_be_used_by(job.user, account_path(cluster.accounts, job.account)):
            return f"it may use what is kept for that: gqctl update {job.label} --reservation={known.name}"
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


def _mark(at: float) -> str:
    return f"@{{{int(at)}}}"
