"""Explanations about limits: the holder, the usage, the requested amount, and what would help.  Pure.

Sentences give GPUs and jobs as counts, memory with its unit, and time as hours and minutes.
"""

from __future__ import annotations

import math

from gq.errors import Refusal
from gq.model.account import BUDGETS, DEFAULT_ACCOUNT, LIMITED, AccountInfo, Holder, LimitInfo
from gq.model.state import Reason
from gq.units import format_duration, format_memory
from gqd.control.explain.explanation import Explanation
from gqd.sched.limits.ledger import (
    COUNTED_AS,
    Ledger,
    LimitDemand,
    LimitSubject,
    LimitView,
    exceeded_limit_of,
    exceeded_limits_of,
    hours,
)
from gqd.sched.placement.billing import billing_of
from gqd.sched.reasons.unschedulable import counted
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.job_tally import granted, tally_keys_of_job
from gqd.state.index.tally import TallyKey, asked_amounts
from gqd.state.records import Job

MAX_NAMED = 4
MAX_BLOCKERS = 50
_CANNOT = "it cannot start within this limit"
_HINT = "gqctl limit show lists the limits"


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


# ── at submit ─────────────────────────────────────────────────────────────────────────────────────────────────────


def alone_over(limit: LimitInfo, wanted: float) -> Refusal:
    """Refuse a job that exceeds the limit by itself."""
    resource, most = limit.resource, amount(limit.resource, limit.most)
    asked = amount(resource, wanted)
    if resource in BUDGETS:
        why = f"the job may use up to {asked}; {whose(limit)} has {most} a {BUDGETS[resource]}"
        hint = "ask for less time with --time, or for fewer GPUs"
    elif resource == "time":
        why = f"the job asks for {asked if math.isinf(wanted) else f'a time limit of {asked}'}"
        why += f"; {whose(limit)} has {most} at most"
        hint = f"ask for at most --time={format_duration(int(limit.most))}"
    elif resource == "running_jobs":
        return Refusal("over_limit", f"{whose(limit)} may run no jobs", _HINT)
    else:
        of_one = " in one job" if resource.endswith("_per_job") else ""
        why = f"the job asks for {asked}; {whose(limit)} may have {bare(resource, limit.most)}{of_one} at most"
        hint = f"ask for at most {most}"
    return Refusal("over_limit", why, f"{hint}; {_HINT}")


def over_ceiling(account: AccountInfo, gpus: int) -> Refusal:
    """Refuse a job of more GPUs than its account is guaranteed and may borrow."""
    guaranteed, borrowed = account.guaranteed_gpus or 0, account.borrow_gpus or 0
    why = f"the job asks for {counted(gpus, 'GPUs')}; account `{account.name}` is guaranteed {guaranteed}"
    why += f" and may borrow {borrowed or 'none'}"
    most = guaranteed + borrowed
    hint = f"ask for at most {counted(most, 'GPUs')}" if most else "submit it in another account"
    return Refusal("over_limit", why, f"{hint}; gqctl account show lists what accounts may hold")


class NoRoom(Refusal):
    """The job is refused because of queued and running jobs or past usage; later it may be accepted."""


def no_room(limit: LimitInfo, used: float, wanted: float, user: str) -> NoRoom:
    """Refuse a job that exceeds the limit together with queued and running jobs."""
    resource = limit.resource
    left = max(0.0, limit.most - used)
    if resource in BUDGETS:
        per, most = BUDGETS[resource], amount(resource, limit.most)
        why = f"{whose(limit, user)} has {most} a {per}, of which {bare(resource, used)} are used"
        why += f" and {bare(resource, left)} left; the job may use up to {bare(resource, wanted)}"
        return NoRoom("over_limit", why, f"ask for less time with --time, or submit it next {per}; {_HINT}")
    what = "pending" if resource == "pending_jobs" else "queued and running together"
    most = amount(resource, limit.most)
    asked = bare(resource, wanted)
    more = f"this is {asked} more" if resource == "pending_jobs" else f"this asks for {asked}"
    why = f"{whose(limit, user)} may have {most} {what}, has {bare(resource, used)}, and {more}"
    less = f"{bare(resource, left)} left: ask for less, or" if left else "none is left:"
    hint = f"{less} submit it when others are done"
    return NoRoom("over_limit", why, f"{hint}; {_HINT}")


