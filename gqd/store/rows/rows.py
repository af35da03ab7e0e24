"""Converts objects to rows and back, and collects the rows of a turn in a `Batch`.  Pure.

A row is a plain tuple in the order of `COLUMNS` (`gqd.store.rows.columns`); the schema is in
`gqd.store.migrations.schema`.  Values that decisions depend on are restored exactly; values only for people (a job's
GPUs and nodes, a step's CPUs) are written as well but not read back.  Complex values are JSON text.  Nothing here uses
reflection for each row: a busy controller makes thousands of rows a second.

A *delete* records that an object left the controller's memory: a job or an attempt is marked as forgotten and stays
for history; the row of a node or a key is deleted; for requests, all answered before an instant are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, get_args

import msgspec

from gq.model.account import Holder, LimitAt, LimitInfo
from gq.model.audit import AuditEntry
from gq.model.dependency import Dependency
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Inventory
from gq.model.resource import Grant, format_ids, parse_ids
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout
from gq.model.tasks import pack_tasks, unpack_tasks
from gqd.state.ask import Ask
from gqd.state.cluster import Cluster
from gqd.state.events.event import Audited, Event
from gqd.state.index.changes import Changes
from gqd.state.index.rebuild import rebuild_indices
from gqd.state.index.usage import Budget, HalfLives
from gqd.state.job_view import held, job_demand
from gqd.state.parked import as_written
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.preemption import Preempted, PreemptionNotice, Resumed
from gqd.state.records import (
    Answer,
    ArrayTasks,
    Attempt,
    BudgetKey,
    Job,
    Key,
    LimitKey,
    Node,
    Part,
    Step,
    StepPartEnd,
    limit_key,
)
from gqd.state.reservation import OccurrenceKey
from gqd.state.runtime_history import RuntimeSamples, Signature
from gqd.store.protocol import Batch, Row
from gqd.store.rows import notice, owed_order, parked, preemption
from gqd.store.rows import reservation as reservation_rows
from gqd.store.rows.account import account_of, account_row, member_of, member_row, qos_of, qos_row
from gqd.store.rows.columns import COLUMNS as COLUMNS
from gqd.store.rows.columns import KEYS as KEYS
from gqd.store.rows.crontab import crontab_deletes, crontab_upserts, crontabs_of
from gqd.store.rows.elastic import elastic_columns, elastic_of

Rows = tuple[Row, ...]

NEXT_JOB_ID = "next_job_id"
HALF_LIFE_S = "half_life_s"
HALF_LIVES = "half_lives"
VOID_KEY_FILES = "void_key_files"

_NO_OCCURRENCE = OccurrenceKey("", 0)
_to_json = msgspec.json.encode


def _json(value: Any) -> str:
    return _to_json(value).decode()


def _decoder(kind: Any) -> Callable[[str], Any]:
    return msgspec.json.Decoder(kind).decode


_spec_of = lru_cache(maxsize=1024)(_decoder(JobSpec))
"""Equal specs, as of jobs submitted in a loop and of tasks of an array, share one frozen object."""
_shared = lru_cache(maxsize=4096)(str)
"""Equal names share one string object, since many jobs have the same."""
_avoid_of = _decoder(dict[str, float])
_grants_of = _decoder(tuple[Grant, ...])
_received_of = _decoder(set[str])
_part_ends_of = _decoder(dict[str, StepPartEnd])
_layout_of = _decoder(StepLayout)
_inventory_of = _decoder(Inventory)
_drained_gpus_of = _decoder(dict[int, str])
_estimate_of = _decoder(FirstEstimate)
_dependency_of = _decoder(Dependency)
_preemption_notice_of = _decoder(PreemptionNotice)
_preempted_of = _decoder(Preempted)
_resumed_of = _decoder(Resumed)
_asks_of = _decoder(tuple[Ask, ...])
_lengths_of = _decoder(tuple[float, ...])
_event_of = _decoder(Event)


# ── small values ──────────────────────────────────────────────────────────────────────────────────────────────────


def _exit_columns(status: ExitStatus | None) -> tuple[int | None, int | None]:
    return (None, None) if status is None else (status.code, status.signal)


def _exit_of(code: int | None, signal: int | None) -> ExitStatus | None:
    return None if code is None else ExitStatus(code, signal or 0)


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def job_row(job: Job, attempt: Attempt | None) -> Row:
    """The row of a job; `attempt`: its latest one, if in memory.  A pending job's row has no nodes and its request."""
    spec = job.spec
    grants = () if attempt is None or job.state is JobState.PENDING else attempt.grants
    return (
        job.job_id, spec.name, job.user, job.uid, job.gid, job.partition, job.state.value,
        None if job.outcome is None else job.outcome.value, job.reason, job.why, job.failure_class,
        None if job.hold is None else job.hold.value, job.attempt, job.restart_count, job.launch_failures,
        ",".join([grant.node for grant in grants]), *job_demand(job, grants), spec.nice, job.time_limit_s,
        1 if job.requeue else 0, job.submit_at, job.eligible_at, job.start_at, job.end_at, *_exit_columns(job.exit),
        _json(job.avoid) if job.avoid else "{}", _json(spec), job.account, job.qos, job.accrue_at, job.array_job_id,
        job.array_task_id, *_array_columns(job.array), None if job.dependency is None else _json(job.dependency),
        job.never, pack_tasks(job.ready), job.hook, job.expected_s,
        None if job.estimate is None else _json(job.estimate),
        None if job.preempted is None else _json(job.preempted), _json(job.asks) if job.asks else None,
        job.ran_s, None if job.resumed is None else _json(job.resumed),
    )  # fmt: skip


