"""The node's agent in a test's hands: attempts at any point of their life, and turns as values."""

from __future__ import annotations

from typing import Any

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus, SignalSpec, Usage
from gq.model.resource import Grant
from gq.model.step import StepLayout, StepPart
from gq.wire.node import GangMember, Go, Launch, LaunchStep, Order, Prepare
from gqnode.control.agent import Agent
from gqnode.control.agent_state import Settings
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import Effect, SaveRecord, SendReport
from gqnode.control.input import (
    CellEmpty,
    CellMade,
    Input,
    OrderReceived,
    ProcessEnded,
    ProcessStarted,
)

ATTEMPT = AttemptId(JobId(7), 1)
STEP = StepId(JobId(7), 1, 0)
PORT = 20_007
BLOBS = {"5c": b"#!/bin/sh\n", "e0": b"\x80"}
SETTINGS = Settings()


def launch(*, rank: int = 0, nodes: int = 1, job_id: int = 7, attempt: int = 1, **facts: Any) -> Launch:
    """Of the node ``n<rank + 1>``."""
    members = tuple(
        GangMember(node=f"n{one + 1}", address=f"10.0.0.{one + 1}", tasks=1, cpus=2, gpus=0) for one in range(nodes)
    )
    given: dict[str, Any] = {
        "attempt_id": AttemptId(JobId(job_id), attempt),
        "job_name": "job",
        "cluster": "gq",
        "user": "ann",
        "uid": 1000,
        "gid": 1000,
        "partition": "main",
        "node_rank": rank,
        "members": members,
        "grant": Grant(node=f"n{rank + 1}", tasks=1, cpus=(0, 1)),
        "script_digest": "5c" if rank == 0 and not facts.get("is_interactive") else "",
        "environment_digest": "e0",
    }
    return Launch(**{**given, **facts})


def step_order(step: int = 0, *, kill_on_bad_exit: bool = True, node: str = "n1") -> LaunchStep:
    layout = StepLayout(
        name="step", parts=(StepPart(node=node, first_rank=0, tasks=2, cpus=(0, 1)),), kill_on_bad_exit=kill_on_bad_exit
    )
    return LaunchStep(step_id=StepId(JobId(7), 1, step), key=b"k" * 32, layout=layout)


class AgentHost:
    """One agent.  Every call returns all that it wants done, in order."""

    def __init__(self, *records: AttemptRecord, node: str = "n1", settings: Settings = SETTINGS) -> None:
        self.agent = Agent(node, records, settings)

    def handle(self, input: Input, now: float = 100.0) -> tuple[Effect, ...]:
        return self.agent.handle(input, now)

    def order(self, order: Order, now: float = 100.0, blobs: dict[str, bytes] | None = None) -> tuple[Effect, ...]:
        return self.handle(OrderReceived(order=order, blobs=BLOBS if blobs is None else blobs), now)

    def record(self, attempt_id: AttemptId = ATTEMPT) -> AttemptRecord:
        record = self.agent.record(attempt_id)
        assert record is not None
        return record

    def next_seq(self) -> int:
        """Of the next new report."""
        return self.agent._state.outbox._next_seq


def reports(turn: tuple[Effect, ...]) -> list[Any]:
    return [one.body for one in turn if isinstance(one, SendReport)]


def without_saves(turn: tuple[Effect, ...]) -> list[Effect]:
    return [one for one in turn if not isinstance(one, SaveRecord)]


def at(phase: Phase, of: Launch | None = None, now: float = 100.0) -> AgentHost:
    """An agent whose one attempt has come to `phase` by the usual way (STOPPING, ENDED: its script ended with 0)."""
    wanted = of or launch()
    host = AgentHost(node=wanted.grant.node)
    host.order(Prepare(launch=wanted), now)
    ways: list[tuple[Phase, Input]] = [
        (Phase.PREPARED, CellMade(attempt_id=wanted.attempt_id, master_port=0 if wanted.node_rank else PORT)),
        (Phase.STARTING, OrderReceived(order=_go(wanted))),
        (Phase.RUNNING, ProcessStarted(attempt_id=wanted.attempt_id, at=now)),
        (Phase.STOPPING, script_end(attempt_id=wanted.attempt_id, at=now)),
        (Phase.ENDED, CellEmpty(attempt_id=wanted.attempt_id)),
    ]
    for reached, happening in ways:
        if host.record(wanted.attempt_id).phase is phase:
            break
        host.handle(happening, now)
        assert host.record(wanted.attempt_id).phase is reached
    return host


def _go(wanted: Launch) -> Order:
    return Go(attempt_id=wanted.attempt_id, master_port=PORT)


def script_end(
    code: int = 0,
    *,
    signal: int = 0,
    attempt_id: AttemptId = ATTEMPT,
    at: float = 200.0,
    oom: bool = False,
    why: str = "",
    is_lost: bool = False,
) -> ProcessEnded:
    return ProcessEnded(
        attempt_id=attempt_id,
        exit=ExitStatus(code=code, signal=signal),
        usage=Usage(user_cpu_s=1.0),
        ended_at=at,
        oom=oom,
        why=why,
        is_lost=is_lost,
    )


def limited(time_limit_s: int, grace_s: int = 30, signal: SignalSpec | None = None, **facts: Any) -> Launch:
    return launch(time_limit_s=time_limit_s, grace_s=grace_s, signal=signal, **facts)
