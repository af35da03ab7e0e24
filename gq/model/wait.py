"""Why a pending job waits, as data: the reasons that the planner finds and that a client renders.  Values; pure.

A reason goes over the wire within `gq.wire.client.Explanation`: fields are only added, with defaults.  A field that
says "for the explanation" is filled in only when a user asks for the job.
"""

from __future__ import annotations

import re

import msgspec

from gq.model.account import LimitInfo
from gq.model.dependency import DependencyKind
from gq.model.ids import JobId


def kind_of(class_name: str) -> str:
    """The name of a reason in messages and JSON: ``behind_planned_start``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class _Wait(msgspec.Struct, frozen=True, tag_field="kind", tag=kind_of):
    """Base of all reasons."""


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


class Held(_Wait, frozen=True):
    """A user, an administrator or the controller holds the job.  All fields are for the explanation."""

    by: str = ""
    """``user``, ``admin``, or ``launch``: the controller, after failed launches."""
    launch_failures: int = 0
    is_workdir_missing: bool = False
    message: str = ""
    """The node's message about the last failed launch; empty for users who may not see it."""


class BeginsLater(_Wait, frozen=True):
    """The job's begin time has not come."""

    at: float


class PartitionIsDown(_Wait, frozen=True):
    """The job's partition is down."""

    partition: str


class BehindPlannedStart(_Wait, frozen=True):
    """The job may not use nodes for which an earlier job, `job_id`, is waiting."""

    job_id: JobId


class Insufficient(_Wait, frozen=True, kw_only=True):
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
    usable_reservation: str = ""
    """Reservation that keeps enough of the resource and that the job may use; for the explanation."""
    is_one_task_a_node: bool = False
    """The job has one task for each node, so that it cannot spread over more nodes; for the explanation."""


BEING_CLEANED = "cleaning up after earlier jobs"


class UnavailableNode(msgspec.Struct, frozen=True):
    """A node that cannot start jobs now, or cannot start this job."""

    name: str
    why: str
    """``down: fan``, ``drained``, ``short of 1 drained GPU``"""


class Unavailable(_Wait, frozen=True, kw_only=True):
    """The job would not fit even if all available nodes were empty, but would with these unavailable nodes."""

    nodes: tuple[UnavailableNode, ...]
    """Nodes that are down, drained, or excluded after failed launches."""
    left_out: tuple[str, ...] = ()
    """Nodes among them that are excluded for a while after a failed launch of the job."""
    until: float | None = None
    """End of the earliest back-off, if that alone would let the job fit."""
    failed_launch: str = ""
    """The job's reason, if nodes are excluded since its launch failed: ``LaunchFailed``; for the explanation."""
    message: str = ""
    """The node's message about that launch; for the explanation."""
    is_own_backoff: bool = False
    """Only this job is kept from the node; for the explanation."""


class Infeasible(_Wait, frozen=True, kw_only=True):
    """The job would not fit on the whole cluster, even with all nodes up and empty."""

    why: str
    hint: str


class NoNodes(_Wait, frozen=True):
    """No node of the partition has ever registered."""

    partition: str


class OpenTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A term of a dependency that is not met yet, and the state of the job that it names."""

    kind: DependencyKind
    job_id: int
    task: int | None = None
    delay_s: int = 0
    since: float | None = None
    """Instant from which `delay_s` counts; None: it does not count yet."""
    label: str = ""
    user: str = ""
    name: str = ""
    state: str = ""
    """State of the job in lower case; empty: the job is not in the queue."""
    tasks_pending: int | None = None
    """Number of pending tasks of a pending array; None: the job is no such array."""
    is_gate: bool = False
    """The job is the command of ``--if``."""


class DependsOn(_Wait, frozen=True, kw_only=True):
    """The job's dependencies are not met."""

    terms: str
    """Terms that are still open, in the format of `gq.model.dependency.format_dependency`."""
    never: str = ""
    """Why the dependency can never be met; empty: it still can."""
    has_failed: bool = False
    """`never` concerns the whole job, not only tasks of an array; for the explanation, as are the next two fields."""
    is_any: bool = False
    """A single term suffices."""
    open: tuple[OpenTerm, ...] = ()


class Throttled(_Wait, frozen=True, kw_only=True):
    """The array runs as many tasks as its throttle allows."""

    most: int
    """Maximum number of tasks that run at once."""
    array_id: int = 0
    """For the explanation, as is the next field."""
    running: tuple[JobId, ...] = ()
    """Tasks that run."""


class OverFairShare(_Wait, frozen=True, kw_only=True):
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
    array_id: int = 0
    """For the explanation."""


