"""Long polls: answers held back until jobs start or end, a step's resources are free, or the time is up.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.ids import JobId
from gq.model.state import JobState
from gq.model.tasks import task_bit
from gq.wire import client
from gqd.control import array as array_control
from gqd.control import info, job, step
from gqd.state.effect import Reply
from gqd.state.input import ClientRequest, Peer
from gqd.state.job_view import tasks_asked
from gqd.state.records import ArrayTasks, Job
from gqd.state.volatile import JobWaiter, StepWaiter, Target

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_WAIT_S = 30.0


def on_wait_jobs(
    draft: TurnBuilder, request: ClientRequest, body: client.WaitJobs, shown_to: Peer | None
) -> client.Waited | None:
    """The answer to `WaitJobs`, or None if it is held back.  `shown_to`: see `gqd.state.job_view.visible_to`."""
    targets = tuple(_targets(draft, body))
    if body.until not in ("started", "ended"):
        raise Refusal("bad_wait", f"`{body.until}` is neither `started` nor `ended`")
    timeout_s = _bounded(body.timeout_s)
    deadline_at = _deadline(draft, request, timeout_s)
    waiter = JobWaiter(
        request.route,
        request.request_id,
        targets,
        body.until,
        body.wait_any,
        deadline_at,
        watched=frozenset(target.job_id for target in targets),
        shown_to=shown_to,
    )
    if _is_over(draft, waiter) or not timeout_s:
        return _waited(draft, waiter)
    _forget_earlier(draft, request)
    draft.volatile.job_waiters.append(waiter)
    return None


def on_create_step(draft: TurnBuilder, request: ClientRequest, body: client.CreateStep) -> client.StepCreated | None:
    """The answer to `CreateStep`, or None if the step waits for resources."""
    created = step.decide_create(draft, job.known(draft, body.job_id), body.step, request.entropy)
    if created is not None:
        return created
    deadline_at = _deadline(draft, request, _bounded(body.wait_s))
    _forget_earlier(draft, request)
    draft.volatile.step_waiters.append(
        StepWaiter(request.peer, request.route, request.request_id, body, request.entropy, deadline_at)
    )
    return None


def _bounded(seconds: float) -> float:
    """A client's timeout in seconds, limited to 0 … `MAX_WAIT_S`; NaN becomes 0."""
    return min(seconds, MAX_WAIT_S) if seconds > 0 else 0.0


def _deadline(draft: TurnBuilder, request: ClientRequest, timeout_s: float) -> float:
    """The instant at which the answer is due at the latest.

    A request that was sent again keeps the deadline of its first copy: a client that repeats it more often than
    `timeout_s` would otherwise never be answered.
    """
    volatile = draft.volatile
    waiters: tuple[JobWaiter | StepWaiter, ...] = (*volatile.job_waiters, *volatile.step_waiters)
    earlier = [waiter.deadline_at for waiter in waiters if waiter.request_id == request.request_id]
    return min([draft.now + timeout_s, *earlier])


def _forget_earlier(draft: TurnBuilder, request: ClientRequest) -> None:
    """Drop earlier copies of the same request, which a client sent over an older link.

    `Refusal` if too many requests wait already.
    """
    volatile = draft.volatile
    volatile.job_waiters = [waiter for waiter in volatile.job_waiters if waiter.request_id != request.request_id]
    volatile.step_waiters = [waiter for waiter in volatile.step_waiters if waiter.request_id != request.request_id]
    if len(volatile.job_waiters) + len(volatile.step_waiters) >= draft.policy.limits.waiting_requests:
        raise Refusal(
            "too_many_waiting", "too many requests are already waiting for an answer", "try again in a moment"
        )


def answer_job_waiters(draft: TurnBuilder, touched: set[JobId]) -> None:
    """Answer the waiters whose time is up or whose jobs have come so far; only touched jobs are checked."""
    kept = []
    for waiter in draft.volatile.job_waiters:
        is_touched = any(job_id in waiter.watched for job_id in touched)
        if draft.now >= waiter.deadline_at or (is_touched and _is_over(draft, waiter)):
            body = _waited(draft, waiter)
            draft.enqueue(Reply(route=waiter.route, request_id=waiter.request_id, body=body))
        else:
            kept.append(waiter)
    draft.volatile.job_waiters = kept


