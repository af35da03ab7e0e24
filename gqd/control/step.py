"""Steps: a share of a running allocation for one `gqrun`, recorded at creation and at its end.  Pure."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.ids import StepId
from gq.model.job import ExitStatus, Usage
from gq.model.resource import Grant, RoleRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout, StepNode, StepPart, StepRequest
from gq.request.options import STEP_SIZES
from gq.wire import client
from gq.wire import node as wire
from gqd.control import orders, step_roles
from gqd.state.elastic import is_going, is_left, staying, staying_on
from gqd.state.events import event
from gqd.state.order_clocks import STEP
from gqd.state.phases import PartPhase
from gqd.state.records import Attempt, Job, Step

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


MAX_TASKS = 100_000
"""Upper bound of tasks, CPUs and GPUs of one step."""


def decide_create(draft: TurnBuilder, job: Job, request: StepRequest, key: bytes) -> client.StepCreated | None:
    """Create the step, or None: it has to wait for resources of other steps, or for the job's start.

    `Refusal` if the step can never run.
    """
    if job.state is JobState.STARTING and draft.cluster.attempts[job.attempt_id].was_let_go:
        return None
    if job.state is not JobState.RUNNING:
        message = f"job {job.job_id} is {job.state.value.lower()}, not running"
        raise Refusal("not_running", message, "steps need a running job")
    _refuse_nonsense(request)
    attempt = draft.cluster.attempts[job.attempt_id]
    if attempt.suspended_at is not None:
        return None  # the step starts when the job is resumed
    limits = draft.policy.limits
    if attempt.next_step >= limits.steps_per_job:
        raise Refusal("too_many_steps", f"job {job.job_id} has had {limits.steps_per_job} steps, the maximum")
    if len(attempt.steps) >= limits.running_steps_per_job:
        return None
    layout = layout_of(request, job, attempt, _free(attempt, request.overlap))
    if layout is None:
        return None
    step_id = StepId(job.job_id, job.attempt, attempt.next_step)
    draft.emit(event.StepStarted(at=draft.now, step_id=step_id, key=key, layout=layout))
    step = attempt.steps[step_id.step]
    for part in layout.parts:
        orders.send_step(draft, step, part.node)
    return client.StepCreated(
        job_id=job.job_id,
        attempt=job.attempt,
        step=step_id.step,
        key=key,
        layout=layout,
        nodes=tuple(
            StepNode(
                part=part,
                endpoint=draft.cluster.nodes[part.node].step_endpoint,
                public_key=draft.cluster.nodes[part.node].step_public_key,
            )
            for part in layout.parts
        ),
    )


def _free(attempt: Attempt, overlap: bool) -> dict[str, tuple[set[int], set[int]]]:
    """Live node → (CPUs, GPUs) that no step uses; with `overlap` all of the job's."""
    free = {
        node: (set(part.grant.cpus), set(staying(attempt, part.grant).gpus))
        for node, part in attempt.parts.items()
        if part.phase is PartPhase.LIVE and not part.is_stranded and not is_going(attempt, node)
    }
    if overlap:
        return free
    for step in attempt.steps.values():
        for part in () if step.layout.overlap else step.layout.parts:
            if part.node in free and part.node not in step.part_ends:
                free[part.node][0].difference_update(part.cpus)
                free[part.node][1].difference_update(part.gpus)
    return free


def layout_of(
    request: StepRequest, job: Job, attempt: Attempt, free: dict[str, tuple[set[int], set[int]]]
) -> StepLayout | None:
    """Tasks, CPUs and GPUs on each node; None: not free now.  `Refusal` if the allocation is too small."""
    if job.spec.resources.roles or request.roles:
        return step_roles.layout_of(request, job, attempt, free, layout_on)
    return layout_on(staying_on(attempt), request, job, job.spec.resources, free)


