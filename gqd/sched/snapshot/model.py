"""The planner's input: an immutable snapshot of the cluster, and an overlay of free resources for trials.  Pure.

A snapshot describes the nodes in parallel tuples that share one node index, so that a pass touches numbers, not
objects.  An `Overlay` holds copies of the free resources, which it changes and rolls back to any checkpoint.  It keeps
masks, from which exact GPUs are picked, and vectors of counts, by which suitable nodes are found; both always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, Protocol, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from gq.model.account import BUILT_IN_QOS, NORMAL_QOS, QosInfo
from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gq.model.scheduling import Scheduling, Switch
from gqd.sched.limits.ledger import NO_LIMITS, LimitSubject, LimitView
from gqd.sched.request import Shape
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import ANY_KIND, Kind, NodeTable, node_table_of
from gqd.state.index.queue import Integers, Member
from gqd.state.plan import Protected
from gqd.state.policy import Policy
from gqd.state.records import mask_of

USUAL = Scheduling()


def whole_nodes(nodes: tuple[NodeFacts, ...]) -> tuple[NodeFacts, ...]:
    """Return the nodes as they would be without drained GPUs; the same tuple if no GPU is drained."""
    node_table = node_table_of(nodes)
    if node_table.whole is None:
        node_table.whole = tuple([node.whole() for node in nodes]) if any(node.drained for node in nodes) else nodes
    return node_table.whole


@dataclass(slots=True, frozen=True)
class PendingJob:
    """A job that waits in the queue; the record of a job array stands for all of its waiting tasks."""

    job_id: JobId
    attempt: int
    """Number of the latest attempt; a plan is adopted only while the job still has this number."""
    user: str
    shape: Shape
    time_limit_s: int | None
    is_held: bool
    begin_at: float | None
    avoid: tuple[tuple[str, float], ...] = ()
    """(node, until when the job is not placed there after a failed launch)."""
    account: str = ""
    qos: str = NORMAL_QOS
    groups: tuple[str, ...] = ()
    tasks: int = field(default=0, repr=False)
    """Bit set of the tasks that may start, for the record of a job array; 0 for any other job."""
    array_job_id: JobId | None = None
    """The array's job id, for its record and for a task with a record of its own; None: not part of an array."""
    expected_s: float | None = None
    """Expected run time; None: unknown."""
    since: float = 0.0
    """Since when neither a hold, a begin time nor a dependency has kept the job from starting."""
    waits_since: float = 0.0
    """The later of `since` and the time at which the job was last requeued."""
    reservation: str = ""
    """Name of the reservation that the job asks for; empty: none."""
    last_start_at: float | None = None
    """Latest start at which the job would still end by its deadline; None: no deadline."""
    ran_s: float = 0.0
    """Run time of the job's earlier attempts."""
    resume_s: float | None = None
    """Time that the job needs to resume after a stop, as measured, else as its owner states; None: unknown."""
    fits_beside: bool = False
    """The job needs no GPUs, or states how much GPU memory it needs, so it could run on the GPUs of a suspended job,
    which keeps its GPU memory."""

    @property
    def subject(self) -> LimitSubject:
        return LimitSubject(self.user, self.account, self.qos)


class PendingJobs(Protocol):
    """A sequence of pending jobs in queue order: a tuple, or a view that builds them on demand."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[PendingJob]: ...
    @overload
    def __getitem__(self, queue_index: int, /) -> PendingJob: ...
    @overload
    def __getitem__(self, queue_indices: slice, /) -> tuple[PendingJob, ...]: ...


class Share(NamedTuple):
    """The request that an elastic job makes for each of its nodes."""

    request: ResourceRequest
    partition: str


class ResizeBounds(NamedTuple):
    """The resize bounds of a running elastic job."""

    least: tuple[int, ...]
    """Indices of the GPUs that the job keeps in any case."""
    most: int
    """Maximum number of GPUs; of nodes, where `share` is given."""
    gpu_type: str | None
    min_gpu_mem_mib: int
    generation: int
    """Number of the job's latest resize; a proposal made for another generation is void."""
    lead_s: float = 0.0
    """Time from the request to release GPUs or a node until they are free."""
    cpus_per_gpu: int = 0
    """CPUs that the job gains or releases with each GPU."""
    least_cpus: tuple[int, ...] = ()
    """Indices of the CPUs that the job keeps in any case."""
    share: Share | None = None
    """The request for each node, if the job grows and shrinks by nodes; None: by GPUs of one node."""
    joined: tuple[str, ...] = ()
    """Names of the nodes that joined the job, which it may release."""


