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
        empty = sorted((node for node, left in enumerate(free) if left == self.size), key=self.since.__getitem__)
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
        now = min([one[0] for one in ends[:1]] + [job[0] for job in jobs[position : position + 1]])
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
    if parts is not None:
        _take(pool, jobs, row, now, parts)
    return parts is not None


def _take(pool: Pool, jobs: list[Job], row: int, now: int, parts: Parts) -> None:
    pool.change(parts, -1)
    pool.waiting.remove(row)
    pool.running[row] = (now + jobs[row][1], parts)


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
    """Knows durations; the first that does not fit gets its earliest start, on nodes that none may hold longer."""
    started = _fifo(pool, jobs, now)
    if not pool.waiting:
        return started
    reserved_at, free = _reserved(pool, jobs[pool.waiting[0]][2])
    for row in pool.waiting[1:]:
        is_long = now + jobs[row][1] > reserved_at
        parts = pool.place(jobs[row][2], [min(*two) for two in zip(pool.free, free, strict=True)] if is_long else None)
        if parts is not None:
            _take(pool, jobs, row, now, parts)
            started.append(row)
            for node, gpus in parts if is_long else []:
                free[node] -= gpus
    return started


def _reserved(pool: Pool, gpus: int) -> tuple[int, list[int]]:
    """(when it fits, what is left then by node); of equally free nodes the first ones are its."""
    free, since = list(pool.free), pool.since
    for at in sorted({end for end, _ in pool.running.values()}):
        for node, count in (part for end, parts in pool.running.values() if end == at for part in parts):
            free[node] += count
        pool.since = [0] * len(free)
        parts = pool.place(gpus, free)
        pool.since = since
        if parts is not None:
            return at, [left - dict(parts).get(node, 0) for node, left in enumerate(free)]
    raise AssertionError("it does not fit when all others have ended")


PASSES = {"fifo": _fifo, "sjf": _sjf, "fifo-skip": _skip, "easy": _easy}
