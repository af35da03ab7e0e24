"""The result of a scheduling pass: the starts that it proposes, and why every other job waits.  Values; pure.

A plan is a proposal: the controller checks every start again against the live cluster when it adopts the plan.
"""

from __future__ import annotations

import math

import msgspec

from gq.model.account import LimitInfo
from gq.model.ids import AttemptId, JobId
from gq.model.policy_tables import Billing
from gq.model.resource import Amount, Grant


class Start(msgspec.Struct, frozen=True):
    """A pending job (or one task of a pending array) that the plan starts now."""

    job_id: JobId
    attempt: int
    """Number of the job's latest attempt in the snapshot; a job with a newer attempt is not started."""
    grants: tuple[Grant, ...]
    task: int | None = None
    """Array task that starts and leaves the array's record `job_id`; None: the job is no array."""
    billing: int = 0
    """Billing rate; see `gqd.state.events.event.JobAllocated`."""
    slot: str = ""
    """Slot in which the job starts ahead of its turn (see `Protected`); empty: the job starts in turn."""
    reservation: str = ""
    """Name of the reservation in which the job starts; empty: outside reservations."""
    occurrence: int = 0
    """Number of the reservation's occurrence."""
    borrows: tuple[str, ...] = ()
    """Names of the reservations that lend their idle resources to the job; their own jobs may preempt the job."""
    priority: int = 0
    """Priority of the job when it starts."""


class Shrink(msgspec.Struct, frozen=True):
    """GPUs, or one node, that a running elastic job is to give up for a pending job."""

    attempt_id: AttemptId
    generation: int
    """Generation of the elastic attempt in the snapshot."""
    node: str
    gpus: tuple[int, ...]
    ends_at: float
    """Instant by which the plan expects the resources to be free."""
    cpus: tuple[int, ...] = ()
    is_node: bool = False
    """The elastic job gives up the whole node."""
    memory_mib: int = 0
    """Memory that is freed with the node."""
    resources: tuple[Amount, ...] = ()
    """Generic resources that are freed with the node."""


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """A pending job that is to start on resources that running jobs hold.

    The controller decides all victims and shrinks of a preemption, or none.
    """

    job_id: JobId
    attempt: int
    """Number of the job's latest attempt in the snapshot."""
    grants: tuple[Grant, ...]
    """Grants on which the job starts when the victims have ended; free parts of them are kept for the job meanwhile."""
    victims: tuple[AttemptId, ...]
    """Attempts to be preempted; no proper subset would suffice."""
    shrinks: tuple[Shrink, ...] = ()
    """Shrinks of elastic attempts; none is larger than the job needs."""
    task: int | None = None
    """Array task that is to start; see `Start.task`."""
    reservation: str = ""
    """Name of the reservation in which the job is to start; empty: outside reservations."""
    occurrence: int = 0
    """Number of the reservation's occurrence."""
    is_reclaim: bool = False
    """The job's account reclaims guaranteed GPUs."""
    parks: tuple[AttemptId, ...] = ()
    """Victims that are suspended (parked) instead of ended."""


class Growth(msgspec.Struct, frozen=True):
    """Idle GPUs, or an idle node, that a running elastic job takes."""

    attempt_id: AttemptId
    generation: int
    """Generation of the elastic attempt in the snapshot."""
    grant: Grant
    """Resources that are added to the attempt."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A running job, or a reservation, that holds resources a pending job needs."""

    job_id: JobId
    user: str
    nodes: tuple[str, ...]
    gpus: int
    """GPUs held, of the type that the pending job asks for."""
    cpus: int
    memory_mib: int = 0
    generic: int = 0
    """Amount held of the generic resource that is short, if one is."""
    ends_at: float | None
    """Instant at which the holder's time limit ends; None: the holder has no time limit."""
    is_overdue: bool = False
    """`ends_at` has passed, and the job still holds its resources."""
    kept_for: str = ""
    """Reservation that keeps the job's GPUs and CPUs until `ends_at`, even if the job ends earlier."""
    reservation: str = ""
    """Reservation that keeps unused resources; the holder is then no job."""


class Held(msgspec.Struct, frozen=True):
    """A user, an administrator or the system holds the job."""


class BeginsLater(msgspec.Struct, frozen=True):
    """The job's begin time has not come."""

    at: float


class PartitionIsDown(msgspec.Struct, frozen=True):
    """The job's partition is down."""

    partition: str


class BehindPlannedStart(msgspec.Struct, frozen=True):
    """The job may not use nodes for which an earlier job, `job_id`, is waiting."""

    job_id: JobId


