"""Requests about jobs: submit, hold, release, update, cancel, signal, requeue, notify, end.  Pure.

Each ``decide_*`` returns the body of the reply, or raises `Refusal` without any change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.account import DEFAULT_ACCOUNT, MemberInfo
from gq.model.ids import JobId, RequestId
from gq.model.job import ExitStatus, JobSpec
from gq.model.nodelist import compress
from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Outcome, state_word
from gq.model.tasks import pack_tasks
from gq.model.text import has_controls
from gq.near_miss import nearest, suggestion
from gq.wire import client
from gq.wire import node as wire
from gqd.control import (
    access,
    array,
    attempt,
    deadline,
    dependency,
    orders,
    owed_order,
    preemption,
    requeue,
    runtime_estimate,
    snapshot,
)
from gqd.control import step as step_control
from gqd.control.access import Caller, Role
from gqd.control.accounts import association, limit
from gqd.control.array import Selection
from gqd.control.job_filter import select_jobs
from gqd.control.notices import spec as notice_spec
from gqd.control.reservation import overlap, reservation
from gqd.sched.limits.ledger import LimitSubject
from gqd.sched.placement.feasible import eligible_places
from gqd.sched.placement.placement import place
from gqd.sched.reasons.infeasible import all_cores_kept, too_many_licenses, unmet_constraint
from gqd.sched.reasons.unschedulable import infeasible
from gqd.sched.request import Shape, named_nodes, shape_in
from gqd.sched.snapshot.model import Overlay, whole_nodes
from gqd.state.end_reason import REQUEUED
from gqd.state.events import event
from gqd.state.index.deadlines import limit_under
from gqd.state.index.deadlines import time_limit_of as time_limit_under
from gqd.state.index.tally import asked_amounts
from gqd.state.input import ClientRequest, Peer
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.policy import Partition, Policy
from gqd.state.records import Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_NAME = 1024
MAX_SHAPES = 10_000
MAX_NICE = 2**30
MAX_SECONDS = 2**40
"""Upper bound of time limits and instants; larger values are refused."""
MAX_SIGNAL = 64
MAX_ENDED = 100_000
"""Ended jobs kept in memory; beyond that the oldest leave, however recent."""

# ── submit ────────────────────────────────────────────────────────────────────────────────────────────────────


class Prepared(NamedTuple):
    """A submission that has passed all checks; nothing has changed yet."""

    fact: event.JobSubmitted
    shape: Shape
    partition: Partition
    asked: limit.Asked
    member: MemberInfo | None = None
    """The member to add to the account first; None: the user is in its list already."""


def decide_submit(draft: TurnBuilder, caller: Caller, request: ClientRequest, body: client.Submit) -> client.ReplyBody:
    """Queue the job, unless it can never run.  → `Submitted`"""
    prepared = prepare(draft, caller, request, body.spec)
    return client.Submitted(job_id=queue(draft, prepared), note=notice_spec.note_of(body.spec, prepared.fact.spec))


def prepare(
    draft: TurnBuilder, caller: Caller, request: ClientRequest, spec: JobSpec, ahead: tuple[Prepared, ...] = ()
) -> Prepared:
    """Every check of a submission, or `Refusal`; changes nothing.

    `ahead`: jobs that the same request queues before this one; they count as if they were queued.
    """
    peer = caller.peer
    access.refuse_root_jobs(caller, draft.policy)
    access.refuse_priority(caller, spec.nice, spec.priority)
    _refuse_bad_text(spec)
    requeue.refuse_bad(draft.policy, spec)
    array.refuse_bad_array(spec, draft.policy)
    _refuse_over_limits(draft, peer, sum(array.width_of(earlier.fact.spec) for earlier in ahead), array.width_of(spec))
    partition = partition_of(draft.policy, spec.partition)
    spec = notice_spec.settled(draft.policy, spec)
    resources = _known_request(association.with_defaults(spec.resources, partition))
    spec = _known_spec(spec if resources is spec.resources else msgspec.structs.replace(spec, resources=resources))
    placed = association.associate(draft.cluster, draft.policy, caller.user, partition, spec.account, spec.qos)
    time_limit_s = time_limit_of(partition, spec.time_limit_s)
    time_limit_s = association.time_limit_under(placed.qos, spec.time_limit_s, time_limit_s)
    subject = LimitSubject(peer.user, placed.account, placed.qos.name)
    time_limit_s = limit.time_limit_under(draft.cluster, subject, spec.time_limit_s, time_limit_s)
    shape = shape_in(draft.policy, spec.resources, partition.name)
    association.refuse_nodes(partition, shape)
    _refuse_impossible(draft, shape, partition)
    if spec.reservation:
        reservation.refuse_unusable(draft, spec.reservation, peer.user, placed.account)
    asked = limit.Asked(subject, shape, asked_amounts(spec.resources), array.width_of(spec), time_limit_s)
    limit.refuse_over(draft, asked, [earlier.asked for earlier in ahead])
    deadline.refuse_late(spec, time_limit_s, draft.now)
    expected_s = request.expected_s
    if expected_s is None:
        expected_s = runtime_estimate.expected_s(
            draft, (peer.user, placed.account), spec.resources, spec.time_limit_s, time_limit_s
        )
    after = dependency.at_submit(draft, spec, peer.user, request.past, [earlier.fact for earlier in ahead])
    fact = event.JobSubmitted(
        at=draft.now,
        job_id=JobId(draft.cluster.next_job_id + len(ahead)),
        user=peer.user,
        uid=peer.uid,
        gid=peer.gid,
        spec=spec,
        partition=partition.name,
        time_limit_s=time_limit_s,
        requeue=draft.policy.job_requeue or bool(spec.requeue_on) if spec.requeue is None else spec.requeue,
        account=placed.account,
        qos=placed.qos.name,
        hook=request.hook_of(len(ahead)),
        dependency=after.left,
        never=after.never,
        ready=pack_tasks(after.ready) if after.left is not None else "",
        expected_s=expected_s,
    )
    return Prepared(fact, shape, partition, asked, placed.member)


@lru_cache(maxsize=4096)
def _known_request(request: ResourceRequest) -> ResourceRequest:
    """A shared object for equal requests, which saves memory with a hundred thousand similar jobs."""
    return request


@lru_cache(maxsize=1024)
def _known_spec(spec: JobSpec) -> JobSpec:
    """A shared object for equal specs of jobs that are submitted in a loop."""
    return spec


def queue(draft: TurnBuilder, prepared: Prepared) -> JobId:
    """Queue a job that was prepared in this turn.  → its id"""
    fact = prepared.fact
    if prepared.member is not None and (fact.user, fact.account) not in draft.cluster.members:
        draft.emit(event.MemberSet(at=draft.now, member=prepared.member))
    draft.emit(fact)
    if fact.spec.is_interactive:
        draft.volatile.client_seen_at[fact.job_id] = draft.now
    return fact.job_id


def _refuse_over_limits(draft: TurnBuilder, peer: Peer, ahead: int, count: int) -> None:
    """`Refusal` if the queue, or the user's share of it, has no room for `count` jobs (tasks count as jobs)."""
    limits, active = draft.policy.limits, draft.cluster.active_by_user
    in_all, own = sum(active.values()) + ahead, active.get(peer.user, 0) + ahead
    what = "the job" if count == 1 else f"the array of {count} tasks"
    if in_all + count > limits.jobs:
        message = f"the queue holds {in_all} of {limits.jobs} jobs and has no room for {what}"
        raise Refusal("queue_full", message, "try again when jobs have ended")
    if own + count > limits.jobs_per_user:
        most = f"the maximum per user is {limits.jobs_per_user}"
        message = f"user {peer.user} has {own} jobs in the queue, and {most}: there is no room for {what}"
        hint = "try again when jobs have ended; limits.jobs_per_user in gq.toml sets the maximum"
        raise Refusal("too_many_jobs", message, hint)


