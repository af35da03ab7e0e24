"""The pending jobs as columns of numbers, so that a hundred thousand jobs are ordered in a few milliseconds.  Pure.

The queue has one row for each waiting job, kept by `Cluster.enqueue`, `dequeue` and `refresh`, dense and unordered.
Names (members, partitions, QOS) are stored as codes, given in the order of appearance, and so are *shapes*: a request
together with a partition.  The factors of the priority see the queue as `Columns`.

The queue also caches the planner's view of each job (`views`) until the job changes; ticks tell whether it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gq.model.account import DEFAULT_ACCOUNT
from gq.model.ids import JobId
from gq.model.resource import ResourceRequest, min_demand
from gqd.state.records import Job

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]

Column = TypeVar("Column", Floats, Integers)

NEVER = float("inf")
NO_OVERRIDE = -1
PAGE_ROWS = 1024
MAX_VIEWS = 65_536
_FLOATS = ("submit_at", "accrue_at", "begin_at", "time_limit_s", "expected_s", "ran_s")
_INTEGERS = (
    "job_id", "override", "nice", "member", "partition", "qos", "nodes", "cpus", "gpus", "is_open", "reservation",
    "shape", "tick",
)  # fmt: skip
_SHAPE, _TICK = _INTEGERS.index("shape"), _INTEGERS.index("tick")
_MAX = 2**31 - 1

Member: TypeAlias = tuple[str, str]
"""(user, account)"""


class Labels(NamedTuple):
    """A column of names: the name of row `i` is ``names[codes[i]]``."""

    codes: Integers
    names: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Columns:
    """Pending jobs, one row each in every column; the columns are read-only.

    Amounts are the minimum demand of a job; of an array's record the demand of one task.
    """

    now: float
    job_id: Integers
    submit_at: Floats
    accrue_at: Floats
    """Instant since which owner and dependencies let the job start; infinite: they do not yet."""
    time_limit_s: Floats
    """Time limit in seconds; infinite: none."""
    expected_s: Floats
    """Expected run time in seconds; infinite: unknown."""
    nodes: Integers
    cpus: Integers
    gpus: Integers
    user: Labels
    account: Labels
    partition: Labels
    qos: Labels
    fair_share: Floats
    """0…1, fair-share factor of the job's user in its account (`gqd.sched.priority.fairshare`)."""
    due: Floats
    """1: neither the user nor the account exceeded its share; 0: both did (`gqd.sched.priority.share_debt`)."""
    partition_priority: Floats
    """0…1: the partition's priority divided by the highest of all partitions."""
    qos_priority: Floats
    """0…1: the QOS's priority divided by the highest of all QOS."""
    all_nodes: int
    """Number of nodes of the cluster; `all_cpus` and `all_gpus` count its CPUs and GPUs."""
    all_cpus: int
    all_gpus: int
    max_age_s: float
    favor_small: bool


def startable_tasks(job: Job) -> int:
    """Tasks of an array's record that no dependency holds back (a bit set)."""
    if job.array is None:
        return 0
    return job.array.waiting if job.dependency is None else job.array.waiting & job.ready


def is_open(job: Job) -> bool:
    """Whether the job is neither held nor kept back by a dependency."""
    is_ready = job.dependency is None or bool(startable_tasks(job))
    return job.hold is None and is_ready and not job.never


def member_of(job: Job) -> Member:
    """(user, account) that is billed for the job; rows of versions without accounts count for the default account."""
    return job.user, job.account or DEFAULT_ACCOUNT


