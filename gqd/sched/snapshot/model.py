"""What a plan is made from: an immutable snapshot of the cluster, and an overlay to try things on.  Pure.

A snapshot holds nodes as parallel tuples (one place per node), so that a pass touches numbers, not objects.
An `Overlay` changes copies of the free resources and can be rolled back to any checkpoint; it has them as masks, from
which exact GPUs are picked, and beside them as vectors of counts, by which nodes are found.
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
from gqd.sched.limits.ledger import NO_LIMITS, Asker, LimitView
from gqd.sched.request import Shape
from gqd.sched.snapshot.gpu_links import GpuTopology
from gqd.sched.snapshot.node_table import ANY_KIND, Kind, NodeTable, node_table_of
from gqd.state.index.queue import Integers, Member
from gqd.state.plan import Protected
from gqd.state.policy import Policy
from gqd.state.records import mask_of

USUAL = Scheduling()


@dataclass(slots=True, frozen=True)
class NodeFacts:
    """A node as the planner needs it."""

    name: str
    cpus: int
    memory_mib: int
    gpu_types: tuple[tuple[str, int], ...]
    """(type, mask of the GPUs of that type), drained GPUs left out."""
    drained: tuple[tuple[str, int], ...] = ()
    """Likewise, the drained ones."""
    unavailable: str = ""
    """Why it gets no jobs now (``down``, ``drained: …``, ``backed off``); empty: it may."""
    backoff_until: float = 0.0
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(MiB, mask of the GPUs that have so much)."""
    topology: GpuTopology | None = None
    cpu_numa: tuple[tuple[int, int], ...] = ()
    """(NUMA node, mask of its CPUs); empty: not known."""
    features: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    resources: tuple[tuple[str, int], ...] = ()
    """Generic resources: (name, how many in all)."""
    data: frozenset[str] = frozenset()
    kept_cpus: int | None = None
    """Of the part of a node that a reservation keeps: the mask of its `cpus`; None: the first ones, all that it has."""
    is_part: bool = False
    """It is less than the node: nobody can have the node alone."""
    can_join: bool = False
    """It can come to a job that runs."""
    gpu_mask: int = field(init=False)
    """All of `gpu_types`; every placement asks for it."""
    cpu_mask: int = field(init=False)

    def __post_init__(self) -> None:
        mask = 0
        for _, one in self.gpu_types:
            mask |= one
        object.__setattr__(self, "gpu_mask", mask)
        object.__setattr__(self, "cpu_mask", (1 << self.cpus) - 1 if self.kept_cpus is None else self.kept_cpus)

    def whole(self) -> NodeFacts:
        """The node as it will be when nothing of it is drained any more."""
        masks = dict(self.gpu_types)
        for gpu_type, mask in self.drained:
            masks[gpu_type] = masks.get(gpu_type, 0) | mask
        return replace(self, gpu_types=tuple(masks.items()), drained=())

    def type_mask(self, gpu_type: str | None) -> int:
        """GPUs of a type; None: of any."""
        if gpu_type is None:
            return self.gpu_mask
        return next((mask for name, mask in self.gpu_types if name == gpu_type), 0)

    def fitting_mask(self, gpu_type: str | None, least_mib: int = 0) -> int:
        """GPUs of a type with so much memory."""
        mask = self.type_mask(gpu_type)
        return mask & union(one for mib, one in self.gpu_memory if mib >= least_mib) if least_mib else mask


def union(masks: Iterable[int]) -> int:
    whole = 0
    for one in masks:
        whole |= one
    return whole


def whole_nodes(nodes: tuple[NodeFacts, ...]) -> tuple[NodeFacts, ...]:
    """As they will be when nothing of them is drained any more."""
    node_table = node_table_of(nodes)
    if node_table.whole is None:
        node_table.whole = tuple([one.whole() for one in nodes]) if any(one.drained for one in nodes) else nodes
    return node_table.whole


