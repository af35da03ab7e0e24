"""Find all pending jobs that are certainly over a limit, for the whole queue at once.  Pure.

A user over a limit may have a hundred thousand jobs at the head of the queue.  The mask keeps them out of the passes,
so that they cost no time and take no room in the planning depth.
"""

from __future__ import annotations

import numpy as np

from gq.model.policy_tables import Billing
from gqd.sched.limits.ledger import SECONDS_PER_HOUR, TOLERANCE, Ledger, LimitSubject
from gqd.state.index.queue import Booleans, Floats, Member, PendingQueue


def over_limit_mask(queue: PendingQueue, ledger: Ledger, billing: Billing) -> tuple[Booleans, tuple[LimitSubject, ...]]:
    """Return (mask by queue index: the job is over a limit, the subjects that have such jobs)."""
    members, qos = queue.members, queue.qos
    kinds, kind_of = np.unique(queue.integers("member") * max(1, len(qos)) + queue.integers("qos"), return_inverse=True)
    askers = [_asker(members[kind // len(qos)], qos[kind % len(qos)]) for kind in kinds.tolist()]
    jobs, gpus, cpus, gpu_hours = (
        np.array([ledger.room(asker) for asker in askers], np.float64).reshape(-1, 4)[kind_of].T
    )
    factors = np.array([ledger.view.usage_factor(asker.qos) for asker in askers], np.float64)[kind_of]
    wanted_gpus = queue.integers("gpus")
    mask = (jobs < 1) | ((wanted_gpus > 0) & (wanted_gpus > gpus)) | (queue.integers("cpus") > cpus)
    mask |= _is_over_budget(wanted_gpus * factors, queue.floats("time_limit_s"), gpu_hours, billing)
    return mask, tuple(askers[kind] for kind in np.unique(kind_of[mask]).tolist())


def _asker(member: Member, qos: str) -> LimitSubject:
    user, account = member
    return LimitSubject(user, account, qos)


def _is_over_budget(gpus: Floats, time_limit_s: Floats, room: Floats, billing: Billing) -> Booleans:
    """Whether the cheapest billing of a job's GPUs exceeds its budget; without a time limit: whether the budget is
    used up."""
    rate = gpus * min([billing.gpu, *billing.gpu_types.values()])
    is_endless = np.isinf(time_limit_s)
    hours = rate * np.where(is_endless, 0.0, time_limit_s) / SECONDS_PER_HOUR
    return (rate > 0) & np.where(is_endless, room <= 0, hours > room + TOLERANCE)
