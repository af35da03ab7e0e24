"""Jobs whose working directory cannot be entered on the node that was to run their script.  Pure.

Nothing of such a job ran.  It waits again and leaves the node out; a job that no other node can run is held, with the
waiting tasks of its array, until its owner releases it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.state import JobState, Outcome, Reason
from gq.wire import node as wire
from gqd.control import snapshot
from gqd.sched.placement.feasible import eligible_places
from gqd.sched.placement.placement import place
from gqd.sched.request import shape_in
from gqd.sched.snapshot.model import Overlay, whole_nodes
from gqd.state.events import event
from gqd.state.phases import Hold
from gqd.state.records import Attempt, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

LEFT_OUT_S = 24 * 3600.0
"""A missing file system comes back when somebody mends it, not by itself."""


def is_missing(job: Job, attempt: Attempt, node: str, report: wire.AttemptEnded) -> bool:
    """The script was not started because its directory could not be entered."""
    is_launch = job.state is JobState.STARTING and node == attempt.batch_node and report.started_at is None
    return is_launch and report.outcome is Outcome.BOOT_FAIL and report.launch_failure == wire.WORKDIR


def hold_after(draft: TurnBuilder, job: Job) -> Hold | None:
    """The hold of a job that waits again after this failure: none while another node could run it."""
    return None if job.reason != Reason.BAD_WORKDIR.value or _has_other_nodes(draft, job) else Hold.LAUNCH


def hold_siblings(draft: TurnBuilder, job: Job) -> None:
    """Hold the tasks that still wait in the array's record with a task that was held."""
    known = draft.cluster.record_of(job)
    if known is None or job.reason != Reason.BAD_WORKDIR.value:
        return
    record = known[0]
    if record.is_waiting and record.hold is None:
        fact = event.JobHeld(
            at=draft.now, job_id=record.job_id, hold=Hold.LAUNCH, reason=Reason.BAD_WORKDIR.value, why=job.why
        )
        draft.emit(fact)


def _has_other_nodes(draft: TurnBuilder, job: Job) -> bool:
    """Nodes on which it has not failed are enough for it, whatever runs on them now."""
    partition = draft.policy.partition(job.partition)
    if partition is None:
        return True  # it waits for the partition
    nodes = whole_nodes(snapshot.nodes_of(draft.cluster, draft.volatile, draft.now))
    shape = shape_in(draft.policy, job.spec.resources, job.partition)
    failed = {name for name, until in job.avoid.items() if until > draft.now}
    left = [one for one in eligible_places(nodes, shape, partition).tolist() if nodes[one].name not in failed]
    return bool(left) and place(Overlay.empty(nodes), shape, left) is not None