@dataclass(slots=True, frozen=True)
class PendingJob:
    job_id: JobId
    attempt: int
    """Of the latest attempt: an adopted plan must still find it so."""
    user: str
    shape: Shape
    time_limit_s: int | None
    is_held: bool
    begin_at: float | None
    avoid: tuple[tuple[str, float], ...] = ()
    """Nodes that this job leaves out, until when."""
    account: str = ""
    qos: str = NORMAL_QOS
    groups: tuple[str, ...] = ()
    tasks: int = field(default=0, repr=False)
    """Of an array's record: the tasks that may start (a bit set); the job stands for all of them."""
    array_job_id: JobId | None = None
    """Of a record its own id; of a task that has left it, the array's."""
    expected_s: float | None = None
    """How long it is expected to run; None: nobody knows."""
    since: float = 0.0
    """Since when it could have started as far as its owner and its dependencies go."""
    waits_since: float = 0.0
    """Likewise, or when it last came back to the queue."""
    reservation: str = ""
    """It names this one."""
    last_start_at: float | None = None
    """If it started later it could not be over by its deadline."""
    ran_s: float = 0.0
    """So long it has run already, in attempts that are over."""
    resume_s: float | None = None
    """See `RunningJob`."""
    fits_beside: bool = False
    """It says how much memory of its GPUs it needs, and keeps those that it begins with."""

    @property
    def asker(self) -> Asker:
        return Asker(self.user, self.account, self.qos)


