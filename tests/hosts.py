"""Host the deciding core without daemons: a controller, a store in memory, and nodes that carry out orders at once.

After every turn the host checks the invariants, `fold(apply, events) == cluster` and `store.load() == cluster`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from gq.errors import Refusal
from gq.explain.reply import words_of
from gq.model.estimate import StartEstimate
from gq.model.ids import JobId, RequestId
from gq.model.job import ExitStatus
from gq.model.node import Inventory
from gq.model.state import Outcome
from gq.wire import client
from gq.wire import node as wire
from gq.wire.client import ReplyBody, RequestBody
from gq.wire.codec import WIRE_VERSION
from gq.wire.explanation import decoded_facts
from gqd.control.apply.table import apply
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.shell.requests.dependency_lookup import named_jobs
from gqd.shell.zones import load_zones, zones_of
from gqd.state import invariants
from gqd.state.cluster import Cluster
from gqd.state.effect import Reply, SendOrder
from gqd.state.events.event import Audited, Event
from gqd.state.input import Input, NamedUser, NodeHeartbeat, Peer
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from gqd.state.records import Attempt, Job
from gqd.store.memory import MemoryStore
from gqd.store.rows.rows import materialise
from tests.builders import OWNER, client_request, hello, report

POLICY = Policy(owner_uid=OWNER.uid)


class CoreHost:
    """A controller with its store; the caller sets the time, which never runs backwards."""

    def __init__(
        self, policy: Policy = POLICY, nodes: dict[str, Inventory] | None = None, checked: bool = True
    ) -> None:
        self.policy = policy
        self.store = MemoryStore()
        self.controller = Controller(self.store.load(), policy)
        self.is_checked = checked
        self.folded = Cluster()
        self.log: list[Event] = []
        """All that happened, but for what was only noted in the audit trail."""
        self.trail: list[Audited] = []
        self.orders: list[SendOrder] = []
        """Orders that no node has been given yet."""
        self.replies: list[Reply] = []
        self.now = 0.0
        self._requests = 0
        self._close(self.controller.resume(0.0))
        for name, has in (nodes or {}).items():
            self.handle(hello(name, has))

    # ── driving ───────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, happened: Input, now: float | None = None) -> Turn:
        self._set_time(now)
        return self._close(self.controller.handle(happened, self.now))

    def schedule(self, now: float | None = None) -> Turn:
        """Run a whole scheduling pass and adopt its plan."""
        self._set_time(now)
        return self.adopt(plan_whole(self.controller.snapshot(self.now)))

    def adopt(self, plan: Plan) -> Turn:
        return self._close(self.controller.adopt(plan, self.now))

    def ask(
        self, body: RequestBody, now: float | None = None, peer: Peer = OWNER, named_user: NamedUser | None = None
    ) -> ReplyBody | None:
        """Send a request with a fresh id; return the reply, None for one that is held back, or raise `Refusal`."""
        self._requests += 1
        past = self.store.past([job_id for job_id in named_jobs(body) if job_id not in self.cluster.jobs])
        turn = self.handle(client_request(body, self._requests, peer, named_user, past), now)
        answers = [effect.body for effect in turn.effects if isinstance(effect, Reply)]
        if answers and isinstance(answers[-1], client.Refused):
            raise Refusal(answers[-1].code, answers[-1].message, answers[-1].hint)
        return answers[-1] if answers else None

    def submit(self, body: client.Submit, now: float | None = None, peer: Peer = OWNER) -> int:
        answer = self.ask(body, now, peer)
        assert isinstance(answer, client.Submitted)
        return answer.job_id

    def report(self, node: str, body: Any, now: float | None = None) -> Turn:
        """Report from the node's present incarnation."""
        record = self.cluster.nodes.get(node)
        return self.handle(report(node, body, incarnation="1" if record is None else record.incarnation), now)

    def beat(self, now: float | None = None) -> None:
        """Send a heartbeat from every node that has a link."""
        for name, route in list(self.controller.volatile.links.items()):
            if name not in self.cluster.nodes:
                continue  # a login node
            alive = wire.Heartbeat(node=name, incarnation=self.cluster.nodes[name].incarnation, at=self.now)
            self.handle(NodeHeartbeat(route=route, heartbeat=alive), now)

    def obey(self, rounds: int = 20) -> None:
        """Let the nodes carry out their orders successfully, until no orders are left."""
        for _ in range(rounds):
            orders, self.orders = self.orders, []
            if not orders:
                return
            for sent in orders:
                if sent.node not in self.cluster.nodes:
                    continue  # it was removed meanwhile, and nobody hears it
                for body in obedient_reports(sent.order, self.now):
                    self.report(sent.node, body)

    def start(self, body: client.Submit, now: float | None = None, peer: Peer = OWNER) -> int:
        """Submit a job, plan, and let the nodes start it."""
        job_id = self.submit(body, now, peer)
        self.schedule()
        self.obey()
        return job_id

    def finish(self, job_id: int, code: int = 0, now: float | None = None) -> None:
        """End the job's batch script, and let the nodes clean up."""
        attempt = self.attempt(job_id)
        outcome = Outcome.FAILED if code else Outcome.COMPLETED
        self._set_time(now)
        ended = wire.AttemptEnded(
            attempt_id=attempt.attempt_id,
            outcome=outcome,
            exit=ExitStatus(code=code),
            ended_at=self.now,
            cell_emptied=True,
        )
        self.report(attempt.batch_node, ended)
        self.obey()

    def restart(self, now: float | None = None) -> None:
        """Restart the controller from its store; nodes have no links until they say hello."""
        self._set_time(now)
        self.controller = Controller(self.store.load(), self.policy)
        self.controller.volatile.zones = load_zones(zones_of(self.cluster))
        self.orders = []
        self._close(self.controller.resume(self.now))

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cluster(self) -> Cluster:
        return self.controller.cluster

    def job(self, job_id: int) -> Job:
        return self.cluster.jobs[JobId(job_id)]

    def attempt(self, job_id: int) -> Attempt:
        return self.cluster.attempts[self.job(job_id).attempt_id]

    def estimate(self, now: float | None = None) -> Turn:
        """Forecast until every waiting question is answered."""
        self._set_time(now)
        turn = Turn()
        self.controller.volatile.has_stale_estimates = True
        while self.controller.wants_estimates(self.now) and not turn.effects and not turn.events:
            turn = self._close(self.controller.estimate(100_000, self.now))
        return turn

    def starts(self, now: float | None = None, **filter: Any) -> dict[int, StartEstimate]:
        """Return the estimated starts of pending jobs."""
        self._set_time(now)
        answer = self.ask(client.EstimateStarts(filter=client.JobFilter(**filter)))
        if answer is None:
            turn = self.estimate()
            [answer] = [effect.body for effect in turn.effects if isinstance(effect, Reply)]
        assert isinstance(answer, client.StartEstimates)
        return {estimate.job_id: estimate for estimate in answer.estimates}

    def study(self, body: RequestBody, peer: Peer = OWNER) -> ReplyBody:
        """Return the reply to a question that may need a forecast first."""
        answer = self.ask(body, peer=peer)
        while answer is None:
            replies = [effect.body for effect in self.estimate().effects if isinstance(effect, Reply)]
            answer = replies[-1] if replies else None
        return answer

    def explain(self, job_id: int) -> client.Explanation:
        return self._explained(client.Explain(job_id=job_id))

    def explain_task(self, array_id: int, task: int) -> client.Explanation:
        return self._explained(client.Explain(job_id=array_id, task=task))

    def _explained(self, question: client.Explain) -> client.Explanation:
        """The answer; a client renders from its facts, as they are on the wire, the words that the controller sends."""
        answer = self.ask(question)
        assert isinstance(answer, client.Explanation)
        sent = client.REPLIES.encode(client.Reply(WIRE_VERSION, RequestId(bytes(16)), answer))
        got = client.REPLIES.decode(sent).body
        assert isinstance(got, client.Explanation)
        assert decoded_facts(got) is not None
        assert words_of(replace(got, why="", facts=(), hint="")) == (answer.why, answer.facts, answer.hint)
        return answer

    # ── checking ──────────────────────────────────────────────────────────────────────────────────────────────

    def _set_time(self, now: float | None) -> None:
        if now is not None:
            assert now >= self.now, "time runs backwards in this test"
            self.now = now

    def _close(self, turn: Turn) -> Turn:
        self.log.extend(event for event in turn.events if not isinstance(event, Audited))
        self.trail.extend(event for event in turn.events if isinstance(event, Audited))
        self.orders.extend(effect for effect in turn.effects if isinstance(effect, SendOrder))
        self.replies.extend(effect for effect in turn.effects if isinstance(effect, Reply))
        asyncio.run(self.store.commit(materialise(self.cluster, turn.events)))
        if self.is_checked:
            invariants.check(self.cluster)
            for event in turn.events:
                apply(self.folded, event)
            assert self.folded == self.cluster, "fold(apply, events) differs from the cluster"
            assert self.store.load() == self.cluster, "store.load() differs from the cluster"
        return turn


def obedient_reports(order: wire.Order, now: float) -> list[Any]:
    """Reports of a node that carries out the order at once and successfully."""
    match order:
        case wire.Prepare():
            attempt_id = order.launch.attempt_id
            return [
                wire.PrepareReceived(attempt_id=attempt_id),
                wire.Prepared(attempt_id=attempt_id, master_port=20000),
            ]
        case wire.Go():
            received = wire.GoReceived(attempt_id=order.attempt_id)
            return [received, wire.Started(attempt_id=order.attempt_id, at=now)]
        case wire.Stop():
            return [wire.CellEmptied(attempt_id=order.attempt_id, join=order.join)]
        case wire.SetSuspended(parked_at=at) if at is not None:
            in_use = tuple((gpu, 4000) for gpu in range(8))
            return [wire.SuspendedSet(attempt_id=order.attempt_id, is_suspended=True, parked_at=at, gpu_memory=in_use)]
        case wire.ResizeAttempt():
            return [wire.AttemptResized(attempt_id=order.attempt_id, generation=order.generation, gpus=order.keeps)]
        case wire.LaunchStep():
            return [wire.StepReceived(step_id=order.step_id)]
        case _:
            return []