def _refuse_bad_text(spec: JobSpec) -> None:
    if not spec.name or len(spec.name) > MAX_NAME or not spec.name.isprintable():
        message = f"the job name {spec.name[:40]!r} is not 1 to {MAX_NAME} printable characters"
        raise Refusal("bad_name", message, "choose another with --job-name")
    _refuse_bad_number("--nice", spec.nice, -MAX_NICE, MAX_NICE)
    _refuse_bad_number("--begin", spec.begin_at, 0, MAX_SECONDS)
    _refuse_bad_number("--time", spec.time_limit_s, 0, MAX_SECONDS)
    _refuse_bad_number("the umask", spec.umask, 0, 0o777)
    if spec.signal is not None:
        _refuse_bad_number("--signal", spec.signal.signum, 1, MAX_SIGNAL)
        _refuse_bad_number("the time of --signal", spec.signal.before_s, 0, MAX_SECONDS)
    for name, path in (("--chdir", spec.chdir), ("the submit directory", spec.submit_dir)):
        if not path.startswith("/") or "\0" in path:
            raise Refusal("bad_path", f"{name} {path!r} is not an absolute path")
    for name, text in _shown_texts(spec):
        if has_controls(text):
            message = f"{name} {text[:40]!r} contains a control character"
            raise Refusal("bad_text", message, "leave out control characters: terminals interpret them")