class PendingJobs(Protocol):
    """A tuple of them, or what is as good as one."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[PendingJob]: ...
    @overload
    def __getitem__(self, place: int, /) -> PendingJob: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[PendingJob, ...]: ...


class Share(NamedTuple):
    """What a job has on each of its nodes, as it was asked for."""

    request: ResourceRequest
    partition: str


class Stretch(NamedTuple):
    """Of a running job whose GPUs may become more and fewer now."""

    least: tuple[int, ...]
    """These stay its own."""
    most: int
    gpu_type: str | None
    min_gpu_mem_mib: int
    generation: int
    lead_s: float = 0.0
    """So long after it was told to give some up they are gone."""
    cpus_per_gpu: int = 0
    """So many come and go with each of them …"""
    least_cpus: tuple[int, ...] = ()
    """… beside these."""
    share: Share | None = None
    """Of one whose nodes become more and fewer, up to `most`: what it has on each of them …"""
    joined: tuple[str, ...] = ()
    """… and those that came to it."""


@dataclass(slots=True, frozen=True)
class RunningJob:
    """What holds resources; `ends_at` None: it has no time limit."""

    job_id: JobId
    user: str
    grants: tuple[Grant, ...]
    ends_at: float | None
    is_stranded: bool = False
    """Its node is lost or silent: nobody knows when this is free again."""
    began_at: float = 0.0
    """When it was started, or allocated as long as it has not."""
    expected_s: float | None = None
    """How long it was expected to run in all; None: nobody knows."""
    slot: str = ""
    """Of its start: see `gqd.state.plan.Start`; likewise the next two."""
    reservation: str = ""
    occurrence: int = 0
    attempt: int = 0
    account: str = ""
    qos: str = NORMAL_QOS
    saved_at: float | None = None
    """What it had done by then is not lost if it is ended: its last checkpoint, else `began_at`; None: it has not
    started, is being ended, or is none that could give way for another reason."""
    stood_s: float = 0.0
    """So long it was suspended."""
    lead_s: float = 0.0
    """So long after it was told to give way it is ended."""
    gives_way_to: JobId | None = None
    """It was told to, and will be gone by `ends_at` at the latest."""
    stretch: Stretch | None = None
    """None: it keeps the GPUs that it has."""
    is_borrowing: bool = False
    """It started on what reservations keep, and gives way to their jobs."""
    since: float = 0.0
    """As of `PendingJob`: what it was when it waited."""
    ran_s: float = 0.0
    """So long it had run before `began_at`, in attempts that are over."""
    resume_s: float | None = None
    """What it says that it needs to go on after a stop."""
    saves: bool = False
    """It saves its work when it is told to go."""
    kept_for: str = ""
    """It may be over before `ends_at`: what it has stays with this reservation until then."""
    comes_back: bool = False
    """If it gives way it waits again."""
    is_part: bool = False
    """No job, but what one gives up by `ends_at`: that job is told apart from it."""
    can_park: bool = False
    """It could stand still, and lend its CPUs and GPUs to another one (`gqd.sched.preemption.suspend_victims`)."""
    cells: tuple[tuple[str, int, int], ...] = field(init=False, compare=False, repr=False)
    """(node, mask of CPUs, mask of GPUs) of each grant; every plan asks for it."""

    def __post_init__(self) -> None:
        cells = tuple((one.node, mask_of(one.cpus), mask_of(one.gpus)) for one in self.grants)
        object.__setattr__(self, "cells", cells)


@dataclass(slots=True, frozen=True)
class PendingColumns:
    """What a pass asks of all jobs at once, by place in `Snapshot.pending`."""

    job_id: NDArray[np.int64]
    shape: NDArray[np.int64]
    """Codes: equal numbers mean equal shapes, and only equal ones do."""
    expected_s: NDArray[np.float64]
    """Infinite: nobody knows."""
    time_limit_s: NDArray[np.float64]
    """Infinite: it has none."""
    since: NDArray[np.float64]
    band: NDArray[np.int64]
    """Slots take the oldest of the lowest number: what an administrator said of it, and whether its user had more than
    is due."""
    priority: NDArray[np.int64]
    reservation: NDArray[np.int64]
    """Codes: places in `reservations`; likewise the next in `members`."""
    member: NDArray[np.int64]
    qos: NDArray[np.int64]
    """Codes: places in `names_of_qos`."""
    reservations: tuple[str, ...]
    """The first is none at all."""
    members: tuple[Member, ...]
    names_of_qos: tuple[str, ...]
    source: object = None
    """Columns of the same source have the same codes for the same shapes; None: nothing is known of that."""

    def only(self, places: NDArray[np.int64]) -> PendingColumns:
        """Of these alone."""
        return replace(
            self,
            job_id=self.job_id[places],
            shape=self.shape[places],
            expected_s=self.expected_s[places],
            time_limit_s=self.time_limit_s[places],
            since=self.since[places],
            band=self.band[places],
            priority=self.priority[places],
            reservation=self.reservation[places],
            member=self.member[places],
            qos=self.qos[places],
        )


@dataclass(slots=True, frozen=True)
class Booked:
    """An occurrence of a reservation that is not over: what is kept, for whom, when."""

    name: str
    number: int
    clear_at: float
    """From then on nobody else may have what it keeps: a while before it begins, for what ends late."""
    begin_at: float
    end_at: float
    grants: tuple[Grant, ...]
    owner: str
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    is_magnetic: bool = False
    is_flex: bool = False
    is_lent: bool = False
    """Who may borrow it has what nobody uses of it, until somebody comes."""
    next_clear_at: float = inf
    """When some of it is to be clear for what comes after it, and begins before or soon after it ends …"""
    next_name: str = ""
    """… in another reservation, by this name."""

    @property
    def closes_at(self) -> float:
        """What runs in it must be over by then."""
        return min(self.end_at, self.next_clear_at)

    def is_in_force(self, now: float) -> bool:
        """What it keeps is nobody else's."""
        return self.clear_at <= now < self.end_at

    def is_active(self, now: float) -> bool:
        """Jobs may start in it."""
        return self.begin_at <= now < self.end_at

    def is_for(self, user: str, path: Sequence[str]) -> bool:
        """`path`: the user's account and those above it."""
        return user == self.owner or user in self.users or any(one in self.accounts for one in path)


