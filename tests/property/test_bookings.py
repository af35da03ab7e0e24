"""A walk at random: reservations are made, changed, moved and given up beside jobs and failing nodes.

Nothing is kept twice (`Cluster.check`), what is offered is accepted when it is taken, the same again changes nothing,
and the store and the events alone rebuild the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking, Flag
from gq.model.resource import ResourceRequest
from gq.model.state import JobState
from gq.wire import client
from gqd.state.events import event
from gqd.state.input import Peer, Tick
from gqd.state.policy import Partition
from gqd.state.reservation import Reservation
from tests.builders import ADAM, ALICE, BOB, OLGA, SHARED, hello, inventory, submit
from tests.effort import first
from tests.hosts import CoreHost

NODES = ("n1", "n2", "n3")
NAMES = ("a", "b", "c", "d")
PEOPLE = (ALICE, BOB, OLGA, ADAM)
HOUR = 3600
POLICY = msgspec.structs.replace(
    SHARED,
    partitions=(Partition(name="main", is_default=True, max_time_s=4 * HOUR),),
    booking=Rules(users=True, max_gpu_hours=200, horizon_s=3 * 86400),
)
RESOURCES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 4},
    {"gpus": 6},
    {"gpus": 4, "nodes_min": 2, "nodes_max": 2},
    {"nodes_min": 1, "is_exclusive": True},
    {"nodes_min": 2, "is_exclusive": True},
    {"nodelist": ("n2",), "is_exclusive": True},
]
FLAGS: list[tuple[Flag, ...]] = [(), (), (), (Flag.FLEX,), (Flag.MAGNETIC,), (Flag.IGNORE_JOBS,), (Flag.MAINT,)]
LINES = ("0 20 * * *", "0 */6 * * *", "30 2 * * 6")


STEPS = 150
T = TypeVar("T")


class Walk:
    """`seen`: what came of it, so that a test can say that it met something."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.host = CoreHost(POLICY, nodes={name: inventory() for name in NODES})
        self.seen: Counter[str] = Counter()
        self.rules: list[tuple[int, Callable[[], None]]] = [
            (8, self.reserve),
            (4, self.reserve_again_and_again),
            (4, self.edit),
            (2, self.skip),
            (1, self.end),
            (2, self.delete),
            (5, self.submit_job),
            (5, self.come),
            (3, self.finish),
            (2, self.administer),
            (1, self.register_again),
            (8, self.pass_time),
            (1, self.crash),
        ]

    def step(self) -> None:
        weights, rules = zip(*self.rules, strict=True)
        self.chance.choices(rules, weights)[0]()
        self.host.schedule()
        self.host.obey()

    def one_of(self, *choices: T) -> T:
        return self.chance.choice(choices)

    def _ask(self, body: client.RequestBody, peer: Peer = ADAM) -> client.ReplyBody | None:
        try:
            answer = self.host.ask(body, peer=peer)
        except Refusal:
            answer = self.host.replies[-1].body
        self.seen[answer.code if isinstance(answer, client.Refused) else type(body).__name__] += 1
        return answer

    # ── reservations ──────────────────────────────────────────────────────────────────────────────────────────

    def _somebody(self, known: Reservation | None = None) -> Peer:
        """Its owner more often than not."""
        owner = None if known is None else next(one for one in PEOPLE if one.user == known.owner)
        return self.one_of(*PEOPLE, *([owner] * 4 if owner is not None else ()))

    def _some(self) -> Reservation | None:
        there = list(self.host.cluster.reservations.values())
        return self.chance.choice(there) if there else None

    def _set(self, booking: Booking) -> None:
        known = self.host.cluster.reservations.get(booking.name)
        peer = self._somebody(known)
        body = client.SetReservation(booking=booking, replace=self.one_of(True, True, False))
        answer = self._ask(body, peer)
        if isinstance(answer, client.Refused) and answer.offers:
            self._take(body, peer, answer)
        elif isinstance(answer, client.Reserved):
            again = self._ask(msgspec.structs.replace(body, replace=True), peer)
            assert isinstance(again, client.Reserved), again
            assert not again.is_changed, "the same again changed something"

    def _take(self, body: client.SetReservation, peer: Peer, refused: client.Refused) -> None:
        """Any of the offers: it is accepted."""
        offer = self.one_of(*refused.offers)
        wanted = msgspec.structs.replace(
            body.booking,
            begin_at=None if body.booking.cron else offer.begin_at,
            duration_s=offer.duration_s,
            resources=offer.resources,
        )
        answer = self._ask(msgspec.structs.replace(body, booking=wanted), peer)
        assert isinstance(answer, client.Reserved), (refused, offer, answer)
        self.seen["taken"] += 1

    def reserve(self) -> None:
        begin_at = self.host.now + self.one_of(0, 0, 600, HOUR, 5 * HOUR, 30 * HOUR)
        booking = Booking(
            name=self.one_of(*NAMES),
            resources=ResourceRequest(**self.one_of(*RESOURCES)),
            begin_at=begin_at,
            duration_s=self.one_of(1, 3, 9) * HOUR,
            flags=self.one_of(*FLAGS),
            no_show_s=self.one_of(None, 900),
            purge_s=self.one_of(None, 300),
        )
        self._set(booking)

    def reserve_again_and_again(self) -> None:
        booking = Booking(
            name=self.one_of(*NAMES),
            resources=ResourceRequest(**self.one_of(*RESOURCES)),
            cron=self.one_of(*LINES),
            zone="Europe/Berlin",
            until_at=self.one_of(None, self.host.now + 5 * 86400),
            duration_s=self.one_of(1, 5) * HOUR,
        )
        self._set(booking)

    def edit(self) -> None:
        if (known := self._some()) is None or not known.occurrences:
            return
        one = self.one_of(*known.occurrences.values())
        by_s = self.one_of(-HOUR, 0, 0, 1800, 7 * HOUR)
        begin_at = max(0.0, one.begin_at + by_s) if by_s else None
        duration_s = self.one_of(None, 0, HOUR, 6 * HOUR)
        body = client.EditOccurrence(name=known.name, number=one.number, begin_at=begin_at, duration_s=duration_s)
        self._ask(body, self._somebody(known))

    def skip(self) -> None:
        if (known := self._some()) is not None:
            number = self.one_of(None, *known.occurrences)
            self._ask(client.SkipOccurrence(name=known.name, number=number), self._somebody(known))

    def end(self) -> None:
        if (known := self._some()) is not None:
            self._ask(client.EndReservation(name=known.name), self._somebody(known))

    def delete(self) -> None:
        if (known := self._some()) is not None:
            self._ask(client.DeleteReservation(name=known.name), self._somebody(known))

    # ── jobs, nodes, time ─────────────────────────────────────────────────────────────────────────────────────

    def submit_job(self) -> None:
        known = self.one_of(self._some(), None)
        gpus = self.chance.randint(0, 6)
        self._submit(known, self._somebody(known), gpus, self.chance.randint(1, 4 * 6) * 600)

    def come(self) -> None:
        """Somebody uses what is theirs."""
        active = [one for one in self.host.cluster.reservations.values() if one.active() is not None]
        if active:
            known = self.one_of(*active)
            self._submit(known, next(one for one in PEOPLE if one.user == known.owner), 1, 600)

    def _submit(self, known: Reservation | None, peer: Peer, gpus: int, limit_s: int) -> None:
        asked = {"gpus": gpus} if gpus else {"ntasks": 2}
        self._ask(submit(time_limit_s=limit_s, reservation="" if known is None else known.name, **asked), peer)

    def finish(self) -> None:
        running = [job for job in self.host.cluster.jobs.values() if job.state is JobState.RUNNING]
        if running:
            self.host.finish(self.one_of(*running).job_id)

    def administer(self) -> None:
        action = self.one_of("drain", "resume", "resume", "resume", "down")
        self._ask(client.UpdateNodes(names=(self.one_of(*NODES),), action=action, reason="a fan"))

    def register_again(self) -> None:
        """Perhaps with a GPU less."""
        self._hello(self.one_of(4, 4, 3))

    def _hello(self, gpus: int) -> None:
        for node in NODES:
            if not self.host.cluster.nodes[node].held:
                self.host.handle(hello(node, inventory(gpu_count=gpus)))

    def pass_time(self) -> None:
        """Jobs that come to their limits are over; nodes that are not heard of for long are lost."""
        now = self.host.now + self.one_of(1, 60, 900, HOUR, 6 * HOUR, 86400)
        for job in list(self.host.cluster.jobs.values()):
            if job.state is JobState.RUNNING and (job.start_at or 0.0) + (job.time_limit_s or 0) <= now:
                self.host.finish(job.job_id)
        if self.chance.random() < 0.9:
            self.host.beat(now)
        self.host.handle(Tick(), now)
        self._hello(4)

    def crash(self) -> None:
        self.host.restart()
        self._hello(4)


@pytest.mark.parametrize("seed", first(1, range(10)))
def test_nothing_is_kept_twice_and_what_is_offered_is_accepted(seed: int) -> None:
    """Every turn is checked (`CoreHost`)."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()

    inside = sum(isinstance(one, event.JobAllocated) and one.occurrence > 0 for one in walk.host.log)
    moved = sum(isinstance(one, event.OccurrenceChanged) for one in walk.host.log)
    assert min(inside, moved, walk.seen["conflict"], walk.seen["SetReservation"]) > 0, walk.seen