def _shown_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The texts of a job that commands print for other people, each with its option."""
    yield "--chdir", spec.chdir
    yield "the submit directory", spec.submit_dir
    yield "--comment", spec.comment
    for option, pattern in (("--output", spec.output), ("--error", spec.error), ("--input", spec.input)):
        yield option, pattern or ""


def _refuse_bad_number(what: str, value: float | None, minimum: int, maximum: int) -> None:
    """`Refusal` for a number out of range, which could break later arithmetic; NaN is out of range, too."""
    if value is not None and not minimum <= value <= maximum:
        raise Refusal("bad_number", f"{what} is {value}, which is not between {minimum} and {maximum}")


def partition_of(policy: Policy, name: str | None) -> Partition:
    """The partition of that name (None: the default), or a `Refusal` with the nearest name."""
    if name is None:
        return policy.default_partition
    partition = policy.partition(name)
    if partition is not None:
        return partition
    names = [partition.name for partition in policy.partitions]
    close = nearest(name, names)
    listed = ", ".join(f"`{name}`" for name in names)
    hint = f"did you mean `{close}`? you may use {listed}" if close else f"you may use {listed}"
    raise Refusal("unknown_partition", f"partition `{name}` does not exist", hint)


def time_limit_of(partition: Partition, asked_s: int | None) -> int | None:
    """The time limit in seconds (None: unlimited); an `asked_s` of 0 asks for unlimited."""
    max_s = partition.max_time_s
    if asked_s is None:
        return partition.implied_time_s
    if max_s is not None and (asked_s > max_s or asked_s == 0):
        raise association.too_long(asked_s, f"partition `{partition.name}`", max_s)
    return asked_s or None


def _refuse_impossible(draft: TurnBuilder, shape: Shape, partition: Partition) -> None:
    """`Refusal` if the request can never be met; a request for nodes that are only down may wait."""
    if (licenses := too_many_licenses(draft.policy, shape)) is not None:
        raise Refusal("impossible", f"the job can never run: {licenses.why}", licenses.hint)
    if shape in draft.volatile.possible_shapes or not (draft.cluster.nodes or named_nodes(shape)):
        return  # the nodes of a new cluster have not registered yet
    nodes = whole_nodes(snapshot.nodes_of(draft.cluster, draft.volatile, draft.now))
    unknown = sorted(named_nodes(shape) - draft.cluster.nodes.keys())
    if unknown:
        hint = suggestion(unknown[0], [node.name for node in nodes], "gqinfo -N lists the nodes")
        raise Refusal("unknown_node", f"node `{unknown[0]}` does not exist", hint)
    usable = eligible_places(nodes, shape, partition).tolist()
    if not usable:
        unmet = unmet_constraint(nodes, shape, partition)
        why = "" if unmet is None else f"the job can never run: {unmet.why}"
        if len(missing := partition.missing_nodes(draft.cluster.nodes)) == len(partition.nodes):
            message = f"partition `{partition.name}` has no nodes: {compress(missing)} in gq.toml has never registered"
            raise Refusal("impossible", message, "gqinfo -N lists the nodes, gqinfo the partitions")
        no_node = f"the job may use no node of partition `{partition.name}`"
        raise Refusal("impossible", why or no_node, "gqinfo -N lists the nodes" if unmet is None else unmet.hint)
    if place(Overlay.empty(nodes), shape, usable) is None:
        reason = infeasible(nodes, shape, usable)
        raise Refusal("impossible", f"the job can never run: {reason.why}", reason.hint)
    kept = all_cores_kept(nodes, shape, usable, draft.policy.scheduling.cores_kept_per_gpu)
    if kept is not None:
        raise Refusal("impossible", f"the job can never run: {kept.why}", kept.hint)
    if len(draft.volatile.possible_shapes) < MAX_SHAPES:
        draft.volatile.possible_shapes.add(shape)


# ── hold, release, update ─────────────────────────────────────────────────────────────────────────────────────


def decide_hold(draft: TurnBuilder, caller: Caller, body: client.HoldJobs) -> client.JobsDone:
    """Hold pending jobs; only operators can release jobs that an operator holds."""
    report = array.Report()
    for selection in _steerable(draft, caller, body, report):
        job = selection.job
        if not job.is_waiting:
            report.refuse(selection, f"it is {_word(job)}; only pending jobs can be held")
            continue
        report.did(selection)
        hold = Hold.ADMIN if caller.role >= Role.OPERATOR and not caller.owns(job) else Hold.USER
        if job.hold is None or (hold is Hold.ADMIN and job.hold is not hold):
            for target in array.materialise_tasks(draft, selection):
                draft.emit(event.JobHeld(at=draft.now, job_id=target.job_id, hold=hold))
    return report.answer()


def decide_release(draft: TurnBuilder, caller: Caller, body: client.ReleaseJobs) -> client.JobsDone:
    report = array.Report()
    for selection in _steerable(draft, caller, body, report):
        job = selection.job
        if not job.is_waiting:
            report.refuse(selection, f"it is {_word(job)}; only pending jobs can be released")
            continue
        if job.hold is Hold.ADMIN and caller.role < Role.OPERATOR:
            report.refuse(selection, "an operator holds it; only operators can release it")
            draft.deny(job.job_id, "admin_hold")
            continue
        report.did(selection)
        if job.hold is not None or job.avoid:
            for target in array.materialise_tasks(draft, selection):
                draft.emit(event.JobReleased(at=draft.now, job_id=target.job_id))
    return report.answer()


def decide_update(draft: TurnBuilder, caller: Caller, request: ClientRequest, body: client.UpdateJob) -> client.Done:
    """Change a job, an array or tasks of one, after all checks; a running job's resources cannot change."""
    record = known(draft, body.job_id)
    throttle = _throttle_set(draft, record, body)
    which = ((), {body.job_id: body.tasks}) if body.tasks else ((body.job_id,), {})
    chosen = [item for item in array.select(draft.cluster, *which) if item.is_named or not _why_fixed(item.job, body)]
    array.refuse_too_many(chosen)
    only_throttle = client.UpdateJob(job_id=body.job_id, array_throttle=body.array_throttle, array_auto=body.array_auto)
    is_more = body != only_throttle
    facts = [(item, _updated(draft, caller, item.job, body)) for item in chosen if is_more or throttle is None]
    limit.refuse_changed(draft, [(selection.job, selection.width, fact) for selection, fact in facts])
    for selection, fact in facts:
        dependency.refuse_update(draft, selection, fact.spec, request.past)
    if not facts and throttle is None:
        raise Refusal(
            "job_over", f"array {body.job_id} has no task left that this change applies to", "gqstat lists its tasks"
        )
    for selection, fact in facts:
        for target in array.materialise_tasks(draft, selection):
            _emit_update(draft, request, target, msgspec.structs.replace(fact, job_id=target.job_id))
    if throttle is not None:
        draft.emit(throttle)
    return client.Done()


