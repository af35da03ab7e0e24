"""The contract of priority factors, built-in or a site's own, as a check that reports the first violation.  Pure.

The samples contain what real queues contain: jobs that wait for others and have not begun to age, jobs without a time
limit, a cluster without nodes, repeated names.  One sample has no jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

import numpy as np

from gqd.sched.priority.factors import RESERVED
from gqd.state.index.queue import NEVER, Columns, Floats, Integers, Labels

SAMPLE_SIZES = (0, 1, 7, 1000)


def violation(name: str, factor: object) -> str:
    """How a site's factor violates the contract; empty if it keeps to the contract."""
    if not name.isidentifier():
        return "its name is not a word of letters, digits and `_`"
    if name in RESERVED:
        return f"`{name}` is a factor of gq's own"
    if not callable(factor):
        return "it is not a function"
    return next(filter(None, (violation_on(factor, sample(size)) for size in SAMPLE_SIZES)), "")


def violation_on(factor: Callable[[Columns], object], jobs: Columns) -> str:
    """How a factor violates the contract on these jobs; empty if it keeps to the contract."""
    count = len(jobs.job_id)
    try:
        once, again = factor(jobs), factor(jobs)
    except Exception as error:
        return f"it fails on {count} jobs: {type(error).__name__}: {error}"
    if not isinstance(once, np.ndarray) or once.shape != (count,):
        what = f"an array of shape {once.shape}" if isinstance(once, np.ndarray) else f"a {type(once).__name__}"
        return f"for {count} jobs it gives {what}, not an array of {count} numbers"
    if not np.issubdtype(once.dtype, np.number) or np.issubdtype(once.dtype, np.complexfloating):
        return f"it gives {once.dtype}, not numbers"
    if not np.isfinite(once).all():
        return "it gives numbers that are not finite"
    if count and (once.min() < 0.0 or once.max() > 1.0):
        return f"it gives numbers from {once.min():g} to {once.max():g}, not from 0 to 1"
    return "" if once.tobytes() == np.asarray(again).tobytes() else "it gives other numbers when it is called again"


def sample(count: int) -> Columns:
    """A sample queue of `count` jobs."""
    now = 1_000_000.0
    member, place = _numbers(count, 0, 1, 2), _numbers(count, 0, 1)
    jobs = Columns(
        now=now,
        job_id=np.arange(1, count + 1, dtype=np.int64),
        submit_at=_floats(count, now - 3600.0, now, 0.0),
        accrue_at=_floats(count, now - 3600.0, NEVER, now + 60.0, 0.0),
        time_limit_s=_floats(count, 60.0, NEVER, 604800.0),
        expected_s=_floats(count, 60.0, 3600.0, NEVER, 1.0),
        nodes=_numbers(count, 1, 64),
        cpus=_numbers(count, 1, 8, 2**31 - 1),
        gpus=_numbers(count, 0, 1, 512),
        user=Labels(member, ("alice", "bob", "carol")),
        account=Labels(member, ("vision", "vision", "default")),
        partition=Labels(place, ("main", "")),
        qos=Labels(place, ("normal", "urgent")),
        fair_share=_floats(count, 1.0, 0.5, 1 / 3),
        due=_floats(count, 1.0, 0.0, 2 / 3),
        partition_priority=_floats(count, 0.0, 1.0),
        qos_priority=_floats(count, 1.0, 0.0, 0.25),
        all_nodes=count % 2,
        all_cpus=8 * (count % 2),
        all_gpus=0,
        max_age_s=604800.0,
        favor_small=bool(count % 2),
    )
    numbers = (jobs.job_id, jobs.submit_at, jobs.accrue_at, jobs.time_limit_s, jobs.nodes, jobs.cpus, jobs.gpus)
    factors = (jobs.expected_s, jobs.due, jobs.fair_share, jobs.partition_priority, jobs.qos_priority)
    for column in (*numbers, *factors, member, place):
        column.flags.writeable = False
    return jobs


def _floats(count: int, *values: float) -> Floats:
    return np.fromiter(islice(cycle(values), count), np.float64, count)


def _numbers(count: int, *values: int) -> Integers:
    return np.fromiter(islice(cycle(values), count), np.int64, count)
