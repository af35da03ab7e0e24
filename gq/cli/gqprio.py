"""`gqprio`: why pending jobs stand where they stand; the points of each factor add up to the priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gq.cli.framework.columns import array_label
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.filter import ACCOUNT, ME, PARTITION, QOS, USER, job_filter, refuse_unknown_names
from gq.cli.framework.job_words import NamedJobs
from gq.cli.framework.operands import job_word, refuse_operands, words_of
from gq.cli.framework.output import Column, JsonValue, is_terminal, write_json, write_json_list, write_table
from gq.connection.client import Client
from gq.errors import Refusal
from gq.model.account import PriorityInfo
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire.client import JobFilter, ListPriorities, Priorities

_MOST_OF_TASKS = 6
"""Characters, in a table: the factors need the room."""
_COLUMNS = (
    Column("JOBID", is_number=True), Column("PARTITION"), Column("USER"), Column("ACCOUNT"),
    Column("PRIORITY", is_number=True),
)  # fmt: skip


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -j for job ids")
    with controller() as client:
        if arguments.has("weights"):
            _show_weights(arguments, ask(client, ListPriorities(limit=1), Priorities).weights)
            return 0
        chosen = job_filter(arguments, NamedJobs.of(words_of(arguments, "jobs", job_word)))
        jobs = list(_jobs(client, chosen))
        if not jobs:
            refuse_unknown_names(client, chosen)
    if not jobs and (chosen.job_ids or chosen.tasks):
        raise Refusal("not_pending", "none of these jobs is pending", "`gqstat` shows their states")
    if arguments.has("json"):
        write_json_list(map(_json, jobs))
    else:
        _show(arguments, jobs)
    return 0


def _jobs(client: Client, chosen: JobFilter) -> Iterator[PriorityInfo]:
    query = ListPriorities(filter=chosen)
    while True:
        answer = ask(client, query, Priorities)
        yield from answer.jobs
        if not answer.more or not answer.jobs:
            return
        query = msgspec.structs.replace(query, skip=query.skip + len(answer.jobs))


def _show(arguments: Arguments, jobs: Sequence[PriorityInfo]) -> None:
    is_norm = arguments.has("norm")
    names = list(dict.fromkeys(name for job in jobs for name in (job.factors if is_norm else job.points)))
    if is_terminal() and not is_norm:  # the line has room for what counts
        names = [name for name in names if any(job.points.get(name) for job in jobs)]
    columns = [*_COLUMNS, *(Column(heading(name), is_number=True) for name in names)]
    write_table(columns, [[_row(job, names, is_norm) for job in jobs]], not arguments.has("noheader"))


def heading(factor: str) -> str:
    """``fair_share`` → ``FAIRSHARE``"""
    return factor.replace("_", "").upper()


def _row(job: PriorityInfo, names: Sequence[str], is_norm: bool) -> list[str]:
    if is_norm:
        cells = [f"{job.factors[name]:.4f}" if name in job.factors else "-" for name in names]
    else:
        cells = [str(job.points.get(name, 0)) for name in names]
    return [label(job, _MOST_OF_TASKS), job.partition, job.user, job.account, str(job.priority), *cells]


def label(job: PriorityInfo, most: int | None = None) -> str:
    """Return the job's name as `gqstat` shows it."""
    return array_label(job.job_id, job.array_job_id, job.array_task_id, job.array_tasks, most)


def _json(job: PriorityInfo) -> dict[str, JsonValue]:
    return {
        "job_id": job.job_id,
        "array_job_id": job.array_job_id,
        "array_task_id": job.array_task_id,
        "array_tasks": job.array_tasks,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "priority": job.priority,
        "points": job.points,
        "factors": job.factors,
    }


def _show_weights(arguments: Arguments, weights: dict[str, float]) -> None:
    if arguments.has("json"):
        write_json(weights)
        return
    columns = [Column(heading(name), is_number=True) for name in weights]
    write_table(columns, [[[f"{weight:g}" for weight in weights.values()]]], not arguments.has("noheader"))


COMMAND = Command(
    name="gqprio",
    summary="Show how the priority of pending jobs is computed.",
    details=(
        "The highest priority comes first. The priority is the sum of the factors' points: each factor, between 0 and "
        "1, times its weight in gq.toml. On a terminal, factors that give no job any points are omitted. A job "
        "whose priority an operator set has no other points."
    ),
    options=(
        ME,
        Option(name="jobs", letter="j", aliases=("job",), metavar="IDS", help="Only these jobs, or tasks (12_[1-5])."),
        USER,
        PARTITION,
        ACCOUNT,
        QOS,
        Option(name="norm", letter="n", help="Show the factors themselves, between 0 and 1."),
        Option(name="weights", letter="w", help="Show the weights of the factors, and no jobs."),
        Option(name="noheader", letter="h", help="Omit the header line."),
        JSON,
    ),
    run=run,
)
