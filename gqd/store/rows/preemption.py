"""Converts preemptors' nominated resources (claims) to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

import msgspec

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.cluster import Cluster
from gqd.state.index.changes import Changes
from gqd.state.job_view import held
from gqd.state.records import Nomination
from gqd.store.protocol import Row

_grants_of = msgspec.json.Decoder(tuple[Grant, ...]).decode
names_of = msgspec.json.Decoder(tuple[str, ...]).decode
_victims_of = msgspec.json.Decoder(tuple[AttemptId, ...]).decode


def claim_row(claim: Nomination) -> Row:
    nodes, _tasks, _cpus, gpus, _memory_mib = held(claim.grants)
    return (
        claim.job_id, claim.made_at, nodes, gpus, claim.reservation, claim.occurrence,
        msgspec.json.encode(claim.victims).decode(), msgspec.json.encode(claim.grants).decode(),
    )  # fmt: skip


def claim_of(row: Row) -> Nomination:
    job_id, made_at, _nodes, _gpus, reservation, occurrence, victims, grants = row
    return Nomination(
        job_id=JobId(job_id),
        grants=_grants_of(grants),
        victims=_victims_of(victims),
        made_at=made_at,
        reservation=reservation,
        occurrence=occurrence,
    )


def upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    there = cluster.claims
    return {"claims": tuple([claim_row(there[claim]) for claim in changes.claims if claim in there])}


def deletes(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    return {"claims": tuple([(claim,) for claim in changes.claims if claim not in cluster.claims])}