def _array_columns(array: ArrayTasks | None) -> Row:
    if array is None:
        return (None, None, None, None, None)
    sets = (array.waiting, array.cancelled, array.succeeded, array.failed)
    return (array.throttle, *[pack_tasks(set_) for set_ in sets])


def _array_of(throttle: int | None, *sets: str | None) -> ArrayTasks | None:
    if sets[0] is None:
        return None
    waiting, cancelled, succeeded, failed = [unpack_tasks(set_ or "") for set_ in sets]
    return ArrayTasks(waiting, throttle, cancelled, succeeded, failed)


def job_of(row: Row) -> Job:
    (
        job_id, _name, user, uid, gid, partition, state, outcome, reason, why, failure_class, hold, attempt,
        restart_count, launch_failures, _nodes, _node_count, _tasks, _cpus, _gpus, _memory_mib, _nice, time_limit_s,
        requeue, submit_at, eligible_at, start_at, end_at, exit_code, signal, avoid, spec, account, qos, accrue_at,
        array_job_id, array_task_id, throttle, waiting, cancelled, succeeded, failed, dependency, never, ready, hook,
        expected_s, estimate, preempted, asks, ran_s, resumed,
    ) = row  # fmt: skip
    return Job(
        job_id=job_id,
        spec=_spec_of(spec),
        user=_shared(user),
        uid=uid,
        gid=gid,
        partition=_shared(partition),
        time_limit_s=time_limit_s,
        requeue=bool(requeue),
        submit_at=submit_at,
        eligible_at=eligible_at,
        state=JobState(state),
        outcome=None if outcome is None else Outcome(outcome),
        hold=None if hold is None else Hold(hold),
        attempt=attempt,
        restart_count=restart_count,
        launch_failures=launch_failures,
        avoid=_avoid_of(avoid),
        start_at=start_at,
        end_at=end_at,
        exit=_exit_of(exit_code, signal),
        reason=_shared(reason),
        why=why,
        failure_class=failure_class,
        account=_shared(account),
        qos=_shared(qos),
        accrue_at=accrue_at,
        array=_array_of(throttle, waiting, cancelled, succeeded, failed),
        array_job_id=array_job_id,
        array_task_id=array_task_id,
        dependency=None if dependency is None else _dependency_of(dependency),
        never=never,
        ready=unpack_tasks(ready),
        hook=hook,
        expected_s=expected_s,
        estimate=None if estimate is None else _estimate_of(estimate),
        preempted=None if preempted is None else _preempted_of(preempted),
        asks=() if asks is None else _asks_of(asks),
        ran_s=ran_s,
        resumed=None if resumed is None else _resumed_of(resumed),
    )


# ── attempts and what they hold ───────────────────────────────────────────────────────────────────────────────────


