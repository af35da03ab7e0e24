"""Orders to nodes, derived from durable state alone, so that a restart loses none of them.  Pure.

The order that a node is owed follows from the phase of its part (`PREPARING` → Prepare, `GOING` → Go, `STOPPING` →
Stop), from steps that it has not acknowledged or that are to end, and from a time limit that differs from the enforced
one.  `send` also starts the clock by which the order is repeated until the node confirms it (`repeat`), and by which a
node is judged silent.  All orders are sent again when a node says hello.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from gq.model.ids import AttemptId
from gq.model.resource import Role
from gq.model.state import Outcome
from gq.model.sweep import parameters
from gq.request.patterns import error_pattern, input_pattern, output_pattern
from gq.wire.node import (
    GangMember,
    Go,
    Launch,
    LaunchRole,
    LaunchStep,
    Order,
    Prepare,
    SetTimeLimit,
    Stop,
    StopStep,
)
from gqd.control import array, requeue
from gqd.state.effect import SendOrder
from gqd.state.elastic import LEAVE_GRACE_S, has_joined, is_left
from gqd.state.index.deadlines import time_limit_of
from gqd.state.order_clocks import PART, STEP, STOP_ORPHAN, TIME_LIMIT, Id, OrderClock, OrderKind
from gqd.state.phases import AfterEnding, PartPhase
from gqd.state.records import Attempt, Job, Step

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

EVERY_JOIN = 2**31 - 1
"""Join number of a stop for a forgotten attempt: it covers everything that the node has of it."""


def send(draft: TurnBuilder, kind: OrderKind[Id], id_: Id, node: str, order: Order | None) -> None:
    """Send an order, and start the clock by which it is repeated; None: nothing is owed, so nothing is repeated."""
    if order is None:
        draft.volatile.order_clocks.stop(kind, id_, node)
        return
    draft.volatile.order_clocks.start(kind, id_, node, draft.now)
    draft.enqueue(SendOrder(node=node, order=order))


def repeat(draft: TurnBuilder, kind: OrderKind[Id], owed_order: Callable[[TurnBuilder, Id, str], Order | None]) -> None:
    """Send the orders of a kind again that nodes have not confirmed in time; forget those that are owed no longer.

    Nodes without a link are skipped: they are sent what they are owed after their hello.
    """
    for id_, node, clock in draft.volatile.order_clocks.owed(kind):
        is_linked = node in draft.volatile.links
        if is_linked and draft.now - clock.last_sent_at < draft.policy.timers.resend_s:
            continue
        order = owed_order(draft, id_, node)
        if is_linked or order is None:
            send(draft, kind, id_, node, order)


def send_owed(draft: TurnBuilder, attempt: Attempt, node: str) -> None:
    """Send what the part's phase owes to its node, if it owes anything."""
    send(draft, PART, attempt.attempt_id, node, owed(draft, attempt, node))


def repeat_owed(draft: TurnBuilder, attempt: Attempt, node: str, clock: OrderClock) -> None:
    """Send the order again, without a new start of the clock of its silence."""
    order = owed(draft, attempt, node)
    if order is not None:
        clock.last_sent_at = draft.now
        draft.enqueue(SendOrder(node=node, order=order))


def owed(draft: TurnBuilder, attempt: Attempt, node: str) -> Order | None:
    """The order that the part's phase owes to its node."""
    part = attempt.parts[node]
    match part.phase:
        case PartPhase.PREPARING:
            job = draft.cluster.jobs[attempt.attempt_id.job_id]
            return Prepare(launch=launch_of(draft, job, attempt, node))
        case PartPhase.GOING:
            return Go(attempt_id=attempt.attempt_id, master_port=attempt.master_port, join=_join_of(attempt, node))
        case PartPhase.STOPPING:
            return _stop(attempt, node)
        case PartPhase.PREPARED | PartPhase.LIVE:
            return None
        case _ as never:
            assert_never(never)