@dataclass(slots=True, frozen=True)
class RunningJob:
    """A job, or a part of one, that holds resources; `ends_at` None: no time limit."""

    job_id: JobId
    user: str
    grants: tuple[Grant, ...]
    ends_at: float | None
    is_stranded: bool = False
    """A node of the job is lost or silent, so the time at which its resources become free is unknown."""
    began_at: float = 0.0
    """When the job started; when it was allocated, as long as it has not started."""
    expected_s: float | None = None
    """Expected total run time; None: unknown."""
    slot: str = ""
    """The slot that started the job; see `gqd.state.plan.Start`."""
    reservation: str = ""
    """The reservation that the job runs in; empty: none."""
    occurrence: int = 0
    """Number of the occurrence of `reservation`."""
    attempt: int = 0
    account: str = ""
    qos: str = NORMAL_QOS
    saved_at: float | None = None
    """Work done by this instant survives a preemption: the last checkpoint, else `began_at`.  None: the job cannot be
    preempted, because it has not started, is ending, or for another reason."""
    stood_s: float = 0.0
    """Time for which the job was suspended."""
    lead_s: float = 0.0
    """Time from the preemption notice until the job is ended."""
    preemptor: JobId | None = None
    """The job that preempts this one, which then ends by `ends_at` at the latest; None: it is not being preempted."""
    resize_bounds: ResizeBounds | None = None
    """Resize bounds of an elastic job; None: the job keeps its GPUs and nodes."""
    is_borrowing: bool = False
    """The job started on idle reserved resources; jobs of the reservation may preempt it."""
    since: float = 0.0
    """`PendingJob.since`, as it was when the job started."""
    ran_s: float = 0.0
    """Run time of earlier attempts, before `began_at`."""
    resume_s: float | None = None
    """Time that the job needs to resume after a stop, as measured, else as its owner states; None: unknown."""
    saves: bool = False
    """The job saves its work when it gets a preemption notice."""
    kept_for: str = ""
    """The reservation that keeps the job's resources until `ends_at`, even if the job ends earlier; empty: none."""
    comes_back: bool = False
    """The job is requeued if it is preempted."""
    is_part: bool = False
    """This is not a job but the resources that a job releases by `ends_at`; the job itself is listed without them."""
    can_park: bool = False
    """The job could be suspended and lend its CPUs and GPUs to its preemptor
    (`gqd.sched.preemption.suspend_victims`)."""
    cells: tuple[tuple[str, int, int], ...] = field(init=False, compare=False, repr=False)
    """(node, mask of CPUs, mask of GPUs) of each grant; computed once, since every plan reads it."""

    def __post_init__(self) -> None:
        cells = tuple((grant.node, mask_of(grant.cpus), mask_of(grant.gpus)) for grant in self.grants)
        object.__setattr__(self, "cells", cells)


@dataclass(slots=True, frozen=True)
class PendingColumns:
    """Attributes of all pending jobs as vectors in the order of `Snapshot.pending`, to evaluate all jobs at once."""

    job_id: NDArray[np.int64]
    shape: NDArray[np.int64]
    """Codes: two jobs have the same code exactly if their shapes are equal."""
    expected_s: NDArray[np.float64]
    """Expected run time; infinite: unknown."""
    time_limit_s: NDArray[np.float64]
    """Infinite: no time limit."""
    since: NDArray[np.float64]
    band: NDArray[np.int64]
    """Slots take the oldest job of the lowest band, which combines an administrator's priority override and whether the
    user had more than the fair share."""
    priority: NDArray[np.int64]
    reservation: NDArray[np.int64]
    """Codes: indices of `reservations`."""
    member: NDArray[np.int64]
    """Codes: indices of `members`."""
    qos: NDArray[np.int64]
    """Codes: indices of `names_of_qos`."""
    reservations: tuple[str, ...]
    """Names; the first, empty one stands for no reservation."""
    members: tuple[Member, ...]
    """(user, account)."""
    names_of_qos: tuple[str, ...]
    source: object = None
    """Columns with the same source use the same codes for the same shapes; None: the codes are those of this object
    only."""

    def only(self, queue_indices: NDArray[np.int64]) -> PendingColumns:
        """Return the columns of the jobs at these indices of the queue."""
        return replace(
            self,
            job_id=self.job_id[queue_indices],
            shape=self.shape[queue_indices],
            expected_s=self.expected_s[queue_indices],
            time_limit_s=self.time_limit_s[queue_indices],
            since=self.since[queue_indices],
            band=self.band[queue_indices],
            priority=self.priority[queue_indices],
            reservation=self.reservation[queue_indices],
            member=self.member[queue_indices],
            qos=self.qos[queue_indices],
        )


