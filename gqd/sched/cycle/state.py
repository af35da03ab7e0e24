"""What a plan has come to, as one pass after the other adds to it.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from gq.model.ids import JobId
from gqd.sched.limits.ledger import Ledger
from gqd.sched.snapshot.model import RunningJob, Snapshot
from gqd.state.plan import Preemption, Protected, Start, Wait


@dataclass(slots=True)
class PlanDraft:
    """What has been decided, inside of reservations and outside."""

    ledger: Ledger
    array_room: dict[JobId, int]
    running: Sequence[RunningJob] = ()
    """When the plan was begun, with all that they hold."""
    starts: list[Start] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    claimants: dict[JobId, Wait] = field(default_factory=dict)
    """Those to whom others give way already, and why they do not start yet."""
    protected: list[Protected] = field(default_factory=list)
    """Of those inside; likewise the next two."""
    heads_inside: dict[str, JobId] = field(default_factory=dict)
    waits_inside: dict[JobId, Wait] = field(default_factory=dict)
    tasks: dict[JobId, int] = field(default_factory=dict)
    """By array record, of which one has started: what this pass has not started of it."""
    changes_at: float = inf
    """When somebody stops to hold out for better nodes, or to wait for who should have gone, or may have others go."""
    searches_from: JobId | None = None
    """See `gqd.state.plan.Plan`."""
    has_kept_cores: bool = False
    """Somebody was refused CPUs that are kept for GPUs which were idle then."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> PlanDraft:
        return cls(Ledger(snapshot.limits), dict(snapshot.array_room), snapshot.running)

    def seen_to(self) -> list[JobId]:
        """Nothing of these is to be looked at any more."""
        ids = [*(one.job_id for one in self.starts), *(one.job_id for one in self.preemptions)]
        return [*(one for one in ids if not self.tasks.get(one)), *self.claimants]