def attempt_row(attempt: Attempt) -> Row:
    grants, usage = attempt.grants, attempt.usage
    return (
        attempt.attempt_id.job_id, attempt.attempt_id.attempt, ",".join([grant.node for grant in grants]),
        *held(grants), attempt.allocated_at, attempt.start_at, attempt.end_at,
        None if attempt.outcome is None else attempt.outcome.value, *_exit_columns(attempt.exit), attempt.reason,
        attempt.why, attempt.failure_class, None if attempt.then is None else attempt.then.value, attempt.grace_s,
        attempt.master_port, attempt.next_step, usage.user_cpu_s, usage.system_cpu_s, usage.max_rss_mib,
        _json(grants), attempt.billing, attempt.slot, None if attempt.estimate is None else _json(attempt.estimate),
        *(attempt.occurrence or _NO_OCCURRENCE), attempt.checkpoint_at,
        None if attempt.preemption is None else _json(attempt.preemption), attempt.lost_gpu_s,
        attempt.suspended_at, attempt.suspended_s,
        *elastic_columns(attempt),
        _json(attempt.borrows) if attempt.borrows else "[]", attempt.priority,
    )  # fmt: skip


def attempt_of(row: Row) -> Attempt:
    """The attempt of a row, without its parts and steps."""
    (
        job_id, attempt, _nodes, _node_count, _tasks, _cpus, _gpus, _memory_mib, allocated_at, start_at, end_at,
        outcome, exit_code, signal, reason, why, failure_class, then, grace_s, master_port, next_step, user_cpu_s,
        system_cpu_s, max_rss_mib, grants, billing, slot, estimate, reservation, occurrence,
        checkpoint_at, giving_way, lost_gpu_s, suspended_at, suspended_s,
        elastic, _changed_at, _gpu_s_before, _billed_s_before, borrows, priority,
    ) = row  # fmt: skip
    return Attempt(
        attempt_id=AttemptId(job_id, attempt),
        grants=_grants_of(grants),
        allocated_at=allocated_at,
        parts={},
        master_port=master_port,
        start_at=start_at,
        end_at=end_at,
        outcome=None if outcome is None else Outcome(outcome),
        exit=_exit_of(exit_code, signal),
        reason=reason,
        why=why,
        failure_class=failure_class,
        then=None if then is None else AfterEnding(then),
        grace_s=grace_s,
        usage=Usage(user_cpu_s, system_cpu_s, max_rss_mib),
        billing=billing,
        slot=slot,
        occurrence=OccurrenceKey(reservation, occurrence) if occurrence else None,
        estimate=None if estimate is None else _estimate_of(estimate),
        checkpoint_at=checkpoint_at,
        preemption=None if giving_way is None else _preemption_notice_of(giving_way),
        lost_gpu_s=lost_gpu_s,
        suspended_at=suspended_at,
        suspended_s=suspended_s,
        elastic=elastic_of(elastic),
        borrows=preemption.names_of(borrows),
        priority=priority,
        next_step=next_step,
    )


def allocation_row(attempt_id: AttemptId, part: Part) -> Row:
    """The row of a part that its node still has."""
    return (*_allocation(attempt_id, part), None, None, None, None)


def freed_allocation_row(attempt_id: AttemptId, grant: Grant, freed_at: float, usage: Usage) -> Row:
    """The row of a part that is gone, from its grant."""
    part = Part(grant=grant, phase=PartPhase.STOPPING)
    return (*_allocation(attempt_id, part), freed_at, usage.user_cpu_s, usage.system_cpu_s, usage.max_rss_mib)


def _allocation(attempt_id: AttemptId, part: Part) -> Row:
    grant = part.grant
    return (
        attempt_id.job_id, attempt_id.attempt, grant.node, grant.tasks, len(grant.cpus), len(grant.gpus),
        format_ids(grant.cpus), format_ids(grant.gpus), grant.memory_mib, part.phase.value,
        1 if part.is_stranded else 0,
    )  # fmt: skip


