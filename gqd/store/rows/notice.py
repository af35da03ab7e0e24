"""Converts notices to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gq.model.ids import JobId
from gq.model.notice import NoticeInfo, host_only
from gqd.state.cluster import Cluster
from gqd.state.index.changes import Changes
from gqd.state.notice import Notice, Outbox
from gqd.store.protocol import Row

NEXT_NOTICE_ID = "next_notice_id"

_told_of = msgspec.json.Decoder(dict[str, int]).decode


class _Text(msgspec.Struct):
    text: str = ""


_text_of = msgspec.json.Decoder(_Text).decode


def notice_row(notice: Notice) -> Row:
    return (
        notice.notice_id, notice.user, notice.uid, notice.job_id, notice.on, notice.kind, notice.to, notice.body,
        notice.queued_at, notice.next_at, notice.attempts, notice.why, notice.state, notice.ended_at,
        notice.by_job,
    )  # fmt: skip


def notice_of(row: Row) -> Notice:
    return Notice(*row)


def notice_info_of(row: Row) -> NoticeInfo:
    one = notice_of(row)
    return NoticeInfo(
        notice_id=one.notice_id,
        user=one.user,
        job_id=one.job_id,
        on=one.on,
        kind=one.kind,
        to=host_only(one.kind, one.to),
        state=one.state,
        queued_at=one.queued_at,
        attempts=one.attempts,
        next_at=one.next_at if one.ended_at is None else None,
        ended_at=one.ended_at,
        why=one.why or (f"job {one.by_job} runs the command" if one.by_job else ""),
        text=_text_of(one.body).text,
    )


def has_changed(changes: Changes) -> bool:
    return bool(changes.notices or changes.told_jobs or changes.dropped_notices)


def upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    outbox = cluster.outbox
    told = [(job_id, outbox.told[job_id]) for job_id in changes.told_jobs if job_id in outbox.told]
    return {
        "notices": tuple([notice_row(notice) for notice in changes.notices.values()]),
        "told_jobs": tuple([(job_id, msgspec.json.encode(of_job).decode()) for job_id, of_job in told]),
        "dropped_notices": tuple([(u, outbox.dropped[u]) for u in changes.dropped_notices if u in outbox.dropped]),
    }


def deletes(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    outbox = cluster.outbox
    return {
        "told_jobs": tuple([(job_id,) for job_id in changes.told_jobs if job_id not in outbox.told]),
        "dropped_notices": tuple([(user,) for user in changes.dropped_notices if user not in outbox.dropped]),
    }


def outbox_of(tables: Mapping[str, Iterable[Row]], next_id: int) -> Outbox:
    """The outbox; ``notices`` are the rows of waiting ones."""
    outbox = Outbox(
        next_id=next_id,
        told={JobId(job_id): _told_of(told) for job_id, told in tables["told_jobs"]},
        dropped=dict(tables["dropped_notices"]),
    )
    for row in tables["notices"]:
        outbox.add(notice_of(row))
    return outbox