def _throttle_set(draft: TurnBuilder, record: Job, body: client.UpdateJob) -> event.ArrayThrottleSet | None:
    if body.array_throttle is None and not body.array_auto:
        return None
    if body.array_throttle is not None and body.array_auto:
        raise Refusal("bad_array", "a limit on running tasks and `auto` exclude each other", "give one of them")
    if record.array is None or body.tasks:
        tasks = body.tasks if body.tasks.isdecimal() else f"[{body.tasks}]"
        what = f"job {record.job_id}" if record.array is None else f"{record.job_id}_{tasks}"
        raise Refusal("not_an_array", f"{what} is not an array with a task limit", "name the whole array")
    if record.state is JobState.ENDED:
        raise Refusal("job_over", f"array {record.job_id} is {_word(record)} and can no longer be changed")
    throttle = body.array_throttle or None
    return event.ArrayThrottleSet(at=draft.now, array_job_id=record.job_id, throttle=throttle, is_auto=body.array_auto)


def _why_fixed(job: Job, body: client.UpdateJob) -> Refusal | None:
    """The refusal if the job's state does not allow this change; None: it does."""
    if job.state in (JobState.COMPLETING, JobState.ENDED):
        return Refusal("job_over", f"job {job.job_id} is {_word(job)} and can no longer be changed")
    fixed = {"partition": body.partition, "begin": body.begin_at, "nice": body.nice, "resources": body.resources,
             "account": body.account, "QOS": body.qos, "dependency": body.dependency or body.clear_dependency or None,
             "reservation": body.reservation, "priority": body.clear_priority or body.priority}  # fmt: skip
    said = [name for name, value in fixed.items() if value is not None]
    if said and job.state is not JobState.PENDING:
        return Refusal("job_started", f"the {said[0]} of job {job.job_id} cannot be changed: it is {_word(job)}")
    return None


