"""`gqctl [job] VERB`: what owners and operators do to jobs that are in the queue."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gq.cli._command import JSON, Command, warn
from gq.cli._connection import ask, controller, job_pages
from gq.cli._filter import job_id
from gq.cli._operands import operands, read
from gq.cli._output import job_json, write_json_list, write_records
from gq.client import Client
from gq.errors import Refusal, UsageError
from gq.getopt import Arguments
from gq.jobspec import resource_fields, resource_request, time_limit_s
from gq.model.job import JobInfo
from gq.model.resource import ResourceRequest, format_ids
from gq.options import JOB_OPTIONS, merge
from gq.units import iso_instant, parse_instant
from gq.wire.client import (
    Done,
    HoldJobs,
    JobFilter,
    Jobs,
    JobsDone,
    ListJobs,
    NotifyJob,
    QueryHistory,
    ReleaseJobs,
    RequestBody,
    RequeueJobs,
    UpdateJob,
)

UNBUILT = ("suspend", "resume", "extend", "giveback", "ask")

_RESOURCES = (
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu", "gpus", "gpus-per-node",
    "gpus-per-task", "cpus-per-gpu", "gres", "nodelist", "exclude", "exclusive",
)  # fmt: skip
_CHANGEABLE = ("job-name", "partition", "time", "begin", "nice", "comment", "requeue", "no-requeue", *_RESOURCES)


# ── hold, release, requeue ────────────────────────────────────────────────────────────────────────────────────


def _on_jobs(request: Callable[[tuple[int, ...]], RequestBody]) -> Callable[[Arguments], int]:
    """A verb that does one thing to several jobs; silent when all went well."""

    def run(arguments: Arguments) -> int:
        job_ids = operands(arguments, job_id, "JOB")
        with controller() as client:
            done = ask(client, request(job_ids), JobsDone)
        for one, why in done.refused:
            warn(f"error: job {one}: {why}")
        for one in done.skipped:
            warn(f"error: job {one} is unknown or has ended")
        return 1 if done.refused or done.skipped else 0

    return run


# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────


def _update(arguments: Arguments) -> int:
    job_ids = operands(arguments, job_id, "JOB")
    changes = Arguments(merge(arguments))
    if not any(changes.has(name) for name in _CHANGEABLE):
        raise UsageError("missing_option", "nothing says what to change", "for example --time=2h or --partition=NAME")
    change = _change(changes, time.time())
    is_about_resources = bool(resource_fields(changes))
    with controller() as client:
        for one in job_ids:
            resources = resource_request(changes, _asked_now(client, one)) if is_about_resources else None
            ask(client, msgspec.structs.replace(change, job_id=one, resources=resources), Done)
    return 0


def _change(changes: Arguments, now: float) -> UpdateJob:
    """What is to change, but for the resources, which depend on what a job asks for now."""
    return UpdateJob(
        job_id=0,
        name=_text(changes, "job-name"),
        partition=_text(changes, "partition"),
        time_limit_s=changes.read("time", time_limit_s),
        begin_at=changes.read("begin", lambda text: parse_instant(text, now)),
        nice=changes.integer("nice", -(2**30), 2**30),
        comment=_text(changes, "comment"),
        requeue=changes.has("requeue") if changes.has("requeue") or changes.has("no-requeue") else None,
    )


def _text(changes: Arguments, name: str) -> str | None:
    return changes.text(name) if changes.has(name) else None


def _asked_now(client: Client, job_id: int) -> ResourceRequest:
    jobs = ask(client, ListJobs(filter=JobFilter(job_ids=(job_id,))), Jobs).jobs
    if not jobs:
        raise _unknown(job_id)
    return jobs[0].resources


def _unknown(job_id: int) -> Refusal:
    return Refusal("unknown_job", f"job {job_id} does not exist", "gqstat lists the queue, gqacct what has ended")


# ── show ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(arguments: Arguments) -> int:
    job_ids = operands(arguments, job_id, "JOB")
    with controller() as client:
        jobs = [_find(client, one) for one in job_ids]
    if arguments.has("json"):
        write_json_list(job_detail(job) for job in jobs)
    else:
        write_records(job_detail(job) for job in jobs)
    return 0


def _find(client: Client, job_id: int) -> JobInfo:
    """From the queue, or, if it ended a while ago, from the history."""
    chosen = JobFilter(job_ids=(job_id,))
    for query in (ListJobs(filter=chosen), QueryHistory(filter=chosen, with_steps=False)):
        for page in job_pages(client, query):
            for job in page:
                return job
    raise _unknown(job_id)


def job_detail(job: JobInfo) -> dict[str, object]:
    """Everything there is to say of a job: the documented keys, then the rest."""
    return {
        **job_json(job),
        "uid": job.uid,
        "nodes_wanted": job.nodes_wanted,
        "tasks": job.tasks,
        "gpu_type": job.gpu_type,
        "nice": job.nice,
        "is_held": job.is_held,
        "requeue": job.requeue,
        "begin_at": iso_instant(job.begin_at),
        "command": job.command,
        "args": job.args,
        "chdir": job.chdir,
        "output": job.output_path,
        "error": job.error_path,
        "input": job.input_path,
        "comment": job.comment,
        "submit_dir": job.submit_dir,
        "submit_host": job.submit_host,
        "grants": [
            {"node": grant.node, "cpus": format_ids(grant.cpus), "gpus": format_ids(grant.gpus),
             "memory_mib": grant.memory_mib}
            for grant in job.grants
        ],
    }  # fmt: skip


# ── notify ────────────────────────────────────────────────────────────────────────────────────────────────────


def _notify(arguments: Arguments) -> int:
    if len(arguments.operands) < 2:
        raise UsageError("missing_operand", "JOB and TEXT are needed", "gqctl notify 12 'please save your work'")
    target = read(job_id, arguments.operands[0])
    with controller() as client:
        ask(client, NotifyJob(job_id=target, text=" ".join(arguments.operands[1:])), Done)
    return 0


def verbs() -> dict[str, Command]:
    return {
        "hold": Command(
            name="gqctl hold",
            summary="Keep pending jobs from starting.",
            operands="JOB...",
            run=_on_jobs(lambda job_ids: HoldJobs(job_ids=job_ids)),
        ),
        "release": Command(
            name="gqctl release",
            summary="Let held jobs start.",
            operands="JOB...",
            run=_on_jobs(lambda job_ids: ReleaseJobs(job_ids=job_ids)),
        ),
        "requeue": Command(
            name="gqctl requeue",
            summary="End what runs of a job and queue it again under its id.",
            operands="JOB...",
            run=_on_jobs(lambda job_ids: RequeueJobs(job_ids=job_ids)),
        ),
        "update": Command(
            name="gqctl update",
            summary="Change jobs.",
            operands="JOB...",
            details="Resources, partition, begin and nice can be changed while a job is pending, the rest at any time.",
            options=tuple(option for option in JOB_OPTIONS if option.name in _CHANGEABLE),
            run=_update,
        ),
        "show": Command(
            name="gqctl show",
            summary="Show everything that is known of jobs.",
            operands="JOB...",
            options=(JSON,),
            run=_show,
        ),
        "notify": Command(
            name="gqctl notify",
            summary="Write a line into a running job's standard error.",
            operands="JOB TEXT...",
            operands_end_options=True,
            run=_notify,
        ),
    }
