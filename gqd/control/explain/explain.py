"""Explanations: why a job waits, runs or ended, as facts made from the planner's reasons.  Pure.

`gq.explain` renders the facts; here are their numbers and the pending reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import numpy as np
from msgspec.structs import replace

from gq.explain.sentence import MAX_NAMED, mark, names_of
from gq.model import explanation as facts
from gq.model.ids import JobId
from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Reason, state_word
from gq.model.tasks import parse_tasks
from gq.wire import client
from gqd.control import snapshot
from gqd.control.explain import dependency, elastic, limits, parked, reservation, timeslice
from gqd.control.explain.explanation import Explanation, in_words, text
from gqd.control.requeue import preemptor_phrase
from gqd.sched.planner import plan_whole
from gqd.sched.snapshot.model import Snapshot
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.end_reason import how_it_ended, preemption_sentence
from gqd.state.index.bookings import lenders_of
from gqd.state.job_view import cancelled_outcome
from gqd.state.phases import Hold
from gqd.state.policy import Policy
from gqd.state.records import ArrayTasks, Job
from gqd.state.volatile import Volatile

_WITHOUT_START = frozenset(
    reason.value
    for reason in (
        Reason.BAD_CONSTRAINTS,
        Reason.DEPENDENCY_NEVER,
        Reason.HELD_ADMIN,
        Reason.HELD_USER,
        Reason.LAUNCH_FAILED_HELD,
        Reason.PARTITION_CONFIG,
    )
)
"""Pending reasons that last until a user or an administrator changes something."""
_PRIVATE = "(for its owner to see)"


_NOT_YET = text(Reason.NONE.value, "the scheduler has not considered it yet")


def explain(cluster: Cluster, policy: Policy, volatile: Volatile, job: Job, now: float) -> Explanation:
    """The explanation of a job; for a pending job by a new run of the planner."""
    if job.array is not None and not job.is_waiting:
        return _explain_array(job, job.array)
    if job.state is not JobState.PENDING:
        return _explain_state(cluster, job)
    taken = snapshot.take(cluster, policy, volatile, now)
    plan = plan_whole(taken, asked=[job.job_id])
    explanation = explain_wait(cluster, job, plan)
    if explanation.reason in limits.REASONS and (wait := limits.limited(job, plan)) is not None:
        holders, blockers = limits.holders(cluster, wait)
        explanation = explanation._replace(blockers=blockers)
        if holders.holders:
            explanation = explanation.plus(holders)
        if others := limits.others_over(cluster, taken.limits, job, plan, wait):
            explanation = explanation.plus(facts.OtherLimits(limits=tuple(others)))
    explanation = timeslice.add_time_slice(taken, plan, job, explanation)
    explanation = _with_jobs_ahead(cluster, taken, explanation, job)
    explanation = _with_start(explanation, plan, volatile, job, now)
    shrinking = elastic.shrinking_for(cluster, job)
    return _with_past(explanation if shrinking is None else explanation.plus(shrinking), job)


def _with_jobs_ahead(cluster: Cluster, taken: Snapshot, explanation: Explanation, job: Job) -> Explanation:
    """Add the jobs of the partition that are considered before this one, if it waits for resources."""
    if explanation.shortage is None or taken.columns is None:
        return explanation
    queue_indices = np.flatnonzero(taken.columns.job_id == job.job_id)
    before = taken.columns.job_id[: int(queue_indices[0])].tolist() if len(queue_indices) else []
    waiting = (cluster.jobs.get(job_id) for job_id in before)
    ahead = [int(rival.job_id) for rival in waiting if rival is not None and _competes(rival, job)]
    if not ahead:
        return explanation
    return explanation.plus(facts.JobsAhead(jobs=tuple(ahead[:MAX_NAMED]), count=len(ahead)))


def _competes(rival: Job, job: Job) -> bool:
    return rival.partition == job.partition and rival.spec.reservation == job.spec.reservation


def _with_start(story: Explanation, plan: planned.Plan, volatile: Volatile, job: Job, now: float) -> Explanation:
    """Add when the job starts, as the plan promises or as the forecast estimates.

    A start is not added to a reason without a known end, nor if it has passed.
    """
    if story.reason in _WITHOUT_START or _waits_without_end(story):
        return story._replace(expected_start_at=None)
    if story.expected_start_at is not None and story.expected_start_at <= now:
        story = story.without(facts.StartsBy)._replace(expected_start_at=None)
    own = next((start for start in plan.protected if start.job_id == job.job_id and start.is_promise), None)
    estimate = volatile.estimates.get(job.job_id)
    if estimate is not None and estimate.start_at is not None and estimate.start_at <= now:
        estimate = None
    room_at = story.expected_start_at
    if own is not None and room_at is not None and int(own.starts_at) == int(room_at):
        return story.plus(facts.StartPromised())
    if estimate is not None and estimate.start_at is None and estimate.why and story.has(facts.StartsBy):
        return story.without(facts.StartsBy).plus(facts.Text(text=estimate.why))._replace(expected_start_at=None)
    is_head = plan.heads.get(job.partition, job.job_id) == job.job_id
    if estimate is None and story.has(facts.StartsBy) and not is_head:
        return story.without(facts.StartsBy).plus(facts.RoomBy(at=room_at or 0))._replace(expected_start_at=None)
    if estimate is None or estimate.start_at is None or (room_at is not None and estimate.start_at < room_at + 1.0):
        return story
    start = facts.ExpectedStart(
        at=estimate.start_at,
        is_after_others=room_at is not None,
        names_others=story.shortage is not None and any(_names_jobs_ahead(fact) for fact in story.details),
    )
    return story.without(facts.StartsBy).plus(start)._replace(expected_start_at=estimate.start_at)


def _names_jobs_ahead(fact: facts.Fact) -> bool:
    return isinstance(fact, facts.JobsAhead) or (isinstance(fact, facts.TrialOver) and fact.jobs_ahead > 0)


def _waits_without_end(story: Explanation) -> bool:
    """Whether a job without a known end holds the missing resources."""
    return story.shortage is not None and any(holder.ends_at is None for holder in story.shortage.holders)


def explain_wait(cluster: Cluster, job: Job, plan: planned.Plan | None) -> Explanation:
    """Why a pending job waits according to `plan`."""
    story = _explain_wait(cluster, job, plan)
    lost = dependency.lost_tasks(job)
    is_told = any(isinstance(fact, planned.DependsOn) and lost in fact.never for fact in story.details)
    return story.plus(facts.Text(text=lost)) if lost and not is_told else story


def wait_reason(cluster: Cluster, job: Job, plan: planned.Plan | None) -> str:
    """The pending reason without the sentence, which is costly to make for long queues."""
    known = _wait_of(cluster, job, plan)
    if isinstance(known, planned.BehindPlannedStart):
        return Reason.PRIORITY.value
    return (known if isinstance(known, Explanation) else _explain_planned_wait(cluster, job, known)).reason


def _explain_wait(cluster: Cluster, job: Job, plan: planned.Plan | None) -> Explanation:
    known = _wait_of(cluster, job, plan)
    return known if isinstance(known, Explanation) else _explain_planned_wait(cluster, job, known)


def _wait_of(cluster: Cluster, job: Job, plan: planned.Plan | None) -> Explanation | planned.Wait:
    if job.hold is not None:
        return _held(job)
    if (others := dependency.wait_of(job)) is not None:
        return others
    if plan is None:
        return _NOT_YET
    if job.job_id in plan.starting and job.job_id not in plan.waits:
        return text(Reason.NONE.value, "it is about to start")
    if plan.partitions and job.partition not in plan.partitions:
        why = f"partition `{job.partition}` no longer exists"
        hint = f"gqctl update {job.label} --partition=NAME moves it"
        return text(Reason.PARTITION_CONFIG.value, why, hint)
    wait = plan.waits.get(job.job_id)
    if wait is None and not plan.partitions.get(job.partition, True):
        wait = planned.PartitionIsDown(job.partition)
    if wait is None and job.spec.begin_at is not None and job.spec.begin_at > plan.made_at:
        wait = planned.BeginsLater(job.spec.begin_at)
    if wait is None and job.eligible_at > plan.made_at and not (plan.is_strict and job.partition in plan.heads):
        return _NOT_YET
    if wait is None:
        wait = limits.wait_of(job, plan)
    if wait is None and job.spec.reservation:
        wait = reservation.wait_of(cluster, job, plan)
    if wait is None:
        head = plan.heads.get(job.partition)
        wait = planned.BehindPlannedStart(head) if head is not None and head != job.job_id else None
    if wait is None:
        return text(Reason.PRIORITY.value, "jobs ahead of it in the queue are considered first")
    return wait


def never_because(cluster: Cluster, job: Job, plan: planned.Plan | None) -> str:
    """Why the job never starts in the present state; `plan` is of an otherwise empty cluster."""
    why = in_words(cluster, job, _explain_wait(cluster, job, plan)).why
    return why.removeprefix("it can never start: ")


def without_private(why: str, job: Job) -> str:
    """The sentence without the node's message, which may name files of the job's owner."""
    if not job.why:
        return why
    return why.replace(f"; last: {job.why}", "").replace(job.why, _PRIVATE)


def public(explanation: Explanation, job: Job) -> Explanation:
    """The explanation without the node's message, which may name files of the job's owner."""
    return explanation._replace(details=tuple(_public(fact, job) for fact in explanation.details))


def _public(fact: facts.Fact, job: Job) -> facts.Fact:
    match fact:
        case planned.Held():
            return replace(fact, message="")
        case planned.Unavailable():
            return replace(fact, message=_PRIVATE if fact.message else "")
        case facts.Text():
            return replace(fact, text=without_private(fact.text, job))
        case _:
            return fact


def why_it_waits(cluster: Cluster, job: Job, wait: planned.Wait) -> str:
    """The sentence for a planner's reason."""
    return in_words(cluster, job, _explain_planned_wait(cluster, job, wait)).why


