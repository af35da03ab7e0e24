"""Random clusters with reservations: who borrows is in nobody's way, and goes when a job of the reservation comes.

``GQ_CLUSTERS=500`` looks at so many clusters instead of some; a failure names its seed.
"""

from __future__ import annotations

import os
from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

import pytest

from gq.model.account import BUILT_IN_QOS
from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gq.model.scheduling import Scheduling
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.placement.placement import place as put
from gqd.sched.planner import plan_whole
from gqd.sched.request import Shape, shape_of
from gqd.sched.reservation.scope import outside, with_running
from gqd.sched.snapshot.model import Overlay, PendingJob, ReservedOccurrence, RunningJob, Snapshot
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.plan import Plan, Start
from gqd.state.policy import Policy
from gqd.state.records import mask_of

CLUSTERS = int(os.environ.get("GQ_CLUSTERS", "60"))
NOW = 100_000.0
HOUR = 3600
MEMORY_MIB = 1000


@dataclass
class Scene:
    """Some of it is reserved, some is used; scavengers and others wait."""

    seed: int
    backfill: str = "skip"
    nodes: tuple[NodeFacts, ...] = ()
    booked: list[ReservedOccurrence] = field(default_factory=list)
    running: list[RunningJob] = field(default_factory=list)
    pending: list[PendingJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = pick = Random(self.seed)
        gpus = [pick.choice((2, 4)) for _ in range(pick.randint(1, 4))]
        self.nodes = tuple(
            NodeFacts(f"n{number}", 8, MEMORY_MIB, (("a", (1 << count) - 1),)) for number, count in enumerate(gpus)
        )
        for number in range(pick.randint(0, 4)):
            self._run(number + 1)
        for number in range(pick.randint(1, 3)):
            self._book(f"r{number}")
        for number in range(pick.randint(1, 6)):
            self.ask(100 + number, pick.choice(("scavenger", "scavenger", "normal")))

    def _run(self, number: int) -> None:
        """Ordinary jobs, some of them scavengers that have borrowed nothing."""
        grants = put(Overlay.of(self.snapshot()), self.shape(), list(range(len(self.nodes))))
        if grants is not None:
            ends_at = NOW + self.random.choice((0.5, 2.0, 30.0)) * HOUR
            self.running.append(self.as_running(number, grants, ends_at, self.random.choice(("normal", "scavenger"))))

    def as_running(self, number: int, grants: tuple[Grant, ...], ends_at: float | None, qos: str) -> RunningJob:
        began_at = NOW - self.random.random() * HOUR
        lead_s = self.random.choice((0.0, 0.0, 60.0, 600.0))
        return RunningJob(
            JobId(number),
            "eve",
            grants,
            ends_at,
            began_at=began_at,
            qos=qos,
            attempt=1,
            saved_at=began_at,
            lead_s=lead_s,
        )

    def _book(self, name: str) -> None:
        """Of what is free for all of the time; half of them are under way, some are never lent."""
        begin_at = self.random.choice((NOW - 60, NOW - 60, NOW + 600, NOW + 2 * HOUR))
        there = self.snapshot()
        books = Overlay.of(there)
        for one in self.booked:
            books.take_all({node.name: place for place, node in enumerate(self.nodes)}, one.grants)
        grants = put(books, self.shape(), list(range(len(self.nodes))))
        if grants is None:
            return
        self.booked.append(
            ReservedOccurrence(
                name=name,
                number=1,
                clear_at=begin_at - 30,
                begin_at=begin_at,
                end_at=begin_at + 4 * HOUR,
                grants=grants,
                owner="ada",
                is_magnetic=self.random.random() < 0.2,
                is_lent=self.random.random() < 0.8,
            )
        )

    def shape(self) -> Shape:
        pick = self.random
        nodes = pick.choice((1, 1, 1, 2))
        memory = pick.choice((None, 100, 400, 800))
        request = ResourceRequest(
            nodes_min=nodes,
            gpus_per_node=pick.choice((1, 1, 2, 4)),
            cpus_per_task=pick.choice((1, 2, 4)),
            mem_per_node_mib=memory,
        )
        return shape_of(request, "main")

    def ask(
        self, number: int, qos: str, user: str = "eve", reservation: str = "", shape: Shape | None = None
    ) -> PendingJob:
        job = PendingJob(
            job_id=JobId(number),
            attempt=0,
            user=user,
            shape=self.shape(),
            time_limit_s=int(self.random.choice((0.25, 1, 3, 20)) * HOUR) if not reservation else 600,
            is_held=False,
            begin_at=None,
            qos=qos,
            since=NOW,
            reservation=reservation,
        )
        self.pending.append(job)
        return job

    def snapshot(self) -> Snapshot:
        empty = Overlay.empty(self.nodes)
        there = Snapshot(
            now=NOW,
            policy=Policy(owner_uid=0, scheduling=Scheduling(backfill=self.backfill)),
            nodes=self.nodes,
            free_cpus=tuple(empty.free_cpus),
            free_gpus=tuple(empty.free_gpus),
            free_memory_mib=tuple(empty.free_memory_mib),
            pending=tuple(self.pending),
            running=(),
            booked=tuple(sorted(self.booked, key=lambda one: one.begin_at)),
            qos=BUILT_IN_QOS,
        )
        return with_running(there, self.running)

    def start(self, plan: Plan) -> None:
        """What it starts runs."""
        for start in plan.starts:
            job = self.job(start.job_id)
            ends_at = NOW + float(job.time_limit_s or 0)
            running = self.as_running(start.job_id, start.grants, ends_at, job.qos)
            self.running.append(
                replace(
                    running,
                    began_at=NOW,
                    saved_at=NOW,
                    reservation=start.reservation,
                    occurrence=start.occurrence,
                    is_borrowing=bool(start.borrows),
                )
            )
            self.pending.remove(job)

    def job(self, job_id: int) -> PendingJob:
        return next(one for one in self.pending if one.job_id == job_id)


def cells(grants: tuple[Grant, ...]) -> Counter[tuple[str, str, int]]:
    found = Counter((one.node, "gpu", each) for one in grants for each in one.gpus)
    return found + Counter((one.node, "cpu", each) for one in grants for each in one.cpus)


def see_that_nothing_is_held_twice(scene: Scene, plan: Plan) -> None:
    held: Counter[tuple[str, str, int]] = Counter()
    memory: Counter[str] = Counter()
    for grants in (*(one.grants for one in scene.running), *(one.grants for one in plan.starts)):
        held += cells(grants)
        memory.update({one.node: one.memory_mib for one in grants})
    assert max(held.values(), default=1) == 1
    assert max(memory.values(), default=0) <= MEMORY_MIB


def see_who_borrows(scene: Scene, plan: Plan, start: Start) -> None:
    job = scene.job(start.job_id)
    ends_at = NOW + float(job.time_limit_s or inf)
    assert BUILT_IN_QOS[job.qos].borrows_reserved and not start.reservation
    for one in scene.booked:
        if one.name in start.borrows:
            assert one.is_lent
        elif one.clear_at < ends_at:
            assert not (cells(one.grants) & cells(start.grants)), f"it says nothing of {one.name}"


def see_that_free_ones_did_not_suffice(scene: Scene, plan: Plan, start: Start) -> None:
    job = scene.job(start.job_id)
    ends_at = NOW + float(job.time_limit_s or inf)
    others = [RunningJob(one.job_id, "", one.grants, inf) for one in plan.starts if not one.borrows]
    view = outside(with_running(scene.snapshot(), others))
    books = Overlay.of(view)
    places = {node.name: place for place, node in enumerate(scene.nodes)}
    for one in scene.booked:
        if NOW < one.clear_at < ends_at:
            for grant in one.grants:
                books.take_masks(places[grant.node], mask_of(grant.cpus), mask_of(grant.gpus), 0)
    found = put(books, job.shape, list(range(len(scene.nodes))))
    if found is not None:  # then memory that is kept for later was in the way
        kept = {grant.node for one in scene.booked if NOW < one.clear_at < ends_at for grant in one.grants}
        assert kept & {one.node for one in found if one.memory_mib}


@pytest.mark.parametrize("backfill", ["skip", "protect", "none"])
def test_who_borrows_takes_what_is_lent_alone_and_only_where_nothing_else_would_do(backfill: str) -> None:
    lent = 0
    for seed in range(CLUSTERS):
        scene = Scene(seed, backfill)
        plan = plan_whole(scene.snapshot())
        try:
            see_that_nothing_is_held_twice(scene, plan)
            for start in plan.starts:
                if start.borrows:
                    lent += 1
                    see_who_borrows(scene, plan, start)
                    if backfill == "skip":
                        see_that_free_ones_did_not_suffice(scene, plan, start)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert lent > CLUSTERS // 6, "they have something to borrow"


def test_what_is_planned_can_be_adopted() -> None:
    for seed in range(CLUSTERS):
        scene = Scene(seed)
        snapshot = scene.snapshot()
        plan, validator = plan_whole(snapshot), PlanValidator(replace(snapshot, pending=()))
        for start in plan.starts:
            job = scene.job(start.job_id)
            applicant = StartRequest(job.job_id, job.user, job.account, job.reservation, job.time_limit_s, job.qos)
            assert validator.admit(start, applicant), f"seed {seed}: {start}"
        for one in plan.preemptions:
            job = scene.job(one.job_id)
            applicant = StartRequest(job.job_id, job.user, job.account, job.reservation, job.time_limit_s, job.qos)
            assert validator.admit_preemption(one, applicant), f"seed {seed}: {one}"


def test_a_job_of_the_reservation_waits_for_borrowers_no_longer_than_their_notice() -> None:
    """It would have started at once without them; and the borrowers of others are left alone."""
    decided = 0
    for seed in range(4 * CLUSTERS):
        scene = Scene(seed)
        scene.start(plan_whole(scene.snapshot()))
        scene.pending.clear()
        under_way = [one for one in scene.booked if one.is_active(NOW)]
        borrowers = [one for one in scene.running if one.is_borrowing]
        if not under_way or not borrowers:
            continue
        one = scene.random.choice(under_way)
        job = scene.ask(500, scene.random.choice(("normal", "scavenger")), "ada", one.name)
        twin = copy(scene)
        twin.running = [each for each in scene.running if not each.is_borrowing]
        would_start = bool(plan_whole(twin.snapshot()).starts)
        plan = plan_whole(scene.snapshot())
        told = f"seed {seed}: {plan.waits}"
        assert bool(plan.starts or plan.preemptions) == would_start, told
        if plan.preemptions:
            decided += 1
            see_that_it_starts_then(scene, plan, job, told)
    assert decided > CLUSTERS // 10, "some of them are in the way"


def see_that_it_starts_then(scene: Scene, plan: Plan, job: PendingJob, told: str) -> None:
    [one] = plan.preemptions
    ids = {each.job_id for each in one.victims}
    victims = [each for each in scene.running if each.job_id in ids]
    assert victims and all(each.is_borrowing for each in victims), told
    snapshot = scene.snapshot()
    applicant = StartRequest(job.job_id, job.user, job.account, job.reservation, job.time_limit_s, job.qos)
    assert PlanValidator(replace(snapshot, pending=())).admit_preemption(one, applicant), told
    scene.running = [each for each in scene.running if each.job_id not in ids]
    [start] = plan_whole(scene.snapshot()).starts
    assert (start.job_id, start.reservation) == (job.job_id, one.reservation), told
    for each in victims:  # none of them could stay
        scene.running.append(each)
        assert not plan_whole(scene.snapshot()).starts, told
        scene.running.remove(each)