def part_of(row: Row) -> Part:
    (
        _job_id, _attempt, node, tasks, _cpus, _gpus, cpu_ids, gpu_ids, memory_mib, phase, is_stranded,
        _freed_at, _user_cpu_s, _system_cpu_s, _max_rss_mib,
    ) = row  # fmt: skip
    grant = Grant(node=node, tasks=tasks, cpus=parse_ids(cpu_ids), gpus=parse_ids(gpu_ids), memory_mib=memory_mib)
    return Part(grant=grant, phase=PartPhase(phase), is_stranded=bool(is_stranded))


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def step_row(step: Step) -> Row:
    """The row of a step; the secret key is left out for an ended step, which needs none."""
    parts, usage = step.layout.parts, step.usage
    return (
        step.step_id.job_id, step.step_id.attempt, step.step_id.step, step.layout.name,
        ",".join([part.node for part in parts]), step.layout.ntasks, sum([len(part.cpus) for part in parts]),
        sum([len(part.gpus) for part in parts]), step.start_at, step.end_at,
        None if step.outcome is None else step.outcome.value, *_exit_columns(step.exit),
        usage.user_cpu_s, usage.system_cpu_s, usage.max_rss_mib, _json(sorted(step.received)),
        _json(step.part_ends), _json(step.layout), step.key if step.end_at is None else b"",
    )  # fmt: skip


def step_of(row: Row) -> Step:
    (
        job_id, attempt, step, _name, _nodes, _tasks, _cpus, _gpus, start_at, end_at, outcome, exit_code, signal,
        user_cpu_s, system_cpu_s, max_rss_mib, received, part_ends, layout, key,
    ) = row  # fmt: skip
    return Step(
        step_id=StepId(job_id, attempt, step),
        key=key,
        layout=_layout_of(layout),
        start_at=start_at,
        received=_received_of(received),
        part_ends=_part_ends_of(part_ends),
        end_at=end_at,
        outcome=None if outcome is None else Outcome(outcome),
        exit=_exit_of(exit_code, signal),
        usage=Usage(user_cpu_s, system_cpu_s, max_rss_mib),
    )


# ── nodes, keys, requests, events, the audit trail ────────────────────────────────────────────────────────────────


def node_row(node: Node) -> Row:
    inventory = node.inventory
    return (
        node.name, node.address, 1 if node.is_lost else 0, 1 if node.is_down else 0, 1 if node.is_drained else 0,
        node.reason, node.reason_by, node.reason_at, inventory.cpus, inventory.memory_mib, len(inventory.gpus),
        _json(node.drained_gpus), node.backoff_until, node.backoff_failures, node.registered_at, node.incarnation,
        node.boot_id, node.step_endpoint, node.step_public_key, node.ticket_key, _json(inventory),
    )  # fmt: skip


def node_of(row: Row) -> Node:
    (
        name, address, is_lost, is_down, is_drained, reason, reason_by, reason_at, _cpus, _memory_mib, _gpus,
        drained_gpus, backoff_until, backoff_failures, registered_at, incarnation, boot_id, step_endpoint,
        step_public_key, ticket_key, inventory,
    ) = row  # fmt: skip
    return Node(
        name=name,
        address=address,
        inventory=_inventory_of(inventory),
        incarnation=incarnation,
        boot_id=boot_id,
        step_endpoint=step_endpoint,
        step_public_key=step_public_key,
        ticket_key=ticket_key,
        registered_at=registered_at,
        is_lost=bool(is_lost),
        is_down=bool(is_down),
        is_drained=bool(is_drained),
        reason=reason,
        reason_by=reason_by,
        reason_at=reason_at,
        drained_gpus=_drained_gpus_of(drained_gpus),
        backoff_until=backoff_until,
        backoff_failures=backoff_failures,
    )


def key_row(key: Key) -> Row:
    return (
        key.public, key.kind.value, key.name, key.uid, key.gid, 1 if key.is_login else 0, key.added_at, key.added_by,
        key.expires_at, key.joined, key.note,
    )  # fmt: skip


def key_of(row: Row) -> Key:
    public, kind, name, uid, gid, is_login, added_at, added_by, expires_at, joined, note = row
    return Key(
        public=public,
        kind=KeyKind(kind),
        name=name,
        added_at=added_at,
        added_by=added_by,
        uid=uid,
        gid=gid,
        is_login=bool(is_login),
        expires_at=expires_at,
        joined=joined,
        note=note,
    )


def _limit_columns(key: LimitKey) -> Row:
    return (key.holder.value, key.name, key.resource, 1 if key.per_user else 0)


def _limit_key_of(holder: str, name: str, resource: str, per_user: int) -> LimitKey:
    return LimitKey(Holder(holder), name, resource, bool(per_user))


def limit_row(limit: LimitInfo) -> Row:
    return (*_limit_columns(limit_key(limit)), limit.most, limit.at.value)


