"""Reservations under faults of every kind: a series and some made by the way, jobs inside and outside, nodes that fail.

Each time that the line names takes place once, nothing is kept twice, and no job from outside is where and when
something is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from gq.model.ids import AttemptId
from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState
from gq.wire import client
from gqd.control.apply.table import apply
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.policy import Partition
from tests.builders import ALICE, BOB, OWNER, SHARED, inventory, submit
from tests.simulation.conftest import played_again_by, seeds_of
from tests.simulation.world import Faults, World

ROUNDS = 8
FAULTS = Faults(
    drop=0.05, repeat=0.05, slow=0.05, refuse=0.03, node_crashes=5.0, power_losses=1.0, controller_crashes=30.0,
    partitions=1.0,
)  # fmt: skip
MINUTE = 60
PERIOD_S = 10 * MINUTE
LASTS_S = 30 * MINUTE
POLICY = msgspec.structs.replace(
    SHARED,
    owner_uid=OWNER.uid,
    partitions=(Partition(name="main", is_default=True, max_time_s=300),),
    booking=Rules(users=True, horizon_s=30 * MINUTE),
)
RELEASED = OccurrenceState.RELEASED
CHANGES_OF_CLOCKS = ("2026-03-29T01:00+00:00", "2026-10-25T01:00+00:00")
"""Of the series' zone: the seeds live over one of them."""
SERIES = Booking(
    name="series",
    resources=ResourceRequest(gpus=4),
    cron="*/10 * * * *",
    zone="Europe/Berlin",
    duration_s=5 * MINUTE,
    no_show_s=MINUTE,
    users=("bob",),
)


class People:
    def __init__(self, world: World, is_lent: bool = False) -> None:
        self.world = world
        self.is_lent = is_lent
        """Those outside borrow."""
        self.made = 0
        self.taken = 0
        """Offers that were accepted."""

    def act(self) -> None:
        """One thing that somebody does."""
        world, random = self.world, self.world.random
        if world.controller is None:
            return
        cluster = world.controller.cluster
        there = list(cluster.reservations)
        choice = random.random()
        if choice < 0.35:
            limit_s = random.choice((40, 90, 240))
            qos = "scavenger" if self.is_lent else ""
            world.ask(submit("outside", gpus=random.randint(1, 4), time_limit_s=limit_s, qos=qos), ALICE)
        elif choice < 0.45:
            limit_s = random.choice((40, 40, 200))
            named = submit("inside", gpus=random.randint(1, 2), time_limit_s=limit_s, reservation=random.choice(there))
            world.ask(named, random.choice((ALICE, BOB)))
        elif choice < 0.5 and (running := [job for job in cluster.jobs.values() if job.state is JobState.RUNNING]):
            job = random.choice(running)
            world.ask(client.UpdateJob(job_id=job.job_id, time_limit_s=random.choice((120, 280))), OWNER)
        elif choice < 0.65:
            self._reserve()
        elif choice < 0.85:
            self._change(random.choice(there))
        else:
            action = random.choice(("drain", "resume", "resume"))
            world.ask(client.UpdateNodes(names=(f"n{random.randint(1, 3)}",), action=action, reason="a fan"))

    def _reserve(self) -> None:
        world, random = self.world, self.world.random
        self.made += 1
        resources = random.choice((ResourceRequest(gpus=2), ResourceRequest(nodes_min=1, is_exclusive=True)))
        booking = Booking(
            name=f"own{self.made % 4}",
            resources=resources,
            begin_at=world.now + random.choice((0, 90, 300)),
            duration_s=random.choice((120, 300)),
            no_show_s=random.choice((None, 60)),
            purge_s=random.choice((None, 30)),
        )
        body = client.SetReservation(booking=booking, replace=random.random() < 0.5)
        world.ask(body, ALICE)
        if isinstance(world.replied, client.Refused) and world.replied.offers:
            self._take(body, world.replied)

    def _take(self, body: client.SetReservation, refused: client.Refused) -> None:
        """What is offered can be had, also from a controller that was started again meanwhile."""
        world, random = self.world, self.world.random
        if random.random() < 0.5:
            world.restart_controller()
        offer = random.choice(refused.offers)
        booking = msgspec.structs.replace(
            body.booking, begin_at=offer.begin_at, duration_s=offer.duration_s, resources=offer.resources
        )
        world.ask(msgspec.structs.replace(body, booking=booking), ALICE)
        assert isinstance(world.replied, client.Reserved | None), f"{offer} is refused: {world.replied}"
        self.taken += world.replied is not None

    def _change(self, name: str) -> None:
        world, random = self.world, self.world.random
        assert world.controller is not None
        if name == SERIES.name:
            world.ask(client.SetReservation(booking=SERIES, replace=True), ALICE)  # as cron would, again and again
            return
        numbers = list(world.controller.cluster.reservations[name].occurrences) or [1]
        body: Any = random.choice(
            (
                client.EditOccurrence(name=name, number=numbers[0], duration_s=random.choice((60, 400))),
                client.SkipOccurrence(name=name),
                client.EndReservation(name=name),
                client.DeleteReservation(name=name),
            )
        )
        world.ask(body, ALICE)


