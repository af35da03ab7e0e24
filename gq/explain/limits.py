"""Sentences about limits: the holder, the usage, the requested amount, and what would help.  Pure.

Sentences give GPUs and jobs as counts, memory with its unit, and time as hours and minutes.
"""

from __future__ import annotations

import math

from gq.explain.sentence import MAX_NAMED, Context, Sentence
from gq.model.account import BUDGETS, LIMITED, Holder, LimitInfo
from gq.model.explanation import LimitHolders, OtherLimits
from gq.model.wait import OverLimit, OverQuota
from gq.units import counted, format_duration, format_memory

LIST_HINT = "gqctl limit show lists the limits"
_CANNOT = "it cannot start within this limit"


def things(resource: str) -> str:
    """``GPUs``, ``GPUs of type `a100```"""
    if resource in LIMITED:
        return LIMITED[resource]
    return f"GPUs of type `{resource.partition(':')[2]}`"


def amount(resource: str, number: float) -> str:
    """``8 GPUs``, ``64G of memory``, ``2.5 GPU-hours``."""
    if resource == "memory":
        return f"{format_memory(int(number))} of memory"
    if resource == "time":
        return "no time limit" if math.isinf(number) else format_duration(int(number))
    if resource in BUDGETS:
        hours = bare(resource, number)
        return f"{hours} GPU-hour{'' if hours == '1' else 's'}"
    if ":" in resource:
        return f"{counted(int(number), 'GPUs')} of type `{resource.partition(':')[2]}`"
    noun = {"gpus": "GPUs", "gpus_per_job": "GPUs", "nodes_per_job": "nodes", "cpus": "CPUs"}.get(resource, "jobs")
    return counted(int(number), noun)


def bare(resource: str, number: float) -> str:
    """The number without the noun of what it counts."""
    if resource == "memory":
        return format_memory(int(number))
    return f"{number:.2f}".rstrip("0").rstrip(".")


def whose(limit: LimitInfo, user: str = "") -> str:
    """``account `nlp```, ``user ada in account `nlp```"""
    name = limit.name if limit.holder is Holder.USER else f"`{limit.name}`"
    noun = "QOS" if limit.holder is Holder.QOS else limit.holder.value
    if not limit.per_user:
        return f"{noun} {name}"
    return f"{f'user {user}' if user else 'each user'} {'with' if limit.holder is Holder.QOS else 'in'} {noun} {name}"


def over(label: str, wait: OverLimit | OverQuota) -> Sentence:
    return _over_limit(label, wait) if isinstance(wait, OverLimit) else _over_quota(wait)


def _over_limit(label: str, wait: OverLimit) -> Sentence:
    limit, resource, used = wait.limit, wait.limit.resource, wait.limit.used or 0.0
    owner = whose(limit, wait.user)
    most, wanted = amount(resource, limit.most), bare(resource, wait.wanted)
    if resource in BUDGETS:
        per = BUDGETS[resource]
        why = f"{owner} has {most} a {per}, {bare(resource, used)} are used or reserved by running jobs"
        why += f", and the job may use up to {wanted}" if wait.wanted else ""
        hint = f"the next {per} begins @{{{int(wait.until or 0)}}}"
        if used < limit.most:
            hint = f"gqctl update {label} with a shorter --time could start it; {hint}"
        return Sentence(why, hint)
    if resource == "running_jobs":
        why = f"{owner} may run {most}, and {bare(resource, used)} {'runs' if used == 1 else 'run'}"
        return Sentence(why, "it starts when one of these ends")
    verb = "is" if used == 1 or resource == "memory" else "are"
    why = f"{owner} may hold {most}, {bare(resource, used)} {verb} in use, the job asks for {wanted}"
    if wait.wanted > limit.most:
        return Sentence(why, _never(amount(resource, limit.most)))
    return Sentence(why, _hint_of(amount(resource, limit.most - used) if used < limit.most else ""))


def _over_quota(wait: OverQuota) -> Sentence:
    own = f"is guaranteed {counted(wait.guaranteed_gpus, 'GPUs')}" if wait.guaranteed_gpus else "is guaranteed no GPUs"
    why = f"account `{wait.account}` {own} and may borrow {wait.borrow_gpus or 'none'}"
    why += f"; it holds {wait.held_gpus}, the job asks for {wait.wanted_gpus}"
    most = wait.guaranteed_gpus + wait.borrow_gpus
    if wait.wanted_gpus > most:
        return Sentence(why, _never(counted(most, "GPUs")))
    left = most - wait.held_gpus
    return Sentence(why, _hint_of(counted(left, "GPUs") if left > 0 else ""))


def _never(most: str) -> str:
    """The hint for a job that exceeds the limit by itself, since the limit was lowered or is for a type of GPU."""
    return f"{_CANNOT}, however long it waits: ask for at most {most}, or have the limit raised"


def _hint_of(left: str) -> str:
    end = "it starts when enough of the jobs within this limit end"
    return f"a request for at most {left} is within the limit; otherwise {end}" if left else end


def other_limits(context: Context, fact: OtherLimits, hint: str) -> Sentence:
    """The continuation of the sentence about the first limit, and the hint for all; `hint`: that of the first."""
    sentences = [over(context.job.label, wait) for wait in fact.limits]
    hints = (hint, *(sentence.hint for sentence in sentences))
    never = next((text for text in hints if text.startswith(_CANNOT)), "")
    named = "; ".join(f"also, {sentence.why}" for sentence in sentences[:MAX_NAMED])
    others = len(sentences) - MAX_NAMED
    more = f"; and {counted(others, 'more limits')}" if others > 0 else ""
    all_limits = f"it starts when all {len(sentences) + 1} limits have room for it; {LIST_HINT}"
    return Sentence(f"{named}{more}", never or all_limits)


def holders(context: Context, fact: LimitHolders) -> Sentence:
    named = []
    for holder in fact.holders:
        known = context.name_of(holder.job_id)
        job = f"job {holder.job_id}" if known is None else f"job {known.label} ({known.user})"
        verb = "runs" if fact.resource == "jobs" else f"holds {amount(fact.resource, holder.amount)}"
        named.append(f"{job} {verb}")
    others = fact.count - len(fact.holders)
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    return Sentence(f"{'; '.join(named)}{more}")