def limit_of(row: Row) -> LimitInfo:
    holder, name, resource, per_user, most, at = row
    return LimitInfo(
        holder=Holder(holder), name=name, resource=resource, per_user=bool(per_user), most=most, at=LimitAt(at)
    )


def budget_row(key: BudgetKey, budget: Budget) -> Row:
    return (*_limit_columns(key.limit), key.user, budget.began_at, budget.used, budget.at, budget.rate)


def budget_of(row: Row) -> tuple[BudgetKey, Budget]:
    *limit, user, began_at, used, used_at, rate = row
    return BudgetKey(_limit_key_of(*limit), user), Budget(began_at, used, used_at, rate)


def length_row(signature: Signature, learned: RuntimeSamples) -> Row:
    return (*signature, learned.at, _json(learned.lengths_s))


def length_of(row: Row) -> tuple[Signature, RuntimeSamples]:
    user, account, gpus, learned_at, lengths_s = row
    return Signature(user, account, gpus), RuntimeSamples(learned_at, _lengths_of(lengths_s))


def request_row(request_id: bytes, answer: Answer) -> Row:
    return (request_id, answer.at, answer.uid, answer.answer)


def answer_of(row: Row) -> Answer:
    _request_id, at, uid, answer = row
    return Answer(at, uid, answer)


def _subject_of(kind: type) -> Callable[[Any], int | None]:
    """The function that returns the job id of an event of this kind."""
    fields = kind.__struct_fields__  # type: ignore[attr-defined]
    if "job_id" in fields:
        return lambda event: event.job_id
    if "array_job_id" in fields:
        return lambda event: event.array_job_id
    if "attempt_id" in fields:
        return lambda event: event.attempt_id.job_id
    if "step_id" in fields:
        return lambda event: event.step_id.job_id
    return lambda event: None


_SUBJECTS = {kind: _subject_of(kind) for kind in get_args(Event)}


def event_row(event: Event) -> Row:
    kind = type(event)
    return (event.at, kind.__name__, _SUBJECTS[kind](event), getattr(event, "node", None), _json(event))


def event_of(row: Row) -> Event:
    event: Event = _event_of(row[-1])
    return event


def audit_row(fact: Audited) -> Row:
    return (fact.at, fact.user, fact.uid, fact.origin, fact.action, fact.object, fact.outcome, fact.detail)


def audit_entry_of(row: Row) -> AuditEntry:
    at, user, uid, origin, action, object, outcome, detail = row
    return AuditEntry(
        at=at, user=user, uid=uid, origin=origin, action=action, object=object, outcome=outcome, detail=detail
    )


# ── one turn as values ────────────────────────────────────────────────────────────────────────────────────────────


def materialise(cluster: Cluster, events: Iterable[Event]) -> Batch:
    """The rows changed since the last call and the `events`, as a `Batch`; the cluster's record of changes is cleared.

    `Audited` events become entries of the audit trail instead of events.
    """
    changes = cluster.changes
    cluster.changes = Changes()
    tables = {
        "jobs": _changed_jobs(cluster, changes),
        "attempts": tuple([attempt_row(_attempt(cluster, changes, attempt)) for attempt in changes.attempts]),
        "allocations": _changed_allocations(cluster, changes),
        "steps": tuple([step_row(step) for step in changes.steps.values()]),
        "members": tuple(
            [member_row(cluster.members[member]) for member in changes.members if member in cluster.members]
        ),
        "lengths": tuple(
            [length_row(length, cluster.lengths[length]) for length in changes.lengths if length in cluster.lengths]
        ),
        "requests": tuple([request_row(answer, cluster.answers[answer]) for answer in changes.answers]),
        "meta": tuple(_changed_meta(cluster, changes)),
    }
    if _has_rare(changes):
        tables |= _rare_upserts(cluster, changes)
    if changes.crontabs or changes.cron_entries:
        tables |= crontab_upserts(cluster, changes)
    if changes.claims:
        tables |= preemption.upserts(cluster, changes)
    if changes.parked:
        tables |= parked.upserts(cluster, changes)
    if changes.owed_orders:
        tables |= owed_order.upserts(cluster, changes)
    if reservation_rows.has_changed(changes):
        tables |= reservation_rows.upserts(cluster, changes)
    if notice.has_changed(changes):
        tables |= notice.upserts(cluster, changes)
    happened = tuple(events)
    return Batch(
        events=tuple([one for one in happened if type(one) is not Audited]),
        upserts={table: rows for table, rows in tables.items() if rows},
        deletes=_deletes(cluster, changes),
        audit=tuple([audit_row(one) for one in happened if type(one) is Audited]),
    )