def _explain_planned_wait(cluster: Cluster, job: Job, wait: planned.Wait) -> Explanation:
    match wait:
        case planned.Held():
            return _held(job)
        case planned.BeginsLater():
            return Explanation(Reason.BEGIN_TIME.value, (wait,), (), wait.at)
        case planned.PartitionIsDown():
            return Explanation(Reason.PARTITION_DOWN.value, (wait,))
        case planned.NoNodes():
            return Explanation(Reason.NODES_UNAVAILABLE.value, (wait,))
        case planned.BehindPlannedStart():
            return Explanation(Reason.PRIORITY.value, (wait,), (int(wait.job_id),))
        case planned.Insufficient():
            return _insufficient(cluster, job, wait)
        case planned.Unavailable():
            return _unavailable(job, wait)
        case planned.DependsOn():
            return dependency.explain(cluster, job, wait)
        case planned.OverLimit() | planned.OverQuota():
            return Explanation(limits.reason_of(wait).value, (wait,))
        case planned.AccessDenied():
            return Explanation(Reason.PARTITION_CONFIG.value, (wait,))
        case planned.Throttled():
            return _throttled(cluster, job, wait)
        case planned.OverFairShare():
            wait = replace(wait, array_id=_array_id(job))
            return Explanation(Reason.ARRAY_TASK_LIMIT.value, (wait,), (int(wait.job_id),))
        case planned.WouldDelay():
            return _would_delay(job, wait)
        case planned.WaitsForLocality():
            return Explanation(Reason.RESOURCES.value, (wait,), (), wait.until)
        case planned.CoresReservedForGpus():
            return Explanation(Reason.RESOURCES.value, (wait,))
        case planned.ReservationBegins():
            return Explanation(Reason.RESERVATION.value, (wait,), (), wait.at)
        case planned.ReservationTooShort():
            return reservation.too_short(cluster, job, wait)
        case planned.NotInReservation():
            return reservation.not_in(cluster, wait)
        case planned.RunsIntoReservation():
            return reservation.runs_into(cluster, job, wait)
        case planned.Preempts():
            return _preempts(cluster, job, wait)
        case planned.NotWorthPreemptingYet():
            return Explanation(Reason.RESOURCES.value, (wait,), _ids(wait.victims), wait.at)
        case planned.OutOfLicenses():
            return Explanation(Reason.LICENSES.value, (wait,), _ids(holder.job_id for holder in wait.holders))
        case planned.Infeasible():
            return Explanation(Reason.BAD_CONSTRAINTS.value, (wait,))
        case _ as never:
            assert_never(never)