@dataclass(slots=True, frozen=True)
class Claim:
    """What a waiting job is to have when others have given way; what is free of it already is kept for it."""

    job_id: JobId
    grants: tuple[Grant, ...]
    until: float
    """When the last of them is ended."""
    user: str = ""
    """Of the job; likewise the next two."""
    time_limit_s: int | None = None
    expected_s: float | None = None
    reservation: str = ""
    """It is to start in this one …"""
    occurrence: int = 0
    """… in this occurrence of it."""
    parks: frozenset[JobId] = frozenset()
    """Of those that give way: they will stand still, and have back what they lend when the job is over."""
    parked: tuple[Grant, ...] = ()
    """What those who stand still already lend to the job: it is free for nobody else."""


class AutoThrottleShares(NamedTuple):
    """Arrays that take what is idle, and what their fair share is made from (see `gqd.sched.cycle.auto_throttle`)."""

    arrays: frozenset[JobId]
    shares: Mapping[Member, int]
    """Of users in accounts; who is not here has one."""


NO_AUTO_THROTTLE = AutoThrottleShares(frozenset(), {})


@dataclass(slots=True, frozen=True)
class Snapshot:
    now: float
    policy: Policy
    nodes: tuple[NodeFacts, ...]
    free_cpus: tuple[int, ...]
    """Masks, by place of the node."""
    free_gpus: tuple[int, ...]
    free_memory_mib: tuple[int, ...]
    pending: PendingJobs
    """As the queue stands; no more than the policy's planning depth."""
    running: Sequence[RunningJob]
    array_room: dict[JobId, int] = field(default_factory=dict)
    """By array with a throttle: how many more of its tasks may start."""
    array_throttle: dict[JobId, int] = field(default_factory=dict)
    """Likewise: how many there may be at once."""
    auto_throttle: AutoThrottleShares = NO_AUTO_THROTTLE
    limits: LimitView = NO_LIMITS
    kept_back: tuple[Asker, ...] = ()
    """Of these there are jobs that limits keep back, and that are not in `pending`."""
    columns: PendingColumns | None = None
    """Of `pending`; None: the planner makes them."""
    protected: tuple[Protected, ...] = ()
    """Of the plan before: who has a protected start is not pushed back by who gets one later."""
    free_resources: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Generic resources: name → free ones by place."""
    free_licenses: dict[str, int] = field(default_factory=dict)
    """What is left of those in use; the others are all free."""
    since: tuple[int, ...] = ()
    """By place: the order in which nodes came to have as many free GPUs as they have; empty: not known."""
    resumes_at: JobId | None = None
    """The first job that the plan before did not reach, where it was cut short."""
    searches_from: JobId | None = None
    """The first job for which the plan before looked for nobody who might give way, since it had looked so often."""
    booked: tuple[Booked, ...] = ()
    """By their begin. What these keep is among what is free; the planner sees to it
    (`gqd.sched.reservation.windows`)."""
    claims: tuple[Claim, ...] = ()
    """As they were made.  What of them no job holds is among what is free; the planner sees to it."""
    qos: Mapping[str, QosInfo] = field(default_factory=lambda: BUILT_IN_QOS, hash=False)
    """By name: who gives way to whom, and how."""
    gives_back: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By account that has borrowed GPUs: 1 is the first to give some back."""
    inside: Booked | None = None
    """This is no cluster but what this occurrence keeps, and who may use it."""

    def place_of(self, name: str) -> int | None:
        return next((place for place, node in enumerate(self.nodes) if node.name == name), None)


Cell: TypeAlias = tuple[int, int, int, int]
"""What is held of a node: its place, masks of CPUs and GPUs, memory."""
_Counts: TypeAlias = tuple[tuple[str, int], ...]


class _Before(NamedTuple):
    """What a node had free before a change, and what the change takes back when it is undone."""

    place: int
    cpus: int
    gpus: int
    memory_mib: int
    resources: _Counts
    licenses: _Counts
    since: int | None = None
    """`Overlay.since`, where the change gave the node another."""