def _has_rare(changes: Changes) -> bool:
    """Whether tables changed other than those of jobs, which change thousands of times a second."""
    return bool(changes.nodes or changes.keys or changes.accounts or changes.qos or changes.limits or changes.budgets)


def _rare_upserts(cluster: Cluster, changes: Changes) -> dict[str, Rows]:
    return {
        "nodes": tuple([node_row(cluster.nodes[name]) for name in changes.nodes if name in cluster.nodes]),
        "keys": tuple([key_row(cluster.keys[public]) for public in changes.keys if public in cluster.keys]),
        "accounts": tuple(
            [account_row(cluster.accounts[account]) for account in changes.accounts if account in cluster.accounts]
        ),
        "qos": tuple([qos_row(cluster.qos[one]) for one in changes.qos if one in cluster.qos]),
        "limits": tuple([limit_row(cluster.limits[limit]) for limit in changes.limits if limit in cluster.limits]),
        "budgets": tuple(
            [budget_row(budget, cluster.budgets[budget]) for budget in changes.budgets if budget in cluster.budgets]
        ),
    }


def _changed_meta(cluster: Cluster, changes: Changes) -> Iterator[Row]:
    if changes.next_job_id:
        yield NEXT_JOB_ID, cluster.next_job_id
    if changes.next_reservation_id:
        yield reservation_rows.NEXT_RESERVATION_ID, cluster.next_reservation_id
    if changes.next_notice_id:
        yield notice.NEXT_NOTICE_ID, cluster.outbox.next_id
    if changes.half_life:
        yield HALF_LIFE_S, cluster.half_life_s
        yield HALF_LIVES, _json(cluster.half_lives)
    if changes.void_key_files:
        yield VOID_KEY_FILES, _to_json(list(cluster.void_key_files)).decode()


def _attempt(cluster: Cluster, changes: Changes, attempt_id: AttemptId) -> Attempt:
    return cluster.attempts.get(attempt_id) or changes.departed_attempts[attempt_id]


def _changed_jobs(cluster: Cluster, changes: Changes) -> Rows:
    """Rows of the changed jobs; a requeued job may have no attempt in memory."""
    rows = []
    for job_id in changes.jobs:
        job = cluster.jobs.get(job_id) or changes.departed_jobs[job_id]
        attempt_id = job.attempt_id
        rows.append(job_row(job, cluster.attempts.get(attempt_id) or changes.departed_attempts.get(attempt_id)))
    return tuple(rows)


def _changed_allocations(cluster: Cluster, changes: Changes) -> Rows:
    rows = [
        allocation_row(attempt_id, cluster.attempts[attempt_id].parts[node])
        for attempt_id, node in changes.parts
        if (attempt_id, node) not in changes.freed_parts
    ]
    for (attempt_id, _), (freed_at, usage, grant) in changes.freed_parts.items():
        rows.append(freed_allocation_row(attempt_id, grant, freed_at, usage))
    return tuple(rows)


def _deletes(cluster: Cluster, changes: Changes) -> dict[str, Rows]:
    deletes: dict[str, Rows] = {
        "jobs": tuple([(job_id,) for job_id in changes.forgotten_jobs]),
        "attempts": tuple([(attempt.job_id, attempt.attempt) for attempt in changes.departed_attempts]),
        "members": tuple([member for member in changes.members if member not in cluster.members]),
        "lengths": tuple([tuple(length) for length in changes.lengths if length not in cluster.lengths]),
    }
    if changes.answers_forgotten_before is not None:
        deletes["requests"] = ((changes.answers_forgotten_before,),)
    if _has_rare(changes):
        deletes |= _rare_deletes(cluster, changes)
    if changes.crontabs or changes.cron_entries:
        deletes |= crontab_deletes(cluster, changes)
    if changes.claims:
        deletes |= preemption.deletes(cluster, changes)
    if changes.parked:
        deletes |= parked.deletes(cluster, changes)
    if changes.owed_orders:
        deletes |= owed_order.deletes(cluster, changes)
    if notice.has_changed(changes):
        deletes |= notice.deletes(cluster, changes)
    return {table: rows for table, rows in deletes.items() if rows}


