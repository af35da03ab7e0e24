"""What every store does, durable or not."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus, JobInfo, JobSpec, Usage
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout, StepPart
from gq.model.tasks import parse_tasks
from gq.wire.client import JobFilter, QueryAudit
from gqd.state import invariants
from gqd.state.cluster import Cluster
from gqd.state.events.event import Audited, RequestsForgotten
from gqd.state.phases import Hold, PartPhase
from gqd.state.records import ArrayTasks, Attempt, Job, Part, Step
from gqd.store.protocol import HistoryQuery, Store
from gqd.store.rows.rows import materialise
from tests.store.lives import Lives


def commit(store: Store, cluster: Cluster) -> None:
    asyncio.run(store.commit(materialise(cluster, ())))


# ── load ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_store_holds_an_empty_cluster(store: Store) -> None:
    assert store.load() == Cluster()


def test_what_is_loaded_after_any_commit_is_the_cluster(store: Store, seed: int) -> None:
    lives = Lives(Random(seed))

    async def live() -> None:
        for _ in range(200):
            events = lives.turn()
            await store.commit(materialise(lives.cluster, events))
            loaded = store.load()
            assert loaded == lives.cluster
            assert (set(loaded.queue), loaded.active_by_user) == (
                set(lives.cluster.queue),
                lives.cluster.active_by_user,
            )
            assert list(loaded.jobs) == list(lives.cluster.jobs)
            assert loaded.keys == lives.cluster.keys
            assert (loaded.login_nodes, loaded.join_keys) == (lives.cluster.login_nodes, lives.cluster.join_keys)
            assert list(loaded.attempts) == list(lives.cluster.attempts)
            invariants.check(loaded)

    asyncio.run(live())
    shown = list(store.history(HistoryQuery(filter=JobFilter(), limit=10_000)))
    assert sum(not job.array_tasks for job in shown) == lives.own_jobs


def test_turns_that_share_a_batch_are_written_alike(store: Store, seed: int) -> None:
    lives = Lives(Random(seed))

    async def live() -> None:
        for _ in range(100):
            events = [event for _ in range(8) for event in lives.turn()]
            await store.commit(materialise(lives.cluster, events))

    asyncio.run(live())
    assert store.load() == lives.cluster


# ── history ───────────────────────────────────────────────────────────────────────────────────────────────────


def spec(name: str = "train", **fields: object) -> JobSpec:
    return msgspec.structs.replace(JobSpec(name=name, submit_dir="/home/ann", chdir="/home/ann/run"), **fields)


def add(cluster: Cluster, job_id: int, *, user: str = "ann", partition: str = "main", submit_at: float = 0.0) -> Job:
    """A pending job."""
    job = Job(
        job_id=job_id, spec=spec(f"job-{job_id}"), user=user, uid=1000, gid=100, partition=partition,
        time_limit_s=3600, requeue=True, submit_at=submit_at, eligible_at=submit_at,
    )  # fmt: skip
    cluster.jobs[job.job_id] = job
    cluster.changes.jobs[job.job_id] = None
    return job


def run(cluster: Cluster, job: Job, *nodes: str, start_at: float) -> Attempt:
    """The job's next attempt, running."""
    job.attempt += 1
    job.state, job.start_at = JobState.RUNNING, start_at
    grants = tuple(Grant(node=node, cpus=(0, 1), gpus=(2,), memory_mib=10) for node in nodes)
    attempt = Attempt(
        attempt_id=job.attempt_id, grants=grants, allocated_at=start_at, start_at=start_at,
        parts={grant.node: Part(grant, PartPhase.LIVE) for grant in grants},
    )  # fmt: skip
    cluster.attempts[job.attempt_id] = attempt
    cluster.changes.attempts[job.attempt_id] = None
    cluster.changes.jobs[job.job_id] = None
    cluster.changes.parts.update({(job.attempt_id, node): None for node in nodes})
    return attempt


def end(cluster: Cluster, job: Job, outcome: Outcome, end_at: float, code: int = 0) -> None:
    job.state, job.outcome, job.end_at, job.exit = JobState.ENDED, outcome, end_at, ExitStatus(code)
    cluster.changes.jobs[job.job_id] = None


def found(store: Store, query: HistoryQuery | None = None, **wanted: object) -> list[int]:
    """Ids of the jobs that a filter (or a whole query) finds."""
    query = query or HistoryQuery(filter=msgspec.structs.replace(JobFilter(), **wanted))
    return [info.job_id for info in store.history(query)]


