"""`gqctl [job] VERB`: what owners and operators do to jobs that are in the queue."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, controller, job_pages, missing_job
from gq.cli.framework.job_words import JobWord, NamedJobs, only
from gq.cli.framework.operands import job_word, jobs_named, listed, one_job, operands, read, refusals
from gq.cli.framework.output import job_json, write_json_list, write_records
from gq.cli.framework.request_view import asked_json
from gq.cli.framework.submission import read_dependency, read_instant
from gq.connection.client import Client
from gq.errors import UsageError
from gq.model.job import JobInfo
from gq.model.resource import Grant, ResourceRequest, RoleShare, format_ids
from gq.model.tasks import MAX_TASK, format_tasks
from gq.near_miss import suggestion
from gq.request.getopt import Arguments
from gq.request.jobspec import (
    AUTO,
    MAX_PRIORITY,
    MAX_REQUEUE,
    parse_causes,
    time_limit_s,
)
from gq.request.layers import merge
from gq.request.option import Option, ParsedOption
from gq.request.options import JOB_OPTIONS, RESOURCE_OPTIONS
from gq.request.resources import resource_fields, resource_request
from gq.units import iso_instant
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

UNBUILT = ("giveback",)

_CHANGEABLE = (
    "job-name", "partition", "time", "begin", "nice", "comment", "requeue", "no-requeue", "account", "qos", "priority",
    "requeue-on", "max-requeue", "dependency", "deadline", "reservation",
    *(option.name for option in RESOURCE_OPTIONS if option.is_changeable),
)  # fmt: skip
BY_FACTORS = "auto"
PRIORITY = Option(
    name="priority", metavar="COUNT|auto", help="Set the priority, or auto: use the factors again; for operators."
)
THROTTLE = Option(
    name="array-throttle", metavar="COUNT|auto",
    help="Maximum number of array tasks at once; 0: no maximum; auto: as many as there are idle GPUs.",
)  # fmt: skip
SCONTROL = {
    "account": "account",
    "arraytaskthrottle": THROTTLE.name,
    "comment": "comment",
    "deadline": "deadline",
    "features": "constraint",
    "gres": "gres",
    "licenses": "licenses",
    "mintmpdisknode": "tmp",
    "prefer": "prefer",
    "switches": "switches",
    "dependency": "dependency",
    "jobname": "job-name",
    "name": "job-name",
    "nice": "nice",
    "numnodes": "nodes",
    "partition": "partition",
    "priority": "priority",
    "qos": "qos",
    "requeue": "requeue",
    "reservationname": "reservation",
    "reservation": "reservation",
    "starttime": "begin",
    "timelimit": "time",
}
"""Words of scontrol, lower case, and the options that they stand for."""


# ── hold, release, requeue ────────────────────────────────────────────────────────────────────────────────────


def on_jobs(request: Callable[[NamedJobs], RequestBody]) -> Callable[[Arguments], int]:
    """A verb that does one thing to several jobs; silent when all went well."""

    def run(arguments: Arguments) -> int:
        named = jobs_named(arguments)
        with controller() as client:
            done = ask(client, request(named), JobsDone)
        for line in refusals(done):
            warn(f"error: {line}")
        for one in done.skipped:
            warn(f"error: job {one} is unknown or has ended")
        return 1 if done.refused or done.skipped else 0

    return run


# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────


def _update(arguments: Arguments) -> int:
    words = [word for operand in arguments.operands for word in _scontrol_jobs(operand)]
    changes = _changes(arguments)
    if not any(changes.has(name) for name in (*_CHANGEABLE, THROTTLE.name)):
        raise UsageError("missing_option", "no change given", "for example --time=2h or --partition=NAME")
    named = operands(Arguments((), words), job_word, "JOB")
    change = _change(changes, time.time())
    is_about_resources = bool(resource_fields(changes))
    with controller() as client:
        for word in named:
            resources = resource_request(changes, _asked_now(client, word)) if is_about_resources else None
            tasks = format_tasks(word.tasks) if word.tasks else ""
            ask(client, msgspec.structs.replace(change, job_id=word.job_id, tasks=tasks, resources=resources), Done)
    return 0


def _changes(arguments: Arguments) -> Arguments:
    """Return the requested changes, from options and from scontrol's words such as ``account=nlp``."""
    said = [given for operand in arguments.operands for given in _scontrol_change(operand)]
    own = [one for one in (*arguments, *said) if one.name == THROTTLE.name]
    return Arguments([*merge(one for one in (*arguments, *said) if one.name != THROTTLE.name), *own])


