"""`gqsub --chain` and ``--if``: several jobs of one submission, and small ones that say whether they begin.  Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gq.errors import UsageError
from gq.model.dependency import Dependency, DependencyKind
from gq.model.job import JobSpec
from gq.model.resource import ResourceRequest
from gq.request.getopt import Arguments
from gq.wire.client import Submit

GATE_TIME_S = 600
_OF_ITSELF = (DependencyKind.AFTERCORR, DependencyKind.SINGLETON)
"""About the tasks or the name of the job: nothing for its gate."""


class Stage(NamedTuple):
    job: Submit
    gate: str
    """A command line; empty: none."""


def gate_of(options: Arguments) -> str:
    given = options.last("if")
    if given is None:
        return ""
    if not given.value.strip():
        raise UsageError("bad_value", f"{given.place}: the command is empty", "for example --if 'test -s out.bin'")
    if options.has("test-only"):
        raise UsageError("contradiction", f"{given.place} and `--test-only` exclude each other", "give one of them")
    return given.value


def jobs_of(stages: list[Stage]) -> tuple[tuple[Submit, ...], tuple[int, ...]]:
    """The jobs to queue one after the other, and which of them (by place) are the stages; the others are gates."""
    jobs: list[Submit] = []
    places: list[int] = []
    for stage in stages:
        job = stage.job
        if stage.gate:
            gate, job = _with_gate(job, stage.gate)
            jobs.append(gate)
        places.append(len(jobs))
        jobs.append(job)
    return tuple(jobs), tuple(places)


def _with_gate(job: Submit, command: str) -> tuple[Submit, Submit]:
    """Return the gate and the job; the gate waits for the job's dependencies, and decides when the job could start."""
    before_gate, before_job = _shared_out(job.spec)
    gate = JobSpec(
        name=f"if:{job.spec.name}"[:256],
        resources=ResourceRequest(ntasks=1, cpus_per_task=1),
        partition=job.spec.partition,
        account=job.spec.account,
        qos=job.spec.qos,
        time_limit_s=GATE_TIME_S,
        begin_at=job.spec.begin_at,
        is_held=job.spec.is_held,
        nice=job.spec.nice,
        priority=job.spec.priority,
        dependency=before_gate,
        kill_on_invalid_dep=job.spec.kill_on_invalid_dep,
        chdir=job.spec.chdir,
        umask=job.spec.umask,
        submit_dir=job.spec.submit_dir,
        submit_host=job.spec.submit_host,
        command=command,
        is_gate=True,
    )
    script = f"#!/bin/sh\n{command}\n".encode(errors="surrogateescape")
    spec = msgspec.structs.replace(job.spec, dependency=before_job)
    return Submit(spec=gate, script=script, environment=job.environment), msgspec.structs.replace(job, spec=spec)


def _shared_out(spec: JobSpec) -> tuple[Dependency | None, Dependency | None]:
    """(what the gate waits for, what the job waits for besides its gate)"""
    asked = spec.dependency
    if asked is None:
        return None, None
    own = tuple(term for term in asked.terms if term.kind in _OF_ITSELF)
    others = tuple(term for term in asked.terms if term.kind not in _OF_ITSELF)
    if asked.is_any and own and others:
        rule = "a dependency on any of several jobs that names aftercorr or singleton cannot go with --if"
        raise UsageError("contradiction", rule, "leave one of them out")
    gate, job = (Dependency(terms, asked.is_any) if terms else None for terms in (others, own))
    return gate, job
