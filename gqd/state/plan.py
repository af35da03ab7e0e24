"""The result of a scheduling pass: the starts that it proposes, and why every other job waits.  Values; pure.

A plan is a proposal: the controller checks every start again against the live cluster when it adopts the plan.
"""

from __future__ import annotations

import math

import msgspec

from gq.model.ids import AttemptId, JobId
from gq.model.policy_tables import Billing
from gq.model.resource import Amount, Grant
from gq.model.wait import AccessDenied as AccessDenied
from gq.model.wait import BeginsLater as BeginsLater
from gq.model.wait import BehindPlannedStart as BehindPlannedStart
from gq.model.wait import CoresReservedForGpus as CoresReservedForGpus
from gq.model.wait import DefaultTimeLimit as DefaultTimeLimit
from gq.model.wait import DependsOn as DependsOn
from gq.model.wait import Held as Held
from gq.model.wait import Holder as Holder
from gq.model.wait import Infeasible as Infeasible
from gq.model.wait import Insufficient as Insufficient
from gq.model.wait import LicenseHolder as LicenseHolder
from gq.model.wait import NoNodes as NoNodes
from gq.model.wait import NotInReservation as NotInReservation
from gq.model.wait import NotWorthPreemptingYet as NotWorthPreemptingYet
from gq.model.wait import OpenTerm as OpenTerm
from gq.model.wait import OutOfLicenses as OutOfLicenses
from gq.model.wait import OverFairShare as OverFairShare
from gq.model.wait import OverLimit as OverLimit
from gq.model.wait import OverQuota as OverQuota
from gq.model.wait import PartitionIsDown as PartitionIsDown
from gq.model.wait import Preempts as Preempts
from gq.model.wait import ReservationBegins as ReservationBegins
from gq.model.wait import ReservationTooShort as ReservationTooShort
from gq.model.wait import RunsIntoReservation as RunsIntoReservation
from gq.model.wait import Throttled as Throttled
from gq.model.wait import Unavailable as Unavailable
from gq.model.wait import UnavailableNode as UnavailableNode
from gq.model.wait import Wait as Wait
from gq.model.wait import WaitsForLocality as WaitsForLocality
from gq.model.wait import WouldDelay as WouldDelay


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
