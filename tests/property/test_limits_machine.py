"""Whatever happens to accounts, limits and jobs: the counters equal a recount, and nothing starts over a limit.

That the tallies, the indices and the rates of budgets equal a recount, and survive in the store, is checked by the
host at every turn.  What of a budget is used is counted here once more, from the log of what happened.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gq.errors import Refusal
from gq.model.account import AT_SUBMIT_ONLY, BUDGETS, AccountInfo, Holder, LimitAt, LimitInfo, MemberInfo, QosInfo
from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.sched.planner import plan_whole
from gqd.state.events import event
from gqd.state.index.job_tally import tally_keys_of_job
from gqd.state.index.period import periods_at
from gqd.state.index.tally import asked_amounts
from gqd.state.index.usage import MILLION
from gqd.state.input import Peer, Tick
from gqd.state.plan import Plan
from gqd.state.records import BudgetKey, LimitKey, limit_key
from tests.builders import ADAM, ALICE, BOB, CARL, SHARED, hello, inventory, submit
from tests.hosts import CoreHost

NODES = ("n1", "n2")
USERS = (ALICE, BOB, CARL)
ACCOUNTS = ("a", "b", "c")
QOS = ("normal", "high")
HOLDERS = [
    *((Holder.USER, one.user) for one in USERS),
    *((Holder.ACCOUNT, one) for one in (*ACCOUNTS, "root", "default")),
    *((Holder.QOS, one) for one in QOS),
]
RESOURCES = ("gpus", "gpus:fake", "cpus", "memory", "running_jobs", "pending_jobs", *BUDGETS)
COUNTED = {"gpus": "gpus", "gpus:fake": "gpus:fake", "cpus": "cpus", "memory": "memory", "running_jobs": "jobs"}
REQUESTS: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 2, "time_limit_s": 3600},
    {"cpus_per_task": 3, "mem_per_node_mib": 1000},
    {"gpus": 1, "gpu_type": "fake", "array": "1-4%2"},
    {"nodes_min": 2, "gpus_per_node": 1},
    {"array": "1-3", "gpus": 2},
    {"is_exclusive": True},
]


class LimitsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = CoreHost(SHARED, nodes={name: inventory() for name in NODES})
        self.plan: Plan | None = None
        self.set_at: dict[LimitKey, float] = {}

    @initialize()
    def begin(self) -> None:
        for name in ACCOUNTS:
            self._ask(client.SetAccount(account=AccountInfo(name=name), is_new=True))
        for peer, name in zip(USERS, ACCOUNTS, strict=True):
            self._ask(client.SetMember(member=MemberInfo(user=peer.user, account=name), is_new=True))
        self._ask(client.SetQos(qos=QosInfo(name="high", usage_factor=2.0), is_new=True))

    def _ask(self, body: client.RequestBody, peer: Peer = ADAM) -> client.ReplyBody | None:
        try:
            return self.host.ask(body, peer=peer)
        except Refusal:
            return None

    # ── who may how much ──────────────────────────────────────────────────────────────────────────────────────

    @rule(
        holder=st.sampled_from(HOLDERS),
        resource=st.sampled_from(RESOURCES),
        most=st.integers(0, 6),
        each=st.booleans(),
        at=st.sampled_from(LimitAt),
    )
    def set_limit(self, holder: tuple[Holder, str], resource: str, most: int, each: bool, at: LimitAt) -> None:
        most = most * 1000 if resource == "memory" else most
        limit = LimitInfo(holder=holder[0], name=holder[1], resource=resource, most=most, per_user=each, at=at)
        if self._ask(client.SetLimit(limit=limit)) is not None:
            self.set_at.setdefault(limit_key(limit), self.host.now)

    @rule(data=st.data())
    def remove_limit(self, data: st.DataObject) -> None:
        if not self.host.cluster.limits:
            return
        key = data.draw(st.sampled_from(sorted(self.host.cluster.limits)))
        self._ask(client.RemoveLimit(holder=key.holder, name=key.name, resource=key.resource, per_user=key.per_user))
        del self.set_at[key]

    @rule(
        name=st.sampled_from(ACCOUNTS),
        parent=st.sampled_from(("root", *ACCOUNTS)),
        guaranteed=st.none() | st.integers(0, 4),
        borrows=st.none() | st.integers(0, 4),
    )
    def change_account(self, name: str, parent: str, guaranteed: int | None, borrows: int | None) -> None:
        account = AccountInfo(name=name, parent=parent, guaranteed_gpus=guaranteed, borrow_gpus=borrows)
        self._ask(client.SetAccount(account=account))

    @rule(user=st.sampled_from(USERS), account=st.sampled_from(ACCOUNTS), adds=st.booleans())
    def change_member(self, user: Peer, account: str, adds: bool) -> None:
        if adds:
            self._ask(client.SetMember(member=MemberInfo(user=user.user, account=account), is_new=True))
        else:
            self._ask(client.RemoveMember(user=user.user, account=account))

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(fields=st.sampled_from(REQUESTS), peer=st.sampled_from(USERS), qos=st.sampled_from(QOS))
    def submit_job(self, fields: dict[str, Any], peer: Peer, qos: str) -> None:
        answer = self._ask(submit(**fields, qos=qos), peer)
        if isinstance(answer, client.Submitted):
            self._nothing_is_over(answer.job_id, LimitAt.SUBMIT)

    @rule(job_id=st.integers(1, 12), verb=st.sampled_from(["cancel", "hold", "release", "requeue", "move", "change"]))
    def change_job(self, job_id: int, verb: str) -> None:
        job = self.host.cluster.jobs.get(JobId(job_id))
        bodies: dict[str, client.RequestBody] = {
            "cancel": client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))),
            "hold": client.HoldJobs(job_ids=(job_id,)),
            "release": client.ReleaseJobs(job_ids=(job_id,)),
            "requeue": client.RequeueJobs(job_ids=(job_id,)),
            "move": client.UpdateJob(job_id=job_id, account=ACCOUNTS[job_id % 3], qos=QOS[job_id % 2]),
            "change": client.UpdateJob(job_id=job_id, resources=submit(gpus=job_id % 4).spec.resources),
        }
        answer = self._ask(bodies[verb])
        if answer is not None and verb in ("move", "change") and job is not None and job.state is JobState.PENDING:
            self._nothing_is_over(job_id, LimitAt.SUBMIT, of_budgets=False)

    @rule(task=st.integers(1, 4), job_id=st.integers(1, 12), cancels=st.booleans())
    def change_task(self, task: int, job_id: int, cancels: bool) -> None:
        tasks = {job_id: str(task)}
        filter = client.JobFilter(tasks=tasks)
        self._ask(client.CancelJobs(filter=filter) if cancels else client.HoldJobs(job_ids=(), tasks=tasks))

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def plan_and_adopt(self) -> None:
        self._adopt(plan_whole(self.host.controller.snapshot(self.host.now)))

    @rule()
    def plan_for_later(self) -> None:
        self.plan = plan_whole(self.host.controller.snapshot(self.host.now))

    @rule()
    def adopt_what_is_out_of_date(self) -> None:
        if self.plan is not None:
            self._adopt(self.plan)

    @rule(user=st.sampled_from(USERS), resource=st.sampled_from(sorted(COUNTED)), most=st.integers(0, 2))
    def set_a_limit_while_a_plan_is_made(self, user: Peer, resource: str, most: int) -> None:
        plan = plan_whole(self.host.controller.snapshot(self.host.now))
        self.set_limit((Holder.USER, user.user), resource, most, False, LimitAt.START)
        self._adopt(plan)

    @rule(
        user=st.sampled_from(USERS), resource=st.sampled_from(("gpus", "cpus", "pending_jobs")), most=st.integers(1, 5)
    )
    def submit_arrays_under_a_limit(self, user: Peer, resource: str, most: int) -> None:
        self.set_limit((Holder.USER, user.user), resource, most, False, LimitAt.SUBMIT)
        self.submit_job({"array": "1-3", "gpus": 1}, user, "normal")

    def _adopt(self, plan: Plan) -> None:
        turn = self.host.adopt(plan)
        for fact in turn.events:
            if isinstance(fact, event.JobAllocated):
                self._nothing_is_over(fact.attempt_id.job_id, LimitAt.START)
                self._nobody_borrows_too_much(fact.attempt_id.job_id)

    def _nothing_is_over(self, job_id: int, at: LimitAt, of_budgets: bool = True) -> None:
        """The job has just been let in or has just started: all that it counts for is within its limits."""
        cluster = self.host.cluster
        for holder, name, user in tally_keys_of_job(cluster, cluster.jobs[JobId(job_id)]):
            tally = cluster.tallies.of((holder, name, user))
            for key in cluster.associations.limits.get((holder, name), ()):
                limit = cluster.limits[key]
                if limit.per_user != bool(user) or limit.at is not at or key.resource in BUDGETS:
                    continue
                if key.resource == "pending_jobs":
                    assert tally.pending <= limit.most or not of_budgets
                    continue
                amounts = tally.submitted if at is LimitAt.SUBMIT else tally.held
                asked = asked_amounts(cluster.jobs[JobId(job_id)].spec.resources)
                own = cluster.tallies.held_by.get(JobId(job_id), {}) if at is LimitAt.START else asked
                used = amounts.get(COUNTED[key.resource], 0)
                adds = own.get(COUNTED[key.resource], 0)
                assert used <= limit.most or not adds or not of_budgets, f"job {job_id} is over {limit}: {used}"

    def _nobody_borrows_too_much(self, job_id: int) -> None:
        cluster = self.host.cluster
        if not cluster.tallies.held_by[JobId(job_id)].get("gpus"):
            return
        for holder, name, user in tally_keys_of_job(cluster, cluster.jobs[JobId(job_id)]):
            account = cluster.accounts.get(name)
            if holder is Holder.ACCOUNT and not user and account is not None and account.borrow_gpus is not None:
                held = cluster.tallies.of((holder, name, "")).held["gpus"]
                assert held <= (account.guaranteed_gpus or 0) + account.borrow_gpus

    # ── nodes and time ────────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def obey(self) -> None:
        self.host.obey()

    @rule(refuses=st.booleans())
    def fail_a_launch(self, refuses: bool) -> None:
        orders = [one for one in self.host.orders if isinstance(one.order, wire.Prepare)]
        if orders and isinstance(order := orders[0].order, wire.Prepare):
            refused = wire.PrepareRefused(attempt_id=order.launch.attempt_id, why="test", is_job_fault=refuses)
            self.host.report(orders[0].node, refused)

    @rule(
        node=st.sampled_from(NODES),
        job_id=st.integers(1, 14),
        attempt=st.integers(1, 2),
        outcome=st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.NODE_FAIL]),
        ago=st.sampled_from([0, 5, 5000]),
        empty=st.booleans(),
    )
    def end_an_attempt(self, node: str, job_id: int, attempt: int, outcome: Outcome, ago: int, empty: bool) -> None:
        """Also one that ended a while ago, before the last midnight even."""
        ended = wire.AttemptEnded(
            attempt_id=AttemptId(JobId(job_id), attempt),
            outcome=outcome,
            exit=ExitStatus(code=1),
            ended_at=max(0.0, self.host.now - ago),
            cell_emptied=empty,
        )
        self.host.report(node, ended)

    @rule(seconds=st.sampled_from([1.0, 100.0, 7000.0, 50_000.0, 800_000.0]), beats=st.booleans())
    def pass_time(self, seconds: float, beats: bool) -> None:
        if beats:
            self.host.beat(self.host.now + seconds)
        self.host.handle(Tick(), self.host.now + (0 if beats else seconds))

    @rule(node=st.sampled_from(NODES), remembers=st.booleans())
    def restart_node(self, node: str, remembers: bool) -> None:
        known = self.host.cluster.nodes[node].held if remembers else {}
        attempts = tuple(wire.AttemptStatus(attempt_id=one, phase="running") for one in known)
        self.host.handle(hello(node, inventory(), attempts=attempts))

    @rule()
    def crash_the_controller(self) -> None:
        self.host.restart()

    # ── what must always hold ─────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def budgets_are_what_ran_in_their_period(self) -> None:
        """Of users and QOS, whom a job counts for whatever becomes of the tree of accounts."""
        cluster, now = self.host.cluster, self.host.now
        keys = [one for one in cluster.limits if one.resource in BUDGETS and one.holder is not Holder.ACCOUNT]
        if not keys:
            return
        ran = self._ran()
        for key in keys:
            began = max(self.set_at[key], periods_at(now, SHARED.zone).of(BUDGETS[key.resource]))
            users = {""} | ({user for user, *_ in ran} if key.per_user else set())
            for user in sorted(users):
                wanted = sum(
                    billing / MILLION * max(0.0, until - max(since, began))
                    for owner, qos, billing, since, until in ran
                    if key.name == (owner if key.holder is Holder.USER else qos) and user in ("", owner)
                )
                budget = cluster.budgets.get(BudgetKey(key, user))
                period = max(budget.began_at, periods_at(now, SHARED.zone).of(BUDGETS[key.resource])) if budget else 0.0
                used = budget.used_at(now, period) if budget else 0.0
                assert used == pytest.approx(wanted, abs=1e-3), f"{key} of {user!r}"

    def _ran(self) -> list[tuple[str, str, int, float, float]]:
        """(user, QOS, billing, since, until) of every attempt that has started."""
        billing: dict[AttemptId, int] = {}
        since: dict[AttemptId, float] = {}
        until: dict[AttemptId, float] = {}
        for fact in self.host.log:
            match fact:
                case event.JobAllocated():
                    billing[fact.attempt_id] = fact.billing
                case event.JobStarted():
                    since[fact.attempt_id] = fact.at
                case event.JobEnding():
                    until.setdefault(fact.attempt_id, fact.at)
                case _:
                    pass
        owners = {one: self._owner(one.job_id) for one in since}
        now = self.host.now
        return [(*owners[one], billing[one], at, until.get(one, now)) for one, at in since.items()]

    def _owner(self, job_id: JobId) -> tuple[str, str]:
        job = self.host.cluster.jobs.get(job_id) or self.owners.get(job_id)
        assert job is not None
        return job if isinstance(job, tuple) else (job.user, job.qos)

    @property
    def owners(self) -> dict[JobId, tuple[str, str]]:
        """Of jobs that have left memory, from the log; arrays' tasks have what their records had."""
        known: dict[JobId, tuple[str, str]] = {}
        for fact in self.host.log:
            if isinstance(fact, event.JobSubmitted):
                known[fact.job_id] = (fact.user, fact.qos)
            elif isinstance(fact, event.ArrayTaskLeft):
                known[fact.job_id] = known[fact.array_job_id]
            elif isinstance(fact, event.JobUpdated):
                known[fact.job_id] = (known[fact.job_id][0], fact.qos or known[fact.job_id][1])
        return known

    @invariant()
    def explanations_never_fail(self) -> None:
        for job in self.host.cluster.jobs.values():
            if job.state is JobState.PENDING:
                assert self.host.explain(job.job_id).why

    @invariant()
    def there_is_no_other_limit_than_was_set(self) -> None:
        assert self.set_at.keys() == self.host.cluster.limits.keys()
        for key, limit in self.host.cluster.limits.items():
            assert limit.at is LimitAt.SUBMIT or key.resource not in AT_SUBMIT_ONLY


TestLimitsMachine = LimitsMachine.TestCase
TestLimitsMachine.settings = settings(max_examples=7, stateful_step_count=50, deadline=None)


@pytest.mark.slow
class TestLimitsMachineForLong(LimitsMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