@pytest.fixture
def past(store: Store) -> Store:
    """1 ended on n1, 2 failed on n2 after a first attempt on n1, 3 runs on n1 and n2, 4 waits, 5 was cancelled."""
    cluster = Cluster()
    one, two, three = add(cluster, 1, submit_at=10), add(cluster, 2, user="bob", submit_at=20), add(cluster, 3)
    run(cluster, one, "n1", start_at=100)
    end(cluster, one, Outcome.COMPLETED, 200)
    run(cluster, two, "n1", start_at=100)
    run(cluster, two, "n2", start_at=300)
    end(cluster, two, Outcome.FAILED, 400, code=3)
    run(cluster, three, "n1", "n2", start_at=500)
    add(cluster, 4, partition="gpu", submit_at=600)
    end(cluster, add(cluster, 5, user="bob", submit_at=250), Outcome.CANCELLED, 260)
    commit(store, cluster)
    return store


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"job_ids": (2, 4, 99)}, [2, 4]),
        ({"users": ("bob",)}, [2, 5]),
        ({"users": ("ann", "bob")}, [1, 2, 3, 4, 5]),
        ({"users": ("bob' OR 1=1 --",)}, []),
        ({"names": ("job-3", "job-4")}, [3, 4]),
        ({"partitions": ("gpu",)}, [4]),
        ({"states": ("RUNNING", "PENDING")}, [3, 4]),
        ({"states": ("FAILED",)}, [2]),
        ({"states": ("CANCELLED", "RUNNING")}, [3, 5]),
        ({"states": ("CONFIGURING",)}, []),
        ({"nodes": ("n1",)}, [1, 2, 3]),
        ({"nodes": ("n2", "n9")}, [2, 3]),
        ({"accounts": ("physics",)}, []),
        ({"accounts": ("",)}, [1, 2, 3, 4, 5]),
        ({"users": ("bob",), "states": ("FAILED", "RUNNING"), "nodes": ("n1",)}, [2]),
    ],
)
def test_history_finds_the_jobs_for_which_all_of_the_filter_holds(
    past: Store, wanted: dict[str, object], ids: list[int]
) -> None:
    assert found(past, **wanted) == ids


@pytest.mark.parametrize(
    ("ended_after", "started_before", "ids"),
    [
        (200, None, [1, 2, 3, 4, 5]),
        (201, None, [2, 3, 4, 5]),
        (401, None, [3, 4]),
        (None, 100, []),
        (None, 101, [1]),
        (None, 251, [1, 5]),
        (None, 501, [1, 2, 3, 5]),
        (201, 501, [2, 3, 5]),
    ],
)
def test_history_finds_jobs_by_time_and_those_that_never_started_by_their_submission(
    past: Store, ended_after: float | None, started_before: float | None, ids: list[int]
) -> None:
    query = HistoryQuery(filter=JobFilter(), ended_after=ended_after, started_before=started_before)

    assert found(past, query) == ids


def test_history_comes_in_pages(past: Store) -> None:
    pages = [found(past, HistoryQuery(filter=JobFilter(), after=after, limit=2)) for after in (0, 2, 4, 5)]

    assert pages == [[1, 2], [3, 4], [5], []]


def test_history_takes_more_ids_than_sql_takes_parameters(past: Store) -> None:
    assert found(past, job_ids=tuple(range(3, 300_000))) == [3, 4, 5]


def shown(store: Store, job_id: int, with_steps: bool = True) -> JobInfo:
    (info,) = store.history(HistoryQuery(filter=JobFilter(job_ids=(job_id,)), with_steps=with_steps))
    return info


def test_history_shows_what_a_job_held_and_how_it_ended(past: Store) -> None:
    info = shown(past, 2)

    assert (info.state, info.exit_code, info.signal, info.attempt) == ("FAILED", 3, 0, 2)
    assert (info.nodes, info.cpus, info.gpus, info.memory_mib) == (("n2",), 2, 1, 10)
    assert (info.submit_at, info.start_at, info.end_at) == (20, 300, 400)


def test_history_shows_what_a_waiting_job_wants_and_who_holds_it(store: Store) -> None:
    cluster = Cluster()
    job = add(cluster, 7)
    job.spec = spec(resources=ResourceRequest(nodes_min=2, gpus_per_node=4, cpus_per_gpu=3, mem_per_node_mib=100))
    job.hold = Hold.USER
    commit(store, cluster)

    info = shown(store, 7)

    assert (info.state, info.reason, info.is_held) == ("PENDING", "JobHeldUser", True)
    assert (info.nodes_wanted, info.tasks, info.cpus, info.gpus, info.memory_mib) == (2, 2, 24, 8, 200)
    assert (info.grants, info.exit_code, info.start_at) == ((), None, None)


