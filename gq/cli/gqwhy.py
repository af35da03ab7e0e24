"""`gqwhy`: why a job waits, or how it ended, one fact a line, and one change that would help."""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec

from gq.cli.framework.command import JSON, Command, report
from gq.cli.framework.connection import ask, controller, job_pages, missing_job
from gq.cli.framework.job_words import JobWord, only
from gq.cli.framework.operands import one_job, operands
from gq.cli.framework.output import JsonValue, sentence, write_json_list, write_sentence
from gq.connection.client import Client
from gq.errors import Refusal
from gq.explain.reply import words_of
from gq.model.job import JobInfo
from gq.model.state import Outcome, Reason
from gq.request.getopt import Arguments
from gq.units import iso_instant, render_instants
from gq.wire.client import Explain, Explanation, JobFilter, QueryHistory, Shortage

_INSTANTS = ("at", "since", "until")
"""Fields of facts that hold instants, besides those that end with ``_at``."""


def run(arguments: Arguments) -> int:
    jobs = [JobWord.of(*operand) for operand in operands(arguments, one_job, "JOB")]
    with controller() as client:
        answers = [(job, _explained(client, job)) for job in jobs]
    found = [(job, answer) for job, answer in answers if isinstance(answer, Explanation)]
    if arguments.has("json"):
        write_json_list(_json(*one) for one in found)
    else:
        _show(found, len(jobs) > 1)
    refusals = [answer for _, answer in answers if isinstance(answer, Refusal)]
    for refusal in refusals:
        report(refusal)
    return max((refusal.exit_status for refusal in refusals), default=0)


def _show(found: list[tuple[JobWord, Explanation]], is_one_of_several: bool) -> None:
    for job, explanation in found:
        prefix = f"{job}: " if is_one_of_several else ""
        words = words_of(explanation)
        for fact in words.facts:
            write_sentence(prefix + sentence(fact))
        if words.hint:
            write_sentence(f"hint: {sentence(words.hint)}")


def _explained(client: Client, job: JobWord) -> Explanation | Refusal:
    """Return the job's explanation, or the refusal, so that an unknown job does not stop the others."""
    try:
        return _explain(client, job)
    except Refusal as refusal:
        return refusal


def _explain(client: Client, job: JobWord) -> Explanation:
    """From gqd's memory, or of a job that ended long ago from its database."""
    try:
        return ask(client, Explain(job_id=job.job_id, task=job.task), Explanation)
    except Refusal as refusal:
        if refusal.code != "job_over":
            raise
        named = only(job)
        query = QueryHistory(filter=JobFilter(job_ids=named.job_ids, tasks=named.tasks), with_steps=False)
        ended = [one for page in job_pages(client, query) for one in page]
        if not ended:
            raise missing_job(client, job, refusal) from None
    if len(ended) == 1:
        return _end_of_job(ended[0])
    return _end_of_array(job.job_id, ended)


def _end_of_job(job: JobInfo) -> Explanation:
    return Explanation(job_id=job.job_id, state=job.state, reason=job.reason, why=job.why or _bare_end(job))


def _bare_end(job: JobInfo) -> str:
    """Return a sentence on the job's end, for a job without a recorded sentence."""
    if job.signal:
        return f"it is {job.state}: signal {job.signal} ended it"
    return f"it is {job.state}" + (f", with exit code {job.exit_code}" if job.exit_code is not None else "")


def _end_of_array(job_id: int, parts: list[JobInfo]) -> Explanation:
    """`parts`: tasks that are jobs of their own, and those that were cancelled before they were."""
    counts: dict[str, int] = {}
    for part in parts:
        counts[part.state] = counts.get(part.state, 0) + (part.array_task_count or 1)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    state = next(iter(counts)) if len(counts) == 1 else Outcome.FAILED.value
    why = f"all of its tasks have ended: {told}"
    hint = f"gqacct -j {job_id} lists them; gqwhy {job_id}_TASK explains one"
    return Explanation(job_id=job_id, state=state, reason=Reason.NONE.value, why=why, hint=hint)


def _json(job: JobWord, explanation: Explanation) -> dict[str, object]:
    words = words_of(explanation)
    return {
        "job_id": explanation.job_id,
        "array_job_id": None if job.task is None else job.job_id,
        "array_task_id": job.task,
        "state": explanation.state,
        "reason": explanation.reason,
        "why": render_instants(words.why),
        "facts": [render_instants(fact) for fact in words.facts],
        "details": [_with_instants(msgspec.msgpack.decode(raw)) for raw in explanation.details],
        "jobs": [msgspec.to_builtins(job) for job in explanation.jobs],
        "hint": render_instants(words.hint),
        "blockers": explanation.blockers,
        "expected_start_at": iso_instant(explanation.expected_start_at),
        "shortage": None if explanation.shortage is None else _shortage_json(explanation.shortage),
    }


def _with_instants(value: Any, key: str = "") -> JsonValue:
    """A decoded fact with its instants in ISO 8601; also facts of a kind that this version does not know."""
    match value:
        case dict():
            return {str(name): _with_instants(field, name) for name, field in value.items()}
        case list():
            return [_with_instants(item) for item in value]
        case str():
            return render_instants(value)
        case int() | float() if key in _INSTANTS or key.endswith("_at"):
            return iso_instant(value)
        case float() if math.isinf(value):
            return None
        case _:
            return cast(JsonValue, value)


def _shortage_json(shortage: Shortage) -> dict[str, JsonValue]:
    holders: list[JsonValue] = [
        {
            "job_id": holder.job_id,
            "user": holder.user,
            "reservation": holder.reservation,
            "nodes": list(holder.nodes),
            "gpus": holder.gpus,
            "cpus": holder.cpus,
            "memory_mib": holder.memory_mib,
            "ends_at": iso_instant(holder.ends_at),
        }
        for holder in shortage.holders
    ]
    return {
        "resource": shortage.resource,
        "wanted": shortage.wanted,
        "free": shortage.free,
        "is_fragmented": shortage.is_fragmented,
        "selection": shortage.selection,
        "nodes": shortage.nodes,
        "idle_nodes": shortage.idle_nodes,
        "free_elsewhere": shortage.free_elsewhere,
        "holders": holders,
    }


COMMAND = Command(
    name="gqwhy",
    summary="Explain why a job waits or how it ended, and what would help.",
    operands="JOB...",
    options=(JSON,),
    run=run,
)
