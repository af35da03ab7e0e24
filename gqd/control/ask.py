"""``gqctl ask``: a polite request to the holder of a job, who answers it or does not.  Pure.

A request changes nothing by itself.  The holder sees it in the job's standard error, in `gqstat` and `gqctl asks`, and
as a notice if the job has notices at all; the user who asked sees the answer in `gqctl asks`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.ask import AskAnswer, AskInfo
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.control import array, attempt, elastic, job, requeue
from gqd.control.access import Caller
from gqd.state.ask import Ask
from gqd.state.cluster import Cluster
from gqd.state.effect import SendOrder
from gqd.state.events import event
from gqd.state.job_view import is_of, word_of
from gqd.state.phases import AfterEnding
from gqd.state.records import Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_TEXT = 500
MAX_OPEN = 20
"""Unanswered requests that one user may have, over all jobs that have not ended."""
MAX_OF_JOB = 50
"""Requests that one job may ever get, answered ones included."""
_OVER = (JobState.COMPLETING, JobState.ENDED)


def decide_ask(draft: TurnBuilder, caller: Caller, body: client.AskJob) -> client.Done:
    one = array.one_of(draft.cluster, body.job_id, body.task)
    text = _checked(body.text)
    if not text:
        raise Refusal("no_text", "the request has no text", "gqctl ask 12 'could you let me have a GPU until noon?'")
    _refuse_ask(draft, caller, one)
    draft.emit(event.JobAsked(at=draft.now, job_id=one.job_id, by=caller.peer.user, uid=caller.peer.uid, text=text))
    held = draft.cluster.attempt_of(one)
    answers = "`release` or" if held is None or held.elastic is None else "`release`, `shrink` or"
    line = f"gq: {caller.peer.user} asks: {text} (`gqctl answer {one.label}` {answers} `decline`)"
    _write_line(draft, one, line)
    return client.Done()


def _checked(text: str) -> str:
    text = text.strip()
    if len(text) > MAX_TEXT or not text.isprintable():
        raise Refusal(
            "bad_text", f"the text is not one line of at most {MAX_TEXT} printable characters", "shorten the text"
        )
    return text


def _refuse_ask(draft: TurnBuilder, caller: Caller, one: Job) -> None:
    if one.state in _OVER:
        raise Refusal("job_over", f"job {one.label} is {_word(draft.cluster, one)}: it has nothing left to release")
    if any(ask.is_open and _is_by(ask, caller) for ask in one.asks):
        message = f"your earlier request to job {one.label} is not answered yet"
        raise Refusal("asked_already", message, "gqctl asks shows it")
    if len(one.asks) >= MAX_OF_JOB:
        raise Refusal(
            "too_many_asks", f"job {one.label} has already received {MAX_OF_JOB} requests", "contact its owner"
        )
    if sum(_is_by(ask, caller) for other in draft.cluster.jobs.values() for ask in _open(other)) >= MAX_OPEN:
        raise Refusal("too_many_asks", f"{MAX_OPEN} of your requests are not answered yet", "gqctl asks lists them")


def _is_by(ask: Ask, caller: Caller) -> bool:
    return is_of(caller.peer, ask.by, ask.uid)


def _open(one: Job) -> list[Ask]:
    """The unanswered requests of a job; none once it is ending."""
    return [ask for ask in one.asks if ask.is_open] if one.asks and one.state not in _OVER else []


def decide_answer(draft: TurnBuilder, caller: Caller, body: client.AnswerAsks) -> client.Done:
    """Answer all open requests of a job.

    RELEASE also ends or requeues the job; SHRINK makes an elastic job give up GPUs or nodes.
    """
    one = array.one_of(draft.cluster, body.job_id, body.task)
    text = _checked(body.text)
    if not _open(one):
        raise Refusal("not_asked", f"job {one.label} has no open request", "gqctl asks lists requests")
    may_requeue = one.state in (JobState.STARTING, JobState.RUNNING) and not one.spec.is_interactive
    if body.requeue and body.answer is not AskAnswer.RELEASE:
        raise Refusal("bad_answer", "--requeue applies only to an answer that releases the job", "leave out --requeue")
    if body.keep is not None and body.answer is not AskAnswer.SHRINK:
        raise Refusal("bad_answer", "--keep applies only to an answer that shrinks the job", "leave out --keep")
    if body.requeue and not may_requeue:
        raise Refusal(
            "bad_answer",
            f"job {one.label} cannot be requeued now: it is not a running batch job",
            "leave out --requeue",
        )
    told = ""
    if body.answer is AskAnswer.SHRINK:
        askers = tuple(dict.fromkeys((ask.by, ask.uid) for ask in _open(one)))
        told = elastic.decide_agreed(draft, one, body.keep, askers)
    names = ", ".join(dict.fromkeys(ask.by for ask in _open(one)))
    draft.emit(event.AsksAnswered(at=draft.now, job_id=one.job_id, answer=body.answer, text=text, by=caller.peer.user))
    if body.answer is not AskAnswer.RELEASE:
        return client.Done(text=told)
    if body.requeue:
        grace_s = requeue.grace_s(draft, one)
        why = f"requeued, as {names} asked"
        attempt.end(draft, one, Outcome.CANCELLED, AfterEnding.REQUEUE, why=why, grace_s=grace_s)
    else:
        job.cancel(draft, one, why=f"by {caller.peer.user}, as {names} asked")
    return client.Done()


def list_asks(draft: TurnBuilder, caller: Caller, body: client.ListAsks, limit: int) -> client.Asks:
    """Requests about the caller's jobs and requests that the caller made, newest last; operators see all."""
    jobs = draft.cluster.jobs
    chosen = jobs.values() if not body.job_ids else [jobs[one] for one in jobs.keys() & set(body.job_ids)]
    found = ((ask, one) for one in chosen for ask in one.asks if caller.may_steer(one) or _is_by(ask, caller))
    shown = sorted(found, key=lambda each: (each[0].at, each[1].job_id))
    return client.Asks(
        asks=tuple(_told(draft.cluster, *each) for each in islice(shown, max(0, len(shown) - limit), None))
    )


def _told(cluster: Cluster, ask: Ask, one: Job) -> AskInfo:
    return AskInfo(
        job_id=one.job_id,
        label=one.label,
        holder=one.user,
        job_state=word_of(one, cluster.attempt_of(one)),
        by=ask.by,
        at=ask.at,
        text=ask.text,
        answer=ask.answer,
        answer_text=ask.answer_text,
        answered_by=ask.answered_by,
        answered_at=ask.answered_at,
    )


def _word(cluster: Cluster, one: Job) -> str:
    return word_of(one, cluster.attempt_of(one)).lower()


def _write_line(draft: TurnBuilder, one: Job, text: str) -> None:
    held = draft.cluster.attempt_of(one)
    if one.state is JobState.RUNNING and held is not None:
        draft.enqueue(SendOrder(node=held.batch_node, order=wire.Notify(attempt_id=one.attempt_id, text=text)))