def take_ready_steps(
    draft: TurnBuilder, touched: set[JobId]
) -> list[tuple[StepWaiter, client.StepCreated | client.Refused]]:
    """Answers for waiting steps that can start now (first come, first served), never can, or whose time is up.

    Only events of their jobs (`touched`) can make steps ready.
    """
    answers: list[tuple[StepWaiter, client.StepCreated | client.Refused]] = []
    kept = []
    for waiter in draft.volatile.step_waiters:
        if waiter.body.job_id not in touched and draft.now < waiter.deadline_at:
            kept.append(waiter)
            continue
        answer: client.StepCreated | client.Refused | None
        try:
            answer = step.decide_create(draft, job.known(draft, waiter.body.job_id), waiter.body.step, waiter.entropy)
        except Refusal as refusal:
            answer = client.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
        if answer is None and draft.now >= waiter.deadline_at:
            message = (
                f"other steps of job {waiter.body.job_id} hold what this step needs, or the job is not running yet"
            )
            answer = client.Refused(
                code="step_waits", message=message, hint="--overlap shares resources with other steps"
            )
        if answer is None:
            kept.append(waiter)
        else:
            answers.append((waiter, answer))
    draft.volatile.step_waiters = kept
    return answers


def _targets(draft: TurnBuilder, body: client.WaitJobs) -> Iterator[Target]:
    """The jobs and tasks to wait for; `Refusal` if a job never existed."""
    for job_id in dict.fromkeys((*body.job_ids, *body.tasks)):
        if not 0 < job_id < draft.cluster.next_job_id:
            raise Refusal("unknown_job", f"job {job_id} does not exist", "gqstat lists the queue")
    yield from (Target(JobId(job_id)) for job_id in dict.fromkeys(body.job_ids))
    for array_id, text in body.tasks.items():
        tasks = tasks_asked(text)
        if JobId(array_id) in draft.cluster.jobs:  # otherwise the whole array has ended
            record, _array = array_control.known_array(draft.cluster, array_id)
            tasks = array_control.existing_tasks(record, tasks)
        yield Target(JobId(array_id), tasks)


def _is_over(draft: TurnBuilder, waiter: JobWaiter) -> bool:
    """Whether the wait is over.

    It is checked after every event, so it begins with the job that was not ready at the last check (`waiter.place`).
    """
    targets = waiter.targets
    if waiter.wait_any:
        return any(_is_reached(draft, target, waiter.until, is_any=True) for target in targets)
    for _ in targets:
        if not _is_reached(draft, targets[waiter.place], waiter.until):
            return False
        waiter.place = (waiter.place + 1) % len(targets)
    return True


def _is_reached(draft: TurnBuilder, target: Target, until: str, is_any: bool = False) -> bool:
    """Whether the target has started or ended; `is_any`: one of the named tasks is enough."""
    known = draft.cluster.jobs.get(target.job_id)
    if known is None or known.state is JobState.ENDED:
        return True
    if known.array is None:
        return until == "started" and known.start_at is not None
    wanted = array_control.all_tasks(known.spec.array) if target.tasks is None else target.tasks
    come = known.array.cancelled | known.array.succeeded | known.array.failed
    if until == "started":
        come |= _started(draft, known.array)
    return bool(wanted & come) if is_any and target.tasks is not None else not wanted & ~come


def _started(draft: TurnBuilder, array: ArrayTasks) -> int:
    """The started tasks among the tasks in memory, as a bit set."""
    started = 0
    for task, job_id in array.jobs.items():
        if draft.cluster.jobs[job_id].start_at is not None:
            started |= task_bit(task)
    return started


def _waited(draft: TurnBuilder, waiter: JobWaiter) -> client.Waited:
    """The answer: each job, the record of a whole array, or the materialised ones of the named tasks (one page)."""
    jobs: dict[JobId, Job] = {}
    for target in waiter.targets:
        job = draft.cluster.jobs.get(target.job_id)
        if job is None:
            continue
        if job.array is None or target.tasks is None:
            jobs[job.job_id] = job
        else:
            left = array_control.left_jobs(job, job.array, target.tasks)
            jobs |= {job_id: draft.cluster.jobs[job_id] for job_id in left[: draft.policy.limits.page]}
    shown = [info.job_info_for(waiter.shown_to, draft.cluster, draft.volatile, job) for job in jobs.values()]
    return client.Waited(is_done=_is_over(draft, waiter), jobs=tuple(shown))