def send_step(draft: TurnBuilder, step: Step, node: str) -> None:
    """Send the node the order that a step owes it, if any: to launch the step or to end it."""
    send(draft, STEP, step.step_id, node, owed_of_step(draft, step, node))


def owed_of_step(draft: TurnBuilder, step: Step, node: str) -> Order | None:
    """The order that a step owes to the node; None: the node has the step, or its part of it has ended."""
    if node in step.part_ends:
        return None
    if step.step_id in draft.volatile.ending_steps:
        return StopStep(step_id=step.step_id, grace_s=draft.policy.timers.grace_s)
    if node in step.received:
        return None
    if _has_lost_gpus(draft, step, node):
        return StopStep(step_id=step.step_id, grace_s=draft.policy.timers.grace_s)
    return LaunchStep(step_id=step.step_id, key=step.key, layout=step.layout)


def _has_lost_gpus(draft: TurnBuilder, step: Step, node: str) -> bool:
    """Whether the job has given up GPUs of the step's layout, so that the node would refuse the step."""
    attempt = draft.cluster.attempts[step.step_id.attempt_id]
    held = {gpu for grant in attempt.grants if grant.node == node for gpu in grant.gpus}
    return any(part.node == node and not held.issuperset(part.gpus) for part in step.layout.parts)


def send_time_limit(draft: TurnBuilder, job: Job, node: str) -> None:
    """Send the job's time limit; it is repeated until the node confirms that it enforces it."""
    send(draft, TIME_LIMIT, job.attempt_id, node, time_limit_order(draft, job))


def time_limit_order(draft: TurnBuilder, job: Job) -> SetTimeLimit:
    limit_s = time_limit_of(job, draft.cluster.attempts[job.attempt_id])
    return SetTimeLimit(attempt_id=job.attempt_id, time_limit_s=limit_s)