def _ids(job_ids: Iterable[JobId]) -> tuple[int, ...]:
    return tuple(int(job_id) for job_id in job_ids)


def _held(job: Job) -> Explanation:
    hold = job.hold or Hold.USER
    if hold is not Hold.LAUNCH:
        reason = Reason.HELD_ADMIN if hold is Hold.ADMIN else Reason.HELD_USER
        return Explanation(reason.value, (planned.Held(by=hold.value),))
    is_workdir_missing = job.reason == Reason.BAD_WORKDIR.value
    reason = Reason.BAD_WORKDIR if is_workdir_missing else Reason.LAUNCH_FAILED_HELD
    held = planned.Held(hold.value, job.launch_failures, is_workdir_missing, job.why)
    return Explanation(reason.value, (held,))


def _insufficient(cluster: Cluster, job: Job, wait: planned.Insufficient) -> Explanation:
    wait = replace(
        wait,
        usable_reservation=reservation.usable(cluster, job, wait),
        is_one_task_a_node=_is_one_task_a_node(job.spec.resources),
    )
    blockers = _ids(holder.job_id for holder in wait.holders if not holder.reservation)
    explanation = Explanation(Reason.RESOURCES.value, (wait,), blockers, wait.starts_at, _shortage(wait))
    return explanation if wait.starts_at is None else explanation.plus(facts.StartsBy(at=wait.starts_at))