def layout_on(
    granted: tuple[Grant, ...],
    request: StepRequest,
    job: Job,
    asked: RoleRequest,
    free: dict[str, tuple[set[int], set[int]]],
) -> StepLayout | None:
    """The layout within the grants of the job or of one role; `asked` is the request of that job or role."""
    grants = _grants(request, granted, free)
    if request.ntasks_per_gpu:
        wanted_gpus = _gpus(request, job, grants, {})
        tasks = _tasks_of_gpus(request, wanted_gpus)
    else:
        tasks = _tasks(request, grants)
        wanted_gpus = _gpus(request, job, [grant for grant in grants if tasks[grant.node]], tasks)
    cpus_per_task = request.cpus_per_task or asked.cpus_per_task or 1
    per_node_or_gpu = request.ntasks_per_node or request.ntasks_per_gpu
    says_size = request.ntasks or per_node_or_gpu or request.cpus_per_task or request.nodes
    sharing = request.ntasks_per_gpu or (None if _names_gpus(request) else asked.ntasks_per_gpu)
    parts: list[StepPart] = []
    first_rank = 0
    for grant in grants:
        count = tasks[grant.node]
        if not count:
            continue
        cpus = _cpus_on(request, grant, count * cpus_per_task) if says_size else len(grant.cpus)
        gpus = wanted_gpus[grant.node]
        free_cpus, free_gpus = free[grant.node]
        if len(free_cpus) < cpus or len(free_gpus) < gpus:
            return None
        parts.append(
            StepPart(
                node=grant.node,
                first_rank=first_rank,
                tasks=count,
                cpus=tuple(sorted(free_cpus)[:cpus]),
                gpus=tuple(sorted(free_gpus)[:gpus]),
            )
        )
        first_rank += count
    return StepLayout(
        name=request.name,
        parts=tuple(parts),
        cpus_per_task=cpus_per_task,
        gpus_per_task=request.gpus_per_task or (None if _names_gpus(request) else asked.gpus_per_task),
        tasks_per_gpu=sharing if all(part.tasks == (sharing or 0) * len(part.gpus) for part in parts) else None,
        kill_on_bad_exit=job.spec.kill_on_bad_exit if request.kill_on_bad_exit is None else request.kill_on_bad_exit,
        overlap=request.overlap,
    )


def _cpus_on(request: StepRequest, grant: Grant, cpus: int) -> int:
    """CPUs of the step on one node; only steps with --overlap may ask for more than the job has there."""
    if cpus > len(grant.cpus) and not request.overlap:
        raise Refusal(
            "step_too_large",
            f"the step needs {cpus} CPUs on {grant.node}; the job has {len(grant.cpus)} there",
            "ask for more with --ntasks or --cpus-per-task when the job is submitted, or give --overlap",
        )
    return min(cpus, len(grant.cpus))


def _grants(
    request: StepRequest, granted: tuple[Grant, ...], free: dict[str, tuple[set[int], set[int]]]
) -> list[Grant]:
    """The nodes that the step runs on, in the job's order."""
    alive = [grant for grant in granted if grant.node in free]
    unknown = sorted(set(request.nodelist) - {grant.node for grant in alive})
    if unknown:
        raise Refusal("not_in_allocation", f"node `{unknown[0]}` is not one of the job's live nodes")
    chosen = [grant for grant in alive if grant.node not in request.exclude]
    if request.nodelist:
        chosen = [grant for grant in chosen if grant.node in request.nodelist]
    wanted = request.nodes or len(chosen)
    if request.ntasks is not None and request.nodes is None:
        wanted = min(wanted, request.ntasks)
    if wanted > len(chosen) or not chosen:
        raise Refusal("step_too_large", f"the step needs {max(wanted, 1)} nodes; the job has {len(chosen)} for it")
    return chosen[:wanted]


def _tasks(request: StepRequest, grants: list[Grant]) -> dict[str, int]:
    """Tasks per node: as requested, else as allocated; a total is spread as evenly as possible, in node order."""
    if request.ntasks_per_node and request.ntasks is None:
        return {grant.node: request.ntasks_per_node for grant in grants}
    as_allocated = {grant.node: grant.tasks for grant in grants}
    if request.ntasks is None or request.ntasks == sum(as_allocated.values()):
        return as_allocated
    if request.ntasks < len(grants):
        raise Refusal("step_too_large", f"{request.ntasks} tasks cannot be spread over {len(grants)} nodes")
    share, extra = divmod(request.ntasks, len(grants))
    tasks = {grant.node: share + (position < extra) for position, grant in enumerate(grants)}
    if request.ntasks_per_node and max(tasks.values()) > request.ntasks_per_node:
        raise Refusal("step_too_large", f"{request.ntasks} tasks at {request.ntasks_per_node} per node need more nodes")
    return tasks


def _tasks_of_gpus(request: StepRequest, gpus: dict[str, int]) -> dict[str, int]:
    """Tasks per node with ``--ntasks-per-gpu``; `gpus`: the step's GPUs per node."""
    per_gpu = request.ntasks_per_gpu or 0
    tasks = {node: per_gpu * count for node, count in gpus.items()}
    if not any(tasks.values()):
        raise Refusal("step_too_large", "--ntasks-per-gpu needs GPUs, and the step has none", "leave it out")
    if request.ntasks is not None and request.ntasks != sum(tasks.values()):
        count = sum(gpus.values())
        message = (
            f"--ntasks={request.ntasks} contradicts the {count * per_gpu} tasks of {count} GPUs at {per_gpu} per GPU"
        )
        raise Refusal("contradiction", message, "leave out --ntasks, or the number of GPUs")
    return tasks


