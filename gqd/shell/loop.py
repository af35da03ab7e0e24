"""The controller's loop: inbox → handle → plan → commit → effects.

Owns the order within a turn; decides nothing.  Each turn takes inputs from the inbox (at most `TURN_INPUTS`), makes the
scripts and environments of submissions durable, reads the clock once, lets the deciding code handle each input, runs
a slice of the planner, and queues the changed rows and the effects as one batch.

The loop ends by `stop`, by a failed commit, or by a broken invariant.  In the last two cases nothing has been
acknowledged that was not durable, and the daemon starts again from the store.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gq.host.clock import Clock
from gqd.control.turn import Turn
from gqd.shell.commit_queue import CommitQueue
from gqd.shell.crash_report import log_crash
from gqd.shell.estimating import Estimating
from gqd.shell.inbox import Inbox, Item
from gqd.shell.log import LOG
from gqd.shell.metrics import Counters
from gqd.shell.planning import Planning
from gqd.state.cluster import Cluster
from gqd.state.effect import Effect
from gqd.state.events.event import Event
from gqd.state.input import Input, Tick, TimeLeapt
from gqd.store.protocol import BlobStore
from gqd.store.rows.rows import materialise

TURN_INPUTS = 512
MIN_TICK_S = 0.005
"""Minimum delay of a tick, so that the loop never spins."""


class Core(Protocol):
    """The part of the deciding code that the loop calls; implemented by `gqd.control.controller.Controller`."""

    @property
    def cluster(self) -> Cluster: ...
    def handle(self, happened: Input, now: float) -> Turn: ...
    def resume(self, now: float) -> Turn: ...
    def next_wakeup(self, now: float) -> float | None: ...


class Loop:
    """Runs turns; `CommitQueue` and `Inbox` call `wake` when something has changed."""

    def __init__(
        self,
        core: Core,
        planning: Planning,
        clock: Clock,
        tick_s: float,
        counters: Counters,
        estimating: Estimating | None = None,
    ) -> None:
        self._core = core
        self._planning = planning
        self._estimating = estimating
        self._clock = clock
        self.tick_s = tick_s
        """Maximum time between two ticks; may be changed."""
        self._counters = counters
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._ticked_at = clock.now()
        self._alarms: list[asyncio.TimerHandle] = []
        self._alarm_rang = False

    def wake(self) -> None:
        self._changed.set()

    def stop(self) -> None:
        """End the loop after the current turn; its effects still leave."""
        self._is_stopping = True
        self.wake()

    async def run(self, inbox: Inbox, blobs: BlobStore, commit_queue: CommitQueue) -> None:
        """Run turns until `stop`; raises the failure that ends the loop otherwise."""
        self._send(commit_queue, [self._core.resume(self._clock.now())])
        try:
            while not self._is_stopping:
                await self._work(inbox, commit_queue)
                items = inbox.take(TURN_INPUTS)
                await self._keep_blobs(items, blobs)
                self._turn([item.input for item in items], commit_queue)
            await commit_queue.drain()
            self._raise_failure(commit_queue)
        finally:
            self._cancel_alarms()

    async def _work(self, inbox: Inbox, commit_queue: CommitQueue) -> None:
        """Wait until there is something to do and the commit queue has room."""
        if self._planning.is_under_way:
            await asyncio.sleep(0)
        while not self._is_stopping:
            self._raise_failure(commit_queue)
            if commit_queue.has_room and (inbox or self._has_work_of_its_own()):
                return
            self._changed.clear()
            self._set_alarms()
            await self._changed.wait()

    def _has_work_of_its_own(self) -> bool:
        now = self._clock.now()
        return self._is_tick_due(now) or self._planning.is_due(now) or self._is_estimate_due(now)

    def _is_estimate_due(self, now: float) -> bool:
        return self._estimating is not None and self._estimating.is_due(now)

    def _raise_failure(self, commit_queue: CommitQueue) -> None:
        if commit_queue.failure is not None:
            raise commit_queue.failure

    async def _keep_blobs(self, items: list[Item], blobs: BlobStore) -> None:
        """Store scripts and environments before the turn: no row may name a missing blob."""
        fresh = {name: data for item in items for name, data in item.blobs.items()}
        if fresh:
            await blobs.put(fresh)

    # ── one turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _turn(self, inputs: list[Input], commit_queue: CommitQueue) -> None:
        now = self._clock.now()
        leapt_s = self._clock.take_leap_s()
        if leapt_s:
            LOG.warning("the clock jumped forward by %.0f s", leapt_s)
            inputs.insert(0, TimeLeapt(by_s=leapt_s))
        if self._is_tick_due(now):
            self._ticked_at = now
            self._alarm_rang = False
            inputs.append(Tick())
        turns = [self._handle(input, now) for input in inputs]
        if self._planning.is_due(now):
            turns.append(self._planning.slice(now))
            self._counters.plans = self._planning.passes
        elif self._estimating is not None and self._estimating.is_due(now):
            turns.append(self._estimating.slice(now))
        self._counters.turns += 1
        self._counters.inputs += len(inputs)
        self._send(commit_queue, turns)

    def _handle(self, input: Input, now: float) -> Turn:
        try:
            return self._core.handle(input, now)
        except Exception:
            log_crash(input, self._core.cluster)
            raise

    def _send(self, commit_queue: CommitQueue, turns: list[Turn]) -> None:
        events: list[Event] = [event for turn in turns for event in turn.events]
        effects: list[Effect] = [effect for turn in turns for effect in turn.effects]
        batch = materialise(self._core.cluster, events) if events else None
        if batch is not None:
            self._counters.batches += 1
        if batch is not None or effects:
            commit_queue.push(batch, tuple(effects))

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_tick_due(self, now: float) -> bool:
        return self._alarm_rang or now - self._ticked_at >= self.tick_s

    def _set_alarms(self) -> None:
        """Set the timers before the loop sleeps: the next tick, and the next slice of planning and estimates."""
        now = self._clock.now()
        due_at = self._ticked_at + self.tick_s
        wanted_at = self._core.next_wakeup(now)
        if wanted_at is not None:
            due_at = min(due_at, wanted_at)
        self._cancel_alarms()
        loop = asyncio.get_running_loop()
        self._alarms = [loop.call_later(max(MIN_TICK_S, due_at - now), self._ring)]
        for pace in (self._planning, self._estimating):
            rest_s = None if pace is None else pace.rest_s(now)
            if rest_s is not None:
                self._alarms.append(loop.call_later(rest_s, self.wake))

    def _ring(self) -> None:
        self._alarm_rang = True
        self.wake()

    def _cancel_alarms(self) -> None:
        for alarm in self._alarms:
            alarm.cancel()
