"""Explanations about limits: refusals at submission, the pending reasons, and the jobs that use a limit.  Pure."""

from __future__ import annotations

import math

from gq.errors import Refusal
from gq.explain.limits import LIST_HINT, amount, bare, over, whose
from gq.explain.sentence import MAX_NAMED
from gq.model.account import BUDGETS, DEFAULT_ACCOUNT, AccountInfo, Holder, LimitInfo
from gq.model.explanation import LimitHolder, LimitHolders
from gq.model.state import Reason
from gq.units import counted, format_duration
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
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.index.job_tally import granted, tally_keys_of_job
from gqd.state.index.tally import TallyKey, asked_amounts
from gqd.state.records import Job

MAX_BLOCKERS = 50


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
        return Refusal("over_limit", f"{whose(limit)} may run no jobs", LIST_HINT)
    else:
        of_one = " in one job" if resource.endswith("_per_job") else ""
        why = f"the job asks for {asked}; {whose(limit)} may have {bare(resource, limit.most)}{of_one} at most"
        hint = f"ask for at most {most}"
    return Refusal("over_limit", why, f"{hint}; {LIST_HINT}")


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
        return NoRoom("over_limit", why, f"ask for less time with --time, or submit it next {per}; {LIST_HINT}")
    what = "pending" if resource == "pending_jobs" else "queued and running together"
    most = amount(resource, limit.most)
    asked = bare(resource, wanted)
    more = f"this is {asked} more" if resource == "pending_jobs" else f"this asks for {asked}"
    why = f"{whose(limit, user)} may have {most} {what}, has {bare(resource, used)}, and {more}"
    less = f"{bare(resource, left)} left: ask for less, or" if left else "none is left:"
    hint = f"{less} submit it when others are done"
    return NoRoom("over_limit", why, f"{hint}; {LIST_HINT}")


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


def reason_of(wait: planned.OverLimit | planned.OverQuota) -> Reason:
    """The pending reason, named as in Slurm, where a user in an account is an association."""
    if isinstance(wait, planned.OverQuota):
        return Reason.ASSOC_GRES
    limit = wait.limit
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


def waits_for(wait: planned.OverLimit | planned.OverQuota) -> str:
    """The sentence for a job that is not queued yet."""
    return over("", wait).why


def holders(cluster: Cluster, wait: planned.OverLimit | planned.OverQuota) -> tuple[LimitHolders, tuple[int, ...]]:
    """The jobs that use most of the limit, the largest first: (the first few, the ids of up to `MAX_BLOCKERS`)."""
    if isinstance(wait, planned.OverLimit):
        key: TallyKey = (wait.limit.holder, wait.limit.name, wait.user)
        resource = wait.limit.resource
    else:
        key, resource = (Holder.ACCOUNT, wait.account, ""), "gpus"
    counted_as = COUNTED_AS.get(resource, "gpus" if resource in BUDGETS else resource)
    held = [
        LimitHolder(job_id, amounts[counted_as])
        for job_id, amounts in cluster.tallies.held_by.items()
        if counted_as in amounts and key in tally_keys_of_job(cluster, cluster.jobs[job_id])
    ]
    held.sort(key=lambda holder: (-holder.amount, holder.job_id))
    named = LimitHolders(resource=counted_as, holders=tuple(held[:MAX_NAMED]), count=len(held))
    return named, tuple(int(holder.job_id) for holder in held[:MAX_BLOCKERS])