def _updated(draft: TurnBuilder, caller: Caller, job: Job, body: client.UpdateJob) -> event.JobUpdated:
    """The event of the update, or `Refusal`; changes nothing."""
    if (fixed := _why_fixed(job, body)) is not None:
        raise fixed
    access.refuse_priority(caller, body.nice, 0 if body.clear_priority else body.priority)
    _refuse_bad_number("--time", body.time_limit_s, 0, MAX_SECONDS)
    spec = msgspec.structs.replace(
        job.spec,
        name=job.spec.name if body.name is None else body.name,
        nice=job.spec.nice if body.nice is None else body.nice,
        priority=None if body.clear_priority else job.spec.priority if body.priority is None else body.priority,
        begin_at=job.spec.begin_at if body.begin_at is None else body.begin_at,
        comment=job.spec.comment if body.comment is None else body.comment,
        resources=job.spec.resources if body.resources is None else body.resources,
        dependency=None if body.clear_dependency else body.dependency or job.spec.dependency,
        deadline_at=job.spec.deadline_at if body.deadline_at is None else body.deadline_at or None,
        account=job.spec.account if body.account is None else body.account,
        qos=job.spec.qos if body.qos is None else body.qos,
        reservation=job.spec.reservation if body.reservation is None else body.reservation,
        requeue_on=job.spec.requeue_on if body.requeue_on is None else body.requeue_on,
        max_requeue=job.spec.max_requeue if body.max_requeue is None else body.max_requeue,
    )
    _refuse_bad_text(spec)
    requeue.refuse_bad_requeue(spec)
    partition = _partition_after(draft.policy, job, body)
    if body.partition is not None or body.resources is not None:
        spec = msgspec.structs.replace(spec, resources=association.with_defaults(spec.resources, partition))
        shape = shape_in(draft.policy, spec.resources, partition.name)
        association.refuse_nodes(partition, shape)
        _refuse_impossible(draft, shape, partition)
    groups = caller.peer.groups if caller.owns(job) else None if caller.role >= Role.OPERATOR else ()
    account, qos = association.moved(draft.cluster, draft.policy, job, body, partition, groups)
    if body.reservation:
        reservation.refuse_unusable(draft, body.reservation, job.user, account)
    time_limit_s = job.time_limit_s
    if {body.time_limit_s, body.partition, body.account, body.qos} != {None}:
        asked_s = _asked_limit(job, body)
        time_limit_s = association.time_limit_under(qos, asked_s, time_limit_of(partition, asked_s))
        subject = LimitSubject(job.user, account, qos.name)
        time_limit_s = limit.time_limit_under(draft.cluster, subject, asked_s, time_limit_s)
    current = draft.cluster.attempts.get(job.attempt_id)
    if job.state is not JobState.PENDING and current is not None:
        before_s, after_s = time_limit_under(job, current), limit_under(spec.deadline_at, time_limit_s, current)
        if before_s is not None and (after_s is None or after_s > before_s):
            access.refuse_more_time(caller, before_s)
            overlap.refuse_reaching(draft, job, current, after_s)
    elif (spec.deadline_at, time_limit_s) != (job.spec.deadline_at, job.time_limit_s):
        deadline.refuse_late(spec, time_limit_s, draft.now)
    expected_s = job.expected_s
    if time_limit_s != job.time_limit_s and draft.policy.scheduling.expect != "exact":
        who_for = (job.user, account or DEFAULT_ACCOUNT)
        expected_s = runtime_estimate.expected_s(draft, who_for, spec.resources, _asked_limit(job, body), time_limit_s)
    return event.JobUpdated(
        at=draft.now,
        job_id=job.job_id,
        spec=spec,
        partition=partition.name,
        time_limit_s=time_limit_s,
        requeue=(job.requeue or bool(body.requeue_on)) if body.requeue is None else body.requeue,
        account=account,
        qos=qos.name,
        expected_s=expected_s,
    )