def _names_gpus(request: StepRequest) -> bool:
    return not (request.gpus is None and request.gpus_per_node is None and request.gpus_per_task is None)


def _gpus(request: StepRequest, job: Job, grants: list[Grant], tasks: dict[str, int]) -> dict[str, int]:
    """GPUs of the step on each node; by default all that the job has there."""
    if not _names_gpus(request):
        return {grant.node: len(grant.gpus) for grant in grants}
    if request.gpus_per_task is not None:
        wanted = {grant.node: request.gpus_per_task * tasks[grant.node] for grant in grants}
    elif request.gpus_per_node is not None:
        wanted = {grant.node: request.gpus_per_node for grant in grants}
    else:
        wanted = _deal_gpus(request.gpus or 0, grants)
    for grant in grants:
        if wanted[grant.node] > len(grant.gpus):
            message = (
                f"the step needs {wanted[grant.node]} GPUs on {grant.node}; "
                f"job {job.job_id} has {len(grant.gpus)} there"
            )
            raise Refusal("step_too_large", message, "ask for more GPUs when the job is submitted")
    return wanted


def _deal_gpus(total: int, grants: list[Grant]) -> dict[str, int]:
    """Spread a number of GPUs over the nodes as evenly as possible; any excess is put on the first node."""
    wanted = {grant.node: 0 for grant in grants}
    room = {grant.node: len(grant.gpus) for grant in grants}
    for _ in range(min(total, sum(room.values()))):
        wanted[min((node for node in room if wanted[node] < room[node]), key=lambda node: wanted[node])] += 1
    wanted[grants[0].node] += max(0, total - sum(room.values()))
    return wanted


def decide_end(draft: TurnBuilder, step: Step) -> None:
    """End the step on all its nodes: TERM, grace time, KILL."""
    draft.volatile.ending_steps.add(step.step_id)
    for part in step.layout.parts:
        orders.send_step(draft, step, part.node)


def _refuse_nonsense(request: StepRequest) -> None:
    for field, minimum in STEP_SIZES.items():
        value = getattr(request, field)
        if value is not None and not minimum <= value <= MAX_TASKS:
            option = "--" + field.replace("_", "-")
            raise Refusal("bad_count", f"{option}={value} is not between {minimum} and {MAX_TASKS}")
    others = {"--ntasks-per-node": request.ntasks_per_node, "--gpus-per-task": request.gpus_per_task}
    for option, value in others.items() if request.ntasks_per_gpu is not None else ():
        if value is not None:
            raise Refusal("contradiction", f"--ntasks-per-gpu and {option} exclude each other", "give one of them")


# ── reports and ends ──────────────────────────────────────────────────────────────────────────────────────────


def _running(draft: TurnBuilder, step_id: StepId) -> Step | None:
    attempt = draft.cluster.attempts.get(step_id.attempt_id)
    return None if attempt is None else attempt.steps.get(step_id.step)


def on_received(draft: TurnBuilder, node: str, report: wire.StepReceived) -> None:
    step = _running(draft, report.step_id)
    if step is not None and node not in step.received and _is_on(step, node):
        draft.emit(event.StepPartReceived(at=draft.now, step_id=report.step_id, node=node))


def on_ended(draft: TurnBuilder, node: str, report: wire.StepEnded) -> None:
    step = _running(draft, report.step_id)
    draft.volatile.order_clocks.stop(STEP, report.step_id, node)
    if step is None or node in step.part_ends or not _is_on(step, node):
        return
    attempt = draft.cluster.attempts[report.step_id.attempt_id]
    goes_on = _continues_without(attempt, step, node)
    draft.emit(
        event.StepPartEnded(
            at=draft.now,
            step_id=report.step_id,
            node=node,
            exit=ExitStatus() if goes_on else report.exit,
            outcome=Outcome.COMPLETED if goes_on else _part_outcome(attempt, report),
            usage=report.usage,
        )
    )
    _finish_if_over(draft, step)


def _continues_without(attempt: Attempt, step: Step, node: str) -> bool:
    """Whether an elastic job has left the node while its step has others: the end there is not a failure."""
    if attempt.end_at is not None or not is_left(attempt, node):
        return False
    return not all(is_left(attempt, part.node) for part in step.layout.parts)


