"""Apply the events of limits to the cluster, and starts and ends of jobs to budgets.  Pure.

A budget counts from when its limit was set, and starts anew with each of its days, weeks or months.  The event
`PeriodsBegan` says when these begin, since the calendar is the policy's.
"""

from __future__ import annotations

from gq.model.account import BUDGETS
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index import job_tally
from gqd.state.index.usage import Budget
from gqd.state.records import BudgetKey, Job, LimitKey, limit_key


def apply_limit_set(cluster: Cluster, fact: event.LimitSet) -> None:
    key = limit_key(fact.limit)
    cluster.limits[key] = fact.limit
    cluster.associations.add_limit(key)
    cluster.changes.limits[key] = None
    if key.resource in BUDGETS and BudgetKey(key, "") not in cluster.budgets:
        _open(cluster, BudgetKey(key, ""), Budget(began_at=fact.at, at=fact.at))
        reconcile_rates(cluster, fact.at, key)


def apply_limit_removed(cluster: Cluster, fact: event.LimitRemoved) -> None:
    key = LimitKey(fact.holder, fact.name, fact.resource, fact.per_user)
    del cluster.limits[key]
    cluster.associations.drop_limit(key)
    cluster.changes.limits[key] = None
    for budget in [budget for budget in cluster.budgets if budget.limit == key]:
        del cluster.budgets[budget]
        cluster.changes.budgets[budget] = None


def apply_periods_began(cluster: Cluster, fact: event.PeriodsBegan) -> None:
    began = {"day": fact.day_at, "week": fact.week_at, "month": fact.month_at}
    for key, budget in cluster.budgets.items():
        began_at = began[BUDGETS[key.limit.resource]]
        if began_at > budget.began_at:
            budget.advance(max(fact.at, budget.at), began_at)
            cluster.changes.budgets[key] = None


def bill(cluster: Cluster, job: Job, at: float, rate: int) -> None:
    """From `at` on, bill `rate` more (negative: less) to all budgets that the job counts for."""
    if not rate:
        return
    job_tally.count_billed(cluster, job, rate)
    for holder, name, user in job_tally.tally_keys_of_job(cluster, job):
        for key in cluster.associations.limits.get((holder, name), ()) if not user else ():
            if key.resource in BUDGETS:
                _change_rate(cluster, BudgetKey(key, ""), at, rate)
                if key.per_user:
                    _change_rate(cluster, BudgetKey(key, job.user), at, rate)


def reconcile_rates(cluster: Cluster, at: float, only: LimitKey | None = None) -> None:
    """Bill running jobs to the budgets that they count for now, after a new limit or a change of the account tree."""
    for key in [budget.limit for budget in cluster.budgets if not budget.user and only in (None, budget.limit)]:
        users = dict.fromkeys(cluster.tallies.users.get((key.holder, key.name), {})) if key.per_user else {}
        users |= {budget.user: None for budget in cluster.budgets if budget.limit == key}
        for user in users:
            budget = cluster.budgets.get(BudgetKey(key, user))
            rate = cluster.tallies.of((key.holder, key.name, user)).rate
            if rate != (budget.rate if budget is not None else 0):
                _change_rate(cluster, BudgetKey(key, user), at, rate - (budget.rate if budget is not None else 0))


def _change_rate(cluster: Cluster, key: BudgetKey, at: float, by: int) -> None:
    budget = cluster.budgets.get(key)
    if budget is None:
        began_at = cluster.budgets[BudgetKey(key.limit, "")].began_at
        budget = _open(cluster, key, Budget(began_at=began_at, at=began_at))
    budget.change_rate(at, by, budget.began_at)
    cluster.changes.budgets[key] = None


def _open(cluster: Cluster, key: BudgetKey, budget: Budget) -> Budget:
    cluster.budgets[key] = budget
    cluster.changes.budgets[key] = None
    return budget
