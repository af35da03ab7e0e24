"""The durable facts in memory: jobs, attempts and their parts, steps, nodes, answered requests, and their indices.

Only ``gqd.control.apply.table`` changes a `Cluster`; everything else reads.  Each change also notes the row that it
touches (`Changes`), so that the shell can write exactly those.  `check` walks every invariant.  Pure.

Invariants (numbered as `check` names them):

1. a GPU or CPU of a node is in at most one part that is there (stranded parts included);
2. a job that is PENDING or ENDED has no part of its current attempt that is not stranded;
3. a job that is STARTING, RUNNING or COMPLETING has a current attempt;
4. the queue index holds exactly the jobs that wait, as they are, and the other indices of jobs agree with it;
5. free masks equal a recount from the parts;
6. memory in use on a node equals the sum of its parts and is within what it has, unless the node shrank;
7. a node has one key at most, a user's key has a uid, and the indices of keys agree with them;
8. who waits for others is pending, these others are there and not over, and the index of dependants agrees with both;
9. the indices of accounts, members and limits agree with them, and every active job is of a member;
10. each task of an array is in exactly one place, and what its record says of it is what its job says;
11. the rate at which each member's usage grows is what its running attempts are billed;
12. the index of deadlines holds the jobs that wait and have one;
13. no two occurrences of reservations that are not past keep the same GPU or CPU of a node at the same time;
14. the outbox holds notices that wait, and counts them by user;
15. what is kept for a job while others give way is of one that waits; each of them gives way to one, and knows it;
16. an elastic attempt holds the GPUs that it began with, at most as many as it may, and what is to go is a part of it;
17. who is parked stands still on one node, and what it lends is had by nobody but the job that it is parked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gq.model.account import AccountInfo, LimitInfo, QosInfo
from gq.model.ids import AttemptId, JobId
from gq.model.key import KeyKind
from gq.model.resource import Grant
from gq.model.state import JobState
from gqd.state import elastic, parked, preemption
from gqd.state.crontab import Crontab
from gqd.state.index import arrays, bookings, deadlines, dependants, tally, usage
from gqd.state.index import associations as association
from gqd.state.index.changes import Changes
from gqd.state.index.queue import PendingQueue
from gqd.state.index.usage import Budget, HalfLives
from gqd.state.notice import Outbox
from gqd.state.owed_order import OwedOrders, check_owed_orders
from gqd.state.preemption import Claim
from gqd.state.records import Answer, ArrayTasks, Attempt, BudgetKey, Job, Key, LimitKey, Member, Node
from gqd.state.reservation import Reservation
from gqd.state.runtime_history import Lengths


@dataclass(slots=True)
class Cluster:
    jobs: dict[JobId, Job] = field(default_factory=dict)
    attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    """By public half (Z85)."""
    void_key_files: dict[str, None] = field(default_factory=dict)
    """Nodes that were removed, and whose file in ``keys/nodes`` is not known to be deleted yet."""
    answers: dict[bytes, Answer] = field(default_factory=dict)
    """By request id."""
    accounts: dict[str, AccountInfo] = field(default_factory=dict)
    """Those that were added; the root and the default account are there without."""
    members: dict[tuple[str, str], Member] = field(default_factory=dict)
    """By (user, account).  Whoever has submitted a job is in the account that it went to."""
    qos: dict[str, QosInfo] = field(default_factory=dict)
    """Those that were added or changed."""
    limits: dict[LimitKey, LimitInfo] = field(default_factory=dict)
    budgets: dict[BudgetKey, Budget] = field(default_factory=dict)
    """Of the limits that are budgets, from when they were set."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """By name."""
    next_reservation_id: int = 1
    claims: dict[JobId, Claim] = field(default_factory=dict)
    """By the job that others give way to."""
    parked: dict[AttemptId, parked.Parked] = field(default_factory=dict)
    """Attempts that stand still for others, and lend what they hold."""
    owed_orders: OwedOrders = field(default_factory=dict)
    crontabs: dict[str, Crontab] = field(default_factory=dict)
    """By user."""
    outbox: Outbox = field(default_factory=Outbox)
    """What owners are to be told."""
    lengths: Lengths = field(default_factory=dict)
    """How long jobs ran."""
    half_life_s: float | None = None
    """Of `Member.usage`; None: nothing decays."""
    half_lives: HalfLives = ()
    """Those before it: what is reported late began to decay as they say."""
    next_job_id: int = 1
    """Never goes back, whatever is forgotten."""
    queue: PendingQueue = field(default_factory=PendingQueue, compare=False)
    """Index: pending jobs of which something waits."""
    ordered_nodes: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Index: in natural order, as it was last put; None: some have come or gone since."""
    holding: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: attempts that still have parts."""
    elastic: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: those of them whose GPUs may become more and fewer."""
    stamp: int = field(default=0, compare=False)
    """The last of `Node.free_since`."""
    timed: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: pending jobs that time alone may let start (they begin later, or leave nodes out for a while)."""
    ended: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: jobs that have ended, about in the order in which they did."""
    arrays: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: records of arrays that have not ended."""
    active_by_user: dict[str, int] = field(default_factory=dict, compare=False)
    """Index: jobs that have not ended."""
    login_nodes: dict[str, str] = field(default_factory=dict, compare=False)
    """Index: nodes that joined as login nodes, and their keys."""
    join_keys: dict[str, None] = field(default_factory=dict, compare=False)
    """Index: keys that expire."""
    associations: association.Associations = field(default_factory=association.Associations, compare=False)
    """Index: accounts, members and limits by whom they are looked up for."""
    tallies: tally.Tallies = field(default_factory=tally.Tallies, compare=False)
    """Index: what users, accounts and QOS have in the queue and hold."""
    deadlines: dict[JobId, float] = field(default_factory=dict, compare=False)
    """Index: jobs that wait and have a deadline: the last moment at which they may start."""
    dependants: dependants.Dependants = field(default_factory=dependants.Dependants, compare=False)
    """Index: jobs that wait for others."""
    changes: Changes = field(default_factory=Changes, compare=False)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────

    def attempt_of(self, job: Job) -> Attempt | None:
        """The job's latest attempt, if it is still known."""
        return self.attempts.get(job.attempt_id) if job.attempt else None

    # ── indices, kept by apply ────────────────────────────────────────────────────────────────────────────────

    def hold(self, attempt: Attempt, grant: Grant) -> None:
        """Of a new attempt: the node has this part of it from now on."""
        node = self.nodes[grant.node]
        node.hold(attempt.attempt_id, grant)
        self.holding[attempt.attempt_id] = attempt
        if attempt.elastic is not None:
            self.elastic[attempt.attempt_id] = attempt
        self._stamp(node, grant)

    def change_grant(self, attempt: Attempt, grant: Grant) -> None:
        """It holds this in place of what it held on its one node."""
        node = self.nodes[grant.node]
        node.release(attempt.attempt_id)
        attempt.grants = (grant,)
        attempt.parts[grant.node].grant = grant
        node.hold(attempt.attempt_id, grant)
        attempt.view = None
        self._stamp(node, grant)

    def release(self, attempt: Attempt, name: str) -> None:
        """The part is gone."""
        node = self.nodes[name]
        self._stamp(node, node.held[attempt.attempt_id])
        node.release(attempt.attempt_id)
        attempt.view = None
        if not attempt.parts:
            del self.holding[attempt.attempt_id]
            self.elastic.pop(attempt.attempt_id, None)

    def _stamp(self, node: Node, grant: Grant) -> None:
        if grant.gpus:
            self.stamp += 1
            node.free_since = self.stamp

    def outdate(self, job: Job) -> None:
        """What the planner was told of its attempt is not so any more."""
        attempt = self.attempts.get(job.attempt_id)
        if attempt is not None:
            attempt.view = None

    def enqueue(self, job: Job) -> None:
        """An array's record of which nothing waits stays out."""
        if job.is_waiting:
            self.queue.add(job)
            self._index_timed(job)

    def _index_timed(self, job: Job) -> None:
        if job.spec.begin_at is not None or job.avoid:
            self.timed[job.job_id] = None
        deadlines.index(self, job)

    def dequeue(self, job: Job) -> None:
        """An array's record may be out of it already."""
        if job.array is None or job.job_id in self.queue:
            self.queue.remove(job.job_id)
        self.timed.pop(job.job_id, None)
        self.deadlines.pop(job.job_id, None)

    def refresh(self, job: Job) -> None:
        """Something changed on which the job's place in the queue may depend; a no-op for one that is not in it."""
        if job.job_id in self.queue:
            self.queue.refresh(job)
            self._index_timed(job)

    def record_of(self, job: Job) -> tuple[Job, ArrayTasks] | None:
        """Of a task that left its array's record: that record, if it is still known."""
        record = None if job.array_job_id is None else self.jobs.get(job.array_job_id)
        return None if record is None or record.array is None else (record, record.array)

    def count_active(self, user: str, by: int) -> None:
        self.active_by_user[user] = self.active_by_user.get(user, 0) + by
        if not self.active_by_user[user]:
            del self.active_by_user[user]

    def forget_attempt(self, attempt: Attempt) -> None:
        """Out of memory: nobody will ask for it, and no node has a part of it."""
        assert not attempt.parts, f"{attempt.attempt_id} still has parts"
        del self.attempts[attempt.attempt_id]
        self.changes.departed_attempts[attempt.attempt_id] = attempt

    def add_key(self, key: Key) -> None:
        self.keys[key.public] = key
        if key.kind is KeyKind.JOIN:
            self.join_keys[key.public] = None
        if key.kind is KeyKind.NODE and key.is_login:
            self.login_nodes[key.name] = key.public

    def drop_key(self, public: str) -> None:
        key = self.keys.pop(public)
        self.join_keys.pop(public, None)
        if self.login_nodes.get(key.name) == public:
            del self.login_nodes[key.name]

    def rebuild_indices(self) -> None:
        """After loading: every index from the facts."""
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        self.queue, self.timed, self.deadlines = PendingQueue.of(waiting), {}, {}
        for job in waiting:
            self._index_timed(job)
        ended = [job for job in self.jobs.values() if job.state is JobState.ENDED]
        self.ended = {job.job_id: None for job in sorted(ended, key=lambda job: job.end_at or 0.0)}
        self.active_by_user = {}
        for job in self.jobs.values():
            if job.state is not JobState.ENDED and job.width:
                self.active_by_user[job.user] = self.active_by_user.get(job.user, 0) + job.width
        self._rebuild_arrays()
        self.login_nodes, self.join_keys = {}, {}
        for key in self.keys.values():
            self.add_key(key)
        for node in self.nodes.values():
            node.held = {}
        self.holding = {attempt_id: one for attempt_id, one in self.attempts.items() if one.parts}
        self.elastic = {attempt_id: one for attempt_id, one in self.holding.items() if one.elastic is not None}
        for attempt in self.attempts.values():
            for name, part in attempt.parts.items():
                self.nodes[name].held[attempt.attempt_id] = part.grant
        for node in self.nodes.values():
            node.recount()
        self.associations = association.recount(self)
        tally.rebuild(self)
        dependants.rebuild(self)
        bookings.rebuild(self)

    def _rebuild_arrays(self) -> None:
        records = [job for job in self.jobs.values() if job.array is not None]
        self.arrays = {job.job_id: None for job in records if job.state is not JobState.ENDED}
        for record in records:
            assert record.array is not None
            record.array.jobs, record.array.active = {}, 0
        for job in self.jobs.values():
            known = self.record_of(job)
            if known is not None and job.array_task_id is not None:
                record, array = known
                array.jobs[job.array_task_id] = job.job_id
                array.active += job.holds_resources
                if job.spec == record.spec:
                    job.spec = record.spec  # thousands of tasks have one

    # ── invariants ────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """AssertionError with the number of the invariant that is broken."""
        self._check_jobs()
        arrays.check(self)
        for node in self.nodes.values():
            self._check_node(node)
        self._check_keys()
        tally.check(self)
        dependants.check(self)
        deadlines.check(self)
        association.check(self)
        usage.check(self)
        self.outbox.check()
        bookings.check(self)
        preemption.check(self)
        elastic.check(self)
        parked.check(self)
        check_owed_orders(self)
        for attempt in self.attempts.values():
            assert bool(attempt.parts) == (attempt.attempt_id in self.holding), f"5: the index misplaces {attempt}"
            gone = attempt.parts.keys() - self.nodes.keys()
            assert not gone, f"5: {attempt.attempt_id} has parts on nodes that are no longer there: {gone}"

    def _check_keys(self) -> None:
        of_nodes = [key.name for key in self.keys.values() if key.kind is KeyKind.NODE]
        assert len(of_nodes) == len(set(of_nodes)), f"7: a node has two keys: {of_nodes}"
        login = {k.name: k.public for k in self.keys.values() if k.kind is KeyKind.NODE and k.is_login}
        assert login == self.login_nodes, f"7: login nodes are {login}, the index says {self.login_nodes}"
        joins = {key.public for key in self.keys.values() if key.kind is KeyKind.JOIN}
        assert joins == self.join_keys.keys(), "7: the index of join keys differs from them"
        for key in self.keys.values():
            assert key.kind is not KeyKind.USER or key.uid is not None, f"7: the key of user {key.name} has no uid"

    def _check_jobs(self) -> None:
        for job in self.jobs.values():
            attempt = self.attempt_of(job)
            if job.state in (JobState.PENDING, JobState.ENDED):
                assert attempt is None or not attempt.waits_for(), f"2: job {job.job_id} is {job.state} with live parts"
            else:
                assert attempt is not None, f"3: job {job.job_id} is {job.state} without an attempt"
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        for job in waiting:
            self.queue.check(job)
        assert len(self.queue) == len(waiting), "4: the queue has jobs that do not wait"
        timed = {j.job_id for j in self.jobs.values() if j.is_waiting and (j.spec.begin_at or j.avoid)}
        assert timed <= self.timed.keys(), "4: a job that waits for its time is not in the index"
        ended = {j.job_id for j in self.jobs.values() if j.state is JobState.ENDED}
        assert ended == self.ended.keys(), "4: the index of ended jobs differs from them"
        active: dict[str, int] = {}
        for job in self.jobs.values():
            if job.state is not JobState.ENDED and job.width:
                active[job.user] = active.get(job.user, 0) + job.width
        assert active == self.active_by_user, f"4: active jobs are {active}, the index says {self.active_by_user}"
        arrays = {j.job_id for j in self.jobs.values() if j.array is not None and j.state is not JobState.ENDED}
        assert arrays == self.arrays.keys(), "4: the index of arrays differs from them"

    def _check_node(self, node: Node) -> None:
        here = {
            attempt_id: attempt.parts[node.name].grant
            for attempt_id, attempt in self.attempts.items()
            if node.name in attempt.parts
        }
        assert here == node.held, f"5: what {node.name} holds differs from the parts"
        for kind in ("cpus", "gpus"):
            taken = [one for grant in here.values() for one in getattr(grant, kind)]
            assert len(taken) == len(set(taken)), f"1: {kind} of {node.name} are given twice: {here}"
        masks = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
        counted = (node.used_resources, node.used_licenses)
        node.recount()
        recounted = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
        counts = (node.used_resources, node.used_licenses)
        assert counted == counts, f"6: what is used of {node.name} was {counted}, a recount says {counts}"
        assert masks == recounted, f"5: free masks of {node.name} were {masks}, a recount says {recounted}"
        assert node.used_memory_mib == sum(grant.memory_mib for grant in here.values()), f"6: memory of {node.name}"
