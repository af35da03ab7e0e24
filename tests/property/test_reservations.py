"""Random clusters, reservations and jobs: what is reserved is kept from others, and nobody runs on inside of it.

``GQ_CLUSTERS=1000`` looks at so many lives instead of a few; a failure names its seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.limits.ledger import NO_LIMITS
from gqd.sched.snapshot.model import PendingJob, ReservedOccurrence, Snapshot
from gqd.state.plan import Plan, Start
from tests.effort import first
from tests.property.streams import POLICIES, Stream, scheduling, sliced

LIVES = int(os.environ.get("GQ_CLUSTERS", "2"))
ROUNDS = 30
CLEAR_S = 5.0
USERS = ("ada", "bob")


@dataclass
class Reserved(Stream):
    """A cluster of which parts are reserved; every job has a time limit."""

    booked: list[ReservedOccurrence] = field(default_factory=list)
    past: list[ReservedOccurrence] = field(default_factory=list)
    held: dict[JobId, tuple[Start, float, float]] = field(default_factory=dict)
    """By job that ever started: its start, when that was, and when it would be over at the latest."""
    known: dict[JobId, tuple[ReservedOccurrence, ...]] = field(default_factory=dict)
    """What was reserved when it started."""
    _numbers: int = 0

    def arrive_as(self, user: str, reservation: str = "") -> PendingJob:
        job = replace(self.arrive(), user=user, reservation=reservation)
        self.pending[-1] = job
        return job

    def go_on(self) -> None:
        super().go_on()
        for place, job in enumerate(self.pending):
            names = [one.name for one in self.booked]
            if job.since == self.now and job.user == "ada" and self.random.random() < 0.5:
                reservation = self.random.choice(["", *names]) if names else ""
                self.pending[place] = replace(job, user=self.random.choice(USERS), reservation=reservation)
        self.past += [one for one in self.booked if one.end_at <= self.now]
        self.booked = [one for one in self.booked if one.end_at > self.now]

    def next_instant(self) -> float:
        """No further than to where a reservation begins or ends."""
        due = [at for one in self.booked for at in (one.begin_at, one.end_at) if at > self.now]
        return min([super().next_instant(), *due])

    def reserve(self, begins_in_s: float) -> ReservedOccurrence | None:
        """Some cells of some nodes, which nobody else has reserved for that time and no job holds by then."""
        pick = self.random
        begin_at = self.now + begins_in_s
        end_at = begin_at + pick.choice((50.0, 200.0, 500.0))
        grants = []
        for node in self.nodes:
            cpus, gpus, memory_mib = (1 << node.cpus) - 1, node.gpu_mask, node.memory_mib
            for taken in self._taken(begin_at - CLEAR_S, end_at, node.name):
                cpus &= ~sum(1 << one for one in taken.cpus)
                gpus &= ~sum(1 << one for one in taken.gpus)
                memory_mib -= taken.memory_mib
            own_cpus, own_gpus = bits(cpus), bits(gpus)
            count = pick.randint(0, len(own_cpus))
            if count and memory_mib > 0 and pick.random() < 0.7:
                some = own_gpus[: pick.randint(0, len(own_gpus))]
                memory_mib = pick.choice((memory_mib, memory_mib // 2))
                grants.append(Grant(node=node.name, cpus=own_cpus[-count:], gpus=some, memory_mib=memory_mib))
        if not grants:
            return None
        self._numbers += 1
        one = ReservedOccurrence(
            name=f"r{self._numbers}",
            number=1,
            clear_at=begin_at - CLEAR_S,
            begin_at=begin_at,
            end_at=end_at,
            grants=tuple(grants),
            owner="ada",
            is_magnetic=pick.random() < 0.3,
            is_flex=pick.random() < 0.2,
        )
        self.booked.append(one)
        return one

    def _taken(self, begin_at: float, end_at: float, node: str) -> Iterator[Grant]:
        for one in self.booked:
            if one.clear_at < end_at and begin_at < one.end_at:
                yield from (grant for grant in one.grants if grant.node == node)
        for job in self.running.values():
            if job.ends_at is None or job.ends_at > begin_at:
                yield from (grant for grant in job.grants if grant.node == node)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), booked=tuple(sorted(self.booked, key=lambda one: one.begin_at)))

    def schedule(self, explains: bool = True, skip_planned_starts: bool = False) -> Plan:
        plan = self.plan = sliced(self.snapshot(), 10**9, not explains, skip_planned_starts)
        by_id = {job.job_id: job for job in self.pending}
        for start in plan.starts:
            job = by_id[start.job_id]
            self.start(job, start.grants, start.slot)
            running = self.running[job.job_id]
            self.running[job.job_id] = replace(running, reservation=start.reservation, occurrence=start.occurrence)
            self.held[job.job_id] = (start, self.now, self.now + (job.time_limit_s or 0))
            self.known[job.job_id] = tuple(self.booked)
        return plan


def bits(mask: int) -> tuple[int, ...]:
    return tuple(one for one in range(mask.bit_length()) if mask >> one & 1)


def meets(some: tuple[Grant, ...], others: tuple[Grant, ...]) -> bool:
    return any(
        one.node == other.node and (set(one.cpus) & set(other.cpus) or set(one.gpus) & set(other.gpus))
        for one in some
        for other in others
    )


def lives(policy: str, reserves_later: bool = True) -> Iterator[Reserved]:
    """Each round of each life, after its plan."""
    for seed in range(LIVES):
        life = Reserved(seed, scheduling(policy))
        for begins_in_s in (0.0, 60.0, 300.0, 1000.0):
            life.reserve(begins_in_s)
        for _ in range(ROUNDS):
            life.go_on()
            if reserves_later and life.random.random() < 0.2:
                life.reserve(life.random.choice((10.0, 100.0, 700.0)))
            for one in life.booked:
                if life.random.random() < 0.2:
                    life.arrive_as("ada", one.name)
            yield life


def check_outside(life: Reserved, start: Start, at: float, until: float, booked: ReservedOccurrence) -> None:
    if (start.reservation, start.occurrence) == (booked.name, booked.number) or until <= booked.clear_at:
        return
    if at < booked.end_at:
        assert not meets(start.grants, booked.grants), f"seed {life.seed}: {start} runs into {booked}"


def check_inside(life: Reserved, start: Start, at: float, until: float, booked: ReservedOccurrence) -> None:
    for grant in start.grants:
        own = next((one for one in booked.grants if one.node == grant.node), None)
        assert own is not None, f"seed {life.seed}: {start} is outside of {booked}"
        assert set(grant.cpus) <= set(own.cpus) and set(grant.gpus) <= set(own.gpus), f"seed {life.seed}: {start}"
    assert booked.begin_at <= at, f"seed {life.seed}: {start} began before {booked}"
    assert until <= booked.end_at or booked.is_flex, f"seed {life.seed}: {start} outlives {booked}"


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_outside_nobody_meets_what_is_reserved_and_inside_nobody_leaves_it(policy: str) -> None:
    inside = outside = 0
    for life in lives(policy):
        for start in life.schedule().starts:
            _, at, until = life.held[start.job_id]
            for booked in life.known[start.job_id]:
                if start.reservation == booked.name:
                    check_inside(life, start, at, until, booked)
                    inside += 1
                else:
                    check_outside(life, start, at, until, booked)
                    outside += 1
    assert inside > LIVES and outside > 20 * LIVES


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_nothing_is_given_twice_and_no_memory_that_is_kept_is_missing_inside(policy: str) -> None:
    for life in lives(policy):
        life.schedule()
        snapshot = life.snapshot()
        assert min(snapshot.free_memory_mib) >= 0, f"seed {life.seed}"
        for place, node in enumerate(life.nodes):
            grants = [grant for job in life.running.values() for grant in job.grants if grant.node == node.name]
            for kind in ("cpus", "gpus"):
                taken = [one for grant in grants for one in getattr(grant, kind)]
                assert len(taken) == len(set(taken)), f"seed {life.seed}: {kind} of {node.name} are given twice"
            kept = sum(memory_kept(life, one, node.name) for one in life.booked if one.is_active(life.now))
            assert snapshot.free_memory_mib[place] >= kept, f"seed {life.seed}: {node.name} at {life.now}"


def memory_kept(life: Reserved, one: ReservedOccurrence, node: str) -> int:
    """What those inside do not have yet."""
    own = [job for job in life.running.values() if (job.reservation, job.occurrence) == (one.name, one.number)]
    held = sum(grant.memory_mib for job in own for grant in job.grants if grant.node == node)
    return max(0, sum(grant.memory_mib for grant in one.grants if grant.node == node) - held)


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_a_plan_still_holds_when_it_is_looked_at_start_by_start(policy: str) -> None:
    taken = 0
    for life in lives(policy):
        snapshot = life.snapshot()
        plan = sliced(snapshot, 10**9)
        by_id = {job.job_id: job for job in life.pending}
        validator = PlanValidator(replace(snapshot, pending=(), columns=None, protected=(), limits=NO_LIMITS))
        for start in plan.starts:
            job = by_id[start.job_id]
            applicant = StartRequest(job.job_id, job.user, job.account, job.reservation, job.time_limit_s)
            assert validator.admit(start, applicant), f"seed {life.seed}: {start}"
            taken += 1
        life.schedule()
    assert taken > 10 * LIVES


@pytest.mark.parametrize("policy", first(1, POLICIES))
def test_a_plan_is_the_same_however_the_pass_is_sliced_and_whether_it_explains(policy: str) -> None:
    for life in lives(policy):
        snapshot = life.snapshot()
        whole = sliced(snapshot, 10**9)
        assert sliced(snapshot, 3) == whole, f"seed {life.seed}"
        assert sliced(snapshot, 10**9, skip_reasons=True).starts == whole.starts, f"seed {life.seed}"
        life.schedule()


@pytest.mark.parametrize("policy", ["easy-user", "conservative"])
def test_no_promise_slips_where_what_is_reserved_was_so_before(policy: str) -> None:
    promised: dict[tuple[int, JobId], float] = {}
    kept = 0
    for life in lives(policy, reserves_later=False):
        plan = life.schedule()
        for start in plan.starts:
            at = promised.pop((life.seed, start.job_id), None)
            kept += at is not None
            assert at is None or life.now <= at, f"seed {life.seed}: {start} was promised {at}, starts {life.now}"
        for told in plan.protected:
            key = (life.seed, told.job_id)
            if told.is_promise:
                assert told.starts_at <= promised.get(key, told.starts_at), f"seed {life.seed}: {told}"
                promised[key] = told.starts_at
    assert kept
