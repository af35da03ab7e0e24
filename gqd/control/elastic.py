"""Running jobs whose GPUs become more and fewer: what a plan proposes, what their nodes say, what they accept.  Pure.

What a job holds is decided here and durable before its node hears of it.  What comes is the job's at once; what is to
go is the job's until the node says that no process of it is there any more: only then is it free.  Every change has a
number (`Elastic.generation`), the node acts on the newest, and the order is repeated until the node names that number;
so nothing is lost, and nothing is done twice, whoever restarts in between.
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
from gqd.control import array, elastic_nodes
from gqd.control.accounts import association
from gqd.sched.adoption import PlanValidator, StartRequest
from gqd.sched.limits.ledger import Asker, Ledger, Wanted, hours
from gqd.sched.placement.billing import billing_of
from gqd.state import plan as planned
from gqd.state.cluster import Cluster
from gqd.state.effect import SendOrder
from gqd.state.elastic import shrink_notice_s, staying
from gqd.state.events import event
from gqd.state.index.deadlines import time_limit_of
from gqd.state.index.job_tally import granted
from gqd.state.index.queue import member_of
from gqd.state.phases import PartPhase
from gqd.state.records import Attempt, Elastic, Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

LOOK_S = 5.0
"""So often idle GPUs are looked at beside a job that could have more."""

# ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_growth(draft: TurnBuilder, ledger: Ledger, one: planned.Growth, validator: PlanValidator) -> bool:
    """Give it more, if the plan still holds on the live cluster; ledger and validator then count it."""
    found = _changeable(draft.cluster, one.attempt_id, one.generation)
    if found is None:
        return False
    job, attempt, elastic = found
    may_take = elastic_nodes.may_take(draft, *found, one.grant) if elastic.is_of_nodes else _may_take(*found[1:], one)
    if not may_take:
        return False
    asker, wanted = Asker(job.user, job.account, job.qos), _wanted(draft, job, attempt, one)
    left_s = _left_s(draft, job, attempt)
    if ledger.over(asker, wanted) is not None:
        return False
    start = planned.Start(job.job_id, job.attempt, (one.grant,))
    if not validator.admit(start, StartRequest(job.job_id, *member_of(job), "", left_s)):
        return False
    ledger.take(asker, wanted)
    draft.volatile.wants_plan = True
    if elastic.is_of_nodes:
        elastic_nodes.add(draft, job, attempt, one.grant)
        return True
    held = attempt.grants[0]
    gpus, cpus = (*held.gpus, *one.grant.gpus), (*held.cpus, *one.grant.cpus)
    grown = msgspec.structs.replace(held, gpus=gpus, cpus=cpus)
    billing = elastic_nodes.billing_with(draft, job, attempt, (grown,))
    added = event.GpusAdded(
        at=draft.now, attempt_id=one.attempt_id, gpus=one.grant.gpus, cpus=one.grant.cpus, billing=billing
    )
    draft.emit(added)
    _send(draft, attempt)
    return True


def _may_take(attempt: Attempt, elastic: Elastic, one: planned.Growth) -> bool:
    """More GPUs of its node."""
    held = attempt.grants[0]
    if elastic.keeps is not None or one.grant.node != held.node:
        return False
    if set(one.grant.gpus) & set(held.gpus) or len(one.grant.cpus) != elastic.cpus_per_gpu * len(one.grant.gpus):
        return False
    return len(held.gpus) + len(one.grant.gpus) <= elastic.takes


def may_give(draft: TurnBuilder, one: planned.Gift) -> bool:
    """The plan still holds: it has this, beyond its least, and gives up nothing else."""
    found = _changeable(draft.cluster, one.attempt_id, one.generation)
    if found is None or found[2].keeps is not None or one.is_node != found[2].is_of_nodes:
        return False
    held, elastic = found[1].grants[0], found[2]
    if elastic.is_of_nodes:
        return elastic_nodes.may_give(found[1], elastic, one)
    return set(one.gpus) <= set(held.gpus) - set(elastic.least) and set(one.cpus) <= set(held.cpus) - set(
        elastic.least_cpus
    )


def decide_shrinks(draft: TurnBuilder, decided: Iterable[planned.Preemption]) -> None:
    """Tell each once what it is to give up, for whom, and by when.  The claims to it have been noted."""
    by_attempt: dict[AttemptId, list[planned.Gift]] = {}
    for gift in (gift for one in decided for gift in one.gifts):
        by_attempt.setdefault(gift.attempt_id, []).append(gift)
    for attempt_id, gifts in by_attempt.items():
        found = _changeable(draft.cluster, attempt_id, gifts[0].generation)
        assert found is not None, f"{attempt_id} was to give up something, and cannot"
        job, attempt, elastic = found
        ends_at = draft.now + shrink_notice_s(job.spec.signal)
        if elastic.is_of_nodes:
            nodes = tuple(node for node, _ in elastic.joined if any(one.node == node for one in gifts))
            to: Counter[JobId] = Counter()
            for one in gifts:
                to.update(dict(_to_whom(draft.cluster, one.node, set(one.gpus))))
            going = event.NodesGoing(
                at=draft.now, attempt_id=attempt_id, nodes=nodes, ends_at=ends_at, to=tuple(to.items())
            )
            draft.emit(going)
            elastic_nodes.tell_all(draft, attempt)
            continue
        held, gone = attempt.grants[0], {gpu for one in gifts for gpu in one.gpus}
        cpus = {cpu for one in gifts for cpu in one.cpus}
        fact = event.ShrinkDecided(
            at=draft.now,
            attempt_id=attempt_id,
            keeps=tuple(gpu for gpu in held.gpus if gpu not in gone),
            keeps_cpus=tuple(cpu for cpu in held.cpus if cpu not in cpus) if elastic.cpus_per_gpu else None,
            ends_at=ends_at,
            to=_to_whom(draft.cluster, attempt.batch_node, gone),
        )
        draft.emit(fact)
        _send(draft, attempt)


def _to_whom(cluster: Cluster, node: str, gone: set[int]) -> tuple[tuple[JobId, int], ...]:
    claims = [(one.job_id, grant) for one in cluster.claims.values() for grant in one.grants if grant.node == node]
    return tuple((to, count) for to, grant in claims if (count := len(gone.intersection(grant.gpus))))


def _changeable(cluster: Cluster, attempt_id: AttemptId, generation: int) -> tuple[Job, Attempt, Elastic] | None:
    """It runs, and is as the plan knew it."""
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


def _wanted(draft: TurnBuilder, job: Job, attempt: Attempt, one: planned.Growth) -> Wanted:
    amounts = granted(draft.cluster, (one.grant,)) | {"jobs": 0}
    qos = association.qos_named(draft.cluster, job.qos)
    billing = billing_of(draft.policy.billing, amounts, 1.0 if qos is None else qos.usage_factor)
    return Wanted(amounts, hours(billing, _left_s(draft, job, attempt)))


def _left_s(draft: TurnBuilder, job: Job, attempt: Attempt) -> int | None:
    limit_s = time_limit_of(job, attempt)
    begun = attempt.allocated_at if attempt.start_at is None else attempt.start_at
    return None if limit_s is None else max(0, int(begun + limit_s - draft.now))


# ── the node ──────────────────────────────────────────────────────────────────────────────────────────────────


def _send(draft: TurnBuilder, attempt: Attempt) -> None:
    """Repeated until the node names the number of the change."""
    one = attempt.elastic
    assert one is not None, f"{attempt.attempt_id} holds what it holds"
    if one.is_of_nodes:
        elastic_nodes.tell_all(draft, attempt)
        return
    draft.volatile.resize_orders[attempt.attempt_id, attempt.batch_node] = draft.now
    held = attempt.grants[0]
    stays = staying(attempt, held)
    order = wire.ResizeAttempt(
        attempt_id=attempt.attempt_id,
        generation=one.generation,
        gpus=held.gpus,
        keeps=stays.gpus,
        cpus=held.cpus if one.cpus_per_gpu else None,
        keeps_cpus=stays.cpus if one.cpus_per_gpu else None,
        ends_at=one.ends_at,
    )
    draft.enqueue(SendOrder(node=attempt.batch_node, order=order))


def meet(draft: TurnBuilder, attempt: Attempt, node: str, generation: int) -> None:
    """The node has said hello: tell it what it does not know yet, or has not done."""
    one = attempt.elastic
    if one is None or attempt.end_at is not None:
        return
    if one.is_of_nodes:
        if one.generation != generation:
            elastic_nodes.tell(draft, attempt, node)
    elif one.generation != generation or one.keeps is not None:
        _send(draft, attempt)


def on_resized(draft: TurnBuilder, node: str, report: wire.AttemptResized) -> None:
    """The node has done what was ordered, or says how far it is."""
    attempt = draft.cluster.attempts.get(report.attempt_id)
    if attempt is None or node not in attempt.parts or attempt.elastic is None or attempt.end_at is not None:
        draft.volatile.resize_orders.pop((report.attempt_id, node), None)
        return
    one = attempt.elastic
    if one.generation != report.generation:
        return
    draft.volatile.resize_orders.pop((report.attempt_id, node), None)
    if one.keeps is not None and set(report.gpus) == set(one.keeps):
        job = draft.cluster.jobs[report.attempt_id.job_id]
        billing = elastic_nodes.billing_with(draft, job, attempt, (staying(attempt, attempt.grants[0]),))
        draft.emit(event.GpusGivenUp(at=draft.now, attempt_id=report.attempt_id, billing=billing))
        draft.volatile.wants_plan = True


def tick(draft: TurnBuilder) -> None:
    """Say again what a node has not answered; what it was told to take by now is asked for again, too.

    Whoever kept a job from growing may have gone without anything being free that was not before: that is looked at.
    """
    if draft.now - draft.volatile.planned_at >= LOOK_S and _has_idle(draft.cluster):
        draft.volatile.wants_plan = True
    for attempt_id in list(draft.cluster.elastic):
        attempt = draft.cluster.elastic[attempt_id]
        if attempt.end_at is not None:
            continue
        _give_up_more_than_agreed(draft, attempt)
        if attempt.elastic is not None and attempt.elastic.is_of_nodes:
            elastic_nodes.tick(draft, attempt)
            continue
        if attempt.batch_node not in draft.volatile.links:
            continue
        sent_at = draft.volatile.resize_orders.get((attempt_id, attempt.batch_node))
        if sent_at is None and not _is_overdue(draft, attempt):
            continue
        if sent_at is None or draft.now - sent_at >= draft.policy.timers.resend_s:
            _send(draft, attempt)
    for attempt_id, node in list(draft.volatile.resize_orders):
        told = draft.cluster.elastic.get(attempt_id)
        if told is None or node not in told.parts:
            del draft.volatile.resize_orders[attempt_id, node]


def _is_overdue(draft: TurnBuilder, attempt: Attempt) -> bool:
    ends_at = None if attempt.elastic is None else attempt.elastic.ends_at
    return ends_at is not None and draft.now >= ends_at + draft.policy.timers.resend_s


# ── the job ───────────────────────────────────────────────────────────────────────────────────────────────────


def decide_accept(draft: TurnBuilder, body: client.GiveUpGpus) -> client.Done:
    """No request that is remembered: said twice it means the same."""
    job = array.known(draft.cluster, body.job_id)
    attempt = draft.cluster.attempt_of(job)
    if attempt is None or job.state is not JobState.RUNNING:
        raise Refusal("not_running", f"job {job.label} does not run")
    one = attempt.elastic
    if one is None:
        hint = "submit it with a range: --gpus=1-8, or --nodes=1-4 --elastic"
        raise Refusal("not_elastic", f"the GPUs of job {job.label} do not change while it runs", hint)
    is_this = body.generation is None or body.generation == one.generation
    if one.ends_at is not None and is_this and draft.now < one.ends_at:
        draft.emit(event.ShrinkAccepted(at=draft.now, attempt_id=attempt.attempt_id))
        if one.is_of_nodes:
            elastic_nodes.leave(draft, attempt, one.going)
        else:
            _send(draft, attempt)
    return client.Done()


def decide_agreed(draft: TurnBuilder, job: Job, keep: int | None, askers: tuple[tuple[str, int], ...]) -> str:
    """The job's owner lets the job give up what others asked for: all that came to it, or all but `keep` GPUs or nodes.

    A lower number that was agreed before stays in force; the text that is returned says so.  `askers`: name and uid of
    each user who asked.  Raises `Refusal` where the job has nothing to give up.
    """
    attempt = draft.cluster.attempt_of(job)
    if attempt is None or attempt.elastic is None or job.state is not JobState.RUNNING:
        hint = "release ends it, decline says no"
        raise Refusal("not_elastic", f"the GPUs of job {job.label} do not change while it runs", hint)
    one = attempt.elastic
    held, least = len(_units(attempt)), len(_units_at_first(attempt))
    things = "nodes" if one.is_of_nodes else "GPUs"
    agreed = least if keep is None else keep
    if held == least:
        raise Refusal("nothing_to_give", f"job {job.label} has no {things} but those that it began with")
    if not least <= agreed < held:
        message = f"job {job.label} has {held} {things}, and began with {least}: it cannot keep {agreed}"
        raise Refusal("bad_number", message, f"keep {least} to {held - 1}")
    draft.emit(event.ShrinkAgreed(at=draft.now, attempt_id=attempt.attempt_id, agreed=agreed, askers=askers))
    _give_up_more_than_agreed(draft, attempt)
    if one.agreed is None or one.agreed >= agreed:
        return ""
    until = "until the asker's job has ended" if one.agreements else "as long as it runs"
    return f"job {job.label} keeps {one.agreed} {things}, not {agreed}: that was agreed before, {until}"


def _units(attempt: Attempt) -> tuple[int, ...] | tuple[str, ...]:
    """What comes and goes: its GPUs, or its nodes; those that it began with first."""
    one = attempt.elastic
    assert one is not None, f"{attempt.attempt_id} holds what it holds"
    if one.is_of_nodes:
        return tuple(grant.node for grant in attempt.grants)
    return (*one.least, *(gpu for gpu in attempt.grants[0].gpus if gpu not in one.least))


def _units_at_first(attempt: Attempt) -> tuple[int, ...] | tuple[str, ...]:
    one = attempt.elastic
    assert one is not None, f"{attempt.attempt_id} holds what it holds"
    return _units(attempt)[: len(attempt.grants) - len(one.joined)] if one.is_of_nodes else one.least


def _give_up_more_than_agreed(draft: TurnBuilder, attempt: Attempt) -> None:
    """As it would for a job that waits, with the same notice; once nothing else is on its way."""
    one = attempt.elastic
    if one is None or one.agreed is None or len(_units(attempt)) <= one.agreed or one.ends_at is not None:
        return
    found = _changeable(draft.cluster, attempt.attempt_id, one.generation)
    if found is None:
        return
    ends_at, held = draft.now + shrink_notice_s(found[0].spec.signal), attempt.grants[0]
    if one.is_of_nodes:
        nodes = tuple(grant.node for grant in attempt.grants[one.agreed :])
        draft.emit(event.NodesGoing(at=draft.now, attempt_id=attempt.attempt_id, nodes=nodes, ends_at=ends_at))
        elastic_nodes.tell_all(draft, attempt)
        return
    more = one.cpus_per_gpu * (one.agreed - len(one.least))
    cpus = (*one.least_cpus, *[cpu for cpu in held.cpus if cpu not in one.least_cpus][:more])
    gpus = (*one.least, *[gpu for gpu in held.gpus if gpu not in one.least][: one.agreed - len(one.least)])
    fact = event.ShrinkDecided(
        at=draft.now,
        attempt_id=attempt.attempt_id,
        keeps=tuple(sorted(gpus)),
        keeps_cpus=tuple(sorted(cpus)) if one.cpus_per_gpu else None,
        ends_at=ends_at,
    )
    draft.emit(fact)
    _send(draft, attempt)


def wants_plan(cluster: Cluster) -> bool:
    """Some job could have more, whether or not anybody waits."""
    return any(map(_wants_more, cluster.elastic.values()))


def _wants_more(attempt: Attempt) -> bool:
    one = attempt.elastic
    if one is not None and one.is_of_nodes:
        return elastic_nodes.wants_more(attempt, one)
    return one is not None and one.keeps is None and len(attempt.grants[0].gpus) < one.takes


def _has_idle(cluster: Cluster) -> bool:
    return any(_has_idle_for(cluster, attempt) for attempt in cluster.elastic.values() if _wants_more(attempt))


def _has_idle_for(cluster: Cluster, attempt: Attempt) -> bool:
    if attempt.elastic is not None and attempt.elastic.is_of_nodes:
        return elastic_nodes.has_idle(cluster, attempt)
    node = cluster.nodes.get(attempt.batch_node)
    return node is not None and bool(node.free_gpu_mask)
