"""Explanations: why a job waits, runs or ended, as a sentence with numbers made from the planner's reasons.  Pure.

Sentences hold instants as ``@{seconds}``; the client writes them in its own time zone (`gq.units.render_instants`).
"""

from __future__ import annotations

import re
from typing import assert_never

import numpy as np

from gq.model.resource import ResourceRequest
from gq.model.state import JobState, Reason, state_word
from gq.model.tasks import parse_tasks
from gq.units import format_memory
from gq.wire import client
from gqd.control import snapshot
from gqd.control.explain import dependency, elastic, limits, parked, reservation, timeslice
from gqd.control.explain import plan as explain_plan
from gqd.control.explain.explanation import Explanation
from gqd.control.requeue import preemptor_phrase
from gqd.sched.planner import plan_whole
from gqd.sched.reasons.unschedulable import counted
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

MAX_NAMED = 4
_BY = "; it should start by "
_BY_INSTANT = re.compile(r"; it should start by @\{\d+\}")
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


def _mark(at: float) -> str:
    """An instant for a sentence, truncated to whole seconds as everywhere, so that equal instants look equal."""
    return f"@{{{int(at)}}}"


_NOT_YET = Explanation(Reason.NONE.value, "it has not been considered yet; it will be in a moment")


def explain(cluster: Cluster, policy: Policy, volatile: Volatile, job: Job, now: float) -> Explanation:
    """The explanation of a job; for a pending job by a new run of the planner."""
    if job.array is not None and not job.is_waiting:
        return _explain_array(job, job.array)
    if job.state is not JobState.PENDING:
        return _explain_state(cluster, job)
    taken = snapshot.take(cluster, policy, volatile, now)
    plan = plan_whole(taken, asked=[job.job_id])
    story = explain_wait(cluster, job, plan)
    if story.reason in limits.REASONS and (wait := limits.limited(job, plan)) is not None:
        holders, blockers = limits.holders(cluster, wait)
        story = story._replace(why=f"{story.why}{holders}", blockers=blockers)
        if others := limits.others_over(cluster, taken.limits, job, plan, wait):
            more, hint = limits.besides(job.label, others, story.hint)
            story = story._replace(why=f"{story.why}{more}", hint=hint)
    story = timeslice.add_time_slice(cluster, taken, plan, job, story)
    story = _with_start(_with_rivals(cluster, taken, story, job), plan, volatile, job, now)
    if given_up := elastic.shrinking_for(cluster, job):
        story = story._replace(why=f"{story.why}; {given_up}")
    return _with_past(story, job)


def _with_rivals(cluster: Cluster, taken: Snapshot, story: Explanation, job: Job) -> Explanation:
    """Add the jobs of the partition that are considered before this one, if it waits for resources."""
    if story.shortage is None or taken.columns is None:
        return story
    places = np.flatnonzero(taken.columns.job_id == job.job_id)
    before = taken.columns.job_id[: int(places[0])].tolist() if len(places) else []
    waiting = (cluster.jobs.get(job_id) for job_id in before)
    rivals = [rival for rival in waiting if rival is not None and _competes(rival, job)]
    if not rivals:
        return story
    named = ", ".join(f"job {rival.label} ({rival.user}: {rival.spec.name})" for rival in rivals[:MAX_NAMED])
    more = f" and {counted(len(rivals) - MAX_NAMED, 'more jobs')}" if len(rivals) > MAX_NAMED else ""
    goes = "goes" if len(rivals) == 1 else "go"
    return story._replace(why=f"{story.why}; {named}{more} {goes} before it")


def _competes(rival: Job, job: Job) -> bool:
    return rival.partition == job.partition and rival.spec.reservation == job.spec.reservation


