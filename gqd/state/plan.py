"""What a planning pass answers: who starts where, and why everybody else waits.  Values; pure.

A plan is a proposal: the controller re-checks every start against the live cluster when it adopts it.
"""

from __future__ import annotations

import math

import msgspec

from gq.model.account import LimitInfo
from gq.model.ids import AttemptId, JobId
from gq.model.policy_tables import Billing
from gq.model.resource import Amount, Grant


class Start(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: int
    """The latest attempt that the plan knew of."""
    grants: tuple[Grant, ...]
    task: int | None = None
    """Of the array whose record ``job_id`` is: this one leaves it."""
    billing: int = 0
    """See `gqd.state.events.event.JobAllocated`."""
    slot: str = ""
    """It starts ahead of its turn: see `Protected`."""
    reservation: str = ""
    """It starts in this one …"""
    occurrence: int = 0
    """… in this occurrence of it."""
    borrows: tuple[str, ...] = ()
    """It starts on what these reservations keep, and gives way to jobs of any reservation."""
    priority: int = 0
    """The priority that the job has when it starts."""


class Gift(msgspec.Struct, frozen=True):
    """What a running job is to give up for one that waits."""

    attempt_id: AttemptId
    generation: int
    """That the plan knew of."""
    node: str
    gpus: tuple[int, ...]
    ends_at: float
    """As the plan sees it."""
    cpus: tuple[int, ...] = ()
    is_node: bool = False
    """All that it has there: it gives up the node."""
    memory_mib: int = 0
    """That goes with it; likewise the next."""
    resources: tuple[Amount, ...] = ()


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to start on what others hold: all of them give way, or give some of it up, or none does."""

    job_id: JobId
    attempt: int
    """The latest that the plan knew of."""
    grants: tuple[Grant, ...]
    """Where it starts when they are gone; part of it may be free, and is kept for it meanwhile."""
    victims: tuple[AttemptId, ...]
    """None of them could stay."""
    gifts: tuple[Gift, ...] = ()
    """Nor is any of this more than it needs."""
    task: int | None = None
    """As of `Start`; likewise the next two."""
    reservation: str = ""
    occurrence: int = 0
    is_reclaim: bool = False
    """Its account takes back what it is guaranteed."""
    parks: tuple[AttemptId, ...] = ()
    """Those of the victims that stand still meanwhile, and are not ended."""


class Growth(msgspec.Struct, frozen=True):
    """A running job takes GPUs that nobody else wants."""

    attempt_id: AttemptId
    generation: int
    """That the plan knew of."""
    grant: Grant
    """What comes to it."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A running job that holds what a pending one needs."""

    job_id: JobId
    user: str
    nodes: tuple[str, ...]
    gpus: int
    """Of the type that is wanted."""
    cpus: int
    memory_mib: int = 0
    generic: int = 0
    """Of the generic resource that is short, if one is."""
    ends_at: float | None
    """None: it has no time limit."""
    is_overdue: bool = False
    """`ends_at` has passed, and the job still holds what it has."""
    kept_for: str = ""
    """Until then its GPUs and CPUs stay with this reservation, also when it has ended before."""
    reservation: str = ""
    """It is no job: nobody has this, and it is kept for this one."""


class Held(msgspec.Struct, frozen=True):
    """Somebody holds it."""


class BeginsLater(msgspec.Struct, frozen=True):
    at: float


class PartitionIsDown(msgspec.Struct, frozen=True):
    partition: str


class BehindPlannedStart(msgspec.Struct, frozen=True):
    """It may not use nodes that this job, which goes first, is waiting for."""

    job_id: JobId


class Insufficient(msgspec.Struct, frozen=True, kw_only=True):
    """It would fit if the holders were gone.  ``resource``: what is short (GPUs, CPUs, memory, nodes, idle nodes)."""

    resource: str
    wanted: int
    """Over the whole job; memory in MiB."""
    free: int
    """Free now on the nodes that it may use, whether or not in the right places."""
    holders: tuple[Holder, ...]
    is_fragmented: bool
    """Enough is free in sum, not in the right places."""
    starts_at: float | None
    """When the holders' limits say that it fits; None: some of them have no limit."""
    may_spread: bool = True
    """There are more nodes that it may use, and less of it could be on each."""
    selection: str = ""
    """The options that leave nodes of the partition out, as on the command line: ``--constraint=rack=r2``."""
    nodes: int = 0
    """Nodes that the job may use and that are up; counted only with a `selection`, as are the next two."""
    idle_nodes: int = 0
    """Nodes among them on which nothing runs."""
    free_elsewhere: int = 0
    """Amount of the resource that is free on the partition's other nodes."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """It does not fit even on empty available nodes; it would with these nodes, which are down, drained or left out."""

    nodes: tuple[tuple[str, str], ...]
    """(node, why)"""
    left_out: tuple[str, ...] = ()
    """Those of them that are left out for a while after a failed launch."""
    until: float | None = None
    """When the earliest of their back-offs is over, if that alone would do."""


class Infeasible(msgspec.Struct, frozen=True, kw_only=True):
    """It does not fit on the whole cluster, everything empty and up."""

    why: str
    hint: str


class NoNodes(msgspec.Struct, frozen=True):
    """The partition has no node that ever registered."""

    partition: str


class DependsOn(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that have not come so far."""

    terms: str
    """What is left, as `gq.model.dependency.format_dependency` writes it."""
    never: str = ""
    """Why it can never be met."""


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    """So many tasks of its array run already."""

    most: int


class OverFairShare(msgspec.Struct, frozen=True, kw_only=True):
    """Its array takes what is idle, and its owner has the fair share already; somebody else could use the rest."""

    job_id: JobId
    """That one, the first of those who wait."""
    resource: str
    """``GPUs`` or ``CPUs``; likewise the next ones."""
    partition: str
    held: int
    share: float
    total: int
    """What its tasks could use, if they were alone."""


class OverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of its user, account or QOS is used up."""

    limit: LimitInfo
    """With ``used``."""
    wanted: float
    user: str = ""
    """Whose share of a limit per user it is."""
    until: float | None = None
    """Of a budget: when the next day, week or month begins."""


class OverQuota(msgspec.Struct, frozen=True, kw_only=True):
    """Its account has its guaranteed GPUs, and may not take more of what others leave idle."""

    account: str
    guaranteed_gpus: int
    borrow_gpus: int
    held_gpus: int
    wanted_gpus: int


class AccessDenied(msgspec.Struct, frozen=True, kw_only=True):
    """The partition or the QOS is not for it any more."""

    why: str


class WouldDelay(msgspec.Struct, frozen=True, kw_only=True):
    """It fits now, and would still run where and when a protected job is to start."""

    job_id: JobId
    """The protected one."""
    starts_at: float
    """When that is to start."""
    ends_at: float | None
    """When this one would be over; None: nobody knows."""
    nodes: tuple[str, ...]
    """Where they would meet."""


class WaitsForLocality(msgspec.Struct, frozen=True, kw_only=True):
    """It would fit over more switches, or on nodes that it does not prefer, and holds out for better ones."""

    what: str
    """``switches`` or ``prefer``"""
    wanted: str
    offered: str
    """What it could have now."""
    until: float


class CoresReservedForGpus(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs are free, and kept for GPUs that are idle."""

    wanted: int
    free: int
    kept: int
    nodes: tuple[str, ...]
    """Where it would start otherwise; what is free and kept is there."""


class ReservationBegins(msgspec.Struct, frozen=True, kw_only=True):
    """It names a reservation that begins then."""

    name: str
    at: float


class ReservationTooShort(msgspec.Struct, frozen=True, kw_only=True):
    """It names a reservation, and would not be over when that is."""

    name: str
    begins_at: float
    ends_at: float
    """Or when its GPUs are to be clear …"""
    longest_s: int
    """A job of this limit could start in it: now if it is under way, else at its begin."""
    next_at: float | None = None
    """Of a later occurrence that is long enough: when that begins."""
    for_next: str = ""
    """… for this reservation, which comes then."""


class NotInReservation(msgspec.Struct, frozen=True, kw_only=True):
    """It names a reservation in which it cannot start as things stand."""

    name: str
    why: str
    """Half a sentence: ``that is over, or was deleted``."""
    hint: str = ""
    is_gone: bool = False
    """No occurrence of it is left or planned."""
    is_late: bool = False
    """All that are planned will be over before it could start."""


class RunsIntoReservation(msgspec.Struct, frozen=True, kw_only=True):
    """It fits now, and would still run where and when something is reserved."""

    name: str
    clear_at: float
    """It would have to be over by then."""
    begins_at: float
    ends_at: float | None
    """When the job would be over; None: it has no time limit."""
    nodes: tuple[str, ...]
    """Where they would meet."""


class OutOfLicenses(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    wanted: int
    free: int
    total: int
    holders: tuple[tuple[JobId, str, int], ...]
    """(job, user, how many), the most first"""


class Preempts(msgspec.Struct, frozen=True, kw_only=True):
    """Others give way to it, or give up some of what they have, and what they leave is kept for it."""

    victims: tuple[JobId, ...]
    """Those that are still there, or have not given it up yet."""
    until: float
    """When the last of them is ended."""


class NotWorthPreemptingYet(msgspec.Struct, frozen=True, kw_only=True):
    """Others may give their turns to it when it has waited for as long as that is worth."""

    victims: tuple[JobId, ...]
    """As things stand."""
    at: float


Wait = (
    Held | BeginsLater | PartitionIsDown | BehindPlannedStart | Insufficient | Unavailable | Infeasible | NoNodes
    | DependsOn | Throttled | OverFairShare | OverLimit | OverQuota | AccessDenied | WouldDelay | WaitsForLocality
    | CoresReservedForGpus | OutOfLicenses | ReservationBegins | ReservationTooShort | NotInReservation
    | RunsIntoReservation | Preempts | NotWorthPreemptingYet
)  # fmt: skip


class Protected(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked job that nothing behind it may delay."""

    job_id: JobId
    slot: str
    """Why it is protected: ``first``, ``wide`` (the oldest over several nodes) or ``oldest``."""
    starts_at: float
    is_promise: bool
    """Everything in its way has a time limit; else `starts_at` is an estimate, and is corrected when overrun."""
    nodes: tuple[str, ...]
    grants: tuple[Grant, ...] = ()
    """What is kept for it, from then until `until`; the next plan may find something better."""
    until: float = math.inf
    reservation: str = ""
    """It is to start in what this one keeps."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    made_at: float
    """The instant of the snapshot."""
    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...] = ()
    growths: tuple[Growth, ...] = ()
    waits: dict[JobId, Wait] = {}
    protected: tuple[Protected, ...] = ()
    heads: dict[str, JobId] = {}
    """By partition: the oldest job that waits for resources; whoever is not in `waits` is behind it."""
    is_strict: bool = False
    """Whoever comes in behind one of the heads could not start, unless others give way to it."""
    heads_inside: dict[str, JobId] = {}
    """Likewise, by reservation that is under way, of those that name it."""
    partitions: dict[str, bool] = {}
    """Those that there were, and whether they were up."""
    billing: Billing = Billing()
    """As the policy was."""
    starting: frozenset[JobId] = frozenset()
    """The jobs of `starts`, to look one up."""
    kept_back: dict[tuple[str, str, str], tuple[OverLimit | OverQuota, ...]] = {}
    """By user, account and QOS of jobs that limits keep back, and that the pass has not looked at one by one: what of
    each limit is used.  ``wanted`` is for each job to fill in."""
    closes: dict[tuple[str, int], tuple[float, str]] = {}
    """By name and number of an occurrence that has to be clear for another reservation before it is over: by when, and
    for which."""
    resumes_at: JobId | None = None
    """The pass was cut short, and has not reached this job and more behind it; None: it has reached all."""
    changes_at: float | None = None
    """When time alone lets somebody start: who holds out for better nodes takes others, or somebody's turn is over;
    None: that is not so."""
    searches_from: JobId | None = None
    """For this job and those behind it nobody was looked for who might give way: there were too many before it."""
    is_worth_another: bool = False
    """What starts lets others start whom this pass had looked at before."""
