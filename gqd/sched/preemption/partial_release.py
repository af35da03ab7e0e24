"""Partial releases: GPUs or nodes that elastic jobs release, modelled as separate pseudo jobs that end with the
release. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.snapshot.model import RunningJob
from gqd.state.plan import Shrink
from gqd.state.records import mask_of


def ids_of(mask: int) -> tuple[int, ...]:
    return tuple(one for one in range(mask.bit_length()) if mask >> one & 1)


def as_pseudo_job(job: RunningJob, grant: Grant, ends_at: float, to: JobId | None) -> RunningJob:
    """A pseudo job for a released grant; `to`: the job that it is earmarked for, None: any job."""
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
        preemptor=to,
        is_part=True,
    )


def given(running: Iterable[RunningJob], shrinks: Iterable[Shrink], to: JobId) -> list[RunningJob]:
    """The running jobs with the released parts split off as pseudo jobs, earmarked for job `to`."""
    by_job: dict[JobId, list[Shrink]] = {}
    for shrink in shrinks:
        by_job.setdefault(shrink.attempt_id.job_id, []).append(shrink)
    told: list[RunningJob] = []
    for job in running:
        own = () if job.is_part else by_job.get(job.job_id, ())
        left = job
        for one in own:
            left = without(left, one)
        told.append(left)
        told += [as_pseudo_job(job, grant_of(one), one.ends_at, to) for one in own]
    return told


def without(job: RunningJob, shrink: Shrink) -> RunningJob:
    """The job without the released part; it is not resized again until this change is done."""
    if shrink.is_node:
        grants = tuple(grant for grant in job.grants if grant.node != shrink.node)
    else:
        grants = tuple(_less(grant, shrink) if grant.node == shrink.node else grant for grant in job.grants)
    return replace(job, grants=grants, resize_bounds=None)


def _less(grant: Grant, shrink: Shrink) -> Grant:
    return msgspec.structs.replace(
        grant,
        gpus=tuple(gpu for gpu in grant.gpus if gpu not in shrink.gpus),
        cpus=tuple(cpu for cpu in grant.cpus if cpu not in shrink.cpus),
    )


def grant_of(shrink: Shrink) -> Grant:
    return Grant(
        node=shrink.node,
        tasks=0,
        gpus=shrink.gpus,
        cpus=shrink.cpus,
        memory_mib=shrink.memory_mib,
        resources=shrink.resources,
    )


def pseudo_jobs_going(job: RunningJob, going: Grant, ends_at: float, kept: Mapping[JobId, Grant]) -> list[RunningJob]:
    """Pseudo jobs for what a job is releasing: one for each nominated job with a share in it, one for the rest.

    `kept`: earmarked grants on the node by job.
    """
    parts = []
    gpus, cpus = mask_of(going.gpus), mask_of(going.cpus)
    for to, grant in kept.items():
        own_gpus, own_cpus = gpus & mask_of(grant.gpus), cpus & mask_of(grant.cpus)
        if own_gpus or own_cpus:
            parts.append(as_pseudo_job(job, _held(going.node, own_gpus, own_cpus), ends_at, to))
            gpus, cpus = gpus & ~own_gpus, cpus & ~own_cpus
    if gpus or cpus or not parts:
        parts.append(as_pseudo_job(job, _held(going.node, gpus, cpus), ends_at, None))
    if going.memory_mib or going.resources:  # of a whole share; who claims some of it takes of that what it lacks
        first = msgspec.structs.replace(parts[0].grants[0], memory_mib=going.memory_mib, resources=going.resources)
        parts[0] = replace(parts[0], grants=(first,))
    return parts


def _held(node: str, gpus: int, cpus: int) -> Grant:
    return Grant(node=node, tasks=0, gpus=ids_of(gpus), cpus=ids_of(cpus))