def _shortage(wait: planned.Insufficient) -> client.Shortage:
    return client.Shortage(
        resource=wait.resource,
        wanted=wait.wanted,
        free=wait.free,
        is_fragmented=wait.is_fragmented,
        selection=wait.selection,
        nodes=wait.nodes,
        idle_nodes=wait.idle_nodes,
        free_elsewhere=wait.free_elsewhere,
        holders=tuple(
            client.HeldResource(
                job_id=None if holder.reservation else int(holder.job_id),
                user=holder.user,
                reservation=holder.reservation or holder.kept_for,
                nodes=holder.nodes,
                gpus=holder.gpus,
                cpus=holder.cpus,
                memory_mib=holder.memory_mib,
                ends_at=holder.ends_at,
            )
            for holder in wait.holders
        ),
    )


def _is_one_task_a_node(asked: ResourceRequest) -> bool:
    """Whether the job has one task for each node, so that it cannot spread over more nodes."""
    return bool(asked.cpus_per_task) and (asked.ntasks or 1) <= (asked.nodes_min or 1) and not asked.ntasks_per_node


def _unavailable(job: Job, wait: planned.Unavailable) -> Explanation:
    if job.reason not in (Reason.LAUNCH_FAILED.value, Reason.BAD_WORKDIR.value) or not wait.left_out:
        return Explanation(Reason.NODES_UNAVAILABLE.value, (wait,), (), wait.until)
    wait = replace(wait, failed_launch=job.reason, message=job.why, is_own_backoff=bool(job.avoid))
    return Explanation(job.reason, (wait,), (), wait.until)


def _would_delay(job: Job, wait: planned.WouldDelay) -> Explanation:
    length_s = job.time_limit_s if job.time_limit_s is not None else job.expected_s
    if wait.ends_at is not None and length_s is not None:
        wait = replace(wait, longest_s=int(wait.starts_at - (wait.ends_at - length_s)))
    return Explanation(Reason.PRIORITY.value, (wait,), (int(wait.job_id),))


def _preempts(cluster: Cluster, job: Job, wait: planned.Preempts) -> Explanation:
    ending = tuple(victim for victim in wait.victims if _is_ending(cluster, victim))
    wait = replace(wait, ending=ending, could_park=parked.could_park(cluster, job, wait.victims))
    return Explanation(Reason.RESOURCES.value, (wait,), _ids(wait.victims), wait.until)


def _is_ending(cluster: Cluster, victim_id: JobId) -> bool:
    """Whether the victim ends; else it is elastic and only shrinks, which another sentence reports."""
    victim = cluster.jobs.get(victim_id)
    attempt = None if victim is None else cluster.attempts.get(victim.attempt_id)
    return attempt is None or attempt.elastic is None or attempt.preemption is not None