# ── while it waits ────────────────────────────────────────────────────────────────────────────────────────────────

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
    """The pending reason, named as in Slurm, where a user in an account is an association."""
    is_qos, is_users = limit.holder is Holder.QOS, limit.per_user or limit.holder is Holder.USER
    if limit.resource in BUDGETS:
        return Reason.QOS_GRES_MINUTES if is_qos else Reason.ASSOC_GRES_MINUTES
    table = (_QOS_USERS if is_users else _QOS) if is_qos else (_USERS if is_users else _ACCOUNTS)
    return table[limit.resource.partition(":")[0]]


REASONS = frozenset(one.value for table in (_USERS, _ACCOUNTS, _QOS, _QOS_USERS) for one in table.values()) | {
    Reason.ASSOC_GRES_MINUTES.value,
    Reason.QOS_GRES_MINUTES.value,
}


def limited(job: Job, plan: planned.Plan) -> planned.OverLimit | planned.OverQuota | None:
    """The limit that keeps the job pending; None: none does."""
    wait = plan.waits.get(job.job_id)
    return wait if isinstance(wait, planned.OverLimit | planned.OverQuota) else wait_of(job, plan)


def wait_of(job: Job, plan: planned.Plan) -> planned.OverLimit | planned.OverQuota | None:
    """The limit that keeps a job pending that the pass has not considered; None: none does."""
    used = plan.kept_back.get((job.user, job.account or DEFAULT_ACCOUNT, job.qos))
    if not used:
        return None
    amounts = asked_amounts(job.spec.resources)
    return exceeded_limit_of(used, LimitDemand(amounts, hours(billing_of(plan.billing, amounts), job.time_limit_s)))


def others_over(
    cluster: Cluster, view: LimitView, job: Job, plan: planned.Plan, first: planned.OverLimit | planned.OverQuota
) -> list[planned.OverLimit | planned.OverQuota]:
    """The other limits that the job exceeds, besides `first`, counting the jobs that the plan starts.

    `view`: the limits of the plan's snapshot.
    """
    ledger = Ledger(view)
    for start in plan.starts:
        starts = cluster.jobs[start.job_id]
        taken = LimitDemand(granted(cluster, start.grants), hours(start.billing, starts.time_limit_s))
        ledger.take(_asker(starts), taken)
    amounts = asked_amounts(job.spec.resources)
    billing = billing_of(plan.billing, amounts, view.usage_factor(job.qos))
    over = exceeded_limits_of(ledger.used(_asker(job)), LimitDemand(amounts, hours(billing, job.time_limit_s)))
    return [one for one in over if _which(one) != _which(first)]


def _asker(job: Job) -> LimitSubject:
    return LimitSubject(job.user, job.account or DEFAULT_ACCOUNT, job.qos)


def _which(wait: planned.OverLimit | planned.OverQuota) -> object:
    if isinstance(wait, planned.OverQuota):
        return wait.account
    return wait.limit.holder, wait.limit.name, wait.limit.resource, wait.user


def besides(label: str, others: list[planned.OverLimit | planned.OverQuota], hint: str) -> tuple[str, str]:
    """(continuation of the sentence about the first limit, hint for all limits)."""
    told = [_words(label, one) for one in others]
    never = next((one for one in (hint, *(one.hint for one in told)) if one.startswith(_CANNOT)), "")
    named = "".join(f"; besides, {one.why}" for one in told[:MAX_NAMED])
    more = f"; and {counted(len(told) - MAX_NAMED, 'more limits')}" if len(told) > MAX_NAMED else ""
    return f"{named}{more}", never or f"it starts when all {len(told) + 1} limits have room for it; {_HINT}"


def _words(label: str, wait: planned.OverLimit | planned.OverQuota) -> Explanation:
    return over_limit(label, wait) if isinstance(wait, planned.OverLimit) else may_not_borrow(wait)


def waits_for(wait: planned.OverLimit | planned.OverQuota) -> str:
    """The sentence without reason and hint, for a job that is not queued yet."""
    return _words("", wait).why


