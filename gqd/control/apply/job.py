"""Apply the events of a job's life to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.state import JobState, Reason
from gq.model.tasks import unpack_tasks
from gqd.control.apply import array, elastic, nomination, notice
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index import job_tally
from gqd.state.lifecycle import next_state
from gqd.state.phases import Hold
from gqd.state.records import Attempt, Job


def move(cluster: Cluster, job: Job, kind: type) -> None:
    """Move the job to the state that the life cycle gives for this event, and update the indices."""
    before, was_waiting, held = job.state, job.is_waiting, job.holds_resources
    job.state = next_state(before, kind)
    cluster.changes.jobs[job.job_id] = None
    cluster.outdate(job)
    if before is job.state:
        return
    if was_waiting:
        cluster.dequeue(job)
    if job.is_waiting:
        cluster.enqueue(job)
    if (known := cluster.record_of(job)) is not None:
        known[1].active += job.holds_resources - held
    _count(cluster, job, before)
    if job.state is JobState.ENDED:
        cluster.count_active(job.user, -job.width)
        cluster.ended[job.job_id] = None
        cluster.dependants.leave(job)


def _count(cluster: Cluster, job: Job, before: JobState) -> None:
    """Update the tallies of waiting and held jobs; an allocation is counted once its attempt exists."""
    if before is JobState.COMPLETING:
        job_tally.count_freed(cluster, job)
    elif job.state is JobState.ENDED and job.array is None:
        job_tally.count_waiting(cluster, job, -1)


def job_of(fact: event.JobSubmitted) -> Job:
    """The job as it is just after its submission, before its priority grows with age."""
    return Job(
        job_id=fact.job_id,
        spec=fact.spec,
        user=fact.user,
        uid=fact.uid,
        gid=fact.gid,
        partition=fact.partition,
        time_limit_s=fact.time_limit_s,
        requeue=fact.requeue,
        submit_at=fact.at,
        eligible_at=max(fact.at, fact.spec.begin_at or 0.0),
        hold=Hold.USER if fact.spec.is_held else None,
        account=fact.account,
        qos=fact.qos,
        dependency=fact.dependency,
        never=fact.never,
        hook=fact.hook,
        array=array.tasks_of(fact.spec),
        ready=unpack_tasks(fact.ready),
        expected_s=fact.expected_s,
    )


def apply_submitted(cluster: Cluster, fact: event.JobSubmitted) -> None:
    next_state(None, event.JobSubmitted)
    assert fact.job_id == cluster.next_job_id, f"job id {fact.job_id} is not the next one, {cluster.next_job_id}"
    job = job_of(fact)
    if (fact.dependency is None or fact.ready) and job.hold is None:
        job.accrue_at = job.eligible_at
    cluster.jobs[job.job_id] = job
    cluster.next_job_id += 1
    cluster.enqueue(job)
    cluster.count_active(job.user, job.width)
    if job.array is not None:
        cluster.arrays[job.job_id] = None
    job_tally.count_waiting(cluster, job, job.width)
    cluster.dependants.enter(job, cluster.jobs.values())
    cluster.changes.jobs[job.job_id] = None
    cluster.changes.next_job_id = True


def apply_held(cluster: Cluster, fact: event.JobHeld) -> None:
    job = cluster.jobs[fact.job_id]
    move(cluster, job, event.JobHeld)
    job.hold = fact.hold
    if fact.reason:
        job.reason, job.why = fact.reason, fact.why
    if fact.hold is Hold.USER:
        job.accrue_at = None
    cluster.refresh(job)


def apply_start_estimated(cluster: Cluster, fact: event.StartEstimated) -> None:
    job = cluster.jobs[fact.job_id]
    move(cluster, job, event.StartEstimated)
    job.estimate = fact.estimate


def apply_released(cluster: Cluster, fact: event.JobReleased) -> None:
    job = cluster.jobs[fact.job_id]
    move(cluster, job, event.JobReleased)
    if job.hold is Hold.LAUNCH or job.avoid:
        job.reason, job.why = Reason.NONE.value, ""
    job.hold = None
    job.launch_failures, job.avoid = 0, {}
    job.eligible_at = max(fact.at, job.spec.begin_at or 0.0)
    begin_to_accrue(job, fact.at)
    cluster.refresh(job)


def begin_to_accrue(job: Job, at: float) -> None:
    """Start the growth of the job's priority with age, unless a hold or a dependency keeps it back."""
    if job.accrue_at is None and job.hold is None and job.dependency is None:
        job.accrue_at = max(at, job.spec.begin_at or 0.0)


