"""What running jobs give up for others and go on without, told as if it were a job of its own that ends.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.view import RunningJob
from gqd.state.cluster import mask_of
from gqd.state.plan import Gift


def ids_of(mask: int) -> tuple[int, ...]:
    return tuple(one for one in range(mask.bit_length()) if mask >> one & 1)


def part_of(job: RunningJob, grant: Grant, ends_at: float, to: JobId | None) -> RunningJob:
    """`to`: the job for which it is kept; None: it is for whoever comes first."""
    return RunningJob(
        job_id=job.job_id,
        user=job.user,
        grants=(grant,),
        ends_at=ends_at if job.ends_at is None else min(ends_at, job.ends_at),
        is_stranded=job.is_stranded,
        began_at=job.began_at,
        slot=job.slot,
        attempt=job.attempt,
        account=job.account,
        qos=job.qos,
        gives_way_to=to,
        is_part=True,
    )


def given(running: Iterable[RunningJob], gifts: Iterable[Gift], to: JobId) -> list[RunningJob]:
    """As soon as they know that they give this up for that job."""
    by_job = {one.attempt_id.job_id: one for one in gifts}
    told: list[RunningJob] = []
    for job in running:
        one = None if job.is_part else by_job.get(job.job_id)
        if one is None:
            told.append(job)
            continue
        told += [without(job, one.node, mask_of(one.gpus)), part_of(job, _grant(one), one.ends_at, to)]
    return told


def without(job: RunningJob, node: str, gpus: int) -> RunningJob:
    """It is told one change at a time."""
    grants = tuple(_less(grant, gpus) if grant.node == node else grant for grant in job.grants)
    return replace(job, grants=grants, stretch=None)


def _less(grant: Grant, gpus: int) -> Grant:
    return msgspec.structs.replace(grant, gpus=tuple(gpu for gpu in grant.gpus if not gpus >> gpu & 1))


def _grant(one: Gift) -> Grant:
    return Grant(node=one.node, tasks=0, gpus=one.gpus)


def parts_going(job: RunningJob, node: str, going: int, ends_at: float, kept: Mapping[JobId, int]) -> list[RunningJob]:
    """What a job is giving up: for each that has a claim to some of it, and what is for nobody in particular.

    `kept`: GPUs of the node, by the job for which they are kept.
    """
    parts = []
    for to, mask in kept.items():
        if own := going & mask:
            parts.append(part_of(job, Grant(node=node, tasks=0, gpus=ids_of(own)), ends_at, to))
            going &= ~own
    if going:
        parts.append(part_of(job, Grant(node=node, tasks=0, gpus=ids_of(going)), ends_at, None))
    return parts