def over_limit(label: str, wait: planned.OverLimit) -> Explanation:
    limit, resource, used = wait.limit, wait.limit.resource, wait.limit.used or 0.0
    reason, owner = reason_of(limit).value, whose(limit, wait.user)
    most, wanted = amount(resource, limit.most), bare(resource, wait.wanted)
    if resource in BUDGETS:
        per = BUDGETS[resource]
        why = f"{owner} has {most} a {per}, {bare(resource, used)} are used or promised to what runs"
        why += f", and the job may use up to {wanted}" if wait.wanted else ""
        hint = f"the next {per} begins @{{{int(wait.until or 0)}}}"
        if used < limit.most:
            hint = f"gqctl update {label} with less --time could start it; {hint}"
        return Explanation(reason, why, hint)
    if resource == "running_jobs":
        why = f"{owner} may run {most}, and {bare(resource, used)} {'runs' if used == 1 else 'run'}"
        return Explanation(reason, why, "it starts when one of these ends")
    verb = "is" if used == 1 or resource == "memory" else "are"
    why = f"{owner} may hold {most}, {bare(resource, used)} {verb} in use, the job asks for {wanted}"
    if wait.wanted > limit.most:
        return Explanation(reason, why, _never(amount(resource, limit.most)))
    return Explanation(reason, why, _hint_of(amount(resource, limit.most - used) if used < limit.most else ""))


def may_not_borrow(wait: planned.OverQuota) -> Explanation:
    own = f"is guaranteed {counted(wait.guaranteed_gpus, 'GPUs')}" if wait.guaranteed_gpus else "is guaranteed no GPUs"
    why = f"account `{wait.account}` {own} and may borrow {wait.borrow_gpus or 'none'}"
    why += f"; it holds {wait.held_gpus}, the job asks for {wait.wanted_gpus}"
    most = wait.guaranteed_gpus + wait.borrow_gpus
    if wait.wanted_gpus > most:
        return Explanation(Reason.ASSOC_GRES.value, why, _never(counted(most, "GPUs")))
    left = most - wait.held_gpus
    return Explanation(Reason.ASSOC_GRES.value, why, _hint_of(counted(left, "GPUs") if left > 0 else ""))


def _never(most: str) -> str:
    """The hint for a job that exceeds the limit by itself, since the limit was lowered or is for a type of GPU."""
    return f"{_CANNOT}, however long it waits: ask for at most {most}, or have the limit raised"


def _hint_of(left: str) -> str:
    end = "it starts when enough of what is held there ends"
    return f"asking for at most {left} keeps within the limit; else {end}" if left else end


def barred(job: Job, wait: planned.AccessDenied) -> Explanation:
    hint = f"gqctl update {job.job_id} with another --partition, --qos or --account moves it"
    return Explanation(Reason.PARTITION_CONFIG.value, f"it may not start where it is: {wait.why}", hint)


def holders(cluster: Cluster, wait: planned.OverLimit | planned.OverQuota) -> tuple[str, tuple[int, ...]]:
    """(continuation of the sentence, job ids) about the jobs that use most of the limit, the largest first."""
    if isinstance(wait, planned.OverLimit):
        place: TallyKey = (wait.limit.holder, wait.limit.name, wait.user)
        resource = wait.limit.resource
    else:
        place, resource = (Holder.ACCOUNT, wait.account, ""), "gpus"
    counted_as = COUNTED_AS.get(resource, "gpus" if resource in BUDGETS else resource)
    held = [
        (amounts[counted_as], job_id)
        for job_id, amounts in cluster.tallies.held_by.items()
        if counted_as in amounts and place in tally_keys_of_job(cluster, cluster.jobs[job_id])
    ]
    held.sort(key=lambda one: (-one[0], one[1]))
    named = [_holder(cluster.jobs[job_id], counted_as, number) for number, job_id in held[:MAX_NAMED]]
    others = len(held) - MAX_NAMED
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    ids = tuple(int(job_id) for _, job_id in held[:MAX_BLOCKERS])
    return (f": {'; '.join(named)}{more}" if named else ""), ids


def _holder(job: Job, counted_as: str, number: int) -> str:
    verb = "runs" if counted_as == "jobs" else f"holds {amount(counted_as, number)}"
    return f"job {job.label} ({job.user}) {verb}"
