"""The audit trail: the events that are recorded, and the text of their fields.  Pure.

Recorded are every request that changes something, with its outcome; every request that was refused for missing rights;
nodes that join; and incidents that the listeners report.  An entry never holds a secret: names, numbers and reasons
only.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gq.model.account import AccountInfo, MemberInfo, QosInfo
from gq.wire import client
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.input import DoorIncident, Peer

MAX_DETAIL = 500
MAX_OBJECT = 200
MAX_WORD = 64
DONE = "done"
REFUSED = "refused"


def printable(text: str, max_length: int) -> str:
    """The text as a printable line of at most `max_length` characters; others are escaped as Python does."""
    shown = text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return shown if len(shown) <= max_length else shown[: max_length - 1] + "…"


def audit_event(
    at: float,
    *,
    action: str,
    origin: str,
    user: str = "",
    uid: int | None = None,
    object: str = "",
    outcome: str = DONE,
    detail: str = "",
) -> event.Audited:
    return event.Audited(
        at=at,
        user=printable(user, MAX_WORD),
        uid=uid,
        origin=printable(origin, MAX_OBJECT),
        action=printable(action, MAX_WORD),
        object=printable(object, MAX_OBJECT),
        outcome=printable(outcome, MAX_WORD),
        detail=printable(detail, MAX_DETAIL),
    )


def request_event(
    at: float,
    peer: Peer,
    cluster: Cluster,
    body: client.RequestBody,
    answer: client.ReplyBody,
    hook: str = "",
) -> event.Audited:
    """The entry for an answered request.  `hook`: the changes that the submit hook made."""
    outcome, detail = DONE, ""
    if isinstance(answer, client.Refused):
        outcome, detail = answer.code, answer.message
    elif isinstance(answer, client.JobsDone) and answer.refused and not (answer.job_ids or answer.tasks):
        outcome, detail = REFUSED, answer.refused[0][1]
    elif isinstance(body, client.ReloadConfig) and isinstance(answer, client.Done):
        detail = answer.text
    else:
        detail = detail_of(body)
    if hook:
        detail = f"{detail}; hook: {hook}" if detail else f"hook: {hook}"
    return _asked(at, peer, cluster, body, object_of(body, answer), outcome, detail)


def denied_event(
    at: float, peer: Peer, cluster: Cluster, body: client.RequestBody, code: str, job_ids: list[int]
) -> event.Audited:
    """The entry for the jobs that a request about many jobs was refused for."""
    return _asked(at, peer, cluster, body, _jobs(job_ids), code)


def _asked(
    at: float, peer: Peer, cluster: Cluster, body: client.RequestBody, object: str, outcome: str, detail: str = ""
) -> event.Audited:
    origin, action = origin_of(peer, cluster), type(body).__name__
    return audit_event(
        at, user=peer.user, uid=peer.uid, origin=origin, action=action, object=object, outcome=outcome, detail=detail
    )


def incident_event(at: float, fact: DoorIncident) -> event.Audited:
    return audit_event(
        at,
        user=fact.user,
        uid=fact.uid,
        origin=fact.origin,
        action=fact.action,
        outcome=REFUSED,
        detail=fact.detail,
    )


def signal_event(at: float, request: type[client.RequestBody], outcome: str = DONE, detail: str = "") -> event.Audited:
    """The entry for a request made by a signal to the daemon, which any user who may signal it may make."""
    return audit_event(at, action=request.__name__, origin="signal", outcome=outcome, detail=detail)


def origin_of(peer: Peer, cluster: Cluster) -> str:
    """``local``, ``node n1``, ``key laptop (192.0.2.7)``, ``munge (192.0.2.7)``"""
    if peer.via_node:
        return f"node {peer.via_node}"
    if peer.by_munge:
        return f"munge ({peer.address})"
    if not peer.key:
        return "local"
    key = cluster.keys.get(peer.key)
    name = key.note if key is not None and key.note else peer.key[:8]
    return f"key {name} ({peer.address})"


# ── object and details ────────────────────────────────────────────────────────────────────────────────────


def object_of(body: client.RequestBody, answer: client.ReplyBody) -> str:
    if isinstance(answer, client.Submitted):
        return f"job {answer.job_id}"
    if isinstance(answer, client.JobsDone) and (answer.job_ids or answer.tasks):
        return _jobs(answer.job_ids, dict(answer.tasks))
    match body:
        case client.HoldJobs() | client.ReleaseJobs() | client.RequeueJobs() | client.WaitJobs():
            return _jobs(body.job_ids, body.tasks)
        case client.SuspendJobs() | client.ResumeJobs():
            return _jobs(body.job_ids, body.tasks)
        case client.CancelJobs():
            return _jobs(body.filter.job_ids, body.filter.tasks)
        case client.UpdateJob():
            return _jobs((), {body.job_id: body.tasks}) if body.tasks else _jobs((body.job_id,))
        case client.UpdateNodes():
            return _several("node", body.names)
        case client.RemoveNode():
            return f"node {body.name}"
        case client.SetAccount():
            return f"account {body.account.name}"
        case client.RemoveAccount():
            return f"account {body.name}"
        case client.SetMember():
            return f"user {body.member.user} in account {body.member.account}"
        case client.RemoveMember():
            return f"user {body.user} in account {body.account}"
        case client.SetQos():
            return f"qos {body.qos.name}"
        case client.RemoveQos():
            return f"qos {body.name}"
        case client.SetLimit():
            return _limit(body.limit.holder.value, body.limit.name, body.limit.resource, body.limit.per_user)
        case client.RemoveLimit():
            return _limit(body.holder, body.name, body.resource, body.per_user)
        case client.SetCrontab() | client.GetCrontab() | client.RemoveCrontab():
            return f"crontab of {body.user}" if body.user else "crontab"
        case client.SetReservation():
            return f"reservation {body.booking.name}"
        case client.EditOccurrence() | client.SkipOccurrence() if body.number is not None:
            return f"reservation {body.name}, occurrence {body.number}"
        case client.SkipOccurrence() | client.EndReservation() | client.DeleteReservation():
            return f"reservation {body.name}"
        case client.CreateToken() | client.AddKey() | client.RevokeKey():
            return f"key {body.public[:8]}"
        case _:
            job_id, task = getattr(body, "job_id", None), getattr(body, "task", None)
            return "" if job_id is None else f"job {job_id}" if task is None else f"job {job_id}_{task}"


def _jobs(job_ids: list[int] | tuple[int, ...], tasks: Mapping[int, str] = {}) -> str:
    """The jobs by id, and waiting tasks as ``7_[2-8]``, unless the whole array is named."""
    parts = [f"{array_id}_[{which[:MAX_OBJECT]}]" for array_id, which in tasks.items() if array_id not in job_ids]
    return _several("job", [*(str(job_id) for job_id in job_ids[:MAX_OBJECT]), *parts[:MAX_OBJECT]])


def _limit(holder: str, name: str, resource: str, per_user: bool) -> str:
    return f"limit {resource} of {'each user of ' if per_user else ''}{holder} {name}"


def _several(noun: str, names: list[str] | tuple[str, ...]) -> str:
    if not names:
        return ""
    return f"{noun} {names[0]}" if len(names) == 1 else f"{noun}s {','.join(names)}"


def detail_of(body: client.RequestBody) -> str:
    """The details of a change, besides the object."""
    match body:
        case client.Submit():
            return f"{body.spec.name} (a test)" if body.test_only else body.spec.name
        case client.CancelJobs():
            return "" if body.signum is None else f"signal {body.signum}"
        case client.SignalStep():
            return f"step {body.step}" if body.signum is None else f"step {body.step}, signal {body.signum}"
        case client.UpdateJob():
            return _changes(body)
        case client.ExtendJob():
            return f"by {body.by_s} s"
        case client.AskJob():
            return body.text
        case client.AnswerAsks():
            return f"{body.answer.value}{' and requeue' if body.requeue else ''}{': ' if body.text else ''}{body.text}"
        case client.SetAccount():
            return _values(body.account, body.is_new)
        case client.SetMember():
            return _values(body.member, body.is_new)
        case client.SetQos():
            return _values(body.qos, body.is_new)
        case client.SetLimit():
            return f"{body.limit.most:g} at {body.limit.at.value}"
        case client.UpdateNodes():
            gpu = "" if body.gpu is None else f" GPU {body.gpu}"
            return f"{body.action}{gpu}: {body.reason}" if body.reason else f"{body.action}{gpu}"
        case client.SetCrontab():
            return f"{len(body.jobs)} {'entry' if len(body.jobs) == 1 else 'entries'}"
        case client.SetReservation():
            return _booked(body)
        case client.RemoveNode():
            return body.reason
        case client.CreateToken():
            kind = "a login node" if body.is_login else "a node"
            return f"lets in {kind}{f' {body.node}' if body.node else ''} for {body.ttl_s} s"
        case client.AddKey():
            return f"for {body.user}" if body.user else body.note
        case _:
            return ""


def _booked(body: client.SetReservation) -> str:
    booking = body.booking
    when = booking.cron or f"at {booking.begin_at:.0f}"
    flags = "".join(f", {flag}" for flag in booking.flags)
    return f"{when} for {booking.duration_s} s{flags}{' (a test)' if body.test_only else ''}"


def _changes(body: client.UpdateJob) -> str:
    names = ("name", "partition", "time_limit_s", "begin_at", "nice", "requeue", "array_throttle", "reservation")
    changes = [f"{name}={getattr(body, name)}" for name in names if getattr(body, name) is not None]
    if body.array_auto:
        changes.append("array_throttle=auto")
    if body.comment is not None:
        changes.append("comment")
    return ", ".join([*changes, "resources"] if body.resources is not None else changes)


def _values(info: AccountInfo | MemberInfo | QosInfo, is_new: bool) -> str:
    """The fields of the record that are not names and differ from their defaults."""
    names = {"name", "user", "account"}
    fields = {name: value for name, value in msgspec.to_builtins(info).items() if name not in names}
    changes = [f"{name}={','.join(one) if isinstance(one, tuple | list) else one}" for name, one in fields.items()]
    return ", ".join(["new", *changes] if is_new else changes)