def _with_start(story: Explanation, plan: planned.Plan, volatile: Volatile, job: Job, now: float) -> Explanation:
    """Add when the job starts, as the plan promises or as the forecast estimates.

    A start is not added to a reason without a known end, nor if it has passed.
    """
    if story.reason in _WITHOUT_START or _waits_without_end(story):
        return story._replace(expected_start_at=None)
    if story.expected_start_at is not None and story.expected_start_at <= now:
        story = story._replace(why=_BY_INSTANT.sub("", story.why), expected_start_at=None)
    own = next((one for one in plan.protected if one.job_id == job.job_id and one.is_promise), None)
    told = volatile.estimates.get(job.job_id)
    if told is not None and told.start_at is not None and told.start_at <= now:
        told = None
    room_at = story.expected_start_at
    if own is not None and room_at is not None and int(own.starts_at) == int(room_at):
        return story._replace(why=f"{story.why}; that is a promise: what stands behind it does not delay it")
    if told is not None and told.start_at is None and told.why and _BY in story.why:
        return story._replace(why=f"{_BY_INSTANT.sub('', story.why)}; {told.why}", expected_start_at=None)
    if told is None and _BY in story.why and plan.heads.get(job.partition, job.job_id) != job.job_id:
        why = f"{_BY_INSTANT.sub('', story.why)}; there is room by {_mark(room_at or 0)}, if no other job takes it"
        return story._replace(why=why, expected_start_at=None)
    if told is None or told.start_at is None or (room_at is not None and told.start_at < room_at + 1.0):
        return story
    start = f"it should start at about {_mark(told.start_at)}"
    if room_at is None:
        return story._replace(why=f"{story.why}; {start}", expected_start_at=told.start_at)
    why = _BY_INSTANT.sub("", story.why)
    why = (
        f"{why}; {start}"
        if story.shortage is not None and "before it" in why
        else f"{why}; others go before it then, and {start}"
    )
    return story._replace(why=why, hint="gqprio shows who goes before it", expected_start_at=told.start_at)


def _waits_without_end(story: Explanation) -> bool:
    """Whether a job without a known end holds the missing resources."""
    return story.shortage is not None and any(one.ends_at is None for one in story.shortage.holders)


def explain_wait(cluster: Cluster, job: Job, plan: planned.Plan | None) -> Explanation:
    """Why a pending job waits according to `plan`."""
    story = _explain_wait(cluster, job, plan)
    lost = dependency.lost_tasks(job)
    return story._replace(why=f"{story.why}; {lost}") if lost and lost not in story.why else story


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
        return Explanation(Reason.NONE.value, "it is about to start")
    if plan.partitions and job.partition not in plan.partitions:
        why = f"partition `{job.partition}` does not exist any more"
        hint = f"move it: gqctl update {job.label} --partition=NAME"
        return Explanation(Reason.PARTITION_CONFIG.value, why, hint)
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
        return Explanation(Reason.PRIORITY.value, "others are considered first; it has not been its turn yet")
    return wait


def never_because(cluster: Cluster, job: Job, plan: planned.Plan | None) -> str:
    """Why the job never starts in the present state; `plan` is of an otherwise empty cluster."""
    story = _explain_wait(cluster, job, plan)
    return story.why.removeprefix("it can never start: ")


def without_private(why: str, job: Job) -> str:
    """The sentence without the node's message, which may name files of the job's owner."""
    if not job.why:
        return why
    return why.replace(f"; last: {job.why}", "").replace(job.why, "(for its owner to see)")


def why_it_waits(cluster: Cluster, job: Job, wait: planned.Wait) -> str:
    """The sentence for a planner's reason."""
    return _explain_planned_wait(cluster, job, wait).why


def _explain_planned_wait(cluster: Cluster, job: Job, wait: planned.Wait) -> Explanation:
    match wait:
        case planned.Held():
            return _held(job)
        case planned.BeginsLater():
            return Explanation(
                Reason.BEGIN_TIME.value,
                f"it was asked to begin at {_mark(wait.at)}, not before",
                f"gqctl update {job.label} --begin=now lets it start earlier",
                expected_start_at=wait.at,
            )
        case planned.PartitionIsDown():
            why = f"partition `{wait.partition}` is down: nothing starts there"
            return Explanation(Reason.PARTITION_DOWN.value, why, f"move it: gqctl update {job.label} --partition=NAME")
        case planned.NoNodes():
            why = f"partition `{wait.partition}` has no node that has ever registered and that it may use"
            return Explanation(Reason.NODES_UNAVAILABLE.value, why, "start gqnode on a node; gqinfo -N lists them")
        case planned.BehindPlannedStart():
            return _behind(cluster, job, wait)
        case planned.Insufficient():
            return _insufficient(cluster, job, wait)
        case planned.Unavailable():
            return _unavailable(job, wait)
        case planned.DependsOn():
            return dependency.sentence(cluster, job, wait)
        case planned.OverLimit():
            return limits.over_limit(job.label, wait)
        case planned.OverQuota():
            return limits.may_not_borrow(wait)
        case planned.AccessDenied():
            return limits.barred(job, wait)
        case planned.Throttled():
            return _throttled(cluster, job, wait)
        case planned.OverFairShare():
            return explain_plan.over_fair_share(cluster, job, wait)
        case planned.WouldDelay():
            return explain_plan.would_delay(cluster, job, wait)
        case planned.WaitsForLocality():
            return explain_plan.waits_for_locality(job, wait)
        case planned.CoresReservedForGpus():
            return explain_plan.cores_kept(wait)
        case planned.ReservationBegins():
            return reservation.begins(wait)
        case planned.ReservationTooShort():
            return reservation.too_short(cluster, job, wait)
        case planned.NotInReservation():
            return reservation.not_in(cluster, job, wait)
        case planned.RunsIntoReservation():
            return reservation.runs_into(cluster, job, wait)
        case planned.Preempts():
            return explain_plan.preempts(cluster, job, wait)
        case planned.NotWorthPreemptingYet():
            return explain_plan.takes_later(cluster, wait)
        case planned.OutOfLicenses():
            return explain_plan.out_of_licenses(cluster, wait)
        case planned.Infeasible():
            return Explanation(Reason.BAD_CONSTRAINTS.value, f"it can never start: {wait.why}", wait.hint)
        case _ as never:
            assert_never(never)