def _part_outcome(attempt: Attempt, report: wire.StepEnded) -> Outcome:
    """The outcome that the node reports, or the job's if the job was ended while the step still ran.

    gqrun passes the job's TERM on to tasks of every node, and they may end before their own node hears of the job's
    end: such a node can only report that they failed.
    """
    if not report.was_attached:
        return Outcome.CANCELLED
    if report.outcome is Outcome.FAILED and attempt.outcome in _ENDED_FROM_OUTSIDE and _ended_with(attempt, report):
        return attempt.outcome
    return report.outcome


def _ended_with(attempt: Attempt, report: wire.StepEnded) -> bool:
    """Whether the tasks ended because the job was ended, by their time or (older gqnodes) by their exit code."""
    if report.exit.shell_code in _CODES_OF_ENDING:
        return True
    if report.ended_at is None or attempt.end_at is None:
        return False
    return report.ended_at >= attempt.end_at - MAX_CLOCK_SKEW_S


def lose_node(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """End the node's part of every step; how the tasks ended there is unknown."""
    for step in list(attempt.steps.values()):
        if _is_on(step, node) and node not in step.part_ends:
            draft.volatile.order_clocks.stop(STEP, step.step_id, node)
            goes_on = _continues_without(attempt, step, node)
            draft.emit(
                event.StepPartEnded(
                    at=draft.now,
                    step_id=step.step_id,
                    node=node,
                    exit=ExitStatus() if goes_on else ExitStatus(signal=9),
                    outcome=Outcome.COMPLETED if goes_on else Outcome.NODE_FAIL,
                    usage=Usage(),
                )
            )
            _finish_if_over(draft, step)


def finish_all(draft: TurnBuilder, attempt: Attempt) -> None:
    """The attempt has ended: end the steps that not every node has reported on."""
    for step in list(attempt.steps.values()):
        for part in step.layout.parts:
            draft.volatile.order_clocks.stop(STEP, step.step_id, part.node)
        draft.volatile.ending_steps.discard(step.step_id)
        fact = event.StepFinished(at=draft.now, step_id=step.step_id, exit=_worst(step), outcome=Outcome.CANCELLED)
        draft.emit(fact)


def _finish_if_over(draft: TurnBuilder, step: Step) -> None:
    if len(step.part_ends) < len(step.layout.parts):
        return
    worst = _worst(step)
    draft.volatile.ending_steps.discard(step.step_id)
    fact = event.StepFinished(at=draft.now, step_id=step.step_id, exit=worst, outcome=_outcome(step, worst))
    draft.emit(fact)


def _worst(step: Step) -> ExitStatus:
    ends = (end.exit for end in step.part_ends.values())
    return max(ends, key=lambda status: status.shell_code, default=ExitStatus())


_ENDED_FROM_OUTSIDE = (Outcome.CANCELLED, Outcome.TIMEOUT, Outcome.PREEMPTED, Outcome.DEADLINE)
MAX_CLOCK_SKEW_S = 1.0
"""Difference allowed between the clocks of a node and of the controller."""
_CODES_OF_ENDING = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""Exit codes by which a shell reports that its child died of TERM or KILL."""
_GRAVEST_FIRST = (
    Outcome.OUT_OF_MEMORY,
    Outcome.NODE_FAIL,
    Outcome.BOOT_FAIL,
    Outcome.FAILED,
    Outcome.TIMEOUT,
    Outcome.DEADLINE,
    Outcome.PREEMPTED,
    Outcome.CANCELLED,
)
"""Outcomes of parts, gravest first: the gravest is the step's, since one failure ends the other parts."""


def _outcome(step: Step, worst: ExitStatus) -> Outcome:
    seen = {end.outcome for end in step.part_ends.values()}
    gravest = next((outcome for outcome in _GRAVEST_FIRST if outcome in seen), Outcome.COMPLETED)
    return Outcome.FAILED if gravest is Outcome.COMPLETED and not worst.is_success else gravest


def _is_on(step: Step, node: str) -> bool:
    return any(part.node == node for part in step.layout.parts)


def tick(draft: TurnBuilder) -> None:
    """Repeat unacknowledged step orders to nodes that are connected."""
    orders.repeat(draft, STEP, _owed)


def _owed(draft: TurnBuilder, step_id: StepId, node: str) -> wire.Order | None:
    step = _running(draft, step_id)
    return None if step is None else orders.owed_of_step(draft, step, node)
