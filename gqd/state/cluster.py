"""The durable state in memory: jobs, attempts and their parts, steps, nodes, keys, accounts, and their indices.

Only ``gqd.control.apply.table`` changes a `Cluster`; everything else reads.  Each change also notes the row that it
touches (`Changes`), so that the shell writes exactly those rows.  `gqd.state.invariants` lists and checks what always
holds; `gqd.state.index.rebuild` makes the indices anew after loading.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gq.model.account import AccountInfo, LimitInfo, QosInfo
from gq.model.ids import AttemptId, JobId
from gq.model.key import KeyKind
from gq.model.resource import Grant
from gqd.state.crontab import Crontab
from gqd.state.index.associations import Associations
from gqd.state.index.changes import Changes
from gqd.state.index.deadlines import last_start_at
from gqd.state.index.dependants import Dependants
from gqd.state.index.queue import PendingQueue
from gqd.state.index.tally import Tallies
from gqd.state.index.usage import Budget, HalfLives
from gqd.state.notice import Outbox
from gqd.state.owed_order import OwedOrders
from gqd.state.records import Answer, ArrayTasks, Attempt, BudgetKey, Claim, Job, Key, LimitKey, Member, Node, Parked
from gqd.state.reservation import Reservation
from gqd.state.runtime_history import RuntimeHistory


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
    parked: dict[AttemptId, Parked] = field(default_factory=dict)
    """Attempts that stand still for others, and lend what they hold."""
    owed_orders: OwedOrders = field(default_factory=dict)
    crontabs: dict[str, Crontab] = field(default_factory=dict)
    """By user."""
    outbox: Outbox = field(default_factory=Outbox)
    """What owners are to be told."""
    lengths: RuntimeHistory = field(default_factory=dict)
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
    associations: Associations = field(default_factory=Associations, compare=False)
    """Index: accounts, members and limits by whom they are looked up for."""
    tallies: Tallies = field(default_factory=Tallies, compare=False)
    """Index: what users, accounts and QOS have in the queue and hold."""
    deadlines: dict[JobId, float] = field(default_factory=dict, compare=False)
    """Index: jobs that wait and have a deadline: the last moment at which they may start."""
    dependants: Dependants = field(default_factory=Dependants, compare=False)
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
            self.index_timed(job)

    def index_timed(self, job: Job) -> None:
        if job.spec.begin_at is not None or job.avoid:
            self.timed[job.job_id] = None
        last_at = last_start_at(job)
        if last_at is not None:
            self.deadlines[job.job_id] = last_at

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
            self.index_timed(job)

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