def _held(job: Job) -> Explanation:
    match job.hold:
        case Hold.LAUNCH if job.reason == Reason.BAD_WORKDIR.value:
            why = f"it is held since its working directory is missing where it would run; last: {job.why}"
            hint = f"make the directory there, then gqctl release {job.label}; or submit it with another --chdir"
            return Explanation(Reason.BAD_WORKDIR.value, why, hint)
        case Hold.LAUNCH:
            times = counted(job.launch_failures, "times")
            why = f"it is held since its launch failed {times}; last: {job.why}"
            return Explanation(Reason.LAUNCH_FAILED_HELD.value, why, f"mend the cause, then gqctl release {job.label}")
        case Hold.ADMIN:
            return Explanation(Reason.HELD_ADMIN.value, "an administrator holds it", "ask them")
        case _:
            return Explanation(Reason.HELD_USER.value, "its owner holds it", f"gqctl release {job.label}")


def _behind(cluster: Cluster, job: Job, wait: planned.BehindPlannedStart) -> Explanation:
    ahead = cluster.jobs.get(wait.job_id)
    if ahead is None:
        return Explanation(Reason.PRIORITY.value, "another job goes first", blockers=(wait.job_id,))
    why = f"job {ahead.label} ({ahead.user}: {ahead.spec.name}) goes first and waits for the same nodes"
    hint = f"gqprio -j {ahead.label},{job.label} shows why it goes first, gqwhy {ahead.label} what it waits for"
    return Explanation(Reason.PRIORITY.value, why, hint, (ahead.job_id,))


def _insufficient(cluster: Cluster, job: Job, wait: planned.Insufficient) -> Explanation:
    start = _what_is_short(wait)
    holders = "; ".join(_holder(cluster, one, wait.resource) for one in wait.holders[:MAX_NAMED])
    others = len(wait.holders) - MAX_NAMED
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    why = f"{start}: {holders}{more}" if holders else start
    blockers = tuple(int(one.job_id) for one in wait.holders if not one.reservation)
    hint = reservation.may_name(cluster, job, wait) or _smaller(job, wait)
    lead, shortage = start if holders else "", _shortage(wait)
    if wait.starts_at is None:
        return Explanation(Reason.RESOURCES.value, why, _no_promise(wait) + hint, blockers, None, lead, shortage)
    why += f"{_BY}{_mark(wait.starts_at)}"
    return Explanation(Reason.RESOURCES.value, why, hint, blockers, wait.starts_at, lead, shortage)


def _what_is_short(wait: planned.Insufficient) -> str:
    wanted, free = _amount(wait.wanted, wait.resource), _number(wait.free, wait.resource)
    verb = _verb(wait.free, wait.resource)
    there, elsewhere = "", ""
    if wait.selection:
        wanted, there = f"{wanted} on nodes with {wait.selection}", " there"
        idle = f"{wait.idle_nodes} of {wait.nodes} such {'node is' if wait.nodes == 1 else 'nodes are'} idle"
        amount = _amount(wait.free_elsewhere, wait.resource)
        elsewhere = f" ({idle}, {amount} {_verb(wait.free_elsewhere, wait.resource)} free on other nodes)"
    if wait.is_fragmented:
        return f"it needs {wanted} and {free} {verb} free{there}, but not in the right places{elsewhere}"
    return f"it needs {wanted}, {free} {verb} free{there}{elsewhere}"


