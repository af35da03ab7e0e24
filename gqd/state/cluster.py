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
from gqd.state.records import (
    Answer,
    ArrayTasks,
    Attempt,
    BudgetKey,
    Job,
    Key,
    LimitKey,
    Member,
    Node,
    Nomination,
    Parked,
)
from gqd.state.reservation import Reservation
from gqd.state.runtime_history import RuntimeHistory


@dataclass(slots=True)
class Cluster:
    """All durable records, and the indices over them."""

    jobs: dict[JobId, Job] = field(default_factory=dict)
    attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    """Enrolled keys by public half (Z85)."""
    void_key_files: dict[str, None] = field(default_factory=dict)
    """Removed nodes whose file in ``keys/nodes`` may not be deleted yet."""
    answers: dict[bytes, Answer] = field(default_factory=dict)
    """Stored replies by request id."""
    accounts: dict[str, AccountInfo] = field(default_factory=dict)
    """Accounts that were added; the root and the default account exist without a record."""
    members: dict[tuple[str, str], Member] = field(default_factory=dict)
    """Members by (user, account); every user who submitted a job is a member of the job's account."""
    qos: dict[str, QosInfo] = field(default_factory=dict)
    """QOS that were added or changed."""
    limits: dict[LimitKey, LimitInfo] = field(default_factory=dict)
    budgets: dict[BudgetKey, Budget] = field(default_factory=dict)
    """Usage of the limits that are budgets, since each limit was set."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """Reservations by name."""
    next_reservation_id: int = 1
    claims: dict[JobId, Nomination] = field(default_factory=dict)
    """Claims by the pending job whose victims are being preempted."""
    parked: dict[AttemptId, Parked] = field(default_factory=dict)
    """Parked attempts, which are suspended for a preemptor and lend their resources."""
    owed_orders: OwedOrders = field(default_factory=dict)
    crontabs: dict[str, Crontab] = field(default_factory=dict)
    """Crontabs by user."""
    outbox: Outbox = field(default_factory=Outbox)
    """Notices to owners that are not delivered yet."""
    lengths: RuntimeHistory = field(default_factory=dict)
    """Run times of ended jobs."""
    half_life_s: float | None = None
    """Half-life of `Member.usage` in seconds; None: usage does not decay."""
    half_lives: HalfLives = ()
    """Earlier half-lives, by which usage that is reported late decays."""
    next_job_id: int = 1
    """Next job id; never decreases, even when jobs are forgotten."""
    queue: PendingQueue = field(default_factory=PendingQueue, compare=False)
    """Index: waiting jobs, and arrays' records with waiting tasks."""
    ordered_nodes: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Index: nodes in natural order; None: nodes have been added or removed since it was made."""
    holding: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: attempts that still have parts."""
    elastic: dict[AttemptId, Attempt] = field(default_factory=dict, compare=False, repr=False)
    """Index: elastic attempts that still have parts."""
    stamp: int = field(default=0, compare=False)
    """Highest `Node.free_since`."""
    timed: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: pending jobs that may start merely because time passes (a begin time, or nodes to avoid for a while)."""
    ended: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: ended jobs, roughly in the order of their ends."""
    arrays: dict[JobId, None] = field(default_factory=dict, compare=False)
    """Index: arrays' records that have not ended."""
    active_by_user: dict[str, int] = field(default_factory=dict, compare=False)
    """Index: number of jobs that have not ended, by user."""
    login_nodes: dict[str, str] = field(default_factory=dict, compare=False)
    """Index: login nodes → their keys."""
    join_keys: dict[str, None] = field(default_factory=dict, compare=False)
    """Index: join keys, which expire."""
    associations: Associations = field(default_factory=Associations, compare=False)
    """Index: accounts, members and limits by user, account and holder."""
    tallies: Tallies = field(default_factory=Tallies, compare=False)
    """Index: what users, accounts and QOS have in the queue and hold."""
    deadlines: dict[JobId, float] = field(default_factory=dict, compare=False)
    """Index: waiting job → the last instant at which it may start before its deadline."""
    dependants: Dependants = field(default_factory=Dependants, compare=False)
    """Index: jobs that depend on other jobs."""
    changes: Changes = field(default_factory=Changes, compare=False)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────

    def attempt_of(self, job: Job) -> Attempt | None:
        """Return the job's latest attempt; None: there is none in memory."""
        return self.attempts.get(job.attempt_id) if job.attempt else None

    # ── indices, kept by apply ────────────────────────────────────────────────────────────────────────────────

    def hold(self, attempt: Attempt, grant: Grant) -> None:
        """Add a new attempt's part: from now on the node holds the grant."""
        node = self.nodes[grant.node]
        node.hold(attempt.attempt_id, grant)
        self.holding[attempt.attempt_id] = attempt
        if attempt.elastic is not None:
            self.elastic[attempt.attempt_id] = attempt
        self._stamp(node, grant)

    def change_grant(self, attempt: Attempt, grant: Grant) -> None:
        """Replace the grant of an attempt on one node."""
        node = self.nodes[grant.node]
        node.release(attempt.attempt_id)
        attempt.grants = (grant,)
        attempt.parts[grant.node].grant = grant
        node.hold(attempt.attempt_id, grant)
        attempt.view = None
        self._stamp(node, grant)

    def release(self, attempt: Attempt, name: str) -> None:
        """Remove the attempt's part on a node, whose resources become free."""
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
        """Drop the cached planner view of the job's latest attempt."""
        attempt = self.attempts.get(job.attempt_id)
        if attempt is not None:
            attempt.view = None

    def enqueue(self, job: Job) -> None:
        """Add a pending job to the queue, except an array's record without waiting tasks."""
        if job.is_waiting:
            self.queue.add(job)
            self.index_timed(job)

    def index_timed(self, job: Job) -> None:
        """Enter a waiting job into the indices of begin times and deadlines."""
        if job.spec.begin_at is not None or job.avoid:
            self.timed[job.job_id] = None
        last_at = last_start_at(job)
        if last_at is not None:
            self.deadlines[job.job_id] = last_at

    def dequeue(self, job: Job) -> None:
        """Remove a job from the queue; an array's record may have left it before."""
        if job.array is None or job.job_id in self.queue:
            self.queue.remove(job.job_id)
        self.timed.pop(job.job_id, None)
        self.deadlines.pop(job.job_id, None)

    def refresh(self, job: Job) -> None:
        """Update the queue after a change of the job; does nothing for a job that is not in the queue."""
        if job.job_id in self.queue:
            self.queue.refresh(job)
            self.index_timed(job)

    def record_of(self, job: Job) -> tuple[Job, ArrayTasks] | None:
        """Return the array's record of a task's job, and its tasks; None: no task, or no longer in memory."""
        record = None if job.array_job_id is None else self.jobs.get(job.array_job_id)
        return None if record is None or record.array is None else (record, record.array)

    def count_active(self, user: str, by: int) -> None:
        """Add `by` to the user's number of active jobs."""
        self.active_by_user[user] = self.active_by_user.get(user, 0) + by
        if not self.active_by_user[user]:
            del self.active_by_user[user]

    def forget_attempt(self, attempt: Attempt) -> None:
        """Remove an attempt without parts from memory."""
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
