"""Renders an explanation: its facts as sentences, and one hint.  Pure.

The controller renders for clients that know no facts, a client what it got, with the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gq.explain import limits
from gq.explain.sentence import Context, Sentence, mark
from gq.explain.waits import wait_sentence
from gq.model import explanation as facts
from gq.units import counted, spoken_duration


class Rendered(NamedTuple):
    """An explanation in words."""

    why: str
    facts: tuple[str, ...]
    """The sentences of which `why` consists."""
    hint: str


def render(context: Context, details: Iterable[facts.Fact]) -> Rendered:
    """The sentences of the facts; the hint is that of the last fact that has one."""
    why = hint = lead = ""
    for fact in details:
        sentence = _sentence(context, fact, hint)
        separator = ": " if isinstance(fact, facts.LimitHolders) else "; "
        why = f"{why}{separator}{sentence.why}" if why else sentence.why
        hint, lead = sentence.hint or hint, lead or sentence.lead
    rest = why.removeprefix(f"{lead}: ") if lead else why
    return Rendered(why, (lead, *split_facts(rest)) if rest != why else tuple(split_facts(rest)), hint)


def split_facts(why: str) -> list[str]:
    """Split at semicolons, except within parentheses, where they belong to job names."""
    found, depth = [""], 0
    for piece in re.split(r"([()]|; )", why):
        depth = max(0, depth + (piece == "(") - (piece == ")"))
        if piece == "; " and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _sentence(context: Context, fact: facts.Fact, hint: str) -> Sentence:
    match fact:
        case facts.Text():
            return Sentence(fact.text, fact.hint)
        case facts.LimitHolders():
            return limits.holders(context, fact)
        case facts.OtherLimits():
            return limits.other_limits(context, fact, hint)
        case facts.TrialOver():
            return _trial_over(fact)
        case facts.NextTurn():
            return _next_turn(context, fact)
        case facts.JobsAhead():
            named = ", ".join(context.described(job_id) for job_id in fact.jobs)
            more = f" and {counted(fact.count - len(fact.jobs), 'more jobs')}" if fact.count > len(fact.jobs) else ""
            return Sentence(f"{named}{more} {'is' if fact.count == 1 else 'are'} ahead of it in the queue")
        case facts.StartsBy():
            return Sentence(f"it should start by {mark(fact.at)}")
        case facts.RoomBy():
            return Sentence(f"enough resources are free by {mark(fact.at)}, if no other job takes them")
        case facts.StartPromised():
            return Sentence("that start is protected: jobs behind it in the queue do not delay it")
        case facts.ExpectedStart():
            return _expected_start(fact)
        case facts.Shrinking():
            return _shrinking(context, fact)
        case _ as wait:
            return wait_sentence(context, wait)


def _expected_start(fact: facts.ExpectedStart) -> Sentence:
    start = f"it should start at about {mark(fact.at)}"
    if not fact.is_after_others:
        return Sentence(start)
    why = start if fact.names_others else f"other jobs are ahead of it then, and {start}"
    return Sentence(why, "gqprio shows the jobs that are ahead of it")


def _trial_over(fact: facts.TrialOver) -> Sentence:
    verb = "is" if fact.jobs_ahead == 1 else "are"
    ahead = f"; {counted(fact.jobs_ahead, 'waiting jobs')} {verb} ahead of it in the queue" if fact.jobs_ahead else ""
    return Sentence(f"its trial of {spoken_duration(fact.trial_s)} is over, so time slicing applies to it{ahead}")


_WHY_NO_TURN = {
    "would_not_wait": "they would not be requeued",
    "several_nodes": "they run on several nodes",
    "came_before": "they have precedence",
}


def _next_turn(context: Context, fact: facts.NextTurn) -> Sentence:
    parts = ["too few of these jobs may be preempted for it now"] if fact.some_now else []
    if fact.job_id is not None and fact.at is not None:
        first = context.name_of(fact.job_id)
        giver = "one of them" if first is None else f"job {first.label}"
        parts.append(f"{giver} may be preempted for it from {mark(fact.at)} on")
    if not parts:
        parts.append(f"none of these jobs is preempted for it: {_WHY_NO_TURN.get(fact.why_none, fact.why_none)}")
    return Sentence("; ".join(parts), "it starts when enough of these jobs end or are preempted for it")


def _shrinking(context: Context, fact: facts.Shrinking) -> Sentence:
    named = [
        f"job {context.label_of(job.job_id)} gives up {_given_up(job)} by {mark(job.ends_at)} for it"
        for job in fact.jobs
    ]
    more = fact.count - len(named)
    return Sentence(", ".join(named) + (f", and {more} more do" if more else ""))


def _given_up(job: facts.ShrinkingJob) -> str:
    if job.node:
        return f"node {job.node}"
    return counted(job.gpus, "GPUs") if job.gpus else counted(job.cpus, "CPUs")
