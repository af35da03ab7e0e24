"""The draft of a plan, to which the scheduling passes add their decisions one after the other.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.limits.ledger import Ledger, LimitDemand
from gqd.sched.snapshot.model import RunningJob, Snapshot
from gqd.state.plan import Preemption, Protected, Start, Wait


@dataclass(slots=True)
class PlanDraft:
    """The decisions of the passes so far, inside reservations and outside."""

    ledger: Ledger
    """Usage counted against limits, with that of the jobs started so far."""
    array_room: dict[JobId, int]
    """How many more tasks of each throttled array may start."""
    running: Sequence[RunningJob] = ()
    """The running jobs, with all their grants, as they were when planning began."""
    starts: list[Start] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    claimants: dict[JobId, Wait] = field(default_factory=dict)
    """Jobs that already have victims, and why each does not start yet."""
    protected: list[Protected] = field(default_factory=list)
    """Planned starts of jobs inside reservations."""
    heads_inside: dict[str, JobId] = field(default_factory=dict)
    """The first job of each reservation that waits for resources."""
    waits_inside: dict[JobId, Wait] = field(default_factory=dict)
    """Why the jobs inside reservations wait."""
    tasks: dict[JobId, int] = field(default_factory=dict)
    """Bit set of the tasks that still wait, for each array of which this plan has started a task."""
    changes_at: float = inf
    """The earliest instant at which a job stops waiting for better nodes or for an overdue victim, or may preempt."""
    searches_from: JobId | None = None
    """See `gqd.state.plan.Plan`."""
    has_kept_cores: bool = False
    """A job was refused CPUs that are reserved for GPUs which were idle at that time."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> PlanDraft:
        """Return the empty draft of a plan for this snapshot."""
        return cls(Ledger(snapshot.limits), dict(snapshot.array_room), snapshot.running)

    def decided_jobs(self) -> list[JobId]:
        """Return the jobs that later passes leave out, because nothing of them is left to decide."""
        job_ids = [*(start.job_id for start in self.starts), *(preemption.job_id for preemption in self.preemptions)]
        return [*(job_id for job_id in job_ids if not self.tasks.get(job_id)), *self.claimants]


class PassOptions(NamedTuple):
    """Options of a plan; see `Planner.begin`."""

    skip_reasons: bool
    asked: Collection[JobId] | None
    skip_planned_starts: bool


class Placement(NamedTuple):
    """The result of placing a job."""

    grants: tuple[Grant, ...] | None = None
    """None: the job does not fit, or not within its limits."""
    usage: LimitDemand = LimitDemand({}, 0.0)
    """The usage that the grants add against limits."""
    reason: Wait | None = None
    """Why the job is not placed, if it lacks more than nodes that other jobs hold."""
