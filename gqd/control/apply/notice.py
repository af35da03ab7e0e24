"""Apply the events of notices to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.ids import JobId
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.notice import DELIVERED, GIVEN_UP, NO_JOB, Notice


def apply_queued(cluster: Cluster, fact: event.NoticeQueued) -> None:
    outbox = cluster.outbox
    assert fact.notice_id == outbox.next_id, f"notice {fact.notice_id} is not the next one, {outbox.next_id}"
    notice = Notice(
        notice_id=fact.notice_id,
        user=fact.user,
        uid=fact.uid,
        job_id=fact.job_id or NO_JOB,
        on=fact.on,
        kind=fact.kind,
        to=fact.to,
        body=fact.body,
        queued_at=fact.at,
        next_at=fact.at,
    )
    outbox.add(notice)
    outbox.next_id += 1
    cluster.changes.notices[notice.notice_id] = notice
    cluster.changes.next_notice_id = True
    if outbox.dropped.pop(fact.user, 0):
        cluster.changes.dropped_notices[fact.user] = None


def apply_dropped(cluster: Cluster, fact: event.NoticeDropped) -> None:
    cluster.outbox.dropped[fact.user] = cluster.outbox.dropped.get(fact.user, 0) + 1
    cluster.changes.dropped_notices[fact.user] = None


def apply_command_queued(cluster: Cluster, fact: event.NoticeCommandQueued) -> None:
    notice = cluster.outbox.notices[fact.notice_id]
    cluster.outbox.set_job(notice, fact.by_job)
    cluster.changes.notices[notice.notice_id] = notice


def apply_delivered(cluster: Cluster, fact: event.NoticeDelivered) -> None:
    _leave(cluster, fact.notice_id, DELIVERED, fact.at, "")


def apply_failed(cluster: Cluster, fact: event.NoticeFailed) -> None:
    if fact.next_at is None:
        _leave(cluster, fact.notice_id, GIVEN_UP, fact.at, fact.why)
        return
    notice = cluster.outbox.notices[fact.notice_id]
    cluster.outbox.set_job(notice, NO_JOB)
    notice.attempts += 1
    notice.next_at, notice.why = fact.next_at, fact.why
    cluster.changes.notices[notice.notice_id] = notice


def _leave(cluster: Cluster, notice_id: int, state: str, at: float, why: str) -> None:
    notice = cluster.outbox.notices[notice_id]
    cluster.outbox.remove(notice)
    notice.attempts += 1
    notice.state, notice.ended_at, notice.why = state, at, why
    cluster.changes.notices[notice_id] = notice


def apply_told(cluster: Cluster, fact: event.JobTold) -> None:
    cluster.outbox.told.setdefault(fact.job_id, {})[fact.on] = fact.attempt
    cluster.changes.told_jobs[fact.job_id] = None


def forget_told(cluster: Cluster, job_id: JobId) -> None:
    """Forget which once-only notices of an ended job were sent."""
    if cluster.outbox.told.pop(job_id, None) is not None:
        cluster.changes.told_jobs[job_id] = None
