"""The transition table of job states, against which `gqd.control.apply.table` checks every event.  gq-states(7) prints
the table.  Pure."""

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
"""(state before, event) → state after.  None: the job did not exist.  All other pairs are impossible.

Events about parts (`PartEmptied`, `PartStranded`), ends of steps, checkpoints (`JobCheckpointed`), resumes
(`JobCaughtUp`) and resized attempts (`GpusAdded`, `NodeAdded` …) are facts of an attempt, which may outlive the job's
interest in it: they change no state and are allowed in every state.  `ArrayTaskLeft` makes a task a job of its own, and
leaves the state of the array's record unchanged.  A second `JobEnding` while COMPLETING changes what follows, as when a
job that was to be requeued is cancelled.
"""


class TransitionError(AssertionError):
    """An event that is impossible in the job's state: an invariant of gq is broken."""


def next_state(state: JobState | None, kind: type) -> JobState:
    """Return the state after an event of this type; raise `TransitionError` for an impossible one."""
    try:
        return TRANSITIONS[state, kind]
    except KeyError:
        raise TransitionError(f"{kind.__name__} does not happen to a job in {state}") from None