def _scontrol_jobs(operand: str) -> list[str]:
    """The jobs that an operand names; none where it says what to change."""
    key, equals, value = operand.partition("=")
    if not equals:
        return list(listed(operand))
    return list(listed(value)) if key.lower() in ("job", "jobid") else []


def _scontrol_change(operand: str) -> list[ParsedOption]:
    """``TimeLimit=2:00:00`` → the option that it stands for."""
    key, equals, value = operand.partition("=")
    word = key.lower()
    if not equals or word in ("job", "jobid"):
        return []
    if word == "requeue" and value in ("0", "1"):
        return [ParsedOption("requeue" if value == "1" else "no-requeue", "", key)]
    if word not in SCONTROL:
        hint = suggestion(word, SCONTROL, "`gqctl update --help` lists the options")
        raise UsageError("unknown_option", f"`{key}` cannot be changed", hint)
    return [ParsedOption(SCONTROL[word], value, key)]


def _change(changes: Arguments, now: float) -> UpdateJob:
    """Return the requested change without the resources, which depend on the job's present request."""
    is_computed = changes.text("priority").lower() == BY_FACTORS
    is_auto = changes.text(THROTTLE.name).lower() == AUTO
    return UpdateJob(
        job_id=0,
        name=_text(changes, "job-name"),
        partition=_text(changes, "partition"),
        time_limit_s=changes.read("time", time_limit_s),
        begin_at=changes.read("begin", lambda text: read_instant(text, now)),
        nice=changes.integer("nice", -(2**30), 2**30),
        comment=_text(changes, "comment"),
        requeue=changes.has("requeue") if changes.has("requeue") or changes.has("no-requeue") else None,
        requeue_on=changes.read("requeue-on", parse_causes),
        max_requeue=changes.integer("max-requeue", 0, MAX_REQUEUE),
        account=_text(changes, "account"),
        qos=_text(changes, "qos"),
        priority=None if is_computed else changes.integer("priority", 0, MAX_PRIORITY),
        clear_priority=is_computed,
        reservation="" if _is_none(changes, "reservation") else _text(changes, "reservation"),
        array_throttle=None if is_auto else changes.integer(THROTTLE.name, 0, MAX_TASK),
        array_auto=is_auto,
        dependency=None if _is_none(changes, "dependency") else changes.read("dependency", read_dependency),
        clear_dependency=_is_none(changes, "dependency"),
        deadline_at=0 if _is_none(changes, "deadline") else changes.read("deadline", lambda at: read_instant(at, now)),
    )


def _is_none(changes: Arguments, name: str) -> bool:
    """``--dependency=none``, and scontrol's ``Dependency=``: nothing any more."""
    given = changes.last(name)
    return given is not None and given.value.strip().lower() in ("", "none")


def _text(changes: Arguments, name: str) -> str | None:
    return changes.text(name) if changes.has(name) else None


def _asked_now(client: Client, word: JobWord) -> ResourceRequest:
    """Return the job's present request; for an array its record's, or that of its first separate task."""
    named = only(word)
    jobs = ask(client, ListJobs(filter=JobFilter(job_ids=named.job_ids, tasks=named.tasks)), Jobs).jobs
    if not jobs:
        raise missing_job(client, word)
    return jobs[0].resources


# ── show ──────────────────────────────────────────────────────────────────────────────────────────────────────


def show(arguments: Arguments) -> int:
    words = operands(arguments, job_word, "JOB")
    with controller() as client:
        jobs = [job for word in words for job in _find(client, word)]
    if arguments.has("json"):
        write_json_list(job_detail(job) for job in jobs)
    else:
        write_records(job_detail(job) for job in jobs)
    return 0


