"""On random clusters: nothing is given twice, plans hang on nothing but the snapshot, protected starts never slip, and
nobody waits for nothing.

``GQ_CLUSTERS=10000`` looks at so many clusters instead of a few; a failure names its seed.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gq.model.scheduling import PRESETS
from gqd.sched.placement import is_possible, place
from gqd.sched.view import Overlay, Snapshot
from gqd.state.plan import Behind, Infeasible, Plan, Start, WouldDelay
from tests.property.streams import MEMORY_MIB, Stream, node, scheduling, sliced

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "6"))
ROUNDS = 30
PROTECTING: dict[str, dict[str, object]] = {
    "easy-user": {},
    "conservative": {"protected_jobs": 3},
    "default": {"protect_wide_after_s": 100.0, "protect_any_after_s": 300.0},
    "default-and-first": {"protect_wide_after_s": 50.0, "protect_any_after_s": None, "protected_jobs": 1},
}


def policies() -> list[str]:
    return [*PRESETS, "default-and-first"]


def stream(seed: int, policy: str, have_limits: bool = True) -> Stream:
    changes = PROTECTING.get(policy, {})
    return Stream(seed, scheduling(policy.removesuffix("-and-first"), **changes), have_limits)


def seeds() -> list[int]:
    return list(range(CLUSTERS))


# ── nothing is given twice ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", policies())
def test_no_plan_gives_what_is_not_free_and_its_recheck_says_the_same(policy: str) -> None:
    for seed in seeds():
        one = stream(seed, policy, have_limits=seed % 2 == 0)
        for _ in range(ROUNDS):
            one.go_on()
            snapshot = one.snapshot()
            plan = one.schedule()
            assert not _refused(snapshot, plan), f"seed {seed}"
            assert not _given_twice(one), f"seed {seed}"


def _refused(snapshot: Snapshot, plan: Plan) -> list[Start]:
    """Starts that are not possible, one after the other."""
    overlay, wrong = Overlay.of(snapshot), []
    places = {node.name: number for number, node in enumerate(snapshot.nodes)}
    for start in plan.starts:
        if is_possible(overlay, start.grants, places):
            overlay.take_all(places, start.grants)
        else:
            wrong.append(start)
    return wrong


def _given_twice(one: Stream) -> list[object]:
    """What more is held of than there is, counted from scratch."""
    cpus: Counter[tuple[str, int]] = Counter()
    gpus: Counter[tuple[str, int]] = Counter()
    memory: Counter[str] = Counter()
    for job in one.running.values():
        for grant in job.grants:
            cpus.update((grant.node, index) for index in grant.cpus)
            gpus.update((grant.node, index) for index in grant.gpus)
            memory[grant.node] += grant.memory_mib
    has = {node.name: node for node in one.nodes}
    wrong: list[object] = [what for what in cpus if cpus[what] > 1 or what[1] >= has[what[0]].cpus]
    wrong += [what for what in gpus if gpus[what] > 1 or not has[what[0]].gpu_mask >> what[1] & 1]
    return wrong + [node for node, held in memory.items() if held > MEMORY_MIB]


@pytest.mark.parametrize("policy", policies())
def test_a_plan_is_the_same_however_it_is_sliced(policy: str) -> None:
    for seed in seeds()[:20]:
        one = stream(seed, policy, have_limits=seed % 2 == 0)
        for _ in range(12):
            one.go_on()
            snapshot = one.snapshot()
            plans = [sliced(snapshot, budget) for budget in (1, 2, 7, 10**9)]
            assert all(other == plans[0] for other in plans), f"seed {seed}"
            one.schedule()


# ── protected starts ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["easy-user", "default", "default-and-first"])
def test_a_promised_start_never_comes_later(policy: str) -> None:
    promises = 0
    for seed in seeds():
        one = stream(seed, policy)
        promised: dict[JobId, float] = {}
        for _ in range(2 * ROUNDS):
            one.go_on()
            plan = one.schedule()
            for job_id, at in promised.items():
                started = one.started_at.get(job_id)
                assert (one.now if started is None else started) <= at, f"seed {seed}: job {job_id} was due at {at}"
            for protected in plan.protected:
                if protected.is_promise:
                    due = promised.setdefault(protected.job_id, protected.starts_at)
                    assert protected.starts_at <= due, (
                        f"seed {seed}: job {protected.job_id} slips from {due}: {protected}"
                    )
        promises += len(promised)
    assert promises > CLUSTERS


def test_a_wide_job_under_an_endless_stream_of_small_ones_starts_no_later_than_first_promised() -> None:
    for seed in range(min(100, CLUSTERS)):
        one = Stream(seed, scheduling("default"), nodes=(node(1, 8, 8), node(2, 8, 8)))
        for _ in range(16):
            one.arrive(ResourceRequest(gpus=1), limit_s=one.random.randint(100, 2000))
        one.schedule()
        wide = one.arrive(ResourceRequest(gpus=16, is_dense=True), limit_s=1000)
        due: float | None = None
        while wide.job_id not in one.started_at:
            one.now = min(one.now + one.random.expovariate(1 / 40), min(one.ends.values()))
            for job_id in [job_id for job_id, at in one.ends.items() if at <= one.now]:
                one.end(job_id)
            one.arrive(ResourceRequest(gpus=1), limit_s=one.random.randint(100, 2000))
            plan = one.schedule()
            told = [protected for protected in plan.protected if protected.job_id == wide.job_id]
            if due is None and told:
                assert told[0].is_promise
                due = told[0].starts_at
            assert due is None or one.now <= due, f"seed {seed}: it was promised for {due}"
            assert one.now < 5000, f"seed {seed}: it starves"


# ── nobody waits for nothing ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", [*PROTECTING, "fifo-skip"])
def test_who_fits_starts_unless_it_would_delay_somebody_who_is_protected(policy: str) -> None:
    delays = 0
    for seed in seeds():
        one = stream(seed, policy, have_limits=seed % 3 > 0)
        for _ in range(ROUNDS):
            one.go_on()
            plan = one.schedule()
            overlay = Overlay.of(one.snapshot())
            everywhere = list(range(len(one.nodes)))
            protected = {told.job_id for told in plan.protected}
            for job in one.pending:
                if place(overlay, job.shape, everywhere) is None:
                    continue
                wait = plan.waits[job.job_id]
                assert isinstance(wait, WouldDelay), f"seed {seed}: job {job.job_id} fits and waits: {wait}"
                assert wait.job_id in protected and wait.starts_at >= one.now, f"seed {seed}: {wait}"
                assert wait.ends_at is None or wait.ends_at > wait.starts_at, f"seed {seed}: {wait}"
                delays += 1
    assert delays or policy == "fifo-skip" or CLUSTERS < 6


def test_with_fifo_nobody_starts_who_came_after_one_that_waits_for_others() -> None:
    for seed in seeds():
        one = stream(seed, "fifo")
        for _ in range(ROUNDS):
            one.go_on()
            plan = one.schedule()
            blocked = [job.job_id for job in one.pending if not isinstance(plan.waits[job.job_id], Infeasible)]
            assert all(start.job_id < min(blocked, default=start.job_id + 1) for start in plan.starts), f"seed {seed}"
            overlay = Overlay.of(one.snapshot())
            for job in one.pending:
                is_behind = isinstance(plan.waits[job.job_id], Behind)
                assert is_behind == (place(overlay, job.shape, list(range(len(one.nodes)))) is not None), f"seed {seed}"
