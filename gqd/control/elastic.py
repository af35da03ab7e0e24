"""Elastic jobs: running jobs grow and shrink as the plan proposes, the nodes confirm and the jobs accept.  Pure.

Every change is durable before the node hears of it.  Added GPUs are the job's at once; GPUs to give up stay the job's,
and are freed only when the node reports that no process uses them.  Each change has a number (`Elastic.generation`).
The node acts on the newest, and the order is repeated until the node confirms that number; so restarts on either side
lose nothing and repeat nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.model.ids import AttemptId, JobId
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.control import array, elastic_nodes, orders
from gqd.control.accounts import association
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.limits.ledger import Ledger, LimitDemand, LimitSubject, hours
from gqd.sched.placement.billing import billing_of
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.elastic import shrink_notice_s, staying
from gqd.state.events import event
from gqd.state.index.deadlines import time_limit_of
from gqd.state.index.job_tally import granted
from gqd.state.index.queue import member_of
from gqd.state.order_clocks import RESIZE
from gqd.state.phases import PartPhase
from gqd.state.records import Attempt, Elastic, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

IDLE_CHECK_S = 5.0
"""Interval at which a plan is requested while a job could grow into idle GPUs."""

# ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_growth(draft: TurnBuilder, ledger: Ledger, growth: planned.Growth, validator: PlanValidator) -> bool:
    """Grow the job as planned, if the plan still holds on the live cluster; ledger and validator then count it."""
    found = _changeable(draft.cluster, growth.attempt_id, growth.generation)
    if found is None:
        return False
    job, attempt, elastic = found
    may_take = (
        elastic_nodes.may_take(draft, *found, growth.grant) if elastic.is_of_nodes else _may_take(*found[1:], growth)
    )
    if not may_take:
        return False
    subject, wanted = LimitSubject(job.user, job.account, job.qos), _wanted(draft, job, attempt, growth)
    left_s = _left_s(draft, job, attempt)
    if ledger.exceeded_limit(subject, wanted) is not None:
        return False
    start = planned.Start(job.job_id, job.attempt, (growth.grant,))
    if not validator.admit(start, StartRequest(job.job_id, *member_of(job), "", left_s)):
        return False
    ledger.take(subject, wanted)
    if elastic.is_of_nodes:
        elastic_nodes.add(draft, job, attempt, growth.grant)
        return True
    held = attempt.grants[0]
    gpus, cpus = (*held.gpus, *growth.grant.gpus), (*held.cpus, *growth.grant.cpus)
    grown = msgspec.structs.replace(held, gpus=gpus, cpus=cpus)
    billing = elastic_nodes.billing_with(draft, job, attempt, (grown,))
    added = event.GpusAdded(
        at=draft.now, attempt_id=growth.attempt_id, gpus=growth.grant.gpus, cpus=growth.grant.cpus, billing=billing
    )
    draft.emit(added)
    _send(draft, attempt)
    return True


def _may_take(attempt: Attempt, elastic: Elastic, growth: planned.Growth) -> bool:
    """Whether the planned GPUs are new ones of the job's node, within its maximum."""
    held = attempt.grants[0]
    if elastic.keeps is not None or growth.grant.node != held.node:
        return False
    if set(growth.grant.gpus) & set(held.gpus) or len(growth.grant.cpus) != elastic.cpus_per_gpu * len(
        growth.grant.gpus
    ):
        return False
    return len(held.gpus) + len(growth.grant.gpus) <= elastic.takes


def may_give(draft: TurnBuilder, shrink: planned.Shrink) -> bool:
    """Whether the planned release still holds: the job has these GPUs beyond its minimum, and does not shrink yet."""
    found = _changeable(draft.cluster, shrink.attempt_id, shrink.generation)
    if found is None or found[2].keeps is not None or shrink.is_node != found[2].is_of_nodes:
        return False
    held, elastic = found[1].grants[0], found[2]
    if elastic.is_of_nodes:
        return elastic_nodes.may_give(found[1], elastic, shrink)
    return set(shrink.gpus) <= set(held.gpus) - set(elastic.least) and set(shrink.cpus) <= set(held.cpus) - set(
        elastic.least_cpus
    )