def test_history_expands_the_names_of_files_as_far_as_they_are_known(store: Store) -> None:
    cluster = Cluster()
    plain, named = add(cluster, 7), add(cluster, 8)
    plain.spec = spec(submit_dir="/data/100%j", input="in.txt")
    named.spec = spec(name="x", output="log/%x-%4j-%N.%t", error="/abs/%u%%j.err")
    commit(store, cluster)
    assert shown(store, 8).output_path == "/home/ann/run/log/x-0008-%N.0"

    run(cluster, named, "n1.example", start_at=5)
    commit(store, cluster)

    assert shown(store, 7).output_path == shown(store, 7).error_path == "/data/100%j/gq-7.out"
    assert shown(store, 7).input_path == "/home/ann/run/in.txt"
    assert shown(store, 8).output_path == "/home/ann/run/log/x-0008-n1.0"
    assert shown(store, 8).error_path == "/abs/ann%j.err"


def test_history_shows_the_steps_of_the_latest_attempt_if_asked(store: Store) -> None:
    cluster = Cluster()
    job = add(cluster, 1)
    for number in (1, 2):
        attempt = run(cluster, job, "n1", start_at=100 * number)
        ended = step(AttemptId(job.job_id, number), 0)
        ended.end_at, ended.outcome, ended.exit, ended.usage = 150, Outcome.FAILED, ExitStatus(0, 9), Usage(1, 2, 3)
        attempt.steps[1] = step(AttemptId(job.job_id, number), 1)
        cluster.changes.steps |= {ended.step_id: ended, attempt.steps[1].step_id: attempt.steps[1]}
    commit(store, cluster)

    first, second = shown(store, 1).steps

    assert (first.attempt, first.step, first.state, first.signal) == (2, 0, "FAILED", 9)
    assert (first.end_at, first.usage, first.nodes, first.cpus, first.gpus) == (150, Usage(1, 2, 3), ("n1",), 2, 1)
    assert (second.step, second.state, second.end_at, second.exit_code) == (1, "RUNNING", None, None)
    assert shown(store, 1, with_steps=False).steps == ()


def step(attempt_id: AttemptId, number: int) -> Step:
    layout = StepLayout(name="hostname", parts=(StepPart(node="n1", first_rank=0, tasks=1, cpus=(0, 1), gpus=(2,)),))
    return Step(StepId(attempt_id.job_id, attempt_id.attempt, number), b"key", layout, start_at=100)


# ── arrays ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def arrays(store: Store) -> Store:
    """1: tasks 1-9, of which 1-3 left (jobs 2-4; 1 and 3 ended), 8-9 were cancelled; 5: a job; 6: an array of which
    all has left (job 7)."""
    cluster = Cluster()
    for job_id, tasks, waiting, cancelled in ((1, "1-9", "4-7", "8-9"), (6, "7", "", "")):
        record = add(cluster, job_id)
        record.spec = spec("sweep", array=tasks)
        sets = [parse_tasks(one) if one else 0 for one in (waiting, cancelled)]
        record.array = ArrayTasks(sets[0], 2, sets[1])
    for job_id, array, task in ((2, 1, 1), (3, 1, 2), (4, 1, 3), (7, 6, 7)):
        job = add(cluster, job_id)
        job.array_job_id, job.array_task_id = JobId(array), task
    end(cluster, cluster.jobs[JobId(2)], Outcome.COMPLETED, 100)
    end(cluster, cluster.jobs[JobId(4)], Outcome.FAILED, 100, code=2)
    add(cluster, 5)
    commit(store, cluster)
    return store


def told(store: Store, query: HistoryQuery) -> list[tuple[int, str]]:
    return [(info.job_id, info.array_tasks or str(info.array_task_id)) for info in store.history(query)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (JobFilter(job_ids=(1,)), [(1, "4-7"), (1, "8-9"), (2, "1"), (3, "2"), (4, "3")]),
        (JobFilter(tasks={1: "2"}), [(3, "2")]),
        (JobFilter(tasks={1: "1,3,5,9"}), [(1, "5"), (1, "9"), (2, "1"), (4, "3")]),
        (JobFilter(tasks={1: "20-30"}), []),
        (JobFilter(tasks={5: "1"}), []),
        (JobFilter(tasks={6: "1-100"}), [(7, "7")]),
        (JobFilter(job_ids=(5,), tasks={1: "1"}), [(2, "1"), (5, "None")]),
        (JobFilter(job_ids=(1,), states=("PENDING",)), [(1, "4-7"), (3, "2")]),
        (JobFilter(job_ids=(1,), states=("CANCELLED",)), [(1, "8-9")]),
        (JobFilter(states=("FAILED",)), [(4, "3")]),
        (JobFilter(names=("sweep",)), [(1, "4-7"), (1, "8-9")]),
    ],
)
def test_history_knows_tasks_by_their_array_and_number(
    arrays: Store, wanted: JobFilter, expected: list[tuple[int, str]]
) -> None:
    assert told(arrays, HistoryQuery(filter=wanted)) == expected