@dataclass(slots=True, frozen=True)
class ReservedOccurrence:
    """An occurrence of a reservation that has not ended: the resources it holds, for which users, and when."""

    name: str
    number: int
    clear_at: float
    """When other jobs must have left the reserved resources: shortly before `begin_at`, since jobs may end late."""
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    owner: str
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    is_magnetic: bool = False
    is_flex: bool = False
    is_lent: bool = False
    """Idle reserved resources are lent to jobs whose QOS may borrow, until a job of the reservation needs them."""
    next_clear_at: float = inf
    """`clear_at` of the next occurrence of another reservation on some of these resources, if that begins soon after
    `end_at`; else infinite."""
    next_name: str = ""
    """Name of that other reservation."""

    @property
    def closes_at(self) -> float:
        """The instant by which jobs that run in the occurrence must have ended."""
        return min(self.end_at, self.next_clear_at)

    def is_in_force(self, now: float) -> bool:
        """Return whether the reserved resources are closed to other jobs now."""
        return self.clear_at <= now < self.end_at

    def is_active(self, now: float) -> bool:
        """Return whether jobs may start in the occurrence now."""
        return self.begin_at <= now < self.end_at

    def is_for(self, user: str, path: Sequence[str]) -> bool:
        """Return whether the user may use the reservation; `path`: the user's account and its parent accounts."""
        return user == self.owner or user in self.users or any(account in self.accounts for account in path)


@dataclass(slots=True, frozen=True)
class Nomination:
    """The resources nominated for a preemptor once its victims are gone; those already free are kept for it."""

    job_id: JobId
    grants: tuple[Grant, ...]
    until: float
    """When the last victim is ended."""
    user: str = ""
    """The preemptor's user."""
    time_limit_s: int | None = None
    expected_s: float | None = None
    reservation: str = ""
    """The reservation in which the preemptor is to start; empty: none."""
    occurrence: int = 0
    """Number of the occurrence of `reservation`."""
    parks: frozenset[JobId] = frozenset()
    """The victims that are suspended instead of ended; they get their resources back when the preemptor ends."""
    parked: tuple[Grant, ...] = ()
    """Resources that suspended victims already lend to the preemptor; no other job may use them."""


class AutoThrottleShares(NamedTuple):
    """The auto-throttled arrays and the shares that their fair share follows from (`gqd.sched.cycle.auto_throttle`)."""

    arrays: frozenset[JobId]
    shares: Mapping[Member, int]
    """Shares of (user, account); a member that is not listed has 1."""