def decide_shrinks(draft: TurnBuilder, decided: Iterable[planned.Preemption]) -> None:
    """Order each elastic job once to give up what the decided preemptions need.  Their claims exist already."""
    by_attempt: dict[AttemptId, list[planned.Shrink]] = {}
    for shrink in (shrink for preemption in decided for shrink in preemption.shrinks):
        by_attempt.setdefault(shrink.attempt_id, []).append(shrink)
    for attempt_id, shrinks in by_attempt.items():
        found = _changeable(draft.cluster, attempt_id, shrinks[0].generation)
        assert found is not None, f"{attempt_id} cannot release what was planned"
        job, attempt, elastic = found
        ends_at = draft.now + shrink_notice_s(job.spec.signal)
        if elastic.is_of_nodes:
            nodes = tuple(node for node, _ in elastic.joined if any(shrink.node == node for shrink in shrinks))
            to: Counter[JobId] = Counter()
            for shrink in shrinks:
                to.update(dict(_recipients(draft.cluster, shrink.node, set(shrink.gpus))))
            going = event.NodesGoing(
                at=draft.now, attempt_id=attempt_id, nodes=nodes, ends_at=ends_at, to=tuple(to.items())
            )
            draft.emit(going)
            elastic_nodes.tell_all(draft, attempt)
            continue
        held, gone = attempt.grants[0], {gpu for shrink in shrinks for gpu in shrink.gpus}
        cpus = {cpu for shrink in shrinks for cpu in shrink.cpus}
        fact = event.ShrinkDecided(
            at=draft.now,
            attempt_id=attempt_id,
            keeps=tuple(gpu for gpu in held.gpus if gpu not in gone),
            keeps_cpus=tuple(cpu for cpu in held.cpus if cpu not in cpus) if elastic.cpus_per_gpu else None,
            ends_at=ends_at,
            to=_recipients(draft.cluster, attempt.batch_node, gone),
        )
        draft.emit(fact)
        _send(draft, attempt)


def _recipients(cluster: Cluster, node: str, gone: set[int]) -> tuple[tuple[JobId, int], ...]:
    claims = [
        (claim.job_id, grant) for claim in cluster.claims.values() for grant in claim.grants if grant.node == node
    ]
    return tuple((to, count) for to, grant in claims if (count := len(gone.intersection(grant.gpus))))


def _changeable(cluster: Cluster, attempt_id: AttemptId, generation: int) -> tuple[Job, Attempt, Elastic] | None:
    """The running elastic job, if it is unchanged since the plan was made; None: it cannot change now."""
    job, attempt = cluster.jobs.get(attempt_id.job_id), cluster.attempts.get(attempt_id)
    if job is None or attempt is None or job.attempt_id != attempt_id or job.state is not JobState.RUNNING:
        return None
    if attempt.elastic is None or attempt.elastic.generation != generation or attempt.preemption is not None:
        return None
    if attempt.suspended_at is not None:
        return None
    part = attempt.parts.get(attempt.batch_node)
    if part is None or part.phase is not PartPhase.LIVE or part.is_stranded:
        return None
    return job, attempt, attempt.elastic


def _wanted(draft: TurnBuilder, job: Job, attempt: Attempt, growth: planned.Growth) -> LimitDemand:
    amounts = granted(draft.cluster, (growth.grant,)) | {"jobs": 0}
    qos = association.qos_named(draft.cluster, job.qos)
    billing = billing_of(draft.policy.billing, amounts, 1.0 if qos is None else qos.usage_factor)
    return LimitDemand(amounts, hours(billing, _left_s(draft, job, attempt)))


def _left_s(draft: TurnBuilder, job: Job, attempt: Attempt) -> int | None:
    limit_s = time_limit_of(job, attempt)
    begun = attempt.allocated_at if attempt.start_at is None else attempt.start_at
    return None if limit_s is None else max(0, int(begun + limit_s - draft.now))


# ── the node ──────────────────────────────────────────────────────────────────────────────────────────────────


def _send(draft: TurnBuilder, attempt: Attempt) -> None:
    """Send the current change to the node(s); it is repeated until they confirm its number."""
    elastic = attempt.elastic
    assert elastic is not None, f"{attempt.attempt_id} holds what it holds"
    if elastic.is_of_nodes:
        elastic_nodes.tell_all(draft, attempt)
        return
    node = attempt.batch_node
    orders.send(draft, RESIZE, attempt.attempt_id, node, _owed(draft, attempt.attempt_id, node))


def _owed(draft: TurnBuilder, attempt_id: AttemptId, node: str) -> wire.ResizeAttempt | None:
    """The current change; None: the attempt has ended, or the node is not in it any more."""
    attempt = draft.cluster.elastic.get(attempt_id)
    if attempt is None or attempt.elastic is None or attempt.end_at is not None or node not in attempt.parts:
        return None
    elastic, held = attempt.elastic, attempt.grants[0]
    if elastic.is_of_nodes:
        return elastic_nodes.owed(draft, attempt, node)
    stays = staying(attempt, held)
    return wire.ResizeAttempt(
        attempt_id=attempt_id,
        generation=elastic.generation,
        gpus=held.gpus,
        keeps=stays.gpus,
        cpus=held.cpus if elastic.cpus_per_gpu else None,
        keeps_cpus=stays.cpus if elastic.cpus_per_gpu else None,
        ends_at=elastic.ends_at,
    )