def _emit_update(draft: TurnBuilder, request: ClientRequest, job: Job, fact: event.JobUpdated) -> None:
    before, before_s = job.spec, job.time_limit_s
    if (job.user, fact.account) not in draft.cluster.members:
        member = MemberInfo(user=job.user, account=fact.account, from_group=True)
        draft.emit(event.MemberSet(at=draft.now, member=member))
    draft.emit(fact)
    dependency.after_update(draft, job, before, request.past)
    draft.volatile.updated_jobs.add(job.job_id)
    preemption.after_update(draft, job, before, before_s)
    current = draft.cluster.attempts.get(job.attempt_id)
    is_other = (before.deadline_at, before_s) != (fact.spec.deadline_at, fact.time_limit_s)
    if is_other and current is not None and job.state is not JobState.PENDING:
        for node in current.parts:
            orders.send_time_limit(draft, job, node)


def _partition_after(policy: Policy, job: Job, body: client.UpdateJob) -> Partition:
    """The job's partition after the update; one that gq.toml no longer has sets no limits to its running jobs."""
    if body.partition is not None or body.resources is not None:
        return partition_of(policy, body.partition or job.partition)
    return policy.partition(job.partition) or Partition(name=job.partition)


def _asked_limit(job: Job, body: client.UpdateJob) -> int | None:
    """The requested time limit: the update's, else the one that the job was submitted with."""
    return body.time_limit_s if body.time_limit_s is not None else job.spec.time_limit_s


# ── cancel, signal, requeue, notify ───────────────────────────────────────────────────────────────────────────


def decide_cancel(
    draft: TurnBuilder, caller: Caller, request_id: RequestId, body: client.CancelJobs
) -> client.JobsDone:
    """Cancel or signal the jobs that the filter selects; other users' jobs are skipped unless they are named."""
    access.refuse_users_of_others(caller, body.filter.users)
    _refuse_bad_number("the signal", body.signum, 1, MAX_SIGNAL)
    report = array.Report()
    named = {JobId(job_id) for job_id in (*body.filter.job_ids, *body.filter.tasks)}
    selections = [selection for selection in select_jobs(draft.cluster, body.filter) if _can_end(selection)]
    for selection in reversed(selections):  # removal from the end of the queue is cheap
        job = selection.job
        if not caller.may_steer(job):
            if job.job_id in named or job.array_job_id in named:
                _refuse_other(draft, selection, report)
        elif body.signum is not None and job.state is not JobState.RUNNING:
            report.refuse(selection, f"it is {_word(job)}; only running jobs can be signalled")
        else:
            report.did(selection)
            _cancel_or_signal(draft, selection, caller.peer, request_id, body)
    found = {item.job.job_id for item in selections} | {item.job.array_job_id for item in selections}
    return report.answer(skipped=sorted(named - found), is_reversed=True)


def _can_end(selection: Selection) -> bool:
    """Whether there is something to end: a job that has not ended, or waiting tasks of a record."""
    return selection.job.state is not JobState.ENDED and (selection.job.array is None or selection.tasks != 0)


def _cancel_or_signal(
    draft: TurnBuilder, selection: Selection, peer: Peer, request_id: RequestId, body: client.CancelJobs
) -> None:
    if body.signum is not None:
        _signal_live_parts(draft, selection.job, request_id, body.signum, body.scope)
    elif selection.job.array is not None:
        array.cancel_tasks(draft, selection.job, selection.tasks, f"by {peer.user}")
    else:
        cancel(draft, selection.job, peer)