NO_AUTO_THROTTLE = AutoThrottleShares(frozenset(), {})


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The cluster and its queue at one instant, as far as planning needs them."""

    now: float
    policy: Policy
    nodes: tuple[NodeFacts, ...]
    free_cpus: tuple[int, ...]
    """Masks, by node index."""
    free_gpus: tuple[int, ...]
    """Masks, by node index."""
    free_memory_mib: tuple[int, ...]
    """Free memory by node index."""
    pending: PendingJobs
    """The first jobs of the queue in its order, at most as many as the policy's planning depth."""
    running: Sequence[RunningJob]
    array_room: dict[JobId, int] = field(default_factory=dict)
    """How many more tasks of each throttled array may start."""
    array_throttle: dict[JobId, int] = field(default_factory=dict)
    """How many tasks of each throttled array may run at once."""
    auto_throttle: AutoThrottleShares = NO_AUTO_THROTTLE
    limits: LimitView = NO_LIMITS
    kept_back: tuple[LimitSubject, ...] = ()
    """The subjects of limits whose jobs are left out of `pending` because a limit holds them back."""
    columns: PendingColumns | None = None
    """Columns of `pending`; None: the planner builds them."""
    protected: tuple[Protected, ...] = ()
    """Planned starts of the previous plan, which later planned starts may not delay."""
    free_resources: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Generic resources: name → free count by node index."""
    free_licenses: dict[str, int] = field(default_factory=dict)
    """Free count of each licence in use; licences that are not listed are all free."""
    since: tuple[int, ...] = ()
    """Order, by node index, in which the nodes came to their present number of free GPUs; empty: unknown."""
    resumes_at: JobId | None = None
    """The first job that the previous plan did not reach, if its step budget ran out."""
    searches_from: JobId | None = None
    """The first job for which the previous plan searched no victims, if its victim-search budget ran out."""
    booked: tuple[ReservedOccurrence, ...] = ()
    """Occurrences by their begin.  The free resources include what they reserve: the planner keeps it apart
    (`gqd.sched.reservation.windows`)."""
    claims: tuple[Nomination, ...] = ()
    """Claims of preemptors, the oldest first.  The free resources include what no job holds of them: the planner keeps
    it apart (`gqd.sched.preemption.nominations`)."""
    qos: Mapping[str, QosInfo] = field(default_factory=lambda: BUILT_IN_QOS, hash=False)
    """QOS by name: which QOS preempts which, and how."""
    gives_back: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Rank of each account that has borrowed guaranteed GPUs: GPUs are reclaimed from rank 1 first."""
    inside: ReservedOccurrence | None = None
    """The occurrence that this snapshot is restricted to: its resources and the jobs that may use them; None: the whole
    cluster."""


Cell: TypeAlias = tuple[int, int, int, int]
"""Resources held on a node: (node index, mask of CPUs, mask of GPUs, memory in MiB)."""
_Counts: TypeAlias = tuple[tuple[str, int], ...]


class _Before(NamedTuple):
    """The free resources of a node before a change, and the counts to add back when the change is undone."""

    node_index: int
    cpus: int
    gpus: int
    memory_mib: int
    resources: _Counts
    licenses: _Counts
    since: int | None = None
    """The node's previous `Overlay.since`, if the change replaced it."""