def reconcile(draft: TurnBuilder, attempt: Attempt, node: str, generation: int) -> None:
    """After a node's hello: send the change that it does not know yet, or has not completed."""
    elastic = attempt.elastic
    if elastic is None or attempt.end_at is not None:
        return
    if elastic.is_of_nodes:
        if elastic.generation != generation:
            elastic_nodes.tell(draft, attempt, node)
    elif elastic.generation != generation or elastic.keeps is not None:
        _send(draft, attempt)


def on_resized(draft: TurnBuilder, node: str, report: wire.AttemptResized) -> None:
    """The node confirms a change: free the GPUs that it reports as given up."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts or attempt.elastic is None or attempt.end_at is not None:
        draft.volatile.order_clocks.stop(RESIZE, report.attempt_id, node)
        return
    elastic = attempt.elastic
    if elastic.generation != report.generation:
        return
    draft.volatile.order_clocks.stop(RESIZE, report.attempt_id, node)
    if elastic.keeps is not None and set(report.gpus) == set(elastic.keeps):
        job = draft.cluster.jobs[report.attempt_id.job_id]
        billing = elastic_nodes.billing_with(draft, job, attempt, (staying(attempt, attempt.grants[0]),))
        draft.emit(event.GpusGivenUp(at=draft.now, attempt_id=report.attempt_id, billing=billing))


def tick(draft: TurnBuilder) -> None:
    """Repeat changes that nodes have not confirmed, and overdue requests to give up GPUs.

    A plan is requested regularly while GPUs are idle: the job that kept another from growing may be gone without any
    resources becoming free.
    """
    if draft.now - draft.volatile.planned_at >= IDLE_CHECK_S and _has_idle(draft.cluster):
        draft.volatile.wants_plan = True
    for attempt_id in list(draft.cluster.elastic):
        attempt = draft.cluster.elastic[attempt_id]
        if attempt.end_at is not None:
            continue
        _give_up_more_than_agreed(draft, attempt)
        elastic = attempt.elastic
        if elastic is None or elastic.ends_at is None or draft.now < elastic.ends_at:
            continue
        if elastic.is_of_nodes:
            elastic_nodes.leave(draft, attempt, elastic.going)
        elif draft.now >= elastic.ends_at + draft.policy.timers.resend_s and _is_confirmed(draft, attempt):
            _send(draft, attempt)
    orders.repeat(draft, RESIZE, _owed)


def _is_confirmed(draft: TurnBuilder, attempt: Attempt) -> bool:
    """Whether the node is linked, and has confirmed the current change."""
    node = attempt.batch_node
    return node in draft.volatile.links and not draft.volatile.order_clocks.get(RESIZE, attempt.attempt_id, node)


# ── the job ───────────────────────────────────────────────────────────────────────────────────────────────────


def decide_accept(draft: TurnBuilder, body: client.GiveUpGpus) -> client.Done:
    """The job gives up its GPUs or nodes before the notice is over.

    The answer is not remembered by request id: the request is idempotent.
    """
    job = array.known(draft.cluster, body.job_id)
    attempt = draft.cluster.attempt_of(job)
    if attempt is None or job.state is not JobState.RUNNING:
        raise Refusal("not_running", f"job {job.label} is not running")
    elastic = attempt.elastic
    if elastic is None:
        hint = "submit it with a range: --gpus=1-8, or --nodes=1-4 --elastic"
        raise Refusal("not_elastic", f"the GPUs of job {job.label} cannot change while it runs", hint)
    is_this = body.generation is None or body.generation == elastic.generation
    if elastic.ends_at is not None and is_this and draft.now < elastic.ends_at:
        draft.emit(event.ShrinkAccepted(at=draft.now, attempt_id=attempt.attempt_id))
        if elastic.is_of_nodes:
            elastic_nodes.leave(draft, attempt, elastic.going)
        else:
            _send(draft, attempt)
    return client.Done()


def decide_agreed(draft: TurnBuilder, job: Job, keep: int | None, askers: tuple[tuple[str, int], ...]) -> str:
    """The owner agrees to shrink the job to `keep` GPUs or nodes (None: to what it started with).

    A lower number that was agreed before stays in force; the text that is returned says so.  `askers`: name and uid of
    each user who asked.  `Refusal` if the job has nothing to give up.
    """
    attempt = draft.cluster.attempt_of(job)
    if attempt is None or attempt.elastic is None or job.state is not JobState.RUNNING:
        hint = "`release` ends the job, `decline` refuses the request"
        raise Refusal("not_elastic", f"the GPUs of job {job.label} cannot change while it runs", hint)
    elastic = attempt.elastic
    held, least = len(_units(attempt)), len(_units_at_first(attempt))
    things = "nodes" if elastic.is_of_nodes else "GPUs"
    agreed = least if keep is None else keep
    if held == least:
        raise Refusal("nothing_to_give", f"job {job.label} has no {things} beyond its first {held}")
    if not least <= agreed < held:
        message = f"job {job.label} has {held} {things}, and started with {least}: it cannot keep {agreed}"
        raise Refusal("bad_number", message, f"keep {least} to {held - 1}")
    draft.emit(event.ShrinkAgreed(at=draft.now, attempt_id=attempt.attempt_id, agreed=agreed, askers=askers))
    _give_up_more_than_agreed(draft, attempt)
    if elastic.agreed is None or elastic.agreed >= agreed:
        return ""
    until = "until the asker's job has ended" if elastic.agreements else "as long as it runs"
    return f"job {job.label} keeps {elastic.agreed} {things}, not {agreed}: an earlier answer applies {until}"


def _units(attempt: Attempt) -> tuple[int, ...] | tuple[str, ...]:
    """The units that the job grows and shrinks by, GPUs or nodes; the ones that it started with come first."""
    elastic = attempt.elastic
    assert elastic is not None, f"{attempt.attempt_id} holds what it holds"
    if elastic.is_of_nodes:
        return tuple(grant.node for grant in attempt.grants)
    return (*elastic.least, *(gpu for gpu in attempt.grants[0].gpus if gpu not in elastic.least))


def _units_at_first(attempt: Attempt) -> tuple[int, ...] | tuple[str, ...]:
    elastic = attempt.elastic
    assert elastic is not None, f"{attempt.attempt_id} holds what it holds"
    return _units(attempt)[: len(attempt.grants) - len(elastic.joined)] if elastic.is_of_nodes else elastic.least


def _give_up_more_than_agreed(draft: TurnBuilder, attempt: Attempt) -> None:
    """Shrink the job to what was agreed, with the same notice as for a preemptor, unless another change is pending."""
    elastic = attempt.elastic
    if (
        elastic is None
        or elastic.agreed is None
        or len(_units(attempt)) <= elastic.agreed
        or elastic.ends_at is not None
    ):
        return
    found = _changeable(draft.cluster, attempt.attempt_id, elastic.generation)
    if found is None:
        return
    ends_at, held = draft.now + shrink_notice_s(found[0].spec.signal), attempt.grants[0]
    if elastic.is_of_nodes:
        nodes = tuple(grant.node for grant in attempt.grants[elastic.agreed :])
        draft.emit(event.NodesGoing(at=draft.now, attempt_id=attempt.attempt_id, nodes=nodes, ends_at=ends_at))
        elastic_nodes.tell_all(draft, attempt)
        return
    more = elastic.cpus_per_gpu * (elastic.agreed - len(elastic.least))
    cpus = (*elastic.least_cpus, *[cpu for cpu in held.cpus if cpu not in elastic.least_cpus][:more])
    gpus = (
        *elastic.least,
        *[gpu for gpu in held.gpus if gpu not in elastic.least][: elastic.agreed - len(elastic.least)],
    )
    fact = event.ShrinkDecided(
        at=draft.now,
        attempt_id=attempt.attempt_id,
        keeps=tuple(sorted(gpus)),
        keeps_cpus=tuple(sorted(cpus)) if elastic.cpus_per_gpu else None,
        ends_at=ends_at,
    )
    draft.emit(fact)
    _send(draft, attempt)


def wants_plan(cluster: Cluster) -> bool:
    """Whether some elastic job could still grow, which is worth a plan even with an empty queue."""
    return any(map(_wants_more, cluster.elastic.values()))


def _wants_more(attempt: Attempt) -> bool:
    elastic = attempt.elastic
    if elastic is not None and elastic.is_of_nodes:
        return elastic_nodes.wants_more(attempt, elastic)
    return elastic is not None and elastic.keeps is None and len(attempt.grants[0].gpus) < elastic.takes


def _has_idle(cluster: Cluster) -> bool:
    return any(_has_idle_for(cluster, attempt) for attempt in cluster.elastic.values() if _wants_more(attempt))


def _has_idle_for(cluster: Cluster, attempt: Attempt) -> bool:
    if attempt.elastic is not None and attempt.elastic.is_of_nodes:
        return elastic_nodes.has_idle(cluster, attempt)
    node = cluster.nodes.get(attempt.batch_node)
    return node is not None and bool(node.free_gpu_mask)