class OverLimit(_Wait, frozen=True, kw_only=True):
    """A limit of the job's user, account or QOS is reached."""

    limit: LimitInfo
    """The limit, with its ``used`` amount."""
    wanted: float
    """Amount that the job would add."""
    user: str = ""
    """User whose share of a limit per user is used up; empty: the limit is not per user."""
    until: float | None = None
    """Begin of the next day, week or month, when a budget is renewed; None: the limit is no budget."""


class OverQuota(_Wait, frozen=True, kw_only=True):
    """The job's account uses its guaranteed GPUs, and may not borrow more GPUs that other accounts leave idle."""

    account: str
    guaranteed_gpus: int
    borrow_gpus: int
    held_gpus: int
    wanted_gpus: int


class AccessDenied(_Wait, frozen=True, kw_only=True):
    """The job may no longer use its partition or QOS."""

    why: str


class WouldDelay(_Wait, frozen=True, kw_only=True):
    """The job fits now, but would still run where and when a protected job is planned to start."""

    job_id: JobId
    """The protected job."""
    starts_at: float
    """Planned start of the protected job."""
    ends_at: float | None
    """Instant at which the pending job would end; None: unknown."""
    nodes: tuple[str, ...]
    """Nodes that both jobs would use."""
    longest_s: int | None = None
    """Longest run that would end before the planned start; None: unknown; for the explanation."""


class WaitsForLocality(_Wait, frozen=True, kw_only=True):
    """The job would fit over more switches, or on nodes that it does not prefer, and waits for better nodes."""

    what: str
    """``switches`` or ``prefer``."""
    wanted: str
    offered: str
    """Placement that is possible now."""
    until: float
    """Instant from which the job accepts other nodes."""


class CoresReservedForGpus(_Wait, frozen=True, kw_only=True):
    """CPUs are free, but are reserved for idle GPUs of their nodes."""

    wanted: int
    free: int
    kept: int
    nodes: tuple[str, ...]
    """Nodes on which the job would start otherwise; `free` and `kept` are counted on them."""


class ReservationBegins(_Wait, frozen=True, kw_only=True):
    """The job names a reservation that begins at `at`."""

    name: str
    at: float


class DefaultTimeLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The time limit of a job that was submitted without ``--time``."""

    time_limit_s: int
    source: str
    """``limit``, ``qos`` or ``partition``."""
    name: str = ""
    """Name of the QOS or the partition."""


class ReservationTooShort(_Wait, frozen=True, kw_only=True):
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
    time_limit_s: int | None = None
    """Time limit of the job; None: it has none; for the explanation, as is the next field."""
    default_limit: DefaultTimeLimit | None = None
    """None: the job was submitted with a time limit, or has none."""


class NotInReservation(_Wait, frozen=True, kw_only=True):
    """The job names a reservation in which it cannot start at present."""

    name: str
    why: str
    """Half a sentence about the reservation: ``that has ended or was deleted``."""
    hint: str = ""
    is_gone: bool = False
    """The reservation has no occurrence, past ones excepted."""
    is_late: bool = False
    """All planned occurrences end before the job could start."""
    is_known: bool = False
    """The reservation exists; for the explanation, as are the next two fields."""
    has_more: bool = False
    """The reservation is repeated, and has later occurrences."""
    is_endless: bool = False
    """The reservation is repeated without end."""


class RunsIntoReservation(_Wait, frozen=True, kw_only=True):
    """The job fits now, but would still run where and when a reservation begins."""

    name: str
    clear_at: float
    """Instant at which the job must have ended."""
    begins_at: float
    ends_at: float | None
    """Instant at which the job would end; None: the job has no time limit."""
    nodes: tuple[str, ...]
    """Nodes that both would use."""
    longest_s: int | None = None
    """Longest time limit with which the job could start now; None: unknown; for the explanation, as is the next field.
    """
    default_limit: DefaultTimeLimit | None = None
    """None: the job was submitted with a time limit, or has none."""


class LicenseHolder(msgspec.Struct, frozen=True):
    """A running job that holds licences."""

    job_id: JobId
    user: str
    count: int


class OutOfLicenses(_Wait, frozen=True, kw_only=True):
    """Too few of the cluster's licences are free."""

    name: str
    wanted: int
    free: int
    total: int
    holders: tuple[LicenseHolder, ...]
    """The largest count first."""


class Preempts(_Wait, frozen=True, kw_only=True):
    """The job waits for its victims to end or to shrink; the resources that they free are kept for the job."""

    victims: tuple[JobId, ...]
    """Victims that still hold resources."""
    until: float
    """Instant at which the last victim is ended."""
    ending: tuple[JobId, ...] = ()
    """Victims that end; the others are elastic and shrink; for the explanation, as is the next field."""
    could_park: tuple[JobId, ...] = ()
    """Victims that would be suspended instead of ended if the job asked for ``--min-gpu-mem``."""


class NotWorthPreemptingYet(_Wait, frozen=True, kw_only=True):
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