def stop_orphan(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> None:
    """Stop an attempt at once on a node that should have nothing of it.

    The order is repeated until the node reports that nothing is left: if it got lost, the attempt would run for ever.
    """
    send(draft, STOP_ORPHAN, attempt_id, node, owed_to_orphan(draft, attempt_id, node))


def owed_to_orphan(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> Stop | None:
    """The stop order; None: the node has no link, and its next hello names the attempts that it has."""
    if node not in draft.volatile.links:
        return None
    known = draft.cluster.attempts.get(attempt_id)
    join = EVERY_JOIN if known is None else _last_join(known)
    return Stop(attempt_id=attempt_id, outcome=Outcome.CANCELLED, grace_s=0, join=join)


def _join_of(attempt: Attempt, node: str) -> int:
    return 0 if attempt.elastic is None else attempt.elastic.join_of(node)


def _last_join(attempt: Attempt) -> int:
    """The join number of a stop: it covers every join of the node so far, and none that comes later."""
    elastic = attempt.elastic
    return elastic.generation if elastic is not None and elastic.is_of_nodes else 0


def _stop(attempt: Attempt, node: str) -> Stop:
    join = _last_join(attempt)
    if attempt.end_at is None and is_left(attempt, node):
        return Stop(attempt_id=attempt.attempt_id, outcome=Outcome.CANCELLED, grace_s=LEAVE_GRACE_S, join=join)
    return Stop(
        attempt_id=attempt.attempt_id,
        outcome=attempt.outcome or Outcome.CANCELLED,
        grace_s=attempt.grace_s,
        text=_stop_message(attempt),
        join=join,
    )


def _stop_message(attempt: Attempt) -> str:
    """The line that Slurm would write into the job's standard error; the node fills in its name and the time."""
    if attempt.outcome is Outcome.PREEMPTED:
        return "CANCELLED AT {time} DUE TO PREEMPTION"
    if attempt.then is AfterEnding.REQUEUE:
        return "CANCELLED AT {time} DUE TO JOB REQUEUE"
    match attempt.outcome:
        case Outcome.CANCELLED:
            return "CANCELLED AT {time}"
        case Outcome.NODE_FAIL:
            return "CANCELLED AT {time} DUE TO NODE FAILURE"
        case _:
            return ""


def _address(draft: TurnBuilder, node: str) -> str:
    """The node's address; its name, if it was removed from the cluster while the job continues without it."""
    known = draft.cluster.nodes.get(node)
    return node if known is None else known.address


def launch_of(draft: TurnBuilder, job: Job, attempt: Attempt, node: str) -> Launch:
    """Everything that the node needs to run its part of the attempt."""
    spec, request = job.spec, job.spec.resources
    grant = attempt.parts[node].grant
    members = members_of(draft, attempt, node)
    is_batch_node = node == attempt.batch_node
    extent = array.extent_of(spec.array) if spec.array else array.NO_ARRAY
    return Launch(
        attempt_id=attempt.attempt_id,
        job_name=spec.name,
        cluster=draft.policy.cluster,
        user=job.user,
        uid=job.uid,
        gid=job.gid,
        partition=job.partition,
        node_rank=[member.node for member in members].index(node),
        members=members,
        grant=grant,
        is_interactive=spec.is_interactive,
        time_limit_s=time_limit_of(job, attempt),
        grace_s=requeue.grace_s(draft, job),
        signal=spec.signal,
        script_digest=spec.script_digest if is_batch_node else "",
        environment_digest=spec.environment_digest,
        command=spec.command,
        args=spec.args,
        chdir=spec.chdir,
        output_path=output_pattern(spec),
        error_path=error_pattern(spec),
        input_path=input_pattern(spec),
        open_mode="append" if job.restart_count else spec.open_mode,
        umask=spec.umask,
        submit_dir=spec.submit_dir,
        submit_host=spec.submit_host,
        restart_count=job.restart_count,
        ntasks=request.ntasks,
        ntasks_per_node=request.ntasks_per_node,
        ntasks_per_gpu=request.ntasks_per_gpu,
        cpus_per_task=request.cpus_per_task,
        mem_per_node_mib=request.mem_per_node_mib,
        mem_per_cpu_mib=request.mem_per_cpu_mib,
        gpus=request.gpus,
        account=job.account,
        qos=job.qos,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        array_task_min=extent.least,
        array_task_max=extent.most,
        array_task_step=extent.step,
        array_task_count=extent.size,
        roles=tuple(_launch_role(role, attempt) for role in request.roles),
        reservation=attempt.occurrence.name if attempt.occurrence is not None else "",
        parameters=tuple(parameters(spec.sweep).items()) if spec.sweep else (),
        most_gpus=request.most_gpus,
        most_nodes=request.nodes_max if request.is_elastic else None,
        join=_join_of(attempt, node),
    )


def members_of(draft: TurnBuilder, attempt: Attempt, own: str = "") -> tuple[GangMember, ...]:
    """All nodes of the attempt, batch node first; of nodes that joined later only the live ones, and `own`."""
    return tuple(
        GangMember(
            node=grant.node,
            address=_address(draft, grant.node),
            tasks=grant.tasks,
            cpus=len(grant.cpus),
            gpus=len(grant.gpus),
            joined=0 if attempt.elastic is None else attempt.elastic.join_of(grant.node),
        )
        for grant in attempt.grants
        if grant.node == own or not has_joined(attempt, grant.node) or attempt.parts[grant.node].phase is PartPhase.LIVE
    )


def _launch_role(role: Role, attempt: Attempt) -> LaunchRole:
    held = [(grant.node, share) for grant in attempt.grants for share in grant.roles if share.role == role.name]
    return LaunchRole(
        name=role.name,
        nodes=tuple(node for node, _ in held),
        tasks=tuple(share.tasks for _, share in held),
        cpus=tuple(len(share.cpus) for _, share in held),
        gpus=tuple(len(share.gpus) for _, share in held),
        cpus_per_task=role.resources.cpus_per_task,
        mem_per_cpu_mib=role.resources.mem_per_cpu_mib,
    )
