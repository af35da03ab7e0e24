"""Converts suspended victims (parked jobs) to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.cluster import Cluster
from gqd.state.index.changes import Changes
from gqd.state.records import Parked
from gqd.store.protocol import Row

_grant_of = msgspec.json.Decoder(Grant).decode
_memory_of = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode


def parked_row(attempt_id: AttemptId, parked: Parked) -> Row:
    lent = parked.lent
    return (
        attempt_id.job_id, attempt_id.attempt, parked.to, parked.at, "" if lent is None else lent.node,
        0 if lent is None else len(lent.gpus), None if lent is None else msgspec.json.encode(lent).decode(),
        msgspec.json.encode(parked.gpu_memory).decode(),
    )  # fmt: skip


def parked_of(rows: Iterable[Row]) -> dict[AttemptId, Parked]:
    known = {}
    for job_id, attempt, to, at, _node, _gpus, lent, gpu_memory in rows:
        grant = None if lent is None else _grant_of(lent)
        known[AttemptId(job_id, attempt)] = Parked(to=JobId(to), at=at, lent=grant, gpu_memory=_memory_of(gpu_memory))
    return known


def upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    there = cluster.parked
    return {"parked": tuple([parked_row(one, there[one]) for one in changes.parked if one in there])}


def deletes(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    gone = [one for one in changes.parked if one not in cluster.parked]
    return {"parked": tuple([(one.job_id, one.attempt) for one in gone])}
