"""The only table of a job's life. `gqd.control.apply.table` checks every event against it; gq-states(7) prints
it. Pure."""

from __future__ import annotations

from gq.model.state import JobState
from gqd.state.events import event

_P, _S, _R, _C, _E = JobState.PENDING, JobState.STARTING, JobState.RUNNING, JobState.COMPLETING, JobState.ENDED

TRANSITIONS: dict[tuple[JobState | None, type], JobState] = {
    (None, event.JobSubmitted): _P,
    (None, event.ArrayTaskLeft): _P,
    (_P, event.ArrayTaskLeft): _P,
    (_P, event.ArrayTasksCancelled): _P,
    (_P, event.ArrayThrottleSet): _P,
    (_P, event.JobHeld): _P,
    (_P, event.JobReleased): _P,
    (_P, event.JobUpdated): _P,
    (_P, event.DependencyChanged): _P,
    (_P, event.StartEstimated): _P,
    (_P, event.PreemptionDecided): _P,
    (_P, event.PreemptionDropped): _P,
    (_P, event.JobAllocated): _S,
    (_P, event.JobEnded): _E,
    (_S, event.JobUpdated): _S,
    (_S, event.PartPrepared): _S,
    (_S, event.PartsReleased): _S,
    (_S, event.PartWentLive): _S,
    (_S, event.JobStarted): _R,
    (_S, event.LaunchFailed): _C,
    (_S, event.JobEnding): _C,
    (_R, event.JobUpdated): _R,
    (_R, event.PartPrepared): _R,
    (_R, event.PartsReleased): _R,
    (_R, event.PartWentLive): _R,
    (_R, event.JobSuspended): _R,
    (_R, event.JobResumed): _R,
    (_R, event.JobParking): _R,
    (_R, event.JobParked): _R,
    (_R, event.JobUnparked): _R,
    (_R, event.StepStarted): _R,
    (_R, event.JobEnding): _C,
    (_C, event.JobUpdated): _C,
    (_C, event.JobEnding): _C,
    (_C, event.JobRequeued): _P,
    (_C, event.JobEnded): _E,
}
"""(state before, event) → state after.  None: there was no such job.  What is not here does not happen.

Events about parts (`PartEmptied`, `PartStranded`), about the ends of steps, about checkpoints (`JobCheckpointed`) and
resumes (`JobCaughtUp`), and about GPUs and nodes that come and go (`GpusAdded`, `NodeAdded` …) are facts of an attempt,
which may outlive the job's interest in it: they change no state and are allowed in any.
`ArrayTaskLeft` makes a job of a task, and leaves the array's record, from which it comes, as it is.
A second `JobEnding` while COMPLETING changes what follows (a cancel of a job that was to be queued again).
"""


class TransitionError(AssertionError):
    """An event that does not fit the job's state: an invariant of ours is broken."""


def next_state(state: JobState | None, kind: type) -> JobState:
    """The state after an event of this kind; `TransitionError` if the table has no such row."""
    try:
        return TRANSITIONS[state, kind]
    except KeyError:
        raise TransitionError(f"{kind.__name__} does not happen to a job in {state}") from None