def _signal_live_parts(draft: TurnBuilder, job: Job, request_id: RequestId, signum: int, scope: str) -> None:
    current = draft.cluster.attempts.get(job.attempt_id)
    if current is None:
        return
    order = wire.SignalAttempt(attempt_id=job.attempt_id, signum=signum, scope=scope, order_id=bytes(request_id))
    for node, part in list(current.parts.items()):
        if part.phase in (PartPhase.LIVE, PartPhase.GOING) and not part.is_stranded:
            owed_order.send(draft, current, node, order)


def cancel(draft: TurnBuilder, job: Job, peer: Peer | None = None, why: str = "") -> None:
    """End the job in any state; for an array's record cancel all its waiting tasks."""
    reason = why or (f"by {peer.user}" if peer else "")
    if job.array is not None:
        array.cancel_tasks(draft, job, job.array.waiting, reason)
        return
    if job.state is JobState.PENDING:
        draft.emit(event.JobEnded(at=draft.now, job_id=job.job_id, outcome=Outcome.CANCELLED, why=reason))
        draft.volatile.client_seen_at.pop(job.job_id, None)
        return
    current = draft.cluster.attempts[job.attempt_id]
    grace_s = requeue.grace_s(draft, job)
    if job.state is JobState.COMPLETING:
        if current.then is AfterEnding.END:
            return
        grace_s = current.grace_s  # its parts are being stopped already
    attempt.end(draft, job, Outcome.CANCELLED, AfterEnding.END, why=reason, grace_s=grace_s)


def decide_requeue(draft: TurnBuilder, caller: Caller, body: client.RequeueJobs) -> client.JobsDone:
    """End the attempt and queue the job again, with the same id and submit time."""
    report = array.Report()
    for selection in _steerable(draft, caller, body, report):
        job = selection.job
        if job.spec.is_interactive:
            report.refuse(selection, "it is interactive and would restart without its client")
        elif job.state in (JobState.STARTING, JobState.RUNNING):
            report.did(selection)
            grace_s = requeue.grace_s(draft, job)
            attempt.end(draft, job, Outcome.CANCELLED, AfterEnding.REQUEUE, why=REQUEUED, grace_s=grace_s)
        elif job.state is JobState.COMPLETING:
            report.did(selection)
            _requeue_after_end(draft, job)
        else:
            report.refuse(selection, f"it is {_word(job)}; only a job that has started can be requeued")
    return report.answer()


def _requeue_after_end(draft: TurnBuilder, job: Job) -> None:
    """Requeue a job whose end is under way: a job may request its requeue as its last act."""
    current = draft.cluster.attempts[job.attempt_id]
    outcome = current.outcome or Outcome.CANCELLED
    attempt.end(draft, job, outcome, AfterEnding.REQUEUE, exit=current.exit, why=REQUEUED, grace_s=current.grace_s)


def decide_notify(draft: TurnBuilder, request_id: RequestId, body: client.NotifyJob) -> client.Done:
    job = running(draft, body.job_id, body.task)
    text = "".join(char if char.isprintable() else " " for char in body.text)[:4096]
    current = draft.cluster.attempts[job.attempt_id]
    order = wire.Notify(attempt_id=job.attempt_id, text=text, order_id=bytes(request_id))
    owed_order.send(draft, current, current.batch_node, order)
    return client.Done()


def decide_signal_step(draft: TurnBuilder, request_id: RequestId, body: client.SignalStep) -> client.Done:
    """Signal or end one step on all its nodes."""
    _refuse_bad_number("the signal", body.signum, 1, MAX_SIGNAL)
    job = running(draft, body.job_id, body.task)
    current = draft.cluster.attempts[job.attempt_id]
    step = current.steps.get(body.step)
    if step is None:
        raise Refusal("unknown_step", f"job {job.job_id} has no running step {body.step}", "gqacct shows its steps")
    if body.signum is None:
        step_control.decide_end(draft, step)
    order = wire.StopStep(
        step_id=step.step_id, signum=body.signum, grace_s=draft.policy.timers.grace_s, order_id=bytes(request_id)
    )
    for part in step.layout.parts:
        if part.node not in step.part_ends:
            (owed_order.send if body.signum is not None else owed_order.remember)(draft, current, part.node, order)
    return client.Done()