def apply_updated(cluster: Cluster, fact: event.JobUpdated) -> None:
    job = cluster.jobs[fact.job_id]
    is_pending, is_waiting = job.state is JobState.PENDING, job.is_waiting
    if is_waiting:
        cluster.dequeue(job)
        job_tally.count_waiting(cluster, job, -job.width)
    before = job.spec
    cluster.dependants.leave(job)
    job.spec, job.partition = fact.spec, fact.partition
    job.time_limit_s, job.requeue, job.expected_s = fact.time_limit_s, fact.requeue, fact.expected_s
    job.account, job.qos = fact.account or job.account, fact.qos or job.qos
    if job.accrue_at is not None and job.spec.begin_at != before.begin_at:
        job.accrue_at = max(fact.at, job.spec.begin_at or 0.0)
    if job.state is not JobState.ENDED:
        cluster.dependants.enter(job, cluster.jobs.values())
    if is_waiting:
        cluster.enqueue(job)
        job_tally.count_waiting(cluster, job, job.width)
    if is_pending:
        job.eligible_at = max(job.submit_at, fact.spec.begin_at or 0.0)
    move(cluster, job, event.JobUpdated)


def apply_requeued(cluster: Cluster, fact: event.JobRequeued) -> None:
    job = cluster.jobs[fact.job_id]
    job.ran_s += _ran_s(cluster.attempts.get(job.attempt_id), fact.at)
    _leave_attempt(cluster, job)
    move(cluster, job, event.JobRequeued)
    job.eligible_at = max(fact.at, job.spec.begin_at or 0.0)
    job.start_at = job.end_at = None
    if fact.counts:
        job.restart_count += 1
        job.exit, job.reason, job.why, job.failure_class = None, "None", "", ""
    if fact.hold is not None:
        job.hold = fact.hold
    cluster.refresh(job)


def _ran_s(attempt: Attempt | None, at: float) -> float:
    """Seconds that an ended attempt held resources after its start, without the time that it was suspended."""
    if attempt is None or attempt.start_at is None:
        return 0.0
    return max(0.0, at - attempt.start_at - attempt.suspended_s)


def apply_ended(cluster: Cluster, fact: event.JobEnded) -> None:
    job = cluster.jobs[fact.job_id]
    move(cluster, job, event.JobEnded)
    job.outcome, job.exit = fact.outcome, fact.exit
    job.reason, job.why, job.failure_class = fact.reason, fact.why, fact.failure_class
    job.hold = None
    if (
        job.end_at is None or job.array is not None
    ):  # otherwise it is the end of the attempt, before its nodes were cleaned
        job.end_at = fact.at
    if job.array is not None:
        del cluster.arrays[job.job_id]
    nomination.end_claim(cluster, job.job_id)
    array.end_task(cluster, job)
    notice.forget_told(cluster, job.job_id)
    elastic.end_askers_job(cluster, job)


def apply_forgotten(cluster: Cluster, fact: event.JobsForgotten) -> None:
    for job_id in fact.job_ids:
        job = cluster.jobs.pop(job_id)
        cluster.ended.pop(job_id, None)
        assert job.state is JobState.ENDED, f"job {job_id} is {job.state} and was to be forgotten"
        attempt = cluster.attempts.get(job.attempt_id)
        if attempt is not None:
            assert not attempt.parts, f"job {job_id} still has parts and was to be forgotten"
            cluster.forget_attempt(attempt)
        array.forget_task(cluster, job)
        cluster.changes.forgotten_jobs[job_id] = None
        cluster.changes.departed_jobs[job_id] = job


def _leave_attempt(cluster: Cluster, job: Job) -> None:
    """Forget the attempt of a requeued job, unless a node still has a part of it."""
    attempt = cluster.attempts.get(job.attempt_id)
    if attempt is not None and not attempt.parts:
        cluster.forget_attempt(attempt)
