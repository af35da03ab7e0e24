"""Notices: which events cause one for which target, its delivery, and its retries.  Pure.

A notice is queued in the turn of its event, and so is as durable as the event.  Sending is an effect, and the result
comes back as an input; nothing waits for it.  Commands run as small jobs of their owner.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from gq.errors import Refusal
from gq.model.ids import JobId, RequestId
from gq.model.job import JobSpec
from gq.model.notice import (
    ARRAY_TASKS,
    ASK,
    BEGIN,
    END,
    FAIL,
    INVALID_DEPEND,
    REQUEUE,
    TIMEOUT,
    TIMEOUTS,
    Target,
    parse_target,
)
from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Outcome
from gq.near_miss import nearest
from gq.wire import client
from gqd.control import access, job
from gqd.control.notices import text as notice_text
from gqd.state.cluster import Cluster
from gqd.state.effect import ReplyEvents, ReplyNotices, SendNotice
from gqd.state.events import event
from gqd.state.index.deadlines import time_limit_of
from gqd.state.input import ClientRequest, NoticeCommand, NoticeReported
from gqd.state.notice import Notice
from gqd.state.records import Job
from gqd.state.volatile import Volatile

if TYPE_CHECKING:
    from gqd.control.access import Caller
    from gqd.control.turn import TurnBuilder

EXIT_NOT_FOUND = 127
"""Exit code of a shell that does not find the program."""
COMMAND_TIME_S = 600
"""The time limit of the job that runs a command."""
MAX_WAIT_S = 30.0
"""Longest time (s) for which the answer to a query for events is held back."""
TYPES = tuple(kind.__name__ for kind in get_args(event.Event) if kind is not event.Audited)
_WELL = (Outcome.COMPLETED, Outcome.CANCELLED)

# ── notices caused by events ──────────────────────────────────────────────────────────────────────────────────────


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """Queue the notices that an event causes."""
    decide = _FOLLOWED.get(type(fact))
    if decide is not None:
        decide(draft, fact)


def _on_submitted(draft: TurnBuilder, fact: event.JobSubmitted) -> None:
    if fact.never:
        _tell(draft, draft.cluster.jobs[fact.job_id], INVALID_DEPEND)


def _on_dependency(draft: TurnBuilder, fact: event.DependencyChanged) -> None:
    if fact.never:
        _tell(draft, draft.cluster.jobs[fact.job_id], INVALID_DEPEND)


def _on_started(draft: TurnBuilder, fact: event.JobStarted) -> None:
    job = draft.cluster.jobs[fact.attempt_id.job_id]
    if not job.spec.notify:
        return
    _tell(draft, job, BEGIN)
    known = draft.cluster.record_of(job)
    if known is not None and not draft.cluster.outbox.has_told(known[0].job_id, BEGIN):
        draft.emit(event.JobTold(at=draft.now, job_id=known[0].job_id, on=BEGIN))
        _tell(draft, known[0], BEGIN)
    _mark_time(draft, job)


def _on_requeued(draft: TurnBuilder, fact: event.JobRequeued) -> None:
    if fact.counts or fact.hold is not None:
        _tell(draft, draft.cluster.jobs[fact.job_id], REQUEUE, fact.why)


def _on_resumed(draft: TurnBuilder, fact: event.JobResumed | event.JobUnparked) -> None:
    _mark_time(draft, draft.cluster.jobs[fact.attempt_id.job_id])


def _on_asked(draft: TurnBuilder, fact: event.JobAsked) -> None:
    """Queue the notice about a favour asked of the owner, for every target of the job."""
    job = draft.cluster.jobs[fact.job_id]
    for target in _targets(job):
        _queue_of_job(draft, job, ASK, target)


def _on_updated(draft: TurnBuilder, fact: event.JobUpdated) -> None:
    _mark_time(draft, draft.cluster.jobs[fact.job_id])


def _on_ended(draft: TurnBuilder, fact: event.JobEnded) -> None:
    job = draft.cluster.jobs[fact.job_id]
    if fact.job_id in draft.cluster.outbox.commands:
        _on_command_ended(draft, fact)
    for target in _targets(job):
        on = _end_for(target, fact.outcome)
        if on:
            _queue_of_job(draft, job, on, target)


def _end_for(target: Target, outcome: Outcome) -> str:
    """The occasion under which the target wants to be notified of this end; empty: none."""
    if END in target.on:
        return END
    if FAIL in target.on and outcome not in _WELL:
        return FAIL
    return TIMEOUT if TIMEOUT in target.on and outcome is Outcome.TIMEOUT else ""


_FOLLOWED: dict[type, Callable[[TurnBuilder, Any], None]] = {
    event.JobSubmitted: _on_submitted,
    event.DependencyChanged: _on_dependency,
    event.JobStarted: _on_started,
    event.JobRequeued: _on_requeued,
    event.JobUpdated: _on_updated,
    event.JobResumed: _on_resumed,
    event.JobUnparked: _on_resumed,
    event.JobAsked: _on_asked,
    event.JobEnded: _on_ended,
}


def _targets(job: Job) -> list[Target]:
    """The targets of a job: for an array those of the whole array, for a task those with ``array_tasks``."""
    if job.array is None and job.array_job_id is None:
        return list(job.spec.notify)
    is_task = job.array is None
    return [one for one in job.spec.notify if (ARRAY_TASKS in one.on) is is_task]


def _tell(draft: TurnBuilder, job: Job, on: str, why: str = "") -> None:
    for target in _targets(job):
        if on in target.on:
            _queue_of_job(draft, job, on, target, why)


def _queue_of_job(draft: TurnBuilder, job: Job, on: str, target: Target, why: str = "") -> None:
    body = notice_text.body_of_job(draft.cluster, job, on, draft.now, why)
    _queue(draft, job.user, job.uid, on, target, body, job.job_id)


def to_owner(
    draft: TurnBuilder, user: str, uid: int, on: str, text: str, target: Target | None = None, **fields: Any
) -> None:
    """Queue a notice that is not about a job; `target` None: the cluster's default target, if it has one.

    `fields` are added to the body, for programs.
    """
    if target is None:
        if not draft.policy.notify.default:
            return
        target = parse_target(draft.policy.notify.default)
    body = {"event": on, "at": notice_text.moment(draft.now), "user": user, **fields, "text": text}
    _queue(draft, user, uid, on, target, body)


def _queue(
    draft: TurnBuilder,
    user: str,
    uid: int,
    on: str,
    target: Target,
    body: notice_text.Body,
    job_id: JobId | None = None,
) -> None:
    outbox = draft.cluster.outbox
    if outbox.waiting.get(user, 0) >= draft.policy.notify.max_per_user:
        draft.emit(event.NoticeDropped(at=draft.now, user=user, job_id=job_id, on=on, kind=target.kind))
        return
    whole = {"notice_id": outbox.next_id, "cluster": draft.policy.cluster, **body}
    if dropped := outbox.dropped.get(user, 0):
        whole["dropped"] = dropped
    draft.emit(
        event.NoticeQueued(
            at=draft.now,
            notice_id=outbox.next_id,
            user=user,
            uid=uid,
            job_id=job_id,
            on=on,
            kind=target.kind,
            to=target.to,
            body=notice_text.encoded(whole),
        )
    )
    draft.volatile.delivery.add(draft.now, outbox.next_id - 1)


# ── shares of the time limit ──────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """Queue the notices about shares of the time limit that are due, each once for an attempt."""
    marks = draft.volatile.time_marks
    while marks and marks[0][0] <= draft.now:
        _, job_id, number = heappop(marks)
        running = draft.cluster.jobs.get(job_id)
        if running is not None and running.attempt == number:
            _tell_time(draft, running)


def _tell_time(draft: TurnBuilder, running: Job) -> None:
    """Queue a notice about the highest share that is due; lower ones, as after a shortened limit, are only recorded."""
    due = [on for at, on in _marks_of(draft.cluster, running) if at <= draft.now]
    for on in due:
        draft.emit(event.JobTold(at=draft.now, job_id=running.job_id, on=on, attempt=running.attempt))
    if due:
        _tell(draft, running, due[-1])
    _mark_time(draft, running)


def _mark_time(draft: TurnBuilder, running: Job) -> None:
    for at, _ in _marks_of(draft.cluster, running)[:1]:
        heappush(draft.volatile.time_marks, (at, running.job_id, running.attempt))


def _marks_of(cluster: Cluster, running: Job) -> list[tuple[float, str]]:
    """(instant, occasion) of the shares of the time limit that a target wants and has not been notified of."""
    wanted = {on for target in _targets(running) for on in target.on if on in TIMEOUTS} if running.spec.notify else ()
    attempt = cluster.attempt_of(running) if wanted and running.state is JobState.RUNNING else None
    limit_s = None if attempt is None else time_limit_of(running, attempt)
    if attempt is None or limit_s is None or attempt.start_at is None or attempt.suspended_at is not None:
        return []
    told, begin_at = cluster.outbox, attempt.start_at + attempt.suspended_s
    return [
        (begin_at + share * limit_s, on)
        for on, share in TIMEOUTS.items()
        if on in wanted and not told.has_told(running.job_id, on, running.attempt)
    ]


# ── delivery ──────────────────────────────────────────────────────────────────────────────────────────────────────


def resume(draft: TurnBuilder) -> None:
    """After a restart, send every notice in the outbox (perhaps again); commands that run continue."""
    for notice in draft.cluster.outbox.notices.values():
        if not notice.by_job:
            draft.volatile.delivery.add(notice.next_at, notice.notice_id)
    for running in draft.cluster.jobs.values():
        if running.spec.notify and running.state is JobState.RUNNING:
            _mark_time(draft, running)


def next_at(volatile: Volatile) -> float | None:
    """The next instant at which a notice is due to be queued or sent; None: none is."""
    due = (volatile.delivery.next_at(), volatile.time_marks[0][0] if volatile.time_marks else None)
    return min((at for at in due if at is not None), default=None)


def send(draft: TurnBuilder) -> None:
    """Send the notices that are due, as far as the bounds on concurrent deliveries allow."""
    delivery = draft.volatile.delivery
    if not delivery.due or delivery.due[0][0] > draft.now:
        return
    for one in delivery.take(draft.cluster.outbox.notices, draft.now):
        draft.enqueue(
            SendNotice(
                notice_id=one.notice_id,
                user=one.user,
                uid=one.uid,
                kind=one.kind,
                to=one.to,
                body=one.body,
                attempt=one.attempts + 1,
            )
        )


def on_reported(draft: TurnBuilder, happened: NoticeReported) -> None:
    draft.volatile.delivery.done(happened.notice_id, draft.now)
    notice = draft.cluster.outbox.notices.get(happened.notice_id)
    if notice is None:
        return
    if happened.why:
        _fail(draft, notice, happened.why, is_final=happened.is_final)
    else:
        draft.emit(event.NoticeDelivered(at=draft.now, notice_id=notice.notice_id))


def _fail(draft: TurnBuilder, notice: Notice, why: str, *, is_final: bool) -> None:
    settings = draft.policy.notify
    at = draft.now + min(settings.retry_min_s * 2.0 ** min(notice.attempts, 30), settings.retry_max_s)
    is_hopeless = is_final or at > notice.queued_at + settings.give_up_s
    next_at = None if is_hopeless else at
    draft.emit(event.NoticeFailed(at=draft.now, notice_id=notice.notice_id, why=why[:500], next_at=next_at))
    if next_at is not None:
        draft.volatile.delivery.add(next_at, notice.notice_id)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────


def on_command(draft: TurnBuilder, happened: NoticeCommand) -> None:
    """Queue the job that runs the command, in the turn that records it: a repeated input queues no second one."""
    draft.volatile.delivery.done(happened.notice_id, draft.now)
    notice = draft.cluster.outbox.notices.get(happened.notice_id)
    if notice is None or notice.by_job:
        return
    spec = _command_spec(draft, notice, happened.script_digest)
    try:
        who = access.caller_of(happened.peer, draft.cluster, draft.policy)
        request = ClientRequest(
            peer=happened.peer, route=("", b""), request_id=RequestId(b""), body=client.Submit(spec=spec)
        )
        job_id = job.queue(draft, job.prepare(draft, who, request, spec))
    except Refusal as refusal:
        _fail(draft, notice, f"the command's job is refused: {refusal.message}", is_final=False)
    else:
        draft.emit(event.NoticeCommandQueued(at=draft.now, notice_id=notice.notice_id, by_job=job_id))


def _on_command_ended(draft: TurnBuilder, fact: event.JobEnded) -> None:
    """A command that succeeded has delivered its notice; another is run again later, unless its owner cancelled it."""
    notice = draft.cluster.outbox.notices[draft.cluster.outbox.commands[fact.job_id]]
    if fact.outcome is Outcome.COMPLETED:
        draft.emit(event.NoticeDelivered(at=draft.now, notice_id=notice.notice_id, by_job=fact.job_id))
        return
    code = fact.exit.code if fact.exit is not None else 0
    how = f"exited with code {code}" if code else f"ended as {fact.outcome.value}"
    more = f": {fact.why}" if fact.why and not code else " (not found)" if code == EXIT_NOT_FOUND else ""
    why = f"the command {how}{more} (job {fact.job_id})"
    _fail(draft, notice, why, is_final=fact.outcome is Outcome.CANCELLED)


def _command_spec(draft: TurnBuilder, notice: Notice, script_digest: str) -> JobSpec:
    """The job that runs a notice's command: one CPU, short, in the partition of its job, without notices of its own."""
    about = draft.cluster.jobs.get(notice.job_id)
    body: notice_text.Body = msgspec.json.decode(notice.body)
    partition = draft.policy.default_partition if about is None else draft.policy.partition(about.partition)
    most_s = None if partition is None else partition.max_time_s
    directory = "/" if about is None else about.spec.submit_dir
    return JobSpec(
        name=f"notify-{body.get('job_id') or notice.notice_id}",
        resources=ResourceRequest(ntasks=1, cpus_per_task=1),
        partition=None if partition is None else partition.name,
        account=(about.account or None) if about is not None else None,
        qos=None if about is None else about.qos,
        time_limit_s=COMMAND_TIME_S if most_s is None else min(COMMAND_TIME_S, most_s),
        requeue=True,
        args=(notice.to, *variables(body, notice.body)),
        chdir=directory,
        submit_dir=directory,
        output="/dev/null",
        umask=0o077,
        command=notice.to,
        script_digest=script_digest,
    )