def _verb(number: int, resource: str) -> str:
    return "is" if number == 1 or resource == "memory" else "are"


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


def _no_promise(wait: planned.Insufficient) -> str:
    if any(one.ends_at is None for one in wait.holders):
        return "nobody knows when what holds it ends, so no start can be promised; "
    return "no start can be promised; "


def _smaller(job: Job, wait: planned.Insufficient) -> str:
    asked = job.spec.resources
    if wait.is_fragmented and wait.resource == "CPUs" and _is_one_task_a_node(asked):
        return "fewer CPUs a task would fit sooner"
    if wait.is_fragmented and wait.may_spread:
        return "fewer per node over more nodes would fit sooner"
    if wait.free and not wait.is_fragmented and wait.resource != "idle nodes":
        return f"asking for at most {_amount(wait.free, wait.resource)} could start it now"
    return "it starts when enough of these end" if len(wait.holders) > 1 else "it starts when that ends"


def _is_one_task_a_node(asked: ResourceRequest) -> bool:
    """Whether the job has one task for each node, so that it cannot spread over more nodes."""
    return bool(asked.cpus_per_task) and (asked.ntasks or 1) <= (asked.nodes_min or 1) and not asked.ntasks_per_node


def _amount(number: int, resource: str) -> str:
    """``8 GPUs``, ``1 idle node``, ``3G of memory``."""
    return f"{format_memory(number)} of memory" if resource == "memory" else counted(number, resource)


def _number(number: int, resource: str) -> str:
    return format_memory(number) if resource == "memory" else str(number)


def _holder(cluster: Cluster, one: planned.Holder, resource: str) -> str:
    if resource == "memory" or one.generic:
        held = _amount(one.generic or one.memory_mib, resource)
    else:
        held = counted(one.gpus, "GPUs") if one.gpus and resource != "CPUs" else counted(one.cpus, "CPUs")
    until = f"until {_mark(one.ends_at)} at the latest" if one.ends_at is not None else "with no known end"
    if one.is_overdue:
        until = "and is being ended"
    nodes = ", ".join(one.nodes[:MAX_NAMED]) + (", …" if len(one.nodes) > MAX_NAMED else "")
    if one.reservation:
        return reservation.kept(one, held, nodes)
    if one.kept_for and one.ends_at is not None:
        until = f"of reservation {one.kept_for}, which ends at {_mark(one.ends_at)}"
    user = f" ({one.user})" if one.user else ""
    job = cluster.jobs.get(one.job_id)
    return f"job {one.job_id if job is None else job.label}{user} holds {held} on {nodes} {until}"


def _unavailable(job: Job, wait: planned.Unavailable) -> Explanation:
    named = "; ".join(f"{node} is {why}" for node, why in wait.nodes[:MAX_NAMED])
    more = f"; and {len(wait.nodes) - MAX_NAMED} more" if len(wait.nodes) > MAX_NAMED else ""
    if job.reason in (Reason.LAUNCH_FAILED.value, Reason.BAD_WORKDIR.value) and wait.left_out:
        until = f"; tried again at {_mark(wait.until)}" if wait.until is not None else ""
        why = f"its launch failed ({job.why}); {named}{more}{until}"
        return Explanation(job.reason, why, _hint_of_backoff(job, wait.left_out), (), wait.until)
    why = f"it needs nodes that are not available: {named}{more}"
    return Explanation(Reason.NODES_UNAVAILABLE.value, why, _hint_of_nodes(wait), (), wait.until)


def _hint_of_backoff(job: Job, left_out: tuple[str, ...]) -> str:
    if job.reason == Reason.BAD_WORKDIR.value:
        return f"make the directory there, then gqctl release {job.label} tries that node again"
    if job.avoid:
        return "mend what the message names; it is tried there again by itself"
    return f"gqctl node resume {left_out[0]} ends the back-off"


def _hint_of_nodes(wait: planned.Unavailable) -> str:
    node, why = wait.nodes[0]
    if node in wait.left_out:
        return f"gqctl node resume {node} ends the back-off"
    if why == snapshot.BEING_CLEANED:
        return "it is free when that is over"
    if why.startswith(("lost", "not connected")):
        return f"start gqnode on {node}, or check why it does not respond"
    return f"gqctl node resume {node} brings it back" + (" (with --gpu for one GPU)" if why.startswith("short") else "")