@dataclass(slots=True)
class Overlay:
    """Free resources for trials: take a checkpoint, take and give back resources, then roll back or keep the result."""

    nodes: tuple[NodeFacts, ...]
    free_cpus: list[int]
    free_gpus: list[int]
    free_memory_mib: list[int]
    free_resources: dict[str, Integers] = field(default_factory=dict)
    """Free generic resources by node index; a resource that is not listed is entirely free."""
    free_licenses: dict[str, int] | None = None
    """Free licences by name; None: unlimited."""
    since: Integers | None = None
    """Among equally free nodes, the one with the smallest number is used first; None: the first in node order."""
    cores_kept: int = 0
    """CPUs per idle GPU that jobs without GPUs must leave free."""
    scheduling: Scheduling = USUAL
    switches: tuple[Switch, ...] = ()
    free_now: tuple[list[int], list[int]] | None = None
    """Masks of (CPUs, GPUs) that are free now, where the overlay describes a later instant.  A planned start prefers
    resources that are held now, so that those free now stay usable until then."""
    node_table: NodeTable = field(init=False, repr=False)
    gpu_counts: Integers = field(init=False, repr=False)
    """Number of free GPUs by node index; every change of the masks updates it, `cpu_counts` and `memory`."""
    cpu_counts: Integers = field(init=False, repr=False)
    memory: Integers = field(init=False, repr=False)
    _kinds: dict[Kind, Integers] = field(default_factory=dict, repr=False)
    """Number of free GPUs of a kind by node index, for kinds that share nodes with other GPUs."""
    _undo: list[_Before] = field(default_factory=list, repr=False)
    _stamp: int = field(default=-1, repr=False)
    """The largest number given out in `since`; -1: none yet."""

    def __post_init__(self) -> None:
        self.node_table = node_table_of(self.nodes)
        size = len(self.nodes)
        self.gpu_counts = np.fromiter(map(int.bit_count, self.free_gpus), np.int64, size)
        self.cpu_counts = np.fromiter(map(int.bit_count, self.free_cpus), np.int64, size)
        self.memory = np.array(self.free_memory_mib, dtype=np.int64)
        for name, total in self.node_table.resources.items():
            self.free_resources.setdefault(name, total.copy())

    @classmethod
    def of(cls, snapshot: Snapshot) -> Overlay:
        """Return the free resources of a snapshot."""
        policy = snapshot.policy
        return cls(
            snapshot.nodes,
            list(snapshot.free_cpus),
            list(snapshot.free_gpus),
            list(snapshot.free_memory_mib),
            {name: np.array(free, dtype=np.int64) for name, free in snapshot.free_resources.items()},
            {**policy.licenses, **snapshot.free_licenses},
            np.array(snapshot.since, dtype=np.int64) if snapshot.since else None,
            policy.scheduling.cores_kept_per_gpu,
            policy.scheduling,
            policy.topology,
        )

    @classmethod
    def empty(cls, nodes: tuple[NodeFacts, ...]) -> Overlay:
        """Return an overlay in which every node is idle and no policy applies; only the hardware limits placement."""
        node_table = node_table_of(nodes)
        if not isinstance(node_table.empty, Overlay):
            node_table.empty = cls(
                nodes,
                [node.cpu_mask for node in nodes],
                [node.gpu_mask for node in nodes],
                [node.memory_mib for node in nodes],
            )
        return node_table.empty.copy()

    def copy(self) -> Overlay:
        """Return an independent overlay with the same free resources and without history to roll back."""
        twin = object.__new__(Overlay)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.free_cpus, twin.free_gpus = self.free_cpus.copy(), self.free_gpus.copy()
        twin.free_memory_mib = self.free_memory_mib.copy()
        twin.free_resources = {name: free.copy() for name, free in self.free_resources.items()}
        twin.free_licenses = None if self.free_licenses is None else self.free_licenses.copy()
        twin.gpu_counts, twin.cpu_counts = self.gpu_counts.copy(), self.cpu_counts.copy()
        twin.memory = self.memory.copy()
        twin.since = None if self.since is None else self.since.copy()
        twin._kinds = {kind: counts.copy() for kind, counts in self._kinds.items()}
        twin._undo = []
        return twin

    def checkpoint(self) -> int:
        return len(self._undo)

    def rollback(self, checkpoint: int) -> None:
        """Undo all changes since the checkpoint, except `give_back_cells`."""
        while len(self._undo) > checkpoint:
            before = self._undo.pop()
            self._set(before.node_index, before.cpus, before.gpus, before.memory_mib)
            self._count(before.node_index, before.resources, before.licenses)
            if before.since is not None and self.since is not None:
                self.since[before.node_index] = before.since

    def take(self, node_index: int, grant: Grant) -> None:
        """Take a grant's resources on a node."""
        resources = tuple((amount.name, amount.count) for amount in grant.resources)
        licenses = tuple((amount.name, amount.count) for amount in grant.licenses)
        self.take_masks(node_index, mask_of(grant.cpus), mask_of(grant.gpus), grant.memory_mib, resources, licenses)
        if self.since is not None and grant.gpus:
            self._undo[-1] = self._undo[-1]._replace(since=int(self.since[node_index]))
            self._stamp = (int(self.since.max()) if self._stamp < 0 else self._stamp) + 1
            self.since[node_index] = self._stamp

    def give_back(self, node_index: int, grant: Grant) -> None:
        """Free a grant's resources on a node, except drained GPUs."""
        resources = tuple((amount.name, -amount.count) for amount in grant.resources)
        licenses = tuple((amount.name, -amount.count) for amount in grant.licenses)
        self.give_masks(node_index, mask_of(grant.cpus), mask_of(grant.gpus), grant.memory_mib, resources, licenses)

    def take_masks(
        self, node_index: int, cpus: int, gpus: int, memory_mib: int, resources: _Counts = (), licenses: _Counts = ()
    ) -> None:
        """Take resources; `resources` and `licenses` are (name, count taken)."""
        self._remember(node_index, resources, licenses)
        free = self.free_memory_mib[node_index] - memory_mib
        self._set(node_index, self.free_cpus[node_index] & ~cpus, self.free_gpus[node_index] & ~gpus, free)
        self._count(node_index, resources, licenses, -1)

    def give_masks(
        self, node_index: int, cpus: int, gpus: int, memory_mib: int, resources: _Counts = (), licenses: _Counts = ()
    ) -> None:
        """Free resources, except drained GPUs; `resources` and `licenses` are (name, minus the count given back)."""
        self._remember(node_index, resources, licenses)
        node = self.nodes[node_index]
        whole_cpus = self.free_cpus[node_index] | (cpus & node.cpu_mask)
        free = self.free_memory_mib[node_index] + memory_mib
        self._set(node_index, whole_cpus, self.free_gpus[node_index] | (gpus & node.gpu_mask), free)
        self._count(node_index, resources, licenses, -1)

    def give_back_cells(self, cells: Iterable[Cell]) -> None:
        """Free many cells at once, permanently: a rollback does not undo this."""
        touched = set()
        for node_index, cpus, gpus, memory_mib in cells:
            touched.add(node_index)
            self.free_cpus[node_index] |= cpus
            self.free_gpus[node_index] |= gpus
            self.free_memory_mib[node_index] += memory_mib
        for node_index in touched:
            node = self.nodes[node_index]
            free_cpus = self.free_cpus[node_index] & node.cpu_mask
            free_gpus = self.free_gpus[node_index] & node.gpu_mask
            self._set(node_index, free_cpus, free_gpus, self.free_memory_mib[node_index])

    def take_all(self, node_indices: dict[str, int], grants: Sequence[Grant]) -> None:
        """Take all grants of a job, the largest first and equal ones by age, in the order in which the cluster records
        `since`."""
        since = self.since
        if len(grants) > 1 and since is not None:
            grants = sorted(grants, key=lambda grant: (-len(grant.gpus), since[node_indices[grant.node]]))
        for grant in grants:
            self.take(node_indices[grant.node], grant)

    def renew(self, node_index: int) -> None:
        """Record in `since` that the node's number of free GPUs has just changed."""
        if self.since is not None:
            self._stamp = (int(self.since.max()) if self._stamp < 0 else self._stamp) + 1
            self.since[node_index] = self._stamp

    def has(self, node_index: int, grant: Grant) -> bool:
        """Return whether everything in the grant is free on the node; licences are counted over all nodes."""
        cpus, gpus = mask_of(grant.cpus), mask_of(grant.gpus)
        if cpus & ~self.free_cpus[node_index] or gpus & ~self.free_gpus[node_index]:
            return False
        if grant.memory_mib and grant.memory_mib > self.free_memory_mib[node_index]:
            return False
        free = self.free_resources
        if any(amount.name not in free or amount.count > free[amount.name][node_index] for amount in grant.resources):
            return False
        licenses = self.free_licenses
        return licenses is None or all(amount.count <= licenses.get(amount.name, 0) for amount in grant.licenses)

    def kind_counts(self, kind: Kind) -> Integers:
        """Return the number of free GPUs of the kind, by node index."""
        if kind == ANY_KIND:
            return self.gpu_counts
        of_kind = self.node_table.kind(kind)
        if of_kind.is_pure:
            return np.where(of_kind.counts, self.gpu_counts, 0)
        kind_counts = self._kinds.get(kind)
        if kind_counts is None:
            counts = ((free & mask).bit_count() for free, mask in zip(self.free_gpus, of_kind.masks, strict=True))
            kind_counts = self._kinds[kind] = np.fromiter(counts, np.int64, len(self.nodes))
        return kind_counts

    def _set(self, node_index: int, cpus: int, gpus: int, memory_mib: int) -> None:
        self.free_cpus[node_index], self.free_gpus[node_index] = cpus, gpus
        self.free_memory_mib[node_index] = memory_mib
        self.cpu_counts[node_index] = cpus.bit_count()
        self.gpu_counts[node_index] = gpus.bit_count()
        self.memory[node_index] = memory_mib
        for kind, counts in self._kinds.items():
            counts[node_index] = (gpus & self.node_table.kind(kind).masks[node_index]).bit_count()

    def _count(self, node_index: int, resources: _Counts, licenses: _Counts, sign: int = 1) -> None:
        for name, count in resources:
            if name in self.free_resources:
                self.free_resources[name][node_index] += sign * count
        for name, count in licenses if self.free_licenses is not None else ():
            assert self.free_licenses is not None
            self.free_licenses[name] = self.free_licenses.get(name, 0) + sign * count

    def _remember(self, node_index: int, resources: _Counts, licenses: _Counts) -> None:
        before = (self.free_cpus[node_index], self.free_gpus[node_index], self.free_memory_mib[node_index])
        self._undo.append(_Before(node_index, *before, resources, licenses))