def _find(client: Client, word: JobWord) -> list[JobInfo]:
    """From the queue, or, if it ended a while ago, from the history; of an array what waits and what has left it."""
    jobs = only(word)
    chosen = JobFilter(job_ids=jobs.job_ids, tasks=jobs.tasks)
    for query in (ListJobs(filter=chosen), QueryHistory(filter=chosen, with_steps=False)):
        found = [job for page in job_pages(client, query) for job in page]
        if found:
            return found
    raise missing_job(client, word)


def job_detail(job: JobInfo) -> dict[str, object]:
    """Everything there is to say of a job: the documented keys, then the rest."""
    return {
        **job_json(job),
        "uid": job.uid,
        "array_task_count": job.array_task_count,
        "array_throttle": AUTO if job.array_auto else job.array_throttle,
        "fail_fast": job.fail_fast,
        "kill_on_invalid_dep": job.kill_on_invalid_dep,
        "deadline_at": iso_instant(job.deadline_at),
        "billing": job.billing,
        "hook": job.hook,
        "nodes_wanted": job.nodes_wanted,
        "tasks": job.tasks,
        "gpu_type": job.gpu_type,
        **asked_json(job.resources),
        "nice": job.nice,
        "is_held": job.is_held,
        "requeue": job.requeue,
        "open_asks": job.open_asks,
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
        "grants": [_grant_json(grant) for grant in job.grants],
    }


def _grant_json(grant: Grant) -> dict[str, object]:
    """Return the resources held on a node; for a job with roles also the resources of each role."""
    shown = {"node": grant.node, **_share_json(grant)}
    if grant.resources:
        shown["resources"] = {resource.name: resource.count for resource in grant.resources}
    if grant.licenses:
        shown["licenses"] = {license_.name: license_.count for license_ in grant.licenses}
    if grant.roles:
        shown["roles"] = [{"role": role.role, "tasks": role.tasks, **_share_json(role)} for role in grant.roles]
    return shown


def _share_json(share: Grant | RoleShare) -> dict[str, object]:
    return {"cpus": format_ids(share.cpus), "gpus": format_ids(share.gpus), "memory_mib": share.memory_mib}


# ── notify ────────────────────────────────────────────────────────────────────────────────────────────────────


def _notify(arguments: Arguments) -> int:
    if len(arguments.operands) < 2:
        raise UsageError("missing_operand", "JOB and TEXT are required", "gqctl notify 12 'please save your work'")
    job_id, task = read(one_job, arguments.operands[0])
    with controller() as client:
        ask(client, NotifyJob(job_id=job_id, task=task, text=" ".join(arguments.operands[1:])), Done)
    return 0


def verbs() -> dict[str, Command]:
    return {
        "hold": Command(
            name="gqctl hold",
            summary="Hold pending jobs: they do not start until released.",
            operands="JOB...",
            run=on_jobs(lambda named: HoldJobs(job_ids=named.job_ids, tasks=named.tasks)),
        ),
        "release": Command(
            name="gqctl release",
            summary="Release held jobs.",
            operands="JOB...",
            run=on_jobs(lambda named: ReleaseJobs(job_ids=named.job_ids, tasks=named.tasks)),
        ),
        "requeue": Command(
            name="gqctl requeue",
            summary="Stop running jobs and requeue them under the same id.",
            operands="JOB...",
            run=on_jobs(lambda named: RequeueJobs(job_ids=named.job_ids, tasks=named.tasks)),
        ),
        "update": Command(
            name="gqctl update",
            summary="Change jobs.",
            operands="JOB...",
            details="Resources, partition, account, QOS, begin and nice can be changed while a job is pending, the "
            "rest at any time. Changing one task (12_4) or some tasks (12_[1-5]) does not change the others. The "
            "settings of scontrol work, too: `gqctl update 12 TimeLimit=2:00:00`.",
            options=(
                *(option for option in JOB_OPTIONS if option.name in _CHANGEABLE and option.name != PRIORITY.name),
                PRIORITY,
                THROTTLE,
            ),
            run=_update,
        ),
        "show": Command(
            name="gqctl show",
            summary="Show all details of jobs.",
            operands="JOB...",
            options=(JSON,),
            run=show,
        ),
        "notify": Command(
            name="gqctl notify",
            summary="Write a line to a running job's standard error.",
            operands="JOB TEXT...",
            operands_end_options=True,
            run=_notify,
        ),
    }