def variables(body: notice_text.Body, text: str) -> tuple[str, ...]:
    """``GQ_NOTIFY_EVENT=end`` and so on: each plain value of the body, and all of it."""
    plain = {name: value for name, value in body.items() if isinstance(value, str | int)}
    plain["nodes"] = ",".join(body.get("nodes", ()))
    named = (f"GQ_NOTIFY_{name.upper()}={value}".replace("\0", "") for name, value in plain.items())
    return (*named, f"GQ_NOTIFY_BODY={text}")


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────


def list_notices(draft: TurnBuilder, who: Caller, request: ClientRequest, body: client.ListNotices, page: int) -> None:
    """List the caller's notices, or every user's for operators; the store answers."""
    peer, user = who.shown_to, body.user
    if peer is not None and user not in ("", peer.user):
        message = f"the notices of {user[:80]} are not yours"
        raise access.Denied("not_owner", message, "only their owner and operators may see them")
    user = user if peer is None else peer.user
    query = msgspec.structs.replace(body, user=user, limit=page)
    dropped = {name: count for name, count in draft.cluster.outbox.dropped.items() if user in ("", name)}
    draft.enqueue(
        ReplyNotices(route=request.route, request_id=request.request_id, query=query, shown_to=peer, dropped=dropped)
    )


def query_events(draft: TurnBuilder, who: Caller, request: ClientRequest, body: client.QueryEvents, page: int) -> None:
    """Query events of the caller's jobs, or all events for operators; the store answers as soon as there are any."""
    for name in body.types:
        if name not in TYPES:
            close = nearest(name, list(TYPES))
            hint = f"did you mean `{close}`?" if close else "the column `kind` of the table `events` lists the names"
            raise Refusal("unknown_event", f"there is no event `{name[:40]}`", hint)
    wait_s = min(max(body.wait_s, 0.0), MAX_WAIT_S)
    query = msgspec.structs.replace(body, limit=page, wait_s=wait_s)
    draft.enqueue(
        ReplyEvents(
            route=request.route,
            request_id=request.request_id,
            query=query,
            user=who.peer.user,
            shown_to=who.shown_to,
        )
    )