class Insufficient(msgspec.Struct, frozen=True, kw_only=True):
    """The job would fit if the holders ended."""

    resource: str
    """Resource that is short: GPUs, CPUs, memory, nodes or idle nodes."""
    wanted: int
    """Amount that the whole job asks for; memory in MiB."""
    free: int
    """Amount that is free now on the nodes that the job may use, in whatever places."""
    holders: tuple[Holder, ...]
    is_fragmented: bool
    """The free amount would suffice, but is not free in the right places."""
    starts_at: float | None
    """Instant at which the job fits if all holders run to their time limits; None: some holders have no time limit."""
    may_spread: bool = True
    """The job may use more nodes, with less of the job on each."""
    selection: str = ""
    """Options that exclude nodes of the partition, as on the command line: ``--constraint=rack=r2``."""
    nodes: int = 0
    """Nodes that the job may use and that are up; counted only with a `selection`, as are the next two fields."""
    idle_nodes: int = 0
    """Idle nodes among `nodes`."""
    free_elsewhere: int = 0
    """Amount of the resource that is free on the partition's other nodes."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """The job would not fit even if all available nodes were empty, but would with these unavailable nodes."""

    nodes: tuple[tuple[str, str], ...]
    """(node, why it is unavailable): down, drained, or excluded after failed launches."""
    left_out: tuple[str, ...] = ()
    """Nodes among them that are excluded for a while after a failed launch of the job."""
    until: float | None = None
    """End of the earliest back-off, if that alone would let the job fit."""


class Infeasible(msgspec.Struct, frozen=True, kw_only=True):
    """The job would not fit on the whole cluster, even with all nodes up and empty."""

    why: str
    hint: str


class NoNodes(msgspec.Struct, frozen=True):
    """No node of the partition has ever registered."""

    partition: str


class DependsOn(msgspec.Struct, frozen=True, kw_only=True):
    """The job's dependencies are not met."""

    terms: str
    """Terms that are still open, in the format of `gq.model.dependency.format_dependency`."""
    never: str = ""
    """Why the dependency can never be met; empty: it still can."""


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    """The array runs as many tasks as its throttle allows."""

    most: int
    """Maximum number of tasks that run at once."""


class OverFairShare(msgspec.Struct, frozen=True, kw_only=True):
    """The auto-throttled array uses its owner's fair share already, and another pending job could use the rest."""

    job_id: JobId
    """First pending job that could use the rest."""
    resource: str
    """``GPUs`` or ``CPUs``; `held`, `share` and `total` are amounts of this resource."""
    partition: str
    held: int
    share: float
    total: int
    """Amount that the tasks could use if no other job were pending."""


class OverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of the job's user, account or QOS is reached."""

    limit: LimitInfo
    """The limit, with its ``used`` amount."""
    wanted: float
    """Amount that the job would add."""
    user: str = ""
    """User whose share of a limit per user is used up; empty: the limit is not per user."""
    until: float | None = None
    """Begin of the next day, week or month, when a budget is renewed; None: the limit is no budget."""


class OverQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The job's account uses its guaranteed GPUs, and may not borrow more GPUs that other accounts leave idle."""

    account: str
    guaranteed_gpus: int
    borrow_gpus: int
    held_gpus: int
    wanted_gpus: int


class AccessDenied(msgspec.Struct, frozen=True, kw_only=True):
    """The job may no longer use its partition or QOS."""

    why: str


class WouldDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The job fits now, but would still run where and when a protected job is planned to start."""

    job_id: JobId
    """The protected job."""
    starts_at: float
    """Planned start of the protected job."""
    ends_at: float | None
    """Instant at which the pending job would end; None: unknown."""
    nodes: tuple[str, ...]
    """Nodes that both jobs would use."""


class WaitsForLocality(msgspec.Struct, frozen=True, kw_only=True):
    """The job would fit over more switches, or on nodes that it does not prefer, and waits for better nodes."""

    what: str
    """``switches`` or ``prefer``."""
    wanted: str
    offered: str
    """Placement that is possible now."""
    until: float
    """Instant from which the job accepts other nodes."""


class CoresReservedForGpus(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs are free, but are reserved for idle GPUs of their nodes."""

    wanted: int
    free: int
    kept: int
    nodes: tuple[str, ...]
    """Nodes on which the job would start otherwise; `free` and `kept` are counted on them."""


class ReservationBegins(msgspec.Struct, frozen=True, kw_only=True):
    """The job names a reservation that begins at `at`."""

    name: str
    at: float


class ReservationTooShort(msgspec.Struct, frozen=True, kw_only=True):
    """The job names a reservation, and could not end before the reservation must be clear."""

    name: str
    begins_at: float
    ends_at: float
    """End of the reservation, or the instant at which its GPUs must be clear for `for_next`."""
    longest_s: int
    """Longest time limit with which a job could start: now if the reservation is active, else at its begin."""
    next_at: float | None = None
    """Begin of a later occurrence that is long enough; None: there is none."""
    for_next: str = ""
    """Next reservation of the same GPUs; empty: `ends_at` is the reservation's own end."""


