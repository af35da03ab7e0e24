"""On random clusters: nothing is given twice, plans hang on nothing but the snapshot, protected starts never slip, and
nobody waits for nothing.

``GQ_CLUSTERS=10000`` looks at so many clusters instead of a few; a failure names its seed.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain
from typing import Any, NamedTuple

import pytest

from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gqd.sched.placement.placement import is_possible, place
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.snapshot.model import Overlay, PendingJob, Snapshot
from gqd.sched.timeline.timeline import ends_if_started, run_estimate
from gqd.state.plan import BehindPlannedStart, Infeasible, Plan, Protected, Start, WouldDelay
from gqd.state.records import mask_of
from tests.effort import first
from tests.property.streams import MEMORY_MIB, POLICIES, Stream, node, scheduling, sliced

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "4"))
ROUNDS = 30
PROTECTING: dict[str, dict[str, object]] = {
    "default": {"protect_wide_after_s": 100.0, "protect_any_after_s": 300.0},
    "default-and-few": {"protect_wide_after_s": 50.0, "protect_any_after_s": 150.0, "protected_jobs": 2},
    "conservative-few": {"protected_jobs": 3},
    "conservative": {},
    "easy-user": {},
    "default-and-first": {"protect_wide_after_s": 50.0, "protect_any_after_s": None, "protected_jobs": 1},
}


def policies() -> list[Any]:
    return first(3, [*POLICIES, *(one for one in PROTECTING if one not in POLICIES)])


def stream(seed: int, policy: str, have_limits: bool = True) -> Stream:
    name = policy.removesuffix("-few").removesuffix("-first").removesuffix("-and")
    return Stream(seed, scheduling(name, **PROTECTING.get(policy, {})), have_limits)


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
            started = {start.job_id for start in plan.starts}
            assert started.isdisjoint(told.job_id for told in plan.protected), f"seed {seed}"
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


@pytest.mark.parametrize("policy", policies())
def test_brief_plans_start_the_same_jobs_pass_after_pass(policy: str) -> None:
    for seed in seeds():
        brief, full = (stream(seed, policy, have_limits=seed % 3 > 0) for _ in range(2))
        for _ in range(ROUNDS):
            brief.go_on()
            full.go_on()
            starts = brief.schedule(explains=False, skip_planned_starts=True).starts
            assert starts == full.schedule(explains=False).starts, f"seed {seed}"


# ── protected starts ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", first(3, [*PROTECTING, "easy"]))
def test_a_promised_start_never_comes_later(policy: str) -> None:
    promises = 0
    for seed in seeds():
        one = stream(seed, policy)
        promised: dict[JobId, Promised] = {}
        for _ in range(2 * ROUNDS):
            one.go_on()
            arrived = len(one.started_at) + len(one.pending)
            plan = one.schedule(explains=False)
            _forget_who_gives_way(promised, one, plan)
            for job_id, (at, _, _) in promised.items():
                started = one.started_at.get(job_id)
                assert (one.now if started is None else started) <= at, f"seed {seed}: job {job_id} was due at {at}"
            for protected in plan.protected:
                if protected.is_promise or one.scheduling.expect == "exact":
                    new = Promised(protected.starts_at, protected.slot, arrived)
                    due = promised.setdefault(protected.job_id, new).due
                    assert protected.starts_at <= due, (
                        f"seed {seed}: job {protected.job_id} slips from {due}: {protected}"
                    )
        promises += len(promised)
    assert promises > CLUSTERS


class Promised(NamedTuple):
    due: float
    slot: str
    arrived: int
    """How many had arrived by then; ids are in order."""


def _forget_who_gives_way(promised: dict[JobId, Promised], one: Stream, plan: Plan) -> None:
    """Wide jobs go before whom `fair` and `oldest` promised something, also if they came later."""
    kind_of = EligibilityCache(one.nodes, one.policy).kind_of
    wide = {job.job_id for job in one.pending if kind_of(job.shape).is_wide}
    wide |= {start.job_id for start in plan.starts if start.slot == "wide"}
    for job_id, told in list(promised.items()):
        if told.slot in ("fair", "oldest") and any(came > told.arrived for came in wide):
            del promised[job_id]


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


@pytest.mark.parametrize("policy", first(2, [*PROTECTING, "fifo-skip"]))
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
                beside = place(_left_beside(one, plan, job), job.shape, everywhere)
                assert beside is None, f"seed {seed}: job {job.job_id} delays nobody there, and waits: {beside}"
                delays += 1
    assert delays or policy == "fifo-skip" or CLUSTERS < 6


def _left_beside(one: Stream, plan: Plan, job: PendingJob) -> Overlay:
    """What is free now that nobody who is protected will need before the job would be over, counted from scratch."""
    ends = ends_if_started(job, one.now, one.scheduling)
    met = [told for told in plan.protected if told.starts_at < (ends.by_limit if told.is_promise else ends.expected)]
    snapshot, places = one.snapshot(), {node.name: place for place, node in enumerate(one.nodes)}
    cpus, gpus = list(snapshot.free_cpus), list(snapshot.free_gpus)
    memory = list(snapshot.free_memory_mib)
    for told in met:
        for grant in told.grants:
            cpus[places[grant.node]] &= ~mask_of(grant.cpus)
            gpus[places[grant.node]] &= ~mask_of(grant.gpus)
        held = _memory_held(one, plan, told)
        memory = [min(free, MEMORY_MIB - held[node.name]) for free, node in zip(memory, one.nodes, strict=True)]
    return Overlay(one.nodes, cpus, gpus, memory)


def _memory_held(one: Stream, plan: Plan, then: Protected) -> Counter[str]:
    """By node, when that one is to start."""
    grants = [told.grants for told in plan.protected if told.starts_at <= then.starts_at < told.until]
    for job in one.running.values():
        course = run_estimate(job, one.scheduling)
        if (course.limit_at if then.is_promise else course.expected_end(one.now)) > then.starts_at:
            grants.append(job.grants)
    held: Counter[str] = Counter()
    for grant in chain.from_iterable(grants):
        held[grant.node] += grant.memory_mib
    return held


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
                is_behind = isinstance(plan.waits[job.job_id], BehindPlannedStart)
                assert is_behind == (place(overlay, job.shape, list(range(len(one.nodes)))) is not None), f"seed {seed}"
