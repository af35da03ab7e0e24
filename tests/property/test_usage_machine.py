"""Usage is what an independent recount of the attempts says, to the second, whatever happens and however late.

The recount reads the rows of the attempts in the store, each from its start to its end, and knows when the half-life
was changed to what; it integrates on its own and shares no code with the bookkeeping.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gq.errors import Refusal
from gq.model.job import ExitStatus
from gq.model.policy_tables import Billing, PriorityWeights
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.state.input import Peer, PolicyChanged, Tick, TimeLeapt
from gqd.store.rows.rows import attempt_of, job_of
from tests.builders import ADAM, ALICE, BOB, SHARED, hello, inventory, submit
from tests.hosts import CoreHost, obedient_reports

NODES = ("n1", "n2")
HALF_LIVES = (None, 30.0, 3600.0, 7 * 86400.0)
BILLING = Billing(gpu=1.0, gpu_types={"fake": 2.5}, cpu=0.1, memory_gib=0.03)
REQUESTS: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 3, "mem_per_node_mib": 5000},
    {"nodes_min": 2, "gpus_per_node": 1},
    {"cpus_per_task": 3},
    {"gpus": 1, "requeue": False},
    {"gpus": 1, "array": "1-3%2"},
]


def recount(host: CoreHost, changes: list[tuple[float, float | None]]) -> dict[tuple[str, str], float]:
    """Weighted GPU-seconds of each (user, account), decayed; `changes`: since when which half-life has held."""
    used: dict[tuple[str, str], float] = {}
    jobs = {row[0]: job_of(row) for row in host.store._tables["jobs"].values()}
    for row in host.store._tables["attempts"].values():
        attempt = attempt_of(row)
        if attempt.start_at is not None:
            job = jobs[attempt.attempt_id.job_id]
            until = host.now if attempt.end_at is None else attempt.end_at
            seconds = decayed_seconds(attempt.start_at, until, host.now, changes)
            place = (job.user, job.account)
            used[place] = used.get(place, 0.0) + attempt.billing / 1_000_000 * seconds
    return used


def decayed_seconds(start: float, end: float, now: float, changes: list[tuple[float, float | None]]) -> float:
    """By brute force: what is left now of each stretch between two instants at which anything changes."""
    instants = sorted({start, end, *(at for at, _ in changes if start < at < end)})
    left = 0.0
    for begin, stop in pairwise(instants):
        half_life = next(value for at, value in reversed(changes) if at <= begin)
        length = stop - begin
        if half_life is None:
            kept = length
        else:
            mean_life = half_life * 1.4426950408889634
            kept = mean_life * (1.0 - 0.5 ** (length / half_life))
        left += kept * left_of(stop, now, changes)
    return left


def left_of(since: float, now: float, changes: list[tuple[float, float | None]]) -> float:
    """Of what was there at `since`, the part that is left now."""
    part = 1.0
    bounds = [*(at for at, _ in changes[1:]), now]
    for (_, half_life), until in zip(changes, bounds, strict=True):
        if half_life is not None and until > since:
            part *= 0.5 ** ((until - since) / half_life)
        since = max(since, until)
    return part


class UsageMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy = msgspec.structs.replace(SHARED, billing=BILLING)
        self.host = CoreHost(self.policy, nodes={name: inventory(gpu_type="fake") for name in NODES})
        self.changes: list[tuple[float, float | None]] = [(0.0, self.policy.weights.half_life_s)]
        self.incarnations = 1

    def _ask(self, body: client.RequestBody, peer: Peer = ADAM) -> None:
        try:
            self.host.ask(body, peer=peer)
        except Refusal:
            return

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        fields=st.sampled_from(REQUESTS), peer=st.sampled_from([ALICE, BOB]), late_s=st.sampled_from([0.0, 5.0, 400.0])
    )
    def start(self, fields: dict[str, Any], peer: Peer, late_s: float) -> None:
        """The nodes tell late that it started, and when it was."""
        self._ask(submit(**fields), peer)
        self.host.schedule()
        for _ in range(6):
            orders, self.host.orders = self.host.orders, []
            for sent in orders:
                for body in obedient_reports(sent.order, self.host.now - late_s):
                    if sent.node in self.host.cluster.nodes:
                        self.host.report(sent.node, body)

    @rule(data=st.data(), late_s=st.sampled_from([0.0, 7.0, 90.0, 5000.0]), is_empty=st.booleans())
    def end(self, data: st.DataObject, late_s: float, is_empty: bool) -> None:
        active = [job for job in self.host.cluster.jobs.values() if job.holds_resources]
        if not active:
            return
        job = data.draw(st.sampled_from(active))
        attempt = self.host.attempt(job.job_id)
        ended = wire.AttemptEnded(
            attempt_id=attempt.attempt_id,
            outcome=data.draw(st.sampled_from([Outcome.COMPLETED, Outcome.NODE_FAIL, Outcome.TIMEOUT])),
            exit=ExitStatus(),
            ended_at=self.host.now - late_s,
            cell_emptied=is_empty,
        )
        self.host.report(attempt.batch_node, ended)
        self.host.report(attempt.batch_node, ended)

    @rule(job_id=st.integers(1, 8), verb=st.sampled_from(["cancel", "requeue", "hold", "release"]))
    def change(self, job_id: int, verb: str) -> None:
        bodies: dict[str, client.RequestBody] = {
            "cancel": client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))),
            "requeue": client.RequeueJobs(job_ids=(job_id,)),
            "hold": client.HoldJobs(job_ids=(job_id,)),
            "release": client.ReleaseJobs(job_ids=(job_id,)),
        }
        self._ask(bodies[verb])

    @rule()
    def obey(self) -> None:
        self.host.obey()

    @rule(seconds=st.sampled_from([1.0, 33.3, 400.0, 86400.0]), beats=st.booleans())
    def pass_time(self, seconds: float, beats: bool) -> None:
        """Without heartbeats nodes are lost, and their jobs fail or are queued again."""
        if beats:
            self.host.beat(self.host.now + seconds)
        self.host.handle(Tick(), self.host.now + (0.0 if beats else seconds))

    @rule(seconds=st.sampled_from([100.0, 10_000.0]))
    def leap(self, seconds: float) -> None:
        self.host.handle(TimeLeapt(by_s=seconds), self.host.now + seconds)

    @rule(node=st.sampled_from(NODES), remembers=st.booleans())
    def restart_node(self, node: str, remembers: bool) -> None:
        self.incarnations += 1
        held = self.host.cluster.nodes[node].held if remembers and node in self.host.cluster.nodes else {}
        attempts = tuple(wire.AttemptStatus(attempt_id=one, phase="running") for one in held)
        self.host.handle(hello(node, inventory(), incarnation=str(self.incarnations), attempts=attempts))

    @rule()
    def crash_the_controller(self) -> None:
        self.host.restart()
        for node in NODES:
            self.restart_node(node, True)

    @rule(half_life_s=st.sampled_from(HALF_LIVES))
    def change_the_half_life(self, half_life_s: float | None) -> None:
        self.policy = msgspec.structs.replace(self.policy, weights=PriorityWeights(half_life_s=half_life_s))
        self.host.policy = self.policy
        self.host.handle(PolicyChanged(policy=self.policy))
        if self.changes[-1][1] != half_life_s:
            self.changes.append((self.host.now, half_life_s))

    # ── what must always hold ─────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def usage_is_what_a_recount_says(self) -> None:
        cluster, wanted = self.host.cluster, recount(self.host, self.changes)
        for place, member in cluster.members.items():
            said = member.usage.value_at(self.host.now, cluster.half_life_s)
            assert abs(said - wanted.get(place, 0.0)) < 1e-3 + 1e-9 * said, f"{place}: {said}, a recount says {wanted}"
        assert wanted.keys() <= cluster.members.keys()

    @invariant()
    def what_started_is_billed(self) -> None:
        for attempt in self.host.cluster.attempts.values():
            assert attempt.billing > 0
        running = [job for job in self.host.cluster.jobs.values() if job.state is JobState.RUNNING]
        rate = sum(member.usage.rate for member in self.host.cluster.members.values())
        assert rate == sum(self.host.attempt(job.job_id).billing for job in running)


TestUsageMachine = UsageMachine.TestCase
TestUsageMachine.settings = settings(max_examples=7, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestUsageMachineForLong(UsageMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
