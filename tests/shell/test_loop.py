"""The turn: one reading of the clock, planning at its own pace, time, and the end when an invariant breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

import pytest

from gq.host.clock import Clock
from gq.model.ids import RequestId
from gq.model.policy_tables import PriorityWeights
from gq.wire import client
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sched.planner import Planner
from gqd.sched.snapshot.model import Snapshot
from gqd.shell.commit_queue import CommitQueue
from gqd.shell.inbox import Inbox
from gqd.shell.log import LOG
from gqd.shell.loop import Loop
from gqd.shell.metrics import Counters
from gqd.shell.planning import SLICE, Planning
from gqd.state.cluster import Cluster
from gqd.state.effect import Effect, Reply
from gqd.state.input import ClientRequest, Input, Peer, Tick, TimeLeapt
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from gqd.store.blobs import MemoryBlobStore
from gqd.store.memory import MemoryStore
from tests.shell.rig import job, until

PEER = Peer(uid=0, gid=0, user="root")


def request(body: client.RequestBody, number: int = 0) -> ClientRequest:
    return ClientRequest(
        peer=PEER, route=("clients", b"c"), request_id=RequestId(number.to_bytes(16, "big")), body=body
    )


class SpyCore(Controller):
    """The real core, which notes what it was given; `breaks_at` breaks an invariant there."""

    def __init__(self) -> None:
        super().__init__(Cluster(), Policy(weights=PriorityWeights(half_life_s=None)))  # nothing to note at its start
        self.handled: list[tuple[Input, float]] = []
        self.breaks_at: type | None = None
        self.wakeup_at: float | None = None

    def handle(self, happened: Input, now: float) -> Turn:
        self.handled.append((happened, now))
        body = getattr(happened, "body", None)
        assert self.breaks_at is None or not isinstance(body, self.breaks_at), "1: gpus of n1 are given twice"
        return super().handle(happened, now)

    def next_wakeup(self, now: float) -> float | None:
        return self.wakeup_at

    def ticks(self) -> int:
        return sum(isinstance(one, Tick) for one, _ in self.handled)


class Shell:
    """A loop without doors: effects are noted."""

    def __init__(self, core: SpyCore, tick_s: float = 3600.0, clock: Clock | None = None) -> None:
        self.core = core
        self.released: list[Effect] = []
        self.store = MemoryStore()
        self.counters = Counters()
        self.loop = Loop(core, Planning(core, Planner()), clock or Clock(), tick_s, self.counters)
        self.inbox = Inbox(1000, self.loop.wake, lambda: None)
        blobs = MemoryBlobStore()
        outgoing = CommitQueue(self.store, blobs, self._release, self.loop.wake)
        self.running = asyncio.create_task(self.loop.run(self.inbox, blobs, outgoing))

    def _release(self, effects: tuple[Effect, ...], blobs: Mapping[str, bytes]) -> None:
        self.released.extend(effects)

    async def stop(self) -> None:
        self.loop.stop()
        await asyncio.wait_for(self.running, 10)


def test_everything_in_a_turn_happens_at_one_instant() -> None:
    async def scenario() -> None:
        shell = Shell(SpyCore())
        for number in range(20):
            shell.inbox.put(request(job(), number))
        await until(lambda: len(shell.released) == 20)
        assert len({now for _, now in shell.core.handled}) == 1
        assert shell.counters.batches == 1
        await shell.stop()

    asyncio.run(scenario())


def test_what_was_decided_still_leaves_when_the_loop_is_stopped() -> None:
    async def scenario() -> None:
        shell = Shell(SpyCore())
        shell.store.hold()
        shell.inbox.put(request(job()))
        await until(lambda: shell.store._waiting)
        shell.loop.stop()
        assert not shell.running.done()
        shell.store.flush()
        await shell.stop()
        assert len(shell.released) == 1

    asyncio.run(scenario())


def test_time_is_told_when_the_core_asks_for_it_and_not_more_often() -> None:
    async def scenario() -> None:
        core = SpyCore()
        shell = Shell(core)
        core.wakeup_at = Clock().now() + 0.15
        shell.inbox.put(request(client.Ping()))
        await until(lambda: shell.released)
        assert core.ticks() == 0
        core_woke = core.wakeup_at
        await until(lambda: core.ticks() == 1)
        core.wakeup_at = None
        [at] = [now for one, now in core.handled if isinstance(one, Tick)]
        assert core_woke <= at < core_woke + 5
        await shell.stop()

    asyncio.run(scenario())


def test_the_core_hears_of_a_leap_of_the_clock_before_anything_else() -> None:
    leaps = [0.0]

    async def scenario() -> None:
        shell = Shell(SpyCore(), clock=Clock(lambda: time.time() + leaps[0]))
        shell.inbox.put(request(client.Ping()))
        await until(lambda: shell.released)
        leaps[0] = 7200.0
        shell.inbox.put(request(client.Ping(), 1))
        await until(lambda: len(shell.released) == 2)
        heard = [one for one, _ in shell.core.handled]
        [leap] = [one for one in heard if isinstance(one, TimeLeapt)]
        assert leap.by_s == pytest.approx(7200, abs=1)
        assert heard.index(leap) == 1 and len(heard) > 2
        await shell.stop()

    asyncio.run(scenario())


def test_ticks_come_by_themselves() -> None:
    async def scenario() -> None:
        shell = Shell(SpyCore(), tick_s=0.01)
        await until(lambda: shell.core.ticks() >= 3)
        assert all(isinstance(one, Tick) for one, _ in shell.core.handled), "nothing else happened"
        await shell.stop()

    asyncio.run(scenario())


def test_a_broken_invariant_ends_the_loop_with_the_jobs_story_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        core = SpyCore()
        shell = Shell(core)
        shell.inbox.put(request(job("the-unlucky-one")))
        await until(lambda: shell.released)
        core.breaks_at = client.NotifyJob
        shell.inbox.put(request(client.NotifyJob(job_id=1, text="hi"), 1))
        with pytest.raises(AssertionError, match="given twice"):
            await asyncio.wait_for(shell.running, 10)
        assert len(shell.released) == 1

    LOG.addHandler(caplog.handler)
    try:
        asyncio.run(scenario())
    finally:
        LOG.removeHandler(caplog.handler)
    story = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL)
    assert "NotifyJob" in story
    assert "the-unlucky-one" in story


# ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────


class SlowPlanner:
    """Takes `slices` slices for a pass, each `cost_s` long on a timer of its own."""

    def __init__(self, slices: int, cost_s: float) -> None:
        self.now = 0.0
        self._slices = slices
        self._cost_s = cost_s
        self._left = 0

    @property
    def is_busy(self) -> bool:
        return self._left > 0

    def begin(self, snapshot: Snapshot) -> None:
        self._left = self._slices

    def step(self, budget: int) -> Plan | None:
        assert budget == SLICE
        self.now += self._cost_s
        self._left -= 1
        return None if self._left else Plan(made_at=0.0, starts=(), waits={}, heads={})


class AlwaysWanting(SpyCore):
    def wants_plan(self, now: float) -> bool:
        return True


def test_a_pass_goes_on_in_slices_and_then_the_planner_rests_as_long_as_it_took() -> None:
    planner = SlowPlanner(slices=3, cost_s=0.5)
    planning = Planning(AlwaysWanting(), planner, timer=lambda: planner.now)
    for _ in range(3):
        assert planning.is_due(0.0)
        planning.slice(0.0)
    assert planning.passes == 1
    assert not planning.is_due(0.0)
    assert planning.rest_s(0.0) == pytest.approx(1.5)
    planner.now += 1.5
    assert planning.is_due(0.0)


def test_a_rest_ends_by_itself() -> None:
    async def scenario() -> None:
        shell = Shell(AlwaysWanting())
        await until(lambda: shell.counters.plans >= 3)
        assert shell.core.handled == [], "neither a request nor a tick woke the loop"
        await shell.stop()

    asyncio.run(scenario())


def test_a_reply_that_changed_nothing_needs_no_commit() -> None:
    async def scenario() -> None:
        shell = Shell(SpyCore())
        shell.store.hold()
        shell.inbox.put(request(client.Ping()))
        await until(lambda: shell.released)
        assert isinstance(shell.released[0], Reply)
        assert not shell.store._waiting
        await shell.stop()

    asyncio.run(scenario())