def _suspended_at(cluster: Cluster, job: Job) -> float | None:
    attempt = cluster.attempt_of(job)
    return None if attempt is None else attempt.suspended_at


def _explain_state(cluster: Cluster, job: Job) -> Explanation:
    match job.state:
        case JobState.STARTING:
            return Explanation(Reason.NONE.value, f"it is being started on {_places(cluster, job)}")
        case JobState.RUNNING if job.attempt_id in cluster.parked:
            why = parked.suspended_facts(cluster, job)
            return Explanation(Reason.PARKED.value, f"it stands still on {_places(cluster, job)} {why}")
        case JobState.RUNNING if (at := _suspended_at(cluster, job)) is not None:
            held = "it keeps its GPUs, CPUs and memory, and its time limit stands still"
            return Explanation(
                Reason.NONE.value,
                f"it is suspended on {_places(cluster, job)} since {_mark(at)}: {held}",
                "an operator lets it go on: gqctl resume",
            )
        case JobState.RUNNING:
            why = f"it runs on {_places(cluster, job)} since {_mark(job.start_at or 0)}"
            why = f"{why}{parked.guest_facts(cluster, job)}"
            why = f"{why}{_borrowed(cluster, job)}{_giving_way(cluster, job)}{elastic.of_holder(cluster, job)}"
            return _with_past(Explanation(Reason.NONE.value, why), job)
        case JobState.COMPLETING:
            return Explanation(Reason.NONE.value, f"it is over, and is being cleaned away on {_places(cluster, job)}")
        case _:
            return explain_end(job)


def _borrowed(cluster: Cluster, job: Job) -> str:
    names = lenders_of(cluster, cluster.attempts[job.attempt_id])
    if not names:
        return ""
    return f"; it borrows from reservation {', '.join(names)}, and may be asked to go at any time"


def _giving_way(cluster: Cluster, job: Job) -> str:
    attempt = cluster.attempts[job.attempt_id]
    if attempt.preemption is None:
        return ""
    then = "stands still from" if attempt.preemption.parks else "is ended by"
    return f"; it is preempted {preemptor_phrase(cluster, attempt)}, and {then} {_mark(attempt.preemption.ends_at)}"


def _with_past(story: Explanation, job: Job) -> Explanation:
    """Add the job's last preemption, if there was one."""
    return story if job.preempted is None else story._replace(why=f"{story.why}; {preemption_sentence(job.preempted)}")


def _places(cluster: Cluster, job: Job) -> str:
    attempt = cluster.attempts[job.attempt_id]
    nodes = attempt.waits_for() or [grant.node for grant in attempt.grants]
    return explain_plan.names_of(nodes)


def _explain_array(job: Job, array: ArrayTasks) -> Explanation:
    """The explanation of an array without pending tasks in its record."""
    over = array.succeeded | array.failed | array.cancelled
    counts = {
        "not over yet": (parse_tasks(job.spec.array) & ~over).bit_count(),
        "completed": array.succeeded.bit_count(),
        "failed or cancelled": array.failed.bit_count(),
        "cancelled before they started": array.cancelled.bit_count(),
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return Explanation(job.reason, f"none of its tasks waits any more: {told}", f"gqacct -j {job.job_id} shows them")


def _throttled(cluster: Cluster, job: Job, wait: planned.Throttled) -> Explanation:
    array_id = job.job_id if job.array_job_id is None else job.array_job_id
    array = cluster.jobs[array_id].array if array_id in cluster.jobs else None
    tasks = [cluster.jobs[one] for one in array.jobs.values()] if array is not None else []
    run = [one for one in tasks if one.state not in (JobState.PENDING, JobState.ENDED)]
    named = explain_plan.names_of([one.label for one in run])
    why = f"{counted(wait.most, 'tasks')} of array {array_id} may run at once, and as many do: {named}"
    hint = f"gqctl update {array_id} --array-throttle=COUNT changes that"
    return Explanation(Reason.ARRAY_TASK_LIMIT.value, why, hint, tuple(one.job_id for one in run))


def explain_cancelled(record: Job) -> tuple[Explanation, str]:
    """(explanation, state) of tasks that were cancelled while they were part of their array's record."""
    outcome = cancelled_outcome(record)
    return Explanation(record.reason, *how_it_ended(record, outcome)), state_word(JobState.ENDED, outcome)


def explain_end(job: Job) -> Explanation:
    """The explanation of how a job ended."""
    return Explanation(job.reason, *how_it_ended(job))