class NotInReservation(msgspec.Struct, frozen=True, kw_only=True):
    """The job names a reservation in which it cannot start at present."""

    name: str
    why: str
    """Half a sentence about the reservation: ``that is over, or was deleted``."""
    hint: str = ""
    is_gone: bool = False
    """The reservation has no occurrence, past ones excepted."""
    is_late: bool = False
    """All planned occurrences end before the job could start."""


class RunsIntoReservation(msgspec.Struct, frozen=True, kw_only=True):
    """The job fits now, but would still run where and when a reservation begins."""

    name: str
    clear_at: float
    """Instant at which the job must have ended."""
    begins_at: float
    ends_at: float | None
    """Instant at which the job would end; None: the job has no time limit."""
    nodes: tuple[str, ...]
    """Nodes that both would use."""


class OutOfLicenses(msgspec.Struct, frozen=True, kw_only=True):
    """Too few of the cluster's licences are free."""

    name: str
    wanted: int
    free: int
    total: int
    holders: tuple[tuple[JobId, str, int], ...]
    """(job, user, count), the largest count first."""


class Preempts(msgspec.Struct, frozen=True, kw_only=True):
    """The job waits for its victims to end or to shrink; the resources that they free are kept for the job."""

    victims: tuple[JobId, ...]
    """Victims that still hold resources."""
    until: float
    """Instant at which the last victim is ended."""


class NotWorthPreemptingYet(msgspec.Struct, frozen=True, kw_only=True):
    """Time-slicing may preempt other jobs for this job once it has waited long enough to pay for the preemption."""

    victims: tuple[JobId, ...]
    """Jobs that would be preempted as things are now."""
    at: float
    """Earliest instant of the preemption."""


Wait = (
    Held | BeginsLater | PartitionIsDown | BehindPlannedStart | Insufficient | Unavailable | Infeasible | NoNodes
    | DependsOn | Throttled | OverFairShare | OverLimit | OverQuota | AccessDenied | WouldDelay | WaitsForLocality
    | CoresReservedForGpus | OutOfLicenses | ReservationBegins | ReservationTooShort | NotInReservation
    | RunsIntoReservation | Preempts | NotWorthPreemptingYet
)  # fmt: skip


class Protected(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked job with a planned start, which no later job may delay."""

    job_id: JobId
    slot: str
    """Why the job is protected: ``first``, ``wide`` (the oldest job on several nodes) or ``oldest``."""
    starts_at: float
    """The planned start."""
    is_promise: bool
    """Every job in the way has a time limit; otherwise `starts_at` is an estimate that moves when it is overrun."""
    nodes: tuple[str, ...]
    grants: tuple[Grant, ...] = ()
    """Resources kept for the job from `starts_at` to `until`; the next plan may find better ones."""
    until: float = math.inf
    """End of the planned run; infinite: the job has no time limit."""
    reservation: str = ""
    """Reservation in which the job is to start; empty: outside reservations."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    made_at: float
    """Instant of the snapshot."""
    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...] = ()
    growths: tuple[Growth, ...] = ()
    waits: dict[JobId, Wait] = {}
    """Reasons of pending jobs; a job that is missing waits behind the head of its partition (`heads`)."""
    protected: tuple[Protected, ...] = ()
    heads: dict[str, JobId] = {}
    """Partition → the oldest job that waits for resources."""
    is_strict: bool = False
    """No job that enters the queue behind a head could start, except by preemption."""
    heads_inside: dict[str, JobId] = {}
    """Active reservation → the oldest job that names the reservation and waits for resources."""
    partitions: dict[str, bool] = {}
    """Partition → whether it was up, when the plan was made."""
    billing: Billing = Billing()
    """Billing weights of the policy when the plan was made."""
    starting: frozenset[JobId] = frozenset()
    """Jobs of `starts`, as a set for look-ups."""
    kept_back: dict[tuple[str, str, str], tuple[OverLimit | OverQuota, ...]] = {}
    """(user, account, QOS) → limits that keep back all such jobs, which the pass therefore did not visit one by one.
    Each reason's ``wanted`` is to be set for the job in question."""
    closes: dict[tuple[str, int], tuple[float, str]] = {}
    """(reservation, occurrence number) → (instant by which the occurrence must be clear, reservation that needs its
    resources), for occurrences that must be clear before their end."""
    resumes_at: JobId | None = None
    """First job that the pass did not reach because its budget was used up; None: the pass reached all jobs."""
    changes_at: float | None = None
    """Earliest instant at which a job may start merely because time has passed: a job that waits for better nodes
    accepts others, or a time slice ends.  None: there is none."""
    searches_from: JobId | None = None
    """First job for which the pass searched no victims, because its search budget was used up; the next pass resumes
    there.  None: the pass searched for all jobs."""
    is_worth_another: bool = False
    """The starts of this plan may let jobs start that the pass had already visited: plan again at once."""
