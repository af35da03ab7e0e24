"""`gqwhy`: one sentence on why a job waits, or how it ended, and one change that would help."""

from __future__ import annotations

from gq.cli._command import JSON, Command
from gq.cli._connection import ask, controller
from gq.cli._operands import JobWord, one_job, operands
from gq.cli._output import sentence, write_json_list, write_sentence
from gq.getopt import Arguments
from gq.units import iso_instant, tell_instants
from gq.wire.client import Explain, Explanation


def run(arguments: Arguments) -> int:
    jobs = [JobWord.of(*one) for one in operands(arguments, one_job, "JOB")]
    with controller() as client:
        found = [ask(client, Explain(job_id=job.job_id, task=job.task), Explanation) for job in jobs]
    if arguments.has("json"):
        write_json_list(map(_json, jobs, found))
        return 0
    for job, explanation in zip(jobs, found, strict=True):
        prefix = f"{job}: " if len(found) > 1 else ""
        write_sentence(prefix + sentence(explanation.why))
        if explanation.hint:
            write_sentence(f"hint: {sentence(explanation.hint)}")
    return 0


def _json(job: JobWord, explanation: Explanation) -> dict[str, object]:
    return {
        "job_id": explanation.job_id,
        "array_job_id": None if job.task is None else job.job_id,
        "array_task_id": job.task,
        "state": explanation.state,
        "reason": explanation.reason,
        "why": tell_instants(explanation.why),
        "hint": tell_instants(explanation.hint),
        "blockers": explanation.blockers,
        "expected_start_at": iso_instant(explanation.expected_start_at),
    }


COMMAND = Command(
    name="gqwhy",
    summary="Say why a job waits, or how it ended, and what would help.",
    operands="JOB...",
    options=(JSON,),
    run=run,
)