@dataclass(slots=True)
class Overlay:
    """Free resources to try things on: checkpoint, take and give back, then roll back or leave it so."""

    nodes: tuple[NodeFacts, ...]
    free_cpus: list[int]
    free_gpus: list[int]
    free_memory_mib: list[int]
    free_resources: dict[str, Integers] = field(default_factory=dict)
    """Generic resources by place; what is not named here is all free."""
    free_licenses: dict[str, int] | None = None
    """None: as many as one wants."""
    since: Integers | None = None
    """Of nodes that are equally free, the one with the smallest number goes first; None: the first in order."""
    cores_kept: int = 0
    """CPUs that are left for each idle GPU by those who want none."""
    scheduling: Scheduling = USUAL
    switches: tuple[Switch, ...] = ()
    free_now: tuple[list[int], list[int]] | None = None
    """Where this tells of later: masks of (CPUs, GPUs) that are free now.  What is held now is taken before these, so
    that they stay usable until then."""
    node_table: NodeTable = field(init=False, repr=False)
    gpu_counts: Integers = field(init=False, repr=False)
    """Free ones; kept in step with the masks, like the next two."""
    cpu_counts: Integers = field(init=False, repr=False)
    memory: Integers = field(init=False, repr=False)
    _kinds: dict[Kind, Integers] = field(default_factory=dict, repr=False)
    """Free GPUs of a kind, where nodes have others beside them."""
    _undo: list[_Before] = field(default_factory=list, repr=False)
    _stamp: int = field(default=-1, repr=False)
    """The last number of `since`; -1: nothing has been taken yet."""

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
        """As things stand."""
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
        """As if nothing ran, and no rule but what the hardware has."""
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
        """As it is now; neither sees what is done to the other."""
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
        while len(self._undo) > checkpoint:
            before = self._undo.pop()
            self._set(before.place, before.cpus, before.gpus, before.memory_mib)
            self._count(before.place, before.resources, before.licenses)
            if before.since is not None and self.since is not None:
                self.since[before.place] = before.since

    def take(self, place: int, grant: Grant) -> None:
        resources = tuple((one.name, one.count) for one in grant.resources)
        licenses = tuple((one.name, one.count) for one in grant.licenses)
        self.take_masks(place, mask_of(grant.cpus), mask_of(grant.gpus), grant.memory_mib, resources, licenses)
        if self.since is not None and grant.gpus:
            self._undo[-1] = self._undo[-1]._replace(since=int(self.since[place]))
            self._stamp = (int(self.since.max()) if self._stamp < 0 else self._stamp) + 1
            self.since[place] = self._stamp

    def give_back(self, place: int, grant: Grant) -> None:
        resources = tuple((one.name, -one.count) for one in grant.resources)
        licenses = tuple((one.name, -one.count) for one in grant.licenses)
        self.give_masks(place, mask_of(grant.cpus), mask_of(grant.gpus), grant.memory_mib, resources, licenses)

    def take_masks(
        self, place: int, cpus: int, gpus: int, memory_mib: int, resources: _Counts = (), licenses: _Counts = ()
    ) -> None:
        """`resources`, `licenses`: what is taken, by name."""
        self._remember(place, resources, licenses)
        free = self.free_memory_mib[place] - memory_mib
        self._set(place, self.free_cpus[place] & ~cpus, self.free_gpus[place] & ~gpus, free)
        self._count(place, resources, licenses, -1)

    def give_masks(
        self, place: int, cpus: int, gpus: int, memory_mib: int, resources: _Counts = (), licenses: _Counts = ()
    ) -> None:
        """Drained GPUs do not come back.  `resources`, `licenses`: as less than nothing that is taken."""
        self._remember(place, resources, licenses)
        node = self.nodes[place]
        whole_cpus = self.free_cpus[place] | (cpus & node.cpu_mask)
        free = self.free_memory_mib[place] + memory_mib
        self._set(place, whole_cpus, self.free_gpus[place] | (gpus & node.gpu_mask), free)
        self._count(place, resources, licenses, -1)

    def give_back_cells(self, cells: Iterable[Cell]) -> None:
        """Many at once, and for good: this is not undone by a rollback."""
        touched = set()
        for place, cpus, gpus, memory_mib in cells:
            touched.add(place)
            self.free_cpus[place] |= cpus
            self.free_gpus[place] |= gpus
            self.free_memory_mib[place] += memory_mib
        for place in touched:
            node = self.nodes[place]
            free_cpus = self.free_cpus[place] & node.cpu_mask
            self._set(place, free_cpus, self.free_gpus[place] & node.gpu_mask, self.free_memory_mib[place])

    def take_all(self, places: dict[str, int], grants: Sequence[Grant]) -> None:
        """Whole nodes first, and of equal ones those that had been so for longest, as the cluster will note it."""
        since = self.since
        if len(grants) > 1 and since is not None:
            grants = sorted(grants, key=lambda one: (-len(one.gpus), since[places[one.node]]))
        for grant in grants:
            self.take(places[grant.node], grant)

    def renew(self, place: int) -> None:
        """GPUs were given back here: from now on it is as free as it is."""
        if self.since is not None:
            self._stamp = (int(self.since.max()) if self._stamp < 0 else self._stamp) + 1
            self.since[place] = self._stamp

    def has(self, place: int, grant: Grant) -> bool:
        """Everything in the grant is free here, as far as it is counted; licences with what was taken before."""
        cpus, gpus = mask_of(grant.cpus), mask_of(grant.gpus)
        if cpus & ~self.free_cpus[place] or gpus & ~self.free_gpus[place]:
            return False
        if grant.memory_mib and grant.memory_mib > self.free_memory_mib[place]:
            return False
        free = self.free_resources
        if any(one.name not in free or one.count > free[one.name][place] for one in grant.resources):
            return False
        licenses = self.free_licenses
        return licenses is None or all(one.count <= licenses.get(one.name, 0) for one in grant.licenses)

    def kind_counts(self, kind: Kind) -> Integers:
        """Free GPUs of the kind, by place."""
        if kind == ANY_KIND:
            return self.gpu_counts
        of_kind = self.node_table.kind(kind)
        if of_kind.is_pure:
            return np.where(of_kind.counts, self.gpu_counts, 0)
        known = self._kinds.get(kind)
        if known is None:
            counts = ((free & mask).bit_count() for free, mask in zip(self.free_gpus, of_kind.masks, strict=True))
            known = self._kinds[kind] = np.fromiter(counts, np.int64, len(self.nodes))
        return known

    def _set(self, place: int, cpus: int, gpus: int, memory_mib: int) -> None:
        self.free_cpus[place], self.free_gpus[place], self.free_memory_mib[place] = cpus, gpus, memory_mib
        self.cpu_counts[place] = cpus.bit_count()
        self.gpu_counts[place] = gpus.bit_count()
        self.memory[place] = memory_mib
        for kind, counts in self._kinds.items():
            counts[place] = (gpus & self.node_table.kind(kind).masks[place]).bit_count()

    def _count(self, place: int, resources: _Counts, licenses: _Counts, sign: int = 1) -> None:
        for name, count in resources:
            if name in self.free_resources:
                self.free_resources[name][place] += sign * count
        for name, count in licenses if self.free_licenses is not None else ():
            assert self.free_licenses is not None
            self.free_licenses[name] = self.free_licenses.get(name, 0) + sign * count

    def _remember(self, place: int, resources: _Counts, licenses: _Counts) -> None:
        before = (self.free_cpus[place], self.free_gpus[place], self.free_memory_mib[place])
        self._undo.append(_Before(place, *before, resources, licenses))