def play(seed: int, is_lent: bool = False) -> World:
    change_at = datetime.fromisoformat(CHANGES_OF_CLOCKS[seed % 2]).timestamp()
    nodes = {f"n{number}": inventory() for number in range(1, 4)}
    world = World(seed, nodes, policy=POLICY, now=change_at - LASTS_S / 2)
    world.run(world.now + 1.0)
    world.ask(client.SetReservation(booking=SERIES), ALICE)
    began_at, people = world.now, People(world, is_lent)
    world.faults = FAULTS
    while world.now < began_at + LASTS_S:
        world.run(world.now + world.random.uniform(0.0, 30.0))
        people.act()
    world.calm()
    world.ask(client.UpdateNodes(names=("n1", "n2", "n3"), action="resume"))
    world.run(world.now + 2.0)
    world.ask(client.DeleteReservation(name=SERIES.name), ALICE)
    world.ask(client.CancelJobs(filter=client.JobFilter(users=("alice", "bob"))))
    world.run(world.now + 7200.0, stop=world.is_quiet)
    events = world.store.events()
    judge_series(events, began_at, world.now)
    judge_places(events)
    return world


def judge_series(events: list[event.Event], began_at: float, ended_at: float) -> None:
    """Once for each time that the line names, and each begins and ends in its time, or earlier where nobody came.

    A line of ten minutes goes on so while clocks change.
    """
    planned = {one.number: one for one in events if isinstance(one, event.OccurrencePlanned) and one.name == "series"}
    begins = [one.begin_at for one in planned.values()]
    first = (began_at // PERIOD_S + 1) * PERIOD_S
    assert begins == [first + PERIOD_S * number for number in range(len(begins))], f"it is planned for {begins}"
    ended = [one for one in events if isinstance(one, event.OccurrenceEnded) and one.name == "series"]
    inside = [one for one in events if isinstance(one, event.JobAllocated) and one.reservation == "series"]
    began = {one.attempt_id for one in events if isinstance(one, event.JobStarted)}
    used = {one.occurrence for one in inside if one.attempt_id in began}
    assert len(ended) == len({one.number for one in ended}), "an occurrence ended twice"
    past = [one.number for one in planned.values() if one.end_at <= ended_at - MINUTE]
    gone = {one.number for one in ended}
    removed = any(isinstance(one, event.ReservationRemoved) and one.name == "series" for one in events)
    assert removed or gone.issuperset(past), "an occurrence did not end"
    for one in ended:
        if one.state is OccurrenceState.OVER:
            assert 0 <= one.at - planned[one.number].end_at < MINUTE, f"{one} came late"
        if one.state is OccurrenceState.RELEASED:
            assert one.number not in used, f"{one} was used"
            assert one.at >= planned[one.number].begin_at + MINUTE, f"{one} came early"


def judge_places(events: list[event.Event]) -> None:
    """Of every start, as things stood then: inside, it is on what is kept; outside, it is over before, or elsewhere."""
    kept: dict[tuple[str, int], event.OccurrencePlanned | event.OccurrenceChanged] = {}
    jobs: dict[int, int | None] = {}
    began: dict[AttemptId, float] = {}
    ending: dict[AttemptId, float] = {}
    held: dict[AttemptId, event.JobAllocated] = {}
    anew: list[AttemptId] = []
    """Has begun, or has another limit: to be judged, unless it is ended in the same breath."""

    def judge_runs(runs: Iterable[AttemptId], by: event.Event) -> None:
        """None that runs may, by its limit, still be there when something of another's is kept: began late or not."""
        for run in runs:
            own, limit_s = held[run], jobs[run.job_id]
            assert limit_s is not None, f"{run} has no limit"
            until = min(began[run] + limit_s, ending.get(run, math.inf)) + POLICY.timers.grace_s
            for (name, _), other in kept.items() if not own.borrows else ():
                is_met = name != own.reservation and until > other.begin_at and by.at < other.end_at
                assert not is_met or not things(own.grants) & things(other.grants), f"{run} reaches {other}, by {by}"

    for one in events:
        if anew and not (isinstance(one, event.JobEnding) and one.attempt_id in anew):
            judge_runs(anew, one)
        anew.clear()
        match one:
            case event.JobSubmitted() | event.JobUpdated():
                jobs[one.job_id] = one.time_limit_s
                anew += [run for run in began if run.job_id == one.job_id]
            case event.OccurrencePlanned() | event.OccurrenceChanged():
                kept[one.name, one.number] = one
                judge_runs(began, one)
            case event.JobStarted():
                began[one.attempt_id] = one.at
                anew.append(one.attempt_id)
            case event.JobEnding():
                ending[one.attempt_id] = one.at
            case event.JobEnded() | event.JobRequeued():
                began = {run: at for run, at in began.items() if run.job_id != one.job_id}
            case event.OccurrenceEnded():
                del kept[one.name, one.number]
            case event.ReservationRemoved():
                kept = {key: value for key, value in kept.items() if key[0] != one.name}
            case event.JobAllocated():
                held[one.attempt_id] = one
                until = one.at + (jobs[one.attempt_id.job_id] or 0)
                own = (one.reservation, one.occurrence)
                if one.occurrence:
                    assert things(one.grants) <= things(kept[own].grants), f"{one} is not on {kept[own]}"
                    assert kept[own].begin_at <= one.at, f"{one} is before {kept[own]}"
                    assert until <= kept[own].end_at, f"{one} is beyond {kept[own]}"
                for key, other in kept.items():
                    if key[0] in one.borrows:
                        continue
                    is_met = until > other.begin_at - POLICY.clear_s and one.at < other.end_at
                    is_apart = key[0] == one.reservation or not things(one.grants) & things(other.grants)
                    assert is_apart or not is_met, f"{one} meets {other}"


def things(grants: tuple[Grant, ...]) -> set[tuple[str, str, int]]:
    gpus = {(one.node, "GPU", gpu) for one in grants for gpu in one.gpus}
    return gpus | {(one.node, "CPU", cpu) for one in grants for cpu in one.cpus}


def is_rebuilt(world: World) -> bool:
    """By the events alone."""
    cluster = Cluster()
    for one in world.store.events():
        apply(cluster, one)
    assert world.controller is not None
    return cluster.reservations == world.controller.cluster.reservations


@pytest.mark.slow
def test_what_is_kept_is_kept_whatever_crashes(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed)
            assert world.is_quiet(), "something is left"
            assert is_rebuilt(world)


def test_what_is_kept_and_lent_is_kept_whatever_crashes(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world = play(seed, is_lent=True)
            assert world.is_quiet() and not cluster_of(world).claims, "something is left"
            assert is_rebuilt(world)


def cluster_of(world: World) -> Cluster:
    assert world.controller is not None
    return world.controller.cluster


@pytest.mark.slow
def test_the_seeds_have_borrowers_that_give_way_to_jobs_of_reservations() -> None:
    worlds = [play(seed, is_lent=True) for seed in range(1000, 1006)]
    events = [one for world in worlds for one in world.store.events()]
    borrowed = {one.attempt_id for one in events if isinstance(one, event.JobAllocated) and one.borrows}
    decided = [one for one in events if isinstance(one, event.PreemptionDecided) and one.reservation]
    assert len(borrowed) > 10
    assert decided and all(victim in borrowed for one in decided for victim, _ in one.victims)
    inside = {one.attempt_id.job_id for one in events if isinstance(one, event.JobAllocated) and one.occurrence}
    assert inside & {one.job_id for one in decided}, "and these start then"


# ── what is released ──────────────────────────────────────────────────────────────────────────────────────────

NIGHTLY = msgspec.structs.replace(SERIES, name="nightly", users=("alice",))
CRASHES = Faults(drop=0.05, repeat=0.05, slow=0.05, controller_crashes=600.0)
BACK_S = 30.0
"""After a crash the controller is there again, and its node has said hello."""


def play_released(seed: int) -> tuple[int, int]:
    """Whom a reservation keeps out that nobody uses starts in the pass that releases it, or after the crash that came
    between.  Returns how often it was so."""
    world = World(seed, {"n1": inventory()}, policy=POLICY, now=PERIOD_S * 1000.0 + 1)
    world.run(world.now + 1.0)
    world.ask(client.SetReservation(booking=NIGHTLY), ALICE)
    ends_at = world.now + LASTS_S
    while world.now < ends_at:
        begin_at = (world.now // PERIOD_S + 1) * PERIOD_S
        world.run(begin_at + world.random.uniform(1.0, 50.0))
        world.ask(submit("outside", gpus=4, time_limit_s=40), BOB)
        world.run(begin_at + MINUTE - 0.1)
        world.faults = CRASHES
        world.run(begin_at + MINUTE + 0.4)
        world.calm()
        world.run(begin_at + 4 * MINUTE)  # a controller that has just come back waits as long as it would for anybody
    events = world.store.events()
    released = [one.at for one in events if isinstance(one, event.OccurrenceEnded) and one.state is RELEASED]
    submitted = {one.job_id: one.at for one in events if isinstance(one, event.JobSubmitted)}
    first = {one.attempt_id.job_id: one.at for one in events[::-1] if isinstance(one, event.JobAllocated)}
    at_once = late = 0
    for job_id, asked_at in submitted.items():
        at = next(one for one in released if one >= asked_at)
        if first[job_id] == at:
            at_once += 1
            continue
        late += 1
        [*_, crash_at] = (one for one in world.crashed_at if one <= first[job_id])
        assert at <= crash_at, f"job {job_id} waited {first[job_id] - at} s for it"
        assert first[job_id] <= crash_at + BACK_S, f"job {job_id} waited {first[job_id] - crash_at} s after a crash"
    return at_once, late


def test_what_is_released_is_used_in_the_same_pass_whatever_crashes(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            assert sum(play_released(seed)) == LASTS_S // PERIOD_S


@pytest.mark.slow
def test_the_seeds_release_with_and_without_a_crash() -> None:
    at_once, late = (sum(column) for column in zip(*(play_released(seed) for seed in range(1000, 1008)), strict=True))
    assert at_once > late > 0


@pytest.mark.slow
def test_the_seeds_meet_all_that_may_happen_to_an_occurrence() -> None:
    worlds = [play(seed) for seed in (1002, 1005, 1007)]
    assert all(one.is_quiet() and is_rebuilt(one) for one in worlds)
    events = [one for world in worlds for one in world.store.events()]
    ends = {one.state for one in events if isinstance(one, event.OccurrenceEnded)}
    assert ends >= {OccurrenceState.OVER, OccurrenceState.RELEASED, OccurrenceState.ENDED}
    assert any(isinstance(one, event.JobAllocated) and one.occurrence for one in events)
    assert any(isinstance(one, event.OccurrenceChanged) for one in events)
