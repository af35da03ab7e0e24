"""The comparison rules by brute force: an independent simulator that shares nothing with gq.

Events at equal times are all ends, then all arrivals, then one pass.  A job of at most G GPUs goes on one node, best
fit; a wider one takes whole empty nodes and best fit for the rest.  Of equally free nodes the one that reached that
count first is taken.  A job is (submit, duration, GPUs, pool); rows are in the order of submission.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

Job = tuple[int, int, int, str]
"""(submit_s, duration_s, gpus, pool)"""
Parts = list[tuple[int, int]]
"""(node, GPUs of it)"""


@dataclass
class Pool:
    free: list[int]
    size: int
    """GPUs of a node."""
    since: list[int]
    """By node: a running number, new whenever its free count changes."""
    waiting: list[int] = field(default_factory=list)
    running: dict[int, tuple[int, Parts]] = field(default_factory=dict)
    """Row → (end, where)."""
    count: int = 0

    def place(self, gpus: int, free: list[int] | None = None) -> Parts | None:
        free = self.free if free is None else free
        whole, rest = divmod(gpus, self.size) if gpus > self.size else (0, gpus)
        empty = sorted((node for node in range(len(free)) if free[node] == self.size), key=lambda node: self.since[node])
        if len(empty) < whole:
            return None
        parts = [(node, self.size) for node in empty[:whole]]
        if rest:
            others = [node for node in range(len(free)) if free[node] >= rest and node not in empty[:whole]]
            if not others:
                return None
            parts.append((min(others, key=lambda node: (free[node], self.since[node])), rest))
        return parts

    def change(self, parts: Parts, sign: int) -> None:
        for node, gpus in parts:
            self.free[node] += sign * gpus
            self.count += 1
            self.since[node] = self.count


def replay(policy: str, jobs: list[Job], pools: dict[str, tuple[int, int]]) -> list[int]:
    """The second at which each job starts; `pools`: name → (nodes, GPUs of each)."""
    state = {name: Pool([size] * nodes, size, list(range(nodes)), count=nodes) for name, (nodes, size) in pools.items()}
    starts = [-1] * len(jobs)
    ends: list[tuple[int, int]] = []
    position = 0
    while ends or position < len(jobs):
        now = min([ends[0][0]] if ends else [], default=jobs[position][0] if position < len(jobs) else 0)
        if position < len(jobs):
            now = min(now, jobs[position][0])
        while ends and ends[0][0] == now:
            row = heapq.heappop(ends)[1]
            pool = state[jobs[row][3]]
            pool.change(pool.running.pop(row)[1], +1)
        while position < len(jobs) and jobs[position][0] == now:
            state[jobs[position][3]].waiting.append(position)
            position += 1
        for pool in state.values():
            for row in PASSES[policy](pool, jobs, now):
                starts[row] = now
                heapq.heappush(ends, (now + jobs[row][1], row))
    return starts


def _start(pool: Pool, jobs: list[Job], row: int, now: int) -> bool:
    parts = pool.place(jobs[row][2])
    if parts is None:
        return False
    pool.change(parts, -1)
    pool.waiting.remove(row)
    pool.running[row] = (now + jobs[row][1], parts)
    return True


def _strict(pool: Pool, jobs: list[Job], now: int, order: list[int]) -> list[int]:
    started = []
    for row in order:
        if not _start(pool, jobs, row, now):
            break
        started.append(row)
    return started


def _fifo(pool: Pool, jobs: list[Job], now: int) -> list[int]:
    return _strict(pool, jobs, now, list(pool.waiting))


def _sjf(pool: Pool, jobs: list[Job], now: int) -> list[int]:
    return _strict(pool, jobs, now, sorted(pool.waiting, key=lambda row: (jobs[row][1], row)))


def _skip(pool: Pool, jobs: list[Job], now: int) -> list[int]:
    return [row for row in list(pool.waiting) if _start(pool, jobs, row, now)]


def _easy(pool: Pool, jobs: list[Job], now: int) -> list[int]:
    """Knows durations; the first that does not fit gets the earliest start that there is, and others may not delay it."""
    started = _fifo(pool, jobs, now)
    if not pool.waiting:
        return started
    head = pool.waiting[0]
    reserved_at = _earliest(pool, jobs[head][2])
    for row in pool.waiting[1:]:
        parts = pool.place(jobs[row][2])
        if parts is None:
            continue
        ends_at = now + jobs[row][1]
        if ends_at > reserved_at and pool.place(jobs[head][2], _free_at(pool, reserved_at, parts)) is None:
            continue
        _start(pool, jobs, row, now)
        started.append(row)
    return started


def _free_at(pool: Pool, at: int, taken: Parts) -> list[int]:
    free = list(pool.free)
    for end, parts in pool.running.values():
        for node, gpus in parts if end <= at else []:
            free[node] += gpus
    for node, gpus in taken:
        free[node] -= gpus
    return free


def _earliest(pool: Pool, gpus: int) -> int:
    ends = sorted({end for end, _ in pool.running.values()})
    return next(end for end in ends if pool.place(gpus, _free_at(pool, end, [])) is not None)


PASSES = {"fifo": _fifo, "sjf": _sjf, "fifo-skip": _skip, "easy": _easy}
