"""The invariants of the durable state: `check` walks all of them, for tests and the simulator.  Pure.

1. A GPU or CPU of a node is in at most one part that the node still has (stranded parts included).
2. A job that is PENDING or ENDED has no part of its current attempt that is not stranded.
3. A job that is STARTING, RUNNING or COMPLETING has a current attempt.
4. The queue holds exactly the waiting jobs, with their present values; the other indices of jobs agree.
5. Free masks equal a recount from the parts.
6. Memory in use on a node equals the sum of its parts; so do generic resources and licences.
7. A node has at most one key, a user's key has a uid, and the indices of keys agree with the keys.
8. A job with dependencies is pending, the jobs that it depends on are known and have not ended, and the index of
   dependants agrees with both.
9. The indices of accounts, members and limits agree with them, and every active job belongs to a member.
10. Each task of an array is in exactly one set or job, and the array's record agrees with the task's job.
11. The usage of each member and each budget grows at the rate at which the running attempts are billed.
12. The index of deadlines holds the waiting jobs that have a deadline.
13. No two occurrences of reservations that are not past reserve the same GPU or CPU of a node at the same time.
14. The outbox holds the waiting notices, and counts them by user.
15. A claim belongs to a pending job; each victim is preempted for exactly the job whose claim names the victim.
16. An elastic attempt holds the GPUs that it began with and at most its maximum; what it gives up is a part of that.
17. A parked attempt is suspended on one node, and only the job that it is parked for holds what it lends.
18. The tallies of users, accounts and QOS equal a recount from the jobs.
19. An owed order concerns an attempt of which its node still has a part.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from gq.model.account import BUDGETS
from gq.model.ids import AttemptId, JobId
from gq.model.key import KeyKind
from gq.model.state import JobState, Outcome
from gq.model.tasks import parse_tasks, task_bit
from gqd.state.cluster import Cluster
from gqd.state.index.associations import Associations
from gqd.state.index.bookings import attempts_inside
from gqd.state.index.deadlines import last_start_at
from gqd.state.index.dependants import Dependants
from gqd.state.index.job_tally import recount
from gqd.state.index.queue import member_of
from gqd.state.index.tally import granted_amounts
from gqd.state.notice import WAITING, Outbox
from gqd.state.parked import is_back, is_waited_for, lent_on
from gqd.state.records import ArrayTasks, Attempt, Elastic, Job, Node
from gqd.state.reservation import Occurrence, OccurrenceKey


def check(cluster: Cluster) -> None:
    """Raise AssertionError with the number of the first invariant that does not hold."""
    _check_jobs(cluster)
    _check_arrays(cluster)
    for node in cluster.nodes.values():
        _check_node(cluster, node)
    _check_keys(cluster)
    _check_tallies(cluster)
    _check_dependants(cluster)
    _check_deadlines(cluster)
    _check_associations(cluster)
    _check_usage(cluster)
    _check_outbox(cluster.outbox)
    _check_reservations(cluster)
    _check_claims(cluster)
    _check_elastic(cluster)
    _check_parked(cluster)
    _check_owed_orders(cluster)
    for attempt in cluster.attempts.values():
        assert bool(attempt.parts) == (attempt.attempt_id in cluster.holding), f"5: the index misplaces {attempt}"
        unknown = attempt.parts.keys() - cluster.nodes.keys()
        assert not unknown, f"5: {attempt.attempt_id} has parts on unknown nodes: {unknown}"


# ── jobs and arrays ───────────────────────────────────────────────────────────────────────────────────────────────


def _check_jobs(cluster: Cluster) -> None:
    jobs = cluster.jobs.values()
    for job in jobs:
        attempt = cluster.attempt_of(job)
        if job.state in (JobState.PENDING, JobState.ENDED):
            assert attempt is None or not attempt.waits_for(), f"2: job {job.job_id} is {job.state} with live parts"
        else:
            assert attempt is not None, f"3: job {job.job_id} is {job.state} without an attempt"
    waiting = [job for job in jobs if job.is_waiting]
    for job in waiting:
        stored, expected = cluster.queue.stored_row(job.job_id), cluster.queue.expected_row(job)
        assert stored == expected, f"4: the queue has job {job.job_id} as {stored}, not as {expected}"
    assert len(cluster.queue) == len(waiting), "4: the queue has jobs that do not wait"
    timed = {job.job_id for job in waiting if job.spec.begin_at or job.avoid}
    assert timed <= cluster.timed.keys(), "4: a job that waits for an instant is not in the index"
    ended = {job.job_id for job in jobs if job.state is JobState.ENDED}
    assert ended == cluster.ended.keys(), "4: the index of ended jobs differs from the jobs"
    active: dict[str, int] = {}
    for job in jobs:
        if job.state is not JobState.ENDED and job.width:
            active[job.user] = active.get(job.user, 0) + job.width
    assert active == cluster.active_by_user, f"4: active jobs are {active}, the index says {cluster.active_by_user}"
    arrays = {job.job_id for job in jobs if job.array is not None and job.state is not JobState.ENDED}
    assert arrays == cluster.arrays.keys(), "4: the index of arrays differs from the jobs"


def _check_arrays(cluster: Cluster) -> None:
    for job in cluster.jobs.values():
        if job.array is not None:
            _check_array(cluster, job, job.array)


def _check_array(cluster: Cluster, record: Job, array: ArrayTasks) -> None:
    name, whole = f"10: array {record.job_id}", parse_tasks(record.spec.array)
    sets = (array.waiting, array.cancelled, array.succeeded, array.failed)
    recorded = _union(sets)
    assert sum(tasks.bit_count() for tasks in sets) == recorded.bit_count(), f"{name} has a task in two sets"
    assert not recorded & ~whole, f"{name} has tasks that it was not submitted with"
    own = {job.array_task_id or 0: job for job in cluster.jobs.values() if job.array_job_id == record.job_id}
    assert {task: job.job_id for task, job in own.items()} == array.jobs, f"{name} does not list its jobs"
    for task, job in own.items():
        bit = task_bit(task)
        assert not bit & (array.waiting | array.cancelled), f"{name}: task {task} has a job and is in the record"
        sets_say = (bool(array.succeeded & bit), bool(array.failed & bit))
        job_says = (job.outcome is Outcome.COMPLETED, job.outcome not in (None, Outcome.COMPLETED))
        assert sets_say == job_says, f"{name}: task {task} is {job.outcome}, the sets say {sets_say}"
    open_tasks = whole & ~recorded
    assert open_tasks == _union(task_bit(task) for task, job in own.items() if job.outcome is None), (
        f"{name} lost a task"
    )
    assert array.active == sum(job.holds_resources for job in own.values()), f"{name} miscounts its active tasks"
    is_over = not array.waiting and not open_tasks
    assert is_over == (record.state is JobState.ENDED), f"{name} is {record.state}, over: {is_over}"


def _union(sets: Iterable[int]) -> int:
    whole = 0
    for tasks in sets:
        whole |= tasks
    return whole


def _check_dependants(cluster: Cluster) -> None:
    expected = Dependants.of(cluster.jobs.values())
    assert cluster.dependants == expected, "8: the index of dependants differs from the jobs"
    for parent in cluster.dependants.by_parent:
        job = cluster.jobs.get(parent)
        assert job is not None, f"8: jobs depend on job {parent}, which is unknown"
        assert job.state is not JobState.ENDED, f"8: jobs depend on job {parent}, which has ended"
    for job in cluster.jobs.values():
        if job.dependency is not None and job.state is not JobState.ENDED:
            assert job.state is JobState.PENDING, f"8: job {job.job_id} is {job.state} and depends on others"


def _check_deadlines(cluster: Cluster) -> None:
    waiting = [job for job in cluster.jobs.values() if job.is_waiting]
    due = {job.job_id: at for job in waiting if (at := last_start_at(job)) is not None}
    assert due == cluster.deadlines, f"12: deadlines are {due}, the index says {cluster.deadlines}"


# ── nodes and keys ────────────────────────────────────────────────────────────────────────────────────────────────


def _check_node(cluster: Cluster, node: Node) -> None:
    grants = {
        attempt_id: attempt.parts[node.name].grant
        for attempt_id, attempt in cluster.attempts.items()
        if node.name in attempt.parts
    }
    assert grants == node.held, f"5: what {node.name} holds differs from the parts"
    for kind in ("cpus", "gpus"):
        taken = [index for grant in grants.values() for index in getattr(grant, kind)]
        assert len(taken) == len(set(taken)), f"1: {kind} of {node.name} are granted twice: {grants}"
    masks = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
    counts = (node.used_resources, node.used_licenses)
    node.recount()
    recounted_masks = (node.free_cpu_mask, node.free_gpu_mask, node.used_memory_mib)
    recounted = (node.used_resources, node.used_licenses)
    assert counts == recounted, f"6: amounts in use on {node.name} were {counts}, a recount says {recounted}"
    assert masks == recounted_masks, f"5: free masks of {node.name} were {masks}, a recount says {recounted_masks}"
    assert node.used_memory_mib == sum(grant.memory_mib for grant in grants.values()), f"6: memory of {node.name}"


def _check_keys(cluster: Cluster) -> None:
    keys = cluster.keys.values()
    nodes = [key.name for key in keys if key.kind is KeyKind.NODE]
    assert len(nodes) == len(set(nodes)), f"7: a node has two keys: {nodes}"
    login = {key.name: key.public for key in keys if key.kind is KeyKind.NODE and key.is_login}
    assert login == cluster.login_nodes, f"7: login nodes are {login}, the index says {cluster.login_nodes}"
    join_keys = {key.public for key in keys if key.kind is KeyKind.JOIN}
    assert join_keys == cluster.join_keys.keys(), "7: the index of join keys differs from the keys"
    for key in keys:
        assert key.kind is not KeyKind.USER or key.uid is not None, f"7: the key of user {key.name} has no uid"


# ── accounts, usage and notices ───────────────────────────────────────────────────────────────────────────────────


def _check_associations(cluster: Cluster) -> None:
    expected = Associations.of(cluster.accounts.values(), cluster.members, cluster.limits)
    assert cluster.associations == expected, "9: the indices of accounts, members and limits differ from them"
    for job in cluster.jobs.values():
        if job.account and job.end_at is None:
            assert (job.user, job.account) in cluster.members, f"9: {job.user} is not in account {job.account}"
    for key in cluster.limits:
        assert key.resource not in BUDGETS or (key, "") in cluster.budgets, f"11: {key} has no budget"
    for budget_key, budget in cluster.budgets.items():
        limit = budget_key.limit
        assert limit in cluster.limits, f"11: {budget_key} is the budget of no limit"
        rate = cluster.tallies.of((limit.holder, limit.name, budget_key.user)).rate
        assert budget.rate == rate, f"11: {budget_key} grows by {budget.rate}, running attempts are billed {rate}"


def _check_tallies(cluster: Cluster) -> None:
    tallies = cluster.tallies
    expected = recount(cluster, tallies.held_by)
    assert tallies.by_key == expected.by_key, f"18: tallies are {tallies.by_key}, not {expected.by_key}"
    assert tallies.users == expected.users, "18: the index of users with jobs differs from the tallies"
    assert tallies.held_by.keys() == expected.held_by.keys(), "18: held resources are counted for the wrong jobs"
    for job_id, held in tallies.held_by.items():
        attempt = cluster.attempts[cluster.jobs[job_id].attempt_id]
        plain = granted_amounts(attempt.grants, {})
        assert plain == {name: held[name] for name in plain}, f"18: job {job_id} holds {plain}, counted are {held}"


def _check_usage(cluster: Cluster) -> None:
    rates: dict[tuple[str, str], int] = {}
    for job in cluster.jobs.values():
        attempt = cluster.attempt_of(job)
        if attempt is not None and attempt.start_at is not None and attempt.end_at is None:
            member = member_of(job)
            rates[member] = rates.get(member, 0) + attempt.billing
    billed = {key: member.usage.rate for key, member in cluster.members.items() if member.usage.rate}
    expected = {key: rate for key, rate in rates.items() if rate}
    assert billed == expected, f"11: members are billed {billed}, running attempts come to {expected}"


def _check_outbox(outbox: Outbox) -> None:
    waiting: dict[str, int] = {}
    for notice in outbox.notices.values():
        waiting[notice.user] = waiting.get(notice.user, 0) + 1
        assert notice.state == WAITING, f"14: notice {notice.notice_id} is {notice.state} and in the outbox"
    commands = {notice.by_job: notice.notice_id for notice in outbox.notices.values() if notice.by_job}
    assert commands == outbox.commands, f"14: commands run as {commands}, the index says {outbox.commands}"
    assert waiting == outbox.waiting, f"14: waiting notices are {waiting}, the index says {outbox.waiting}"
    assert all(number < outbox.next_id for number in outbox.notices), "14: a notice is newer than the newest"


# ── reservations ──────────────────────────────────────────────────────────────────────────────────────────────────


def _check_reservations(cluster: Cluster) -> None:
    inside = attempts_inside(cluster)
    pairs = [
        (reservation, occurrence)
        for reservation in cluster.reservations.values()
        for occurrence in reservation.occurrences.values()
    ]
    for reservation, occurrence in pairs:
        name = f"13: occurrence {occurrence.number} of reservation {reservation.name}"
        assert not occurrence.state.is_past, f"{name} is {occurrence.state}, and is still kept"
        assert occurrence.number < reservation.next_number, f"{name} is beyond the next, {reservation.next_number}"
        assert occurrence.begin_at < occurrence.end_at, f"{name} has no length"
        expected = inside.get(OccurrenceKey(reservation.name, occurrence.number), ())
        assert set(occurrence.inside) == set(expected), f"{name} miscounts the attempts inside"
    for name, reservation in cluster.reservations.items():
        assert name == reservation.name, f"13: reservation {name} is called {reservation.name}"
        is_known = reservation.reservation_id < cluster.next_reservation_id
        assert is_known, f"13: the number of {name} has not been assigned yet"
        assert bool(reservation.occurrences) == (reservation.over_at is None), f"13: {name} is over, or is not"
    for (first, one), (second, other) in combinations(pairs, 2):
        if one.begin_at < other.end_at and other.begin_at < one.end_at:
            both = _reserved(one) & _reserved(other)
            assert not both, f"13: {first.name} {one.number} and {second.name} {other.number} reserve {sorted(both)}"


def _reserved(occurrence: Occurrence) -> set[tuple[str, str, int]]:
    cpus = {(grant.node, "CPU", cpu) for grant in occurrence.grants for cpu in grant.cpus}
    return cpus | {(grant.node, "GPU", gpu) for grant in occurrence.grants for gpu in grant.gpus}


# ── preemption, elastic and parked attempts ───────────────────────────────────────────────────────────────────────


def _check_claims(cluster: Cluster) -> None:
    preemptors: dict[AttemptId, JobId] = {}
    for job_id, claim in cluster.claims.items():
        job = cluster.jobs.get(job_id)
        assert job is not None and job.state is JobState.PENDING, f"15: job {job_id} has a claim and is not pending"
        for attempt_id in claim.victims:
            other = preemptors.setdefault(attempt_id, job_id)
            assert other == job_id, f"15: {attempt_id} is preempted for {job_id} and {other}"
    for attempt_id, attempt in cluster.attempts.items():
        claimed = preemptors.get(attempt_id) if attempt.end_at is None else None
        notice = attempt.preemption if attempt.end_at is None else None
        preemptor = None if notice is None else notice.preemptor
        assert preemptor == claimed, f"15: {attempt_id} is preempted for {preemptor}, the claims say {claimed}"


def _check_elastic(cluster: Cluster) -> None:
    for attempt_id, attempt in cluster.attempts.items():
        elastic = attempt.elastic
        if elastic is None:
            continue
        if elastic.is_of_nodes:
            _check_elastic_nodes(attempt, elastic)
            continue
        name, held = f"16: elastic {attempt_id}", set(attempt.grants[0].gpus)
        assert len(attempt.grants) == 1, f"{name} is on several nodes"
        assert held.issuperset(elastic.least), f"{name} began with {elastic.least} and holds {sorted(held)}"
        assert len(held) <= elastic.most, f"{name} holds {sorted(held)}, its maximum is {elastic.most}"
        cpus = set(attempt.grants[0].cpus)
        assert cpus.issuperset(elastic.least_cpus), f"{name} began with CPUs {elastic.least_cpus}, holds {sorted(cpus)}"
        assert (elastic.keeps is None) == (elastic.ends_at is None), f"{name} shrinks without an instant, or reverse"
        if elastic.keeps is not None:
            assert set(elastic.least) <= set(elastic.keeps) < held, f"{name} keeps {elastic.keeps} of {sorted(held)}"
            keeps_cpus = cpus if elastic.keeps_cpus is None else set(elastic.keeps_cpus)
            assert set(elastic.least_cpus) <= keeps_cpus <= cpus, f"{name} keeps CPUs {elastic.keeps_cpus} of {cpus}"
    expected = {attempt_id for attempt_id, attempt in cluster.holding.items() if attempt.elastic is not None}
    assert expected == cluster.elastic.keys(), "16: the index of elastic attempts differs from them"


def _check_elastic_nodes(attempt: Attempt, elastic: Elastic) -> None:
    name, held = f"16: elastic {attempt.attempt_id}", [grant.node for grant in attempt.grants]
    joined, left = [node for node, _ in elastic.joined], [share.grant.node for share in elastic.left]
    is_within = len(held) == len(set(held)) and len(held) <= elastic.most
    assert is_within, f"{name} holds {held}, its maximum is {elastic.most}"
    is_after = held[len(held) - len(joined) :] == joined and len(joined) < len(held)
    assert is_after, f"{name}: {joined} joined {held}"
    assert set(elastic.going) <= set(joined), f"{name} gives up {elastic.going} of {joined}"
    assert bool(elastic.going) == (elastic.ends_at is not None), f"{name} shrinks without an instant, or reverse"
    assert not set(left) & set(held), f"{name} has left {left}, and holds {held}"
    assert set(left) <= attempt.parts.keys() <= {*held, *left}, f"{name} has parts on {list(attempt.parts)}"
    assert elastic.keeps is None and not elastic.least, f"{name} is elastic in nodes and in GPUs"


def _check_parked(cluster: Cluster) -> None:
    for attempt_id, parked in cluster.parked.items():
        attempt, name = cluster.attempts[attempt_id], f"17: parked {attempt_id}"
        job = cluster.jobs[attempt_id.job_id]
        assert job.attempt_id == attempt_id and attempt.end_at is None, f"{name} is over"
        assert len(attempt.grants) == 1 and attempt.suspended_at is not None, f"{name} is not suspended on one node"
        if parked.lent is None:
            assert is_waited_for(cluster, attempt_id), f"{name} is parked for no job"
            continue
        lent, node = parked.lent, cluster.nodes[parked.lent.node]
        users = [user for user, grant in node.held.items() if set(grant.gpus) & set(lent.gpus)]
        assert all(user.job_id == parked.to for user in users), f"{name} lends to {parked.to}, and {users} hold it"
        is_due_back = not is_waited_for(cluster, attempt_id) and is_back(cluster, lent)
        assert users or not is_due_back, f"{name} is parked for no job"
        for other, theirs in lent_on(cluster, lent.node):
            is_both = other != attempt_id and (set(theirs.gpus) & set(lent.gpus) or set(theirs.cpus) & set(lent.cpus))
            assert not is_both, f"{name} and {other} lend the same"


def _check_owed_orders(cluster: Cluster) -> None:
    for key in cluster.owed_orders:
        attempt = cluster.attempts.get(key.attempt_id)
        has_part = attempt is not None and key.node in attempt.parts
        assert has_part, f"19: {key} is owed to a node that has no part of the attempt"
