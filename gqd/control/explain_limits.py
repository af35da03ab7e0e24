"""What is said of limits: whose it is, what is used, what was asked for, and one thing that would help.  Pure.

Amounts stand in these sentences as everywhere: GPUs and jobs counted, memory with its unit, time as hours and minutes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gq.errors import Refusal
from gq.model.account import BUDGETS, LIMITED, Holder, LimitInfo
from gq.model.state import Reason
from gq.units import format_duration, format_memory
from gqd.sched.blocked import counted
from gqd.state import plan as planned

TOLERANCE = 1e-9
"""Of GPU-hours, which are sums of parts."""
_HINT = "gqctl limit show lists the limits"


class Words(NamedTuple):
    """What of a `gqd.control.explain.Story` comes from here."""

    reason: str
    why: str
    hint: str
    expected_start_at: float | None = None


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
        return f"{bare(resource, number)} GPU-hours"
    if ":" in resource:
        return f"{counted(int(number), 'GPUs')} of type `{resource.partition(':')[2]}`"
    noun = {"gpus": "GPUs", "gpus_per_job": "GPUs", "nodes_per_job": "nodes", "cpus": "CPUs"}.get(resource, "jobs")
    return counted(int(number), noun)


def bare(resource: str, number: float) -> str:
    """The number without what it counts."""
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


# ── at submit ─────────────────────────────────────────────────────────────────────────────────────────────────


def alone_over(limit: LimitInfo, wanted: float) -> Refusal:
    """Even if nothing else were queued."""
    resource, most = limit.resource, amount(limit.resource, limit.most)
    asked = amount(resource, wanted)
    if resource in BUDGETS:
        why = f"the job may use up to {asked}; {whose(limit)} has {most} a {BUDGETS[resource]}"
        hint = "ask for less time with --time, or for fewer GPUs"
    elif resource == "time":
        why = f"the job asks for {'no time limit' if math.isinf(wanted) else asked}; {whose(limit)} has {most} at most"
        hint = f"ask for at most --time={format_duration(int(limit.most))}"
    elif resource == "running_jobs":
        why, hint = f"{whose(limit)} may run no jobs", _HINT
    else:
        of_one = " in one job" if resource.endswith("_per_job") else ""
        why = f"the job asks for {asked}; {whose(limit)} may have {bare(resource, limit.most)}{of_one} at most"
        hint = f"ask for at most {most}"
    return Refusal("over_limit", why, f"{hint}; {_HINT}")


def no_room(limit: LimitInfo, used: float, wanted: float, user: str) -> Refusal:
    """With what is queued and runs already."""
    resource = limit.resource
    left = max(0.0, limit.most - used)
    if resource in BUDGETS:
        per, most = BUDGETS[resource], amount(resource, limit.most)
        why = f"{whose(limit, user)} has {most} a {per}, of which {bare(resource, used)} are used"
        why += f" and {bare(resource, left)} left; the job may use up to {bare(resource, wanted)}"
        return Refusal("over_limit", why, f"ask for less time with --time, or submit it next {per}; {_HINT}")
    what = "pending" if resource == "pending_jobs" else "queued and running together"
    most = amount(resource, limit.most)
    asked = bare(resource, wanted)
    more = f"this is {asked} more" if resource == "pending_jobs" else f"this asks for {asked}"
    why = f"{whose(limit, user)} may have {most} {what}, has {bare(resource, used)}, and {more}"
    hint = f"{bare(resource, left)} left: ask for less, or submit it when others are done"
    return Refusal("over_limit", why, f"{hint}; {_HINT}")


# ── while it waits ────────────────────────────────────────────────────────────────────────────────────────────

_ACCOUNTS = {
    "gpus": Reason.ASSOC_GRES,
    "cpus": Reason.ASSOC_CPUS,
    "memory": Reason.ASSOC_MEMORY,
    "running_jobs": Reason.ASSOC_JOBS,
}
_USERS = {**_ACCOUNTS, "running_jobs": Reason.ASSOC_USER_JOBS}
_QOS = {
    "gpus": Reason.QOS_GRES,
    "cpus": Reason.QOS_CPUS,
    "memory": Reason.QOS_MEMORY,
    "running_jobs": Reason.QOS_JOBS,
}
_QOS_USERS = {
    "gpus": Reason.QOS_USER_GRES,
    "cpus": Reason.QOS_USER_CPUS,
    "memory": Reason.QOS_USER_MEMORY,
    "running_jobs": Reason.QOS_USER_JOBS,
}


def reason_of(limit: LimitInfo) -> Reason:
    """Slurm's word; a user in an account is what it calls an association."""
    is_qos, is_users = limit.holder is Holder.QOS, limit.per_user or limit.holder is Holder.USER
    if limit.resource in BUDGETS:
        return Reason.QOS_GRES_MINUTES if is_qos else Reason.ASSOC_GRES_MINUTES
    table = (_QOS_USERS if is_users else _QOS) if is_qos else (_USERS if is_users else _ACCOUNTS)
    return table[limit.resource.partition(":")[0]]


def over_limit(wait: planned.OverLimit, job_id: int, holders: str = "") -> Words:
    """`holders`: who holds what is used, if that is known."""
    limit, resource, used = wait.limit, wait.limit.resource, wait.limit.used or 0.0
    reason = reason_of(limit).value
    if resource in BUDGETS:
        most, per = amount(resource, limit.most), BUDGETS[resource]
        why = f"{whose(limit, wait.user)} has {most} a {per}, {bare(resource, used)} are used or promised to what runs"
        why += f", and the job may use up to {bare(resource, wait.wanted)}" if wait.wanted else ""
        hint = f"the next {per} begins @{{{int(wait.until or 0)}}}"
        if used < limit.most:
            hint = f"gqctl update {job_id} --time=… with less time could start it; {hint}"
        return Words(reason, why, hint, wait.until)
    most = amount(resource, limit.most)
    if resource == "running_jobs":
        why = f"{whose(limit, wait.user)} may run {most}, and {bare(resource, used)} run"
    else:
        verb = "is" if used == 1 or resource == "memory" else "are"
        why = f"{whose(limit, wait.user)} may hold {most}, {bare(resource, used)} {verb} in use"
        why += f", the job asks for {bare(resource, wait.wanted)}"
    left = limit.most - used
    hint = "it starts when enough of these end"
    if left > 0 and resource != "running_jobs":
        hint = f"asking for at most {amount(resource, left)} keeps within the limit; else {hint}"
    return Words(reason, f"{why}: {holders}" if holders else why, hint)


def may_not_borrow(wait: planned.MayNotBorrow, holders: str = "") -> Words:
    own = f"is guaranteed {counted(wait.guaranteed_gpus, 'GPUs')}" if wait.guaranteed_gpus else "is guaranteed no GPUs"
    why = f"account `{wait.account}` {own} and may borrow {wait.borrow_gpus or 'none'}"
    why += f"; it holds {wait.held_gpus}, the job asks for {wait.wanted_gpus}"
    left = wait.guaranteed_gpus + wait.borrow_gpus - wait.held_gpus
    hint = f"asking for at most {counted(left, 'GPUs')} keeps within that; else " if left > 0 else ""
    why = f"{why}: {holders}" if holders else why
    return Words(Reason.ASSOC_GRES.value, why, f"{hint}it starts when enough of these end")


def barred(wait: planned.Barred, job_id: int) -> Words:
    hint = f"gqctl update {job_id} with another --partition, --qos or --account moves it"
    return Words(Reason.PARTITION_CONFIG.value, f"it may not start where it is: {wait.why}", hint)
