"""The core under virtual time, with nodes that do at once what they are told: weeks of a busy cluster in seconds.

Teams have endless work of their kind: single jobs of one or several users, or arrays.  What is asked of it in the end
is how many GPU-hours each account got.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gq.model.account import AccountInfo, MemberInfo
from gq.model.ids import AttemptId
from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.state.cluster import Cluster
from gqd.state.effect import Reply, SendOrder
from gqd.state.events import event
from gqd.state.input import Input, NodeHeartbeat, Peer, Tick
from gqd.state.policy import Policy
from tests.builders import ADAM, client_request, hello, inventory, report, submit
from tests.hosts import obedient_reports

HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0


@dataclass
class Team:
    """Always has `queued` jobs of each of its users waiting; with `tasks`, arrays of so many."""

    account: str
    users: tuple[str, ...]
    shares: int = 1
    queued: int = 3
    tasks: int = 0
    request: dict[str, Any] = field(default_factory=lambda: {"gpus": 1})
    hours: tuple[float, float] = (2.0, 10.0)

    def peers(self) -> list[Peer]:
        return [Peer(uid=5000 + sum(map(ord, user)), gid=100, user=user) for user in self.users]


class BusyCluster:
    def __init__(self, policy: Policy, teams: Iterable[Team], nodes: int = 2, seed: int = 1) -> None:
        self.controller = Controller(Cluster(), policy)
        self.teams = {team.account: team for team in teams}
        self.random = random.Random(seed)
        self.now = 1000.0
        self.gpu_hours = dict.fromkeys(self.teams, 0.0)
        self.user_hours: dict[str, float] = {}
        self._ends: list[tuple[float, AttemptId]] = []
        self._requests = 0
        self._orders: list[SendOrder] = []
        self._take(self.controller.resume(self.now))
        for number in range(nodes):
            self._handle(hello(f"n{number}", inventory(cpus=16, gpu_count=4)))
        for team in self.teams.values():
            self._found(team)

    def run(self, for_s: float) -> None:
        """Jobs end when their time has come, others start, and what has left the queue is made up for."""
        until = self.now + for_s
        self._refill()
        self._start_what_fits()
        while self._ends and self._ends[0][0] <= until:
            self.now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= self.now:
                self._end(heapq.heappop(self._ends)[1])
            self._beat()
            self._handle(Tick())
            self._refill()
            self._start_what_fits()
        self.now = until

    @property
    def cluster(self) -> Cluster:
        return self.controller.cluster

    # ── teams ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _found(self, team: Team) -> None:
        self._ask(client.SetAccount(account=AccountInfo(name=team.account, shares=team.shares), is_new=True), ADAM)
        for user in team.users:
            member = MemberInfo(user=user, account=team.account, is_default=True)
            self._ask(client.SetMember(member=member, is_new=True), ADAM)

    def _refill(self) -> None:
        waiting: dict[str, int] = {}
        for job_id in self.cluster.queue:
            user = self.cluster.jobs[job_id].user
            waiting[user] = waiting.get(user, 0) + 1
        for team in self.teams.values():
            fields = {**team.request, "account": team.account}
            if team.tasks:
                fields["array"] = f"1-{team.tasks}"
            for peer in team.peers():
                for _ in range((1 if team.tasks else team.queued) - waiting.get(peer.user, 0)):
                    self._ask(submit("work", **fields), peer)

    # ── the core and its nodes ────────────────────────────────────────────────────────────────────────────────

    def _start_what_fits(self) -> None:
        self._take(self.controller.adopt(plan_whole(self.controller.snapshot(self.now)), self.now))
        while self._orders:
            orders, self._orders = self._orders, []
            for sent in orders:
                for body in obedient_reports(sent.order, self.now):
                    self._handle(report(sent.node, body))

    def _end(self, attempt_id: AttemptId) -> None:
        attempt = self.cluster.attempts[attempt_id]
        job = self.cluster.jobs[attempt_id.job_id]
        assert job.state is JobState.RUNNING and attempt.start_at is not None
        gpus = sum(len(grant.gpus) for grant in attempt.grants)
        hours = gpus * (self.now - attempt.start_at) / HOUR
        self.gpu_hours[job.account] += hours
        self.user_hours[job.user] = self.user_hours.get(job.user, 0.0) + hours
        body = wire.AttemptEnded(
            attempt_id=attempt_id, outcome=Outcome.COMPLETED, exit=ExitStatus(), ended_at=self.now, cell_emptied=True
        )
        self._handle(report(attempt.batch_node, body))

    def _beat(self) -> None:
        for name, route in list(self.controller.volatile.links.items()):
            alive = wire.Heartbeat(node=name, incarnation="1", at=self.now)
            self._handle(NodeHeartbeat(route=route, heartbeat=alive))

    def _handle(self, happened: Input) -> Turn:
        return self._take(self.controller.handle(happened, self.now))

    def _ask(self, body: client.RequestBody, peer: Peer) -> None:
        self._requests += 1
        turn = self._handle(client_request(body, self._requests, peer))
        refused = [one.body for one in turn.effects if isinstance(one, Reply) and isinstance(one.body, client.Refused)]
        assert not refused, refused

    def _take(self, turn: Turn) -> Turn:
        self.cluster.changes.__init__()  # type: ignore[misc]
        self._orders.extend(effect for effect in turn.effects if isinstance(effect, SendOrder))
        for fact in turn.events:
            if isinstance(fact, event.JobStarted):
                team = self.teams[self.cluster.jobs[fact.attempt_id.job_id].account]
                heapq.heappush(self._ends, (self.now + HOUR * self.random.uniform(*team.hours), fact.attempt_id))
        return turn