def _rare_deletes(cluster: Cluster, changes: Changes) -> dict[str, Rows]:
    return {
        "nodes": tuple([(name,) for name in changes.nodes if name not in cluster.nodes]),
        "keys": tuple([(public,) for public in changes.keys if public not in cluster.keys]),
        "accounts": tuple([(name,) for name in changes.accounts if name not in cluster.accounts]),
        "qos": tuple([(name,) for name in changes.qos if name not in cluster.qos]),
        "limits": tuple([_limit_columns(limit) for limit in changes.limits if limit not in cluster.limits]),
        "budgets": tuple(
            [
                (*_limit_columns(budget.limit), budget.user)
                for budget in changes.budgets
                if budget not in cluster.budgets
            ]
        ),
    }


# ── the cluster from its rows ─────────────────────────────────────────────────────────────────────────────────────


def cluster_of(tables: Mapping[str, Iterable[Row]]) -> Cluster:
    """The cluster of these rows, with its indices.

    ``jobs`` and ``attempts``: those not forgotten.  ``allocations``: those not freed.  ``steps``: running ones; steps
    of forgotten attempts are skipped.  ``notices``: waiting ones.  ``reservations``: those not gone.
    ``occurrences``: those not past.  All rows of the other tables.
    """
    cluster = Cluster(
        jobs={JobId(row[0]): job_of(row) for row in tables["jobs"]},
        attempts={AttemptId(row[0], row[1]): attempt_of(row) for row in tables["attempts"]},
        nodes={row[0]: node_of(row) for row in tables["nodes"]},
        keys={row[0]: key_of(row) for row in tables["keys"]},
        accounts={row[0]: account_of(row) for row in tables["accounts"]},
        members={(row[0], row[1]): member_of(row) for row in tables["members"]},
        qos={row[0]: qos_of(row) for row in tables["qos"]},
        limits={limit_key(limit): limit for limit in map(limit_of, tables["limits"])},
        budgets=dict(map(budget_of, tables["budgets"])),
        crontabs=crontabs_of(tables["crontabs"], tables["cron_entries"]),
        lengths=dict(map(length_of, tables["lengths"])),
        answers={row[0]: answer_of(row) for row in tables["requests"]},
    )
    cluster.claims = {row[0]: preemption.claim_of(row) for row in tables["claims"]}
    cluster.parked = parked.parked_of(tables["parked"])
    cluster.owed_orders = owed_order.owed_orders_of(tables["owed_orders"])
    meta: dict[str, Any] = dict(tables["meta"])
    cluster.next_job_id = meta.get(NEXT_JOB_ID, 1)
    cluster.reservations = reservation_rows.reservations_of(tables["reservations"], tables["occurrences"])
    cluster.next_reservation_id = meta.get(reservation_rows.NEXT_RESERVATION_ID, 1)
    cluster.outbox = notice.outbox_of(tables, meta.get(notice.NEXT_NOTICE_ID, 1))
    cluster.half_life_s = meta.get(HALF_LIFE_S)
    cluster.half_lives = msgspec.json.decode(meta.get(HALF_LIVES, "[]"), type=HalfLives)
    cluster.void_key_files = dict.fromkeys(msgspec.json.decode(meta.get(VOID_KEY_FILES, "[]"), type=list[str]))
    _add_parts(cluster, tables["allocations"])
    for row in tables["steps"]:
        attempt = cluster.attempts.get(AttemptId(row[0], row[1]))
        if attempt is not None:
            attempt.steps[row[2]] = step_of(row)
    rebuild_indices(cluster)
    return cluster


def _add_parts(cluster: Cluster, rows: Iterable[Row]) -> None:
    """Add the parts to an attempt, in the order of its grants; a row does not hold all of its grant."""
    parts: dict[AttemptId, dict[str, Part]] = {}
    for row in rows:
        parts.setdefault(AttemptId(row[0], row[1]), {})[row[2]] = part_of(row)
    for attempt_id, by_node in parts.items():
        attempt = cluster.attempts[attempt_id]
        left = () if attempt.elastic is None else attempt.elastic.left
        granted = [grant for grant in (*attempt.grants, *(one.grant for one in left)) if grant.node in by_node]
        for grant in granted:
            part = by_node[grant.node]
            attempt.parts[grant.node] = replace(part, grant=as_written(grant, part.grant))
