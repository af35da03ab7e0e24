"""`gqctl [job] VERB`: what is asked about jobs while they run: more time, a pause, a favour."""

from __future__ import annotations

import time

from gq.cli.ctl.job import on_jobs
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import job_id, one_job, read
from gq.cli.framework.output import Column, recent_time, write_json_list, write_sentence, write_table
from gq.errors import UsageError
from gq.model.ask import AskAnswer, AskInfo
from gq.model.state import ACTIVE_WORDS
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import format_duration, iso_instant, parse_duration_s, render_instants
from gq.wire.client import (
    AnswerAsks,
    AskJob,
    Asks,
    Done,
    Extended,
    ExtendJob,
    ListAsks,
    ResumeJobs,
    SuspendJobs,
)

_REQUEUE = Option(name="requeue", help="Requeue the job under its id instead of ending it.")
_KEEP = Option(name="keep", metavar="COUNT", help="With shrink: number of GPUs or nodes that the job keeps.")
_COLUMNS = (
    Column("JOB", is_number=True),
    Column("HOLDER"),
    Column("ASKED", is_whole=True),
    Column("BY"),
    Column("ANSWER", is_whole=True),
    Column("TEXT", is_wide=True, is_wrapped=True),
)

# ── extend ────────────────────────────────────────────────────────────────────────────────────────────────────


def _extend(arguments: Arguments) -> int:
    if len(arguments.operands) != 2:
        raise UsageError("missing_operand", "JOB and +TIME are required", "gqctl extend 12 +2h")
    of, task = read(one_job, arguments.operands[0])
    by_s = read(_more_time_s, arguments.operands[1])
    with controller() as client:
        done = ask(client, ExtendJob(job_id=of, task=task, by_s=by_s), Extended)
    if arguments.has("json"):
        limits = {"time_limit_s": done.time_limit_s, "end_at": iso_instant(done.end_at)}
        write_json_list([{"job_id": done.job_id, **limits}])
        return 0
    until = render_instants(f"@{{{int(done.end_at)}}}", time.time())
    limit = format_duration(done.time_limit_s)
    write_sentence(f"Job {arguments.operands[0]} may run until {until}; its time limit is {limit}.")
    return 0


def _more_time_s(text: str) -> int:
    """``+2h``; what has no sign could be meant as the limit in all."""
    if not text.startswith("+"):
        raise ValueError(f"`{text}` has no +; write +{text} to add to the time limit")
    by_s = parse_duration_s(text[1:])
    if not by_s:
        raise ValueError(f"`{text}` is not an extension; for example +2h")
    return by_s


# ── ask, answer ───────────────────────────────────────────────────────────────────────────────────────────────


def _ask(arguments: Arguments) -> int:
    if len(arguments.operands) < 2:
        raise UsageError("missing_operand", "JOB and TEXT are required", "gqctl ask 12 'may I have a GPU until noon?'")
    of, task = read(one_job, arguments.operands[0])
    with controller() as client:
        ask(client, AskJob(job_id=of, task=task, text=" ".join(arguments.operands[1:])), Done)
    return 0


def _answer(arguments: Arguments) -> int:
    if len(arguments.operands) < 2:
        raise UsageError(
            "missing_operand", "JOB and an answer are required", "gqctl answer 12 decline 'it ends at ten'"
        )
    of, task = read(one_job, arguments.operands[0])
    answer = read(_answer_word, arguments.operands[1])
    text = " ".join(arguments.operands[2:])
    with controller() as client:
        is_again = arguments.has(_REQUEUE.name)
        keep = arguments.integer(_KEEP.name, at_least=1)
        body = AnswerAsks(job_id=of, task=task, answer=answer, text=text, requeue=is_again, keep=keep)
        if told := ask(client, body, Done).text:
            write_sentence(told)
    return 0


def _answer_word(text: str) -> AskAnswer:
    try:
        return AskAnswer(text.lower())
    except ValueError:
        raise ValueError(f"`{text}` is not an answer; use {', '.join(AskAnswer)}") from None


def _asks(arguments: Arguments) -> int:
    job_ids = tuple(read(job_id, word) for word in arguments.operands)
    with controller() as client:
        found = ask(client, ListAsks(job_ids=job_ids), Asks).asks
    if arguments.has("json"):
        write_json_list(_ask_json(one) for one in found)
        return 0
    write_table(_COLUMNS, [[_ask_row(one) for one in found]])
    return 0


def _ask_row(info: AskInfo) -> tuple[str, ...]:
    answer = info.answer.value if info.answer is not None else "-" if info.job_state in ACTIVE_WORDS else "over"
    said = f"{info.text} - {info.answer_text}" if info.answer_text else info.text
    return (info.label, info.holder, recent_time(info.at), info.by, answer, said)


def _ask_json(info: AskInfo) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(info, name) for name in info.__struct_fields__}
    return {**fields, "at": iso_instant(info.at), "answered_at": iso_instant(info.answered_at)}


def verbs() -> dict[str, Command]:
    return {
        "ask": Command(
            name="gqctl ask",
            summary="Send a request to the owner of a job.",
            operands="JOB TEXT...",
            operands_end_options=True,
            run=_ask,
        ),
        "answer": Command(
            name="gqctl answer",
            summary="Answer a request about your job.",
            operands="JOB release|shrink|decline [TEXT...]",
            details=(
                "`release` also ends the job, as gqdel does. `shrink` makes an elastic job release the resources that "
                "it grew by, and grow no more."
            ),
            options=(_REQUEUE, _KEEP),
            run=_answer,
        ),
        "asks": Command(
            name="gqctl asks",
            summary="Show requests about your jobs, and your own requests.",
            operands="[JOB...]",
            options=(JSON,),
            run=_asks,
        ),
        "suspend": Command(
            name="gqctl suspend",
            summary="Suspend running jobs.",
            operands="JOB...",
            details="For operators.  A suspended job keeps its GPUs with their contents, its CPUs and its memory, and "
            "is billed for them. Its time limit does not run while it is suspended.",
            run=on_jobs(lambda named: SuspendJobs(job_ids=named.job_ids, tasks=named.tasks)),
        ),
        "resume": Command(
            name="gqctl resume",
            summary="Resume suspended jobs.",
            operands="JOB...",
            run=on_jobs(lambda named: ResumeJobs(job_ids=named.job_ids, tasks=named.tasks)),
        ),
        "extend": Command(
            name="gqctl extend",
            summary="Give a running job more time.",
            operands="JOB +TIME",
            options=(JSON,),
            details="The extension is granted at once if it delays no planned start and reaches no reservation. "
            "Otherwise gqctl names the jobs that it would delay, and the longest possible extension.",
            run=_extend,
        ),
    }
