"""Whatever happens, in whatever order: the invariants hold, the store and the event log rebuild the same cluster.

Nodes here are chaotic: they report what may be true in any order, late, twice, or never; they vanish and come back;
the controller crashes between any two turns.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gq.errors import Refusal
from gq.model.ask import AskAnswer
from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gq.model.key import KeyKind
from gq.model.reservation import Booking, Flag
from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.control import snapshot
from gqd.sched.priority.factors import rank
from gqd.sched.priority.order import priority_of
from gqd.state.input import Peer, Tick
from gqd.state.policy import Partition
from tests.builders import ADAM, ALICE, BOB, OLGA, SHARED, hello, inventory, join, public_key, submit, via
from tests.hosts import CoreHost, obedient_reports

NODES = ("n1", "n2", "n3")
PEOPLE = (ALICE, BOB, OLGA, ADAM, via("n1", ALICE), via("n2", BOB), via("n3", OLGA))
TOKENS = tuple(public_key(100 + number) for number in range(4))
KEYS = tuple(public_key(200 + number) for number in range(6))
REQUESTS: list[dict[str, Any]] = [
    {},
    {"gpus": 1},
    {"gpus": 4, "mem_per_node_mib": 1000},
    {"nodes_min": 2, "gpus_per_node": 3},
    {"nodes_min": 1, "nodes_max": 3, "gpus_per_node": 1},
    {"ntasks": 5, "gpus_per_task": 1},
    {"nodes_min": 3, "is_exclusive": True},
    {"gpus": 2, "is_held": True},
    {"gpus": 2, "is_interactive": True},
    {"gpus": 1, "nice": 5, "requeue": False},
    {"nodes_min": 2, "no_kill": True},
    {"gpus": 1, "array": "1-4"},
    {"gpus": 1, "array": "0-9:3", "array_throttle": 1, "fail_fast": True},
    {"gpus": 1, "array": "0-5", "array_auto": True, "sweep": (("lr", ("1", "2")), ("bs", ("a", "b", "c")))},
]

BOOKABLE = msgspec.structs.replace(SHARED, partitions=(Partition(name="main", is_default=True, max_time_s=3600),))
BOOKINGS: list[dict[str, Any]] = [
    {"resources": ResourceRequest(gpus=2)},
    {"resources": ResourceRequest(gpus=6), "flags": (Flag.MAGNETIC,)},
    {"resources": ResourceRequest(nodes_min=1, is_exclusive=True), "flags": (Flag.FLEX,), "purge_s": 10},
    {"resources": ResourceRequest(nodes_min=2, is_exclusive=True), "flags": (Flag.MAINT,)},
]


class CoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = CoreHost(BOOKABLE, nodes={name: inventory() for name in NODES})
        self.incarnation = dict.fromkeys(NODES, 1)
        self.sent: list[tuple[str, wire.Order]] = []
        """Every order that was ever sent: any of them may be answered at any time, again."""
        self.started: dict[AttemptId, float] = {}
        self.tasks: dict[tuple[int, int], int] = {}
        """By array and task: the job that it became."""

    @initialize(fields=st.sampled_from(REQUESTS))
    def begin(self, fields: dict[str, Any]) -> None:
        self.host.submit(submit(**fields), peer=ALICE)

    def _collect(self) -> None:
        self.sent.extend((one.node, one.order) for one in self.host.orders)
        self.host.orders.clear()

    def _ask(self, body: client.RequestBody, peer: Peer = ADAM) -> None:
        try:
            self.host.ask(body, peer=peer)
        except Refusal:
            return

    # ── reservations ──────────────────────────────────────────────────────────────────────────────────────────

    @rule(fields=st.sampled_from(BOOKINGS), in_s=st.sampled_from([0, 0, 5, 200]), lasts_s=st.sampled_from([30, 5000]))
    def reserve(self, fields: dict[str, Any], in_s: int, lasts_s: int) -> None:
        """And somebody comes to use it."""
        booking = Booking(name="r", begin_at=self.host.now + in_s, duration_s=lasts_s, no_show_s=60, **fields)
        self._ask(client.SetReservation(booking=booking, replace=True))
        self._ask(submit(gpus=1, time_limit_s=20, reservation="r"))

    @rule(body=st.sampled_from([client.EndReservation(name="r"), client.DeleteReservation(name="r")]))
    def give_up(self, body: client.RequestBody) -> None:
        self._ask(body)

    # ── users ─────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(fields=st.sampled_from(REQUESTS), peer=st.sampled_from(PEOPLE))
    def submit_job(self, fields: dict[str, Any], peer: Peer) -> None:
        self._ask(submit(**fields), peer)

    @rule(
        job_id=st.integers(1, 12),
        verb=st.sampled_from(
            ["cancel", "hold", "release", "requeue", "update", "end", "suspend", "resume", "extend", "answer"]
        ),
        peer=st.sampled_from(PEOPLE),
    )
    def change_job(self, job_id: int, verb: str, peer: Peer) -> None:
        """Nobody changes a job of another, but operators, and not through a node that runs jobs."""
        bodies: dict[str, client.RequestBody] = {
            "cancel": client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))),
            "hold": client.HoldJobs(job_ids=(job_id,)),
            "release": client.ReleaseJobs(job_ids=(job_id,)),
            "requeue": client.RequeueJobs(job_ids=(job_id,)),
            "update": client.UpdateJob(job_id=job_id, nice=job_id % 3, time_limit_s=60),
            "end": client.EndInteractive(job_id=job_id, exit_code=job_id % 2),
            "suspend": client.SuspendJobs(job_ids=(job_id,)),
            "resume": client.ResumeJobs(job_ids=(job_id,)),
            "extend": client.ExtendJob(job_id=job_id, by_s=60 * job_id),
            "answer": client.AnswerAsks(job_id=job_id, answer=AskAnswer.RELEASE, requeue=job_id % 2 == 0),
        }
        job = self.host.cluster.jobs.get(JobId(job_id))
        before = copy.deepcopy(job)
        self._ask(bodies[verb], peer)
        if job is not None and job.user != peer.user and (peer.via_node or peer not in (OLGA, ADAM)):
            assert job == before

    @rule(job_id=st.integers(1, 12), peer=st.sampled_from(PEOPLE))
    def ask_a_favour(self, job_id: int, peer: Peer) -> None:
        """It is for everybody to ask, and changes nothing else of the job."""
        job = self.host.cluster.jobs.get(JobId(job_id))
        before = copy.deepcopy(job)
        self._ask(client.AskJob(job_id=job_id, text="please"), peer)
        if job is not None and before is not None:
            assert job.asks[: len(before.asks)] == before.asks
            before.asks = job.asks
            assert job == before

    @rule(
        data=st.data(),
        which=st.sampled_from(["1", "3", "0-2", "1-9", "4,6"]),
        verb=st.sampled_from(["cancel", "hold", "release", "requeue", "update", "throttle", "auto"]),
        peer=st.sampled_from((*PEOPLE, ADAM, ADAM)),
    )
    def change_tasks(self, data: st.DataObject, which: str, verb: str, peer: Peer) -> None:
        records = [job.job_id for job in self.host.cluster.jobs.values() if job.array is not None]
        if not records:
            return
        job_id = data.draw(st.sampled_from(records))
        tasks: dict[int, str] = {job_id: which}
        bodies: dict[str, client.RequestBody] = {
            "cancel": client.CancelJobs(filter=client.JobFilter(tasks=tasks)),
            "hold": client.HoldJobs(job_ids=(), tasks=tasks),
            "release": client.ReleaseJobs(job_ids=(), tasks=tasks),
            "requeue": client.RequeueJobs(job_ids=(), tasks=tasks),
            "update": client.UpdateJob(job_id=job_id, tasks=which, nice=3),
            "throttle": client.UpdateJob(job_id=job_id, array_throttle=len(which) % 3),
            "auto": client.UpdateJob(job_id=job_id, array_auto=True),
        }
        before = copy.deepcopy(self.host.job(job_id))
        self._ask(bodies[verb], peer)
        if before.user != peer.user and (peer.via_node or peer not in (OLGA, ADAM)):
            assert self.host.job(job_id) == before

    @rule(job_id=st.integers(1, 12), gpus=st.integers(0, 2), overlap=st.booleans())
    def create_step(self, job_id: int, gpus: int, overlap: bool) -> None:
        step = StepRequest(name="step", ntasks=2, gpus_per_task=gpus, cpus_per_task=1, overlap=overlap)
        self._ask(client.CreateStep(job_id=job_id, step=step))

    # ── keys, and nodes that come and go ──────────────────────────────────────────────────────────────────────

    @rule(node=st.sampled_from(NODES))
    def remove_node(self, node: str) -> None:
        self._ask(client.RemoveNode(name=node, reason="test"))

    @rule(token=st.sampled_from(TOKENS), node=st.sampled_from(("", *NODES, "login")), is_login=st.booleans())
    def create_token(self, token: str, node: str, is_login: bool) -> None:
        self._ask(client.CreateToken(public=token, node=node, is_login=is_login, ttl_s=30))

    @rule(token=st.sampled_from(TOKENS), key=st.sampled_from(KEYS), node=st.sampled_from((*NODES, "login")))
    def join_node(self, token: str, key: str, node: str) -> None:
        self.host.handle(join(node, token, key))

    @rule(key=st.sampled_from(KEYS), peer=st.sampled_from(PEOPLE))
    def add_key(self, key: str, peer: Peer) -> None:
        self._ask(client.AddKey(public=key), peer)

    @rule(key=st.sampled_from((*KEYS, *TOKENS)), peer=st.sampled_from(PEOPLE))
    def revoke_key(self, key: str, peer: Peer) -> None:
        self._ask(client.RevokeKey(public=key), peer)

    @rule(node=st.sampled_from(NODES), action=st.sampled_from(["drain", "resume", "down"]), gpu=st.none() | st.just(1))
    def administrate(self, node: str, action: str, gpu: int | None) -> None:
        self._ask(client.UpdateNodes(names=(node,), action=action, reason="test", gpu=gpu))

    # ── the scheduler and time ────────────────────────────────────────────────────────────────────────────────

    @rule()
    def schedule(self) -> None:
        self.host.schedule()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0, 70.0, 400.0]), beats=st.booleans())
    def pass_time(self, seconds: float, beats: bool) -> None:
        if beats:
            self.host.beat(self.host.now + seconds * 0.9)
        self.host.handle(Tick(), self.host.now + seconds * (0.1 if beats else 1))

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _report(self, node: str, body: Any) -> None:
        if isinstance(body, wire.Started):
            self.started.setdefault(body.attempt_id, self.host.now)
        self.host.report(node, body)

    @rule(data=st.data(), refuses=st.booleans())
    def answer_an_order(self, data: st.DataObject, refuses: bool) -> None:
        self._collect()
        if not self.sent:
            return
        node, order = data.draw(st.sampled_from(self.sent[-20:]))
        bodies = obedient_reports(order, self.host.now)
        if refuses and isinstance(order, wire.Prepare):
            bodies = [
                wire.PrepareRefused(
                    attempt_id=order.launch.attempt_id, why="test", is_job_fault=data.draw(st.booleans())
                )
            ]
        for body in bodies:
            self._report(node, body)

    @rule()
    def obey_everything(self) -> None:
        self.host.obey()

    @rule(
        node=st.sampled_from(NODES),
        job_id=st.integers(1, 12),
        attempt=st.integers(1, 3),
        outcome=st.sampled_from(list(Outcome)),
        empty=st.booleans(),
    )
    def end_an_attempt(self, node: str, job_id: int, attempt: int, outcome: Outcome, empty: bool) -> None:
        ended = wire.AttemptEnded(
            attempt_id=AttemptId(JobId(job_id), attempt),
            outcome=outcome,
            exit=ExitStatus(code=1),
            ended_at=self.host.now,
            cell_emptied=empty,
        )
        self.host.report(node, ended)

    @rule(node=st.sampled_from(NODES), remembers=st.booleans())
    def restart_node(self, node: str, remembers: bool) -> None:
        """The node daemon comes back, with what it held or with nothing."""
        self.incarnation[node] += 1
        here = self.host.cluster.nodes.get(node)
        known = here.held if here is not None and remembers else {}
        attempts = tuple(wire.AttemptStatus(attempt_id=one, phase="running") for one in known)
        self.host.handle(hello(node, inventory(), attempts=attempts))

    @rule()
    def crash_the_controller(self) -> None:
        self._collect()
        self.host.restart()

    # ── what must always hold (invariants, fold and load are checked by the host at every turn) ────────────────

    @invariant()
    def a_running_job_was_started_by_its_batch_node(self) -> None:
        for job in self.host.cluster.jobs.values():
            if job.state is JobState.RUNNING:
                assert job.start_at is not None
                assert self.host.attempt(job.job_id).batch_node in self.host.attempt(job.job_id).parts

    @invariant()
    def a_task_of_an_array_is_one_job(self) -> None:
        """That each is in one place the host checks; here that it never becomes another job."""
        for job in self.host.cluster.jobs.values():
            if job.array_job_id is not None and job.array_task_id is not None:
                place = (job.array_job_id, job.array_task_id)
                assert self.tasks.setdefault(place, job.job_id) == job.job_id

    @invariant()
    def explanations_never_fail(self) -> None:
        for job in self.host.cluster.jobs.values():
            if job.state is JobState.PENDING:
                assert self.host.explain(job.job_id).why

    @invariant()
    def what_the_planner_is_told_is_as_if_nothing_of_it_had_been_kept(self) -> None:
        controller = self.host.controller
        told, anew = (
            snapshot.take(cluster, controller.policy, controller.volatile, self.host.now)
            for cluster in (self.host.cluster, self.host.store.load())
        )
        assert told.nodes == anew.nodes
        assert told.running == anew.running
        assert tuple(told.pending) == tuple(anew.pending)
        assert (told.free_cpus, told.free_gpus) == (anew.free_cpus, anew.free_gpus)

    @invariant()
    def a_pass_goes_by_the_priority_that_is_shown(self) -> None:
        cluster, policy = self.host.cluster, self.host.policy
        priority, band = priority_of(cluster, policy, self.host.now)
        ranking = rank(cluster, policy, self.host.now)
        assert priority.tolist() == ranking.priority.tolist()
        assert band.tolist() == ranking.band.tolist()

    @invariant()
    def tokens_let_in_one_node_each(self) -> None:
        joins = [key.joined for key in self.host.cluster.keys.values() if key.kind is KeyKind.JOIN and key.joined]
        assert len(joins) == len(set(joins))


TestCoreMachine = CoreMachine.TestCase
TestCoreMachine.settings = settings(max_examples=6, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestCoreMachineForLong(CoreMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_the_same_inputs_give_the_same_log() -> None:
    logs = []
    for _ in range(2):
        host = CoreHost(nodes={name: inventory() for name in NODES})
        for fields in REQUESTS * 3:
            host.start(submit(**fields), now=host.now + 1)
        host.handle(Tick(), now=host.now + 100)
        host.obey()
        logs.append(host.log)
    assert logs[0] == logs[1]
    assert len(logs[0]) > 100