def test_a_page_never_ends_between_the_parts_of_an_array(arrays: Store) -> None:
    pages, after = [], 0
    while page := told(arrays, HistoryQuery(filter=JobFilter(), after=after, limit=1)):
        pages.append(page)
        after = page[-1][0]
    assert pages == [[(1, "4-7"), (1, "8-9")], [(2, "1")], [(3, "2")], [(4, "3")], [(5, "None")], [(7, "7")]]


def test_a_page_is_full_though_arrays_have_nothing_to_show(arrays: Store) -> None:
    assert told(arrays, HistoryQuery(filter=JobFilter(), after=5, limit=1)) == [(7, "7")]


# ── order and failure ─────────────────────────────────────────────────────────────────────────────────────────


def test_commits_that_wait_together_are_written_in_the_order_of_the_calls(store: Store) -> None:
    cluster = Cluster()

    async def commit_all() -> list[int]:
        finished: list[int] = []

        async def one(number: int) -> None:
            cluster.next_job_id = number
            cluster.changes.next_job_id = True
            await store.commit(materialise(cluster, ()))
            finished.append(number)

        await asyncio.gather(*(one(number) for number in range(2, 700)))
        return finished

    assert asyncio.run(commit_all()) == list(range(2, 700))
    assert store.load().next_job_id == 699


# ── the audit trail ───────────────────────────────────────────────────────────────────────────────────────────


def noted(at: float, user: str = "ann", action: str = "CancelJobs", outcome: str = "done") -> Audited:
    return Audited(
        at=at, user=user, uid=1000, origin="local", action=action, object="job 1", outcome=outcome, detail="x"
    )


@pytest.fixture
def audited(store: Store) -> Store:
    lines = (
        noted(1.0),
        noted(2.0, user="bob", outcome="not_owner"),
        noted(3.0, action="Submit"),
        noted(4.0, user="bob", action="Submit", outcome="bad_name"),
    )
    for line in lines:
        asyncio.run(store.commit(materialise(Cluster(), (line,))))
    return store


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QueryAudit(), [1, 2, 3, 4]),
        (QueryAudit(user="bob"), [2, 4]),
        (QueryAudit(action="Submit"), [3, 4]),
        (QueryAudit(outcome="refused"), [2, 4]),
        (QueryAudit(outcome="done"), [1, 3]),
        (QueryAudit(outcome="bad_name"), [4]),
        (QueryAudit(since=2.0, until=4.0), [2, 3]),
        (QueryAudit(user="bob'; DROP TABLE audit --"), []),
        (QueryAudit(after=3), [4]),
        (QueryAudit(after=4), []),
    ],
)
def test_the_audit_trail_answers_what_is_asked(audited: Store, query: QueryAudit, expected: list[int]) -> None:
    page = audited.audit(query)

    assert [entry.at for entry in page.entries] == expected
    assert (page.last, page.more) == (expected[-1] if expected else query.after, False)


def test_the_audit_trail_comes_in_pages(audited: Store) -> None:
    assert audited.audit(QueryAudit(limit=3))[1:] == (3, True)
    assert audited.audit(QueryAudit(limit=3, after=3))[1:] == (4, False)
    assert audited.audit(QueryAudit(limit=1, user="bob"))[1:] == (2, True)


def test_what_is_audited_is_in_the_trail_and_not_in_the_change_log_besides() -> None:
    cluster = Cluster()
    add(cluster, 1)
    batch = materialise(cluster, (noted(1.0), RequestsForgotten(at=1.0, before=0.0)))

    assert [type(one) for one in batch.events] == [RequestsForgotten]
    assert batch.audit == ((1.0, "ann", 1000, "local", "CancelJobs", "job 1", "done", "x"),)


# ── what dependencies ask of jobs of long ago ─────────────────────────────────────────────────────────────────


def test_jobs_that_have_ended_are_known_for_good_and_others_are_none_of_the_past(past: Store) -> None:
    known = past.past([1, 2, 3, 4, 5, 99])
    assert known.keys() == {1, 2, 5}
    assert [known[one].is_success for one in (1, 2, 5)] == [True, False, False]
    assert [known[one].started for one in (1, 2, 5)] == [True, True, False]


def test_of_an_array_of_the_past_it_is_known_which_tasks_ended_well(store: Store) -> None:
    cluster = store.load()
    record = add(cluster, 1)
    record.array = ArrayTasks(waiting=0, cancelled=0b1000, succeeded=0b0110, failed=0b10000)
    end(cluster, record, Outcome.FAILED, 400)
    commit(store, cluster)

    [known] = store.past([1]).values()

    assert (known.is_success, known.succeeded_tasks, known.ended_tasks) == (False, "1-2", "1-4")