# ── interactive ───────────────────────────────────────────────────────────────────────────────────────────────


def decide_keep_alive(draft: TurnBuilder, body: client.KeepAlive) -> client.Done:
    job = known(draft, body.job_id)
    if job.state is JobState.ENDED:
        raise Refusal("job_over", f"job {job.job_id} is {_word(job)}")
    if job.spec.is_interactive:
        draft.volatile.client_seen_at[job.job_id] = draft.now
    return client.Done()


def decide_end_interactive(draft: TurnBuilder, body: client.EndInteractive) -> client.Done:
    """The client of an interactive job has ended; its exit code becomes the job's."""
    _refuse_bad_number("the exit code", body.exit_code, 0, 255)
    job = known(draft, body.job_id)
    if not job.spec.is_interactive:
        raise Refusal("not_interactive", f"job {job.job_id} has a batch script; gqdel ends it")
    if job.state in (JobState.PENDING, JobState.COMPLETING):
        cancel(draft, job, why="its client exited while the job was pending")
    elif job.state in (JobState.STARTING, JobState.RUNNING):
        outcome = Outcome.FAILED if body.exit_code else Outcome.COMPLETED
        attempt.end(draft, job, outcome, AfterEnding.END, exit=ExitStatus(code=body.exit_code))
    return client.Done()


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """End interactive jobs whose client is gone, and forget ended jobs after their time."""
    for job_id, seen_at in list(draft.volatile.client_seen_at.items()):
        if draft.now - seen_at >= draft.policy.timers.interactive_lost_s:
            draft.volatile.client_seen_at.pop(job_id)
            cancel(draft, draft.cluster.jobs[job_id], why="its client stopped responding")
    before = draft.now - draft.policy.limits.ended_job_keep_s
    if old := tuple(_old_jobs(draft, before)):
        draft.emit(event.JobsForgotten(at=draft.now, job_ids=old))


def _old_jobs(draft: TurnBuilder, before: float) -> Iterator[JobId]:
    """Ended jobs that leave memory: old ones, and the oldest if there are too many."""
    ended = draft.cluster.ended
    just_now = draft.touched_jobs()  # dependent jobs have yet to react to their end
    for position, job_id in enumerate(ended):
        job = draft.cluster.jobs[job_id]
        if (job.end_at or 0.0) > before and len(ended) - position <= MAX_ENDED:
            return
        is_array = job.array is not None and job.array.jobs  # a record stays as long as its tasks
        if job_id not in just_now and not is_array and not _has_parts(draft, job):
            yield job_id


def _has_parts(draft: TurnBuilder, job: Job) -> bool:
    current = draft.cluster.attempts.get(job.attempt_id)
    return current is not None and bool(current.parts)


# ── jobs by id ────────────────────────────────────────────────────────────────────────────────────────────────


def known(draft: TurnBuilder, job_id: int) -> Job:
    """The job, or `Refusal`: never existed, or left memory."""
    return array.known(draft.cluster, job_id)


def running(draft: TurnBuilder, job_id: int, task: int | None = None) -> Job:
    job = array.started_one(draft.cluster, job_id, task)
    if job.state is not JobState.RUNNING:
        raise Refusal("not_running", f"job {job_id} is {_word(job)}, not running")
    return job


def _steerable(
    draft: TurnBuilder,
    caller: Caller,
    body: client.HoldJobs | client.ReleaseJobs | client.RequeueJobs,
    report: array.Report,
) -> list[Selection]:
    """The selected jobs that the caller may act on, after checks; the others are refused in the report."""
    selections = array.select(draft.cluster, body.job_ids, body.tasks)
    if not isinstance(body, client.RequeueJobs):
        array.refuse_too_many(selections)
    for selection in selections:
        if not caller.may_steer(selection.job):
            _refuse_other(draft, selection, report)
    return [selection for selection in selections if caller.may_steer(selection.job)]


def _refuse_other(draft: TurnBuilder, selection: Selection, report: array.Report) -> None:
    report.refuse(selection, f"it belongs to {selection.job.user}")
    draft.deny(selection.job.job_id)


def _word(job: Job) -> str:
    return state_word(job.state, job.outcome).lower()
