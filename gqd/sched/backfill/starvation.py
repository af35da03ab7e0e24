"""Who goes ahead of their turn, so that neither many nodes nor bad luck make anybody wait for ever.  Pure.

Each partition has three slots.  ``wide`` is for jobs over several nodes that have waited for some time, ``fair`` and
``oldest`` for any that have waited longer.  A slot takes the oldest job that it may; ``wide`` and ``fair`` look first
at whose user had less than is due.  If that job fits it starts, and the next has its turn; else it is protected.
What ``fair`` and ``oldest`` start holds no more than their shares of the partition's GPUs, or is one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gq.model.scheduling import Scheduling
from gqd.sched.snapshot.model import PendingColumns

WIDE, FAIR, OLDEST, FIRST = "wide", "fair", "oldest", "first"
RANKS = ((FIRST, WIDE), (FAIR, OLDEST))
"""Whom one of the former takes goes before whom the latter do, even if promised a start later; whom they had taken
already keeps off what was promised to these since."""


@dataclass(slots=True, frozen=True)
class Slot:
    name: str
    after_s: float
    is_wide_only: bool = False
    is_by_band: bool = False
    share: float = 1.0
    """Of the GPUs: with whom it takes, what it started holds no more; one job may always be of more."""


def slots_of(scheduling: Scheduling) -> tuple[Slot, ...]:
    if scheduling.backfill != "protect":
        return ()
    slots: list[Slot] = []
    if scheduling.protect_wide_after_s is not None:
        slots.append(Slot(WIDE, scheduling.protect_wide_after_s, is_wide_only=True, is_by_band=True))
    if scheduling.protect_any_after_s is not None:
        after_s = scheduling.protect_any_after_s
        slots.append(Slot(FAIR, after_s, is_by_band=True, share=scheduling.protect_fair_share))
        slots.append(Slot(OLDEST, after_s, share=scheduling.protect_oldest_share))
    return tuple(slots)


def taken_by(
    slot: Slot, columns: PendingColumns, now: float, may: NDArray[np.bool_], is_wide: NDArray[np.bool_]
) -> Iterator[int]:
    """Places of the jobs that it takes, the first first; `may`: those that it is about."""
    mask = may & (columns.since <= now - slot.after_s)
    if slot.is_wide_only:
        mask &= is_wide
    places = np.flatnonzero(mask)
    if not len(places):
        return
    since, ids = columns.since[places], columns.job_id[places]
    keys = (ids, since, columns.band[places]) if slot.is_by_band else (ids, since)
    yield from (int(one) for one in places[np.lexsort(keys)])
