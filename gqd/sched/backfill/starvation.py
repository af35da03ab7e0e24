"""Starvation guards: they move jobs ahead in the queue so that neither wide nor unlucky jobs wait for ever.  Pure.

Each partition has three guards.  ``wide`` serves jobs over several nodes that have waited for some time; ``fair`` and
``oldest`` serve any jobs that have waited longer.  A guard takes the oldest job that it may serve; ``wide`` and
``fair`` prefer jobs of users under their fair share.  If that job fits it starts and the guard takes the next; else its
start is planned.  The jobs started by ``fair`` or ``oldest`` hold no more than the guard's share of the partition's
GPUs, or are one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gq.model.scheduling import Scheduling
from gqd.sched.snapshot.model import PendingColumns

WIDE, FAIR, OLDEST, FIRST = "wide", "fair", "oldest", "first"
PRECEDENCE = ((FIRST, WIDE), (FAIR, OLDEST))
"""Guards in the first group outrank those in the second, even for a job whose planned start is later.  A job that a
first-group guard took earlier still respects guarantees given since to jobs of the second group."""


@dataclass(slots=True, frozen=True)
class StarvationGuard:
    name: str
    after_s: float
    is_wide_only: bool = False
    is_by_band: bool = False
    share: float = 1.0
    """The fraction of the GPUs that jobs started by this guard may hold together; a single job may exceed it."""


def starvation_guards(scheduling: Scheduling) -> tuple[StarvationGuard, ...]:
    if scheduling.backfill != "protect":
        return ()
    slots: list[StarvationGuard] = []
    if scheduling.protect_wide_after_s is not None:
        slots.append(StarvationGuard(WIDE, scheduling.protect_wide_after_s, is_wide_only=True, is_by_band=True))
    if scheduling.protect_any_after_s is not None:
        after_s = scheduling.protect_any_after_s
        slots.append(StarvationGuard(FAIR, after_s, is_by_band=True, share=scheduling.protect_fair_share))
        slots.append(StarvationGuard(OLDEST, after_s, share=scheduling.protect_oldest_share))
    return tuple(slots)


def candidates_of(
    slot: StarvationGuard, columns: PendingColumns, now: float, may: NDArray[np.bool_], is_wide: NDArray[np.bool_]
) -> Iterator[int]:
    """Queue indices of the jobs that the guard takes, in order; `may`: mask of the jobs to consider."""
    mask = may & (columns.since <= now - slot.after_s)
    if slot.is_wide_only:
        mask &= is_wide
    places = np.flatnonzero(mask)
    if not len(places):
        return
    since, ids = columns.since[places], columns.job_id[places]
    keys = (ids, since, columns.band[places]) if slot.is_by_band else (ids, since)
    yield from (int(index) for index in places[np.lexsort(keys)])