def _longer(columns: Column) -> Column:
    """Copy the columns into arrays with room for half as many rows more, and a page."""
    longer = np.zeros((columns.shape[0], columns.shape[1] * 3 // 2 + PAGE_ROWS), columns.dtype)
    longer[:, : columns.shape[1]] = columns
    return longer


def _read_only(column: Column) -> Column:
    column.flags.writeable = False
    return column


class PendingQueue:
    """Columns of the waiting jobs; the last job's row moves into the gap of a removed job."""

    def __init__(self) -> None:
        self._floats = np.zeros((len(_FLOATS), PAGE_ROWS))
        self._integers = np.zeros((len(_INTEGERS), PAGE_ROWS), np.int64)
        self._row_of: dict[JobId, int] = {}
        self._members: dict[Member, int] = {}
        self._partitions: dict[str, int] = {}
        self._qos: dict[str, int] = {}
        self._reservations = {"": 0}
        self._shapes: dict[tuple[ResourceRequest, str], int] = {}
        self._next_shape = 0
        self.tick = 0
        """Number of the last change of any job in the queue."""
        self._views: dict[JobId, object] = {}
        self._views_of: object = None

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> PendingQueue:
        """Build the queue of these jobs page by page, in a third of the time of adding them singly."""
        queue, coming = cls(), iter(jobs)
        while page := list(islice(coming, PAGE_ROWS)):
            queue._add_page(page)
        return queue

    def _add_page(self, jobs: list[Job]) -> None:
        first = len(self)
        self.tick += 1
        self._row_of |= {job.job_id: row for row, job in enumerate(jobs, first)}
        if len(self) > self._integers.shape[1]:
            self._floats, self._integers = _longer(self._floats), _longer(self._integers)
        self._floats[:, first : len(self)] = np.array([self._floats_of(job) for job in jobs]).T
        self._integers[:, first : len(self)] = np.array([self._integers_of(job) for job in jobs], np.int64).T

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._row_of

    def __iter__(self) -> Iterator[JobId]:
        """Iterate over the jobs, in no particular order."""
        return iter(self._row_of)

    # ── kept by the cluster ───────────────────────────────────────────────────────────────────────────────────

    def add(self, job: Job) -> None:
        assert job.job_id not in self._row_of, f"job {job.job_id} is already in the queue"
        row = len(self._row_of)
        if row == self._integers.shape[1]:
            self._floats, self._integers = _longer(self._floats), _longer(self._integers)
        self._row_of[job.job_id] = row
        self.refresh(job)

    def remove(self, job_id: JobId) -> None:
        row = self._row_of.pop(job_id)
        self._views.pop(job_id, None)
        last = len(self._row_of)
        if row != last:
            self._floats[:, row] = self._floats[:, last]
            self._integers[:, row] = self._integers[:, last]
            self._row_of[JobId(int(self._integers[0, row]))] = row

    def refresh(self, job: Job) -> None:
        """Update the row of a job that may have changed."""
        row = self._row_of[job.job_id]
        self.tick += 1
        self._views.pop(job.job_id, None)
        self._floats[:, row] = self._floats_of(job)
        self._integers[:, row] = self._integers_of(job)

    def stored_row(self, job_id: JobId) -> tuple[float, ...]:
        """The values that the columns hold for the job, without the tick; empty: the job is not in the queue."""
        row = self._row_of.get(job_id)
        return () if row is None else (*self._floats[:, row].tolist(), *self._integers[:_TICK, row].tolist())

    def expected_row(self, job: Job) -> tuple[float, ...]:
        """The values that the columns must hold for the job as it is now, without the tick."""
        return (*self._floats_of(job), *self._integers_of(job)[:_TICK])

    def _floats_of(self, job: Job) -> tuple[float, ...]:
        return (
            job.submit_at,
            NEVER if job.accrue_at is None else job.accrue_at,
            job.spec.begin_at or 0.0,
            NEVER if job.time_limit_s is None else job.time_limit_s,
            NEVER if job.expected_s is None else job.expected_s,
            job.ran_s,
        )

    def _integers_of(self, job: Job) -> tuple[int, ...]:
        spec = job.spec
        demand = min_demand(spec.resources)
        return (
            job.job_id,
            NO_OVERRIDE if spec.priority is None else spec.priority,
            spec.nice,
            self._members.setdefault(member_of(job), len(self._members)),
            self._partitions.setdefault(job.partition, len(self._partitions)),
            self._qos.setdefault(job.qos, len(self._qos)),
            min(demand.nodes, _MAX),
            min(demand.cpus, _MAX),
            min(demand.gpus, _MAX),
            int(is_open(job)),
            self._reservations.setdefault(spec.reservation, len(self._reservations)),
            self._code_of(spec.resources, job.partition),
            self.tick,
        )

    def _code_of(self, request: ResourceRequest, partition: str) -> int:
        """Return the shape's code; if there are far more shapes than jobs, unused shapes are forgotten first."""
        code = self._shapes.get((request, partition))
        if code is not None:
            return code
        if len(self._shapes) > 2 * len(self) + PAGE_ROWS:
            used = set(self._integers[_SHAPE, : len(self)].tolist())
            self._shapes = {shape: code for shape, code in self._shapes.items() if code in used}
        self._next_shape += 1
        self._shapes[request, partition] = self._next_shape
        return self._next_shape

    # ── what is asked of it ───────────────────────────────────────────────────────────────────────────────────

    def row_of(self, job_id: JobId) -> int | None:
        """Row of the job; None: the job is not in the queue."""
        return self._row_of.get(job_id)

    def has_changed(self, job_id: JobId, since: int) -> bool:
        """Whether the job has left the queue or has changed after the tick `since`."""
        row = self._row_of.get(job_id)
        return row is None or bool(self._integers[_TICK, row] > since)

    def view(self, job_id: JobId) -> object:
        """The view of the job stored by `keep_view`; None: there is none, or the job has changed since."""
        return self._views.get(job_id)

    def keep_view(self, job_id: JobId, view: object) -> None:
        if len(self._views) >= MAX_VIEWS:
            self._views.clear()
        self._views[job_id] = view

    def begin_views(self, policy: object) -> None:
        """Forget the cached views if they were made under another policy."""
        if policy is not self._views_of:
            self._views_of = policy
            self._views.clear()

    def floats(self, name: str) -> Floats:
        """Return a read-only view of a column of floats, valid in this turn."""
        return _read_only(self._floats[_FLOATS.index(name), : len(self)])

    def integers(self, name: str) -> Integers:
        """Return a read-only view of a column of integers, valid in this turn."""
        return _read_only(self._integers[_INTEGERS.index(name), : len(self)])

    def since(self) -> Floats:
        """Column of instants since which each job could start by its owner and dependencies, else its submission."""
        accrue_at = self.floats("accrue_at")
        return np.where(np.isinf(accrue_at), self.floats("submit_at"), accrue_at)

    @property
    def members(self) -> tuple[Member, ...]:
        """Members by the codes of the column ``member``; `partitions`, `qos` and `reservations` are alike."""
        return tuple(self._members)

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self._partitions)

    @property
    def qos(self) -> tuple[str, ...]:
        return tuple(self._qos)

    @property
    def reservations(self) -> tuple[str, ...]:
        return tuple(self._reservations)