def _suspended_at(cluster: Cluster, job: Job) -> float | None:
    attempt = cluster.attempt_of(job)
    return None if attempt is None else attempt.suspended_at


def _explain_state(cluster: Cluster, job: Job) -> Explanation:
    match job.state:
        case JobState.STARTING:
            return text(Reason.NONE.value, f"it is being started on {_places(cluster, job)}")
        case JobState.RUNNING if job.attempt_id in cluster.parked:
            why = parked.suspended_facts(cluster, job)
            return text(Reason.PARKED.value, f"it is suspended on {_places(cluster, job)} {why}")
        case JobState.RUNNING if (at := _suspended_at(cluster, job)) is not None:
            held = "it keeps its GPUs, CPUs and memory, and its time limit does not run"
            return text(
                Reason.NONE.value,
                f"it is suspended on {_places(cluster, job)} since {mark(at)}: {held}",
                "an operator can resume it: gqctl resume",
            )
        case JobState.RUNNING:
            why = f"it runs on {_places(cluster, job)} since {mark(job.start_at or 0)}"
            why = f"{why}{parked.guest_facts(cluster, job)}"
            why = f"{why}{_borrowed(cluster, job)}{_giving_way(cluster, job)}{elastic.of_holder(cluster, job)}"
            return _with_past(text(Reason.NONE.value, why), job)
        case JobState.COMPLETING:
            return text(Reason.NONE.value, f"it has ended, and gq cleans up after it on {_places(cluster, job)}")
        case _:
            return explain_end(job)


def _borrowed(cluster: Cluster, job: Job) -> str:
    names = lenders_of(cluster, cluster.attempts[job.attempt_id])
    if not names:
        return ""
    return f"; it borrows from reservation {', '.join(names)}, and may be preempted at any time"


def _giving_way(cluster: Cluster, job: Job) -> str:
    attempt = cluster.attempts[job.attempt_id]
    if attempt.preemption is None:
        return ""
    then = "is suspended at" if attempt.preemption.parks else "is ended by"
    return f"; it is preempted {preemptor_phrase(cluster, attempt)}, and {then} {mark(attempt.preemption.ends_at)}"


def _with_past(story: Explanation, job: Job) -> Explanation:
    """Add the job's last preemption, if there was one."""
    return story if job.preempted is None else story.plus(facts.Text(text=preemption_sentence(job.preempted)))


def _places(cluster: Cluster, job: Job) -> str:
    attempt = cluster.attempts[job.attempt_id]
    nodes = attempt.waits_for() or [grant.node for grant in attempt.grants]
    return names_of(nodes)


def _explain_array(job: Job, array: ArrayTasks) -> Explanation:
    """The explanation of an array without pending tasks in its record."""
    over = array.succeeded | array.failed | array.cancelled
    counts = {
        "not ended": (parse_tasks(job.spec.array) & ~over).bit_count(),
        "completed": array.succeeded.bit_count(),
        "failed or cancelled": array.failed.bit_count(),
        "cancelled before they started": array.cancelled.bit_count(),
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return text(job.reason, f"none of its tasks is pending: {told}", f"gqacct -j {job.job_id} shows them")


def _array_id(job: Job) -> int:
    return job.job_id if job.array_job_id is None else job.array_job_id


def _throttled(cluster: Cluster, job: Job, wait: planned.Throttled) -> Explanation:
    array_id = JobId(_array_id(job))
    array = cluster.jobs[array_id].array if array_id in cluster.jobs else None
    tasks = [cluster.jobs[task_id] for task_id in array.jobs.values()] if array is not None else []
    running = tuple(task.job_id for task in tasks if task.state not in (JobState.PENDING, JobState.ENDED))
    wait = replace(wait, array_id=array_id, running=running)
    return Explanation(Reason.ARRAY_TASK_LIMIT.value, (wait,), _ids(running))


def explain_cancelled(record: Job) -> tuple[Explanation, str]:
    """(explanation, state) of tasks that were cancelled while they were part of their array's record."""
    outcome = cancelled_outcome(record)
    return text(record.reason, *how_it_ended(record, outcome)), state_word(JobState.ENDED, outcome)


def explain_end(job: Job) -> Explanation:
    """The explanation of how a job ended."""
    return text(job.reason, *how_it_ended(job))
