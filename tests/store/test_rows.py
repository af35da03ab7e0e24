"""Every row kind comes back equal, and a batch holds what changed and nothing else."""

from __future__ import annotations

from random import Random
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from sqlite_utils import Database

from gq.model.ids import AttemptId
from gq.model.job import Usage
from gq.model.state import JobState
from gqd.control.apply.table import apply
from gqd.state import invariants
from gqd.state.cluster import Cluster
from gqd.state.events.event import Audited, Event
from gqd.state.index.changes import Changes
from gqd.state.records import Answer, Attempt, Job, Key, Node, Part, Step
from gqd.store.migrations.schema import MIGRATIONS
from gqd.store.protocol import Row
from gqd.store.rows import rows
from gqd.store.sqlite import upsert
from tests.store import values
from tests.store.lives import Lives


@pytest.fixture(scope="module")
def database() -> Database:
    database = Database(memory=True)
    MIGRATIONS.apply(database)
    return database


def through(database: Database, table: str, row: Row) -> Row:
    """What the database gives back for a row."""
    database.execute(upsert(table), row)
    where = " AND ".join(f"{key} = ?" for key in rows.KEYS[table])
    sql = f"SELECT {', '.join(rows.COLUMNS[table])} FROM {table} WHERE {where}"
    found: Row = database.execute(sql, row[: len(rows.KEYS[table])]).fetchone()
    return found


@given(job=values.JOBS, attempt=values.ATTEMPTS)
def test_a_job_comes_back_equal(database: Database, job: Job, attempt: Attempt) -> None:
    assert rows.job_of(through(database, "jobs", rows.job_row(job, None))) == job
    assert rows.job_of(through(database, "jobs", rows.job_row(job, attempt))) == job


@given(attempt=values.ATTEMPTS)
def test_an_attempt_comes_back_equal(database: Database, attempt: Attempt) -> None:
    assert rows.attempt_of(through(database, "attempts", rows.attempt_row(attempt))) == attempt


@given(attempt_id=values.ATTEMPT_IDS, part=values.PARTS)
def test_a_part_comes_back_equal(database: Database, attempt_id: AttemptId, part: Part) -> None:
    row = through(database, "allocations", rows.allocation_row(attempt_id, part))

    assert rows.part_of(row) == part
    assert row[rows.COLUMNS["allocations"].index("freed_at")] is None


@given(attempt_id=values.ATTEMPT_IDS, part=values.PARTS, freed_at=values.INSTANTS, usage=values.USAGES)
def test_a_freed_part_keeps_what_it_was_and_what_it_used(
    database: Database, attempt_id: AttemptId, part: Part, freed_at: float, usage: Usage
) -> None:
    row = through(database, "allocations", rows.freed_allocation_row(attempt_id, part.grant, freed_at, usage))

    assert rows.part_of(row).grant == part.grant
    assert row[-4:] == (freed_at, usage.user_cpu_s, usage.system_cpu_s, usage.max_rss_mib)


@given(step=values.STEPS)
def test_a_step_comes_back_equal_but_for_the_key_of_an_ended_one(database: Database, step: Step) -> None:
    found = rows.step_of(through(database, "steps", rows.step_row(step)))

    assert found.key == (step.key if step.end_at is None else b"")
    found.key = step.key
    assert found == step


@given(node=values.NODES)
def test_a_node_comes_back_equal(database: Database, node: Node) -> None:
    assert rows.node_of(through(database, "nodes", rows.node_row(node))) == node


@given(key=values.KEYS)
def test_a_key_comes_back_equal(database: Database, key: Key) -> None:
    assert rows.key_of(through(database, "keys", rows.key_row(key))) == key


@given(line=values.LINES)
def test_a_line_of_the_audit_trail_comes_back_equal(line: Audited) -> None:
    entry = rows.audit_entry_of(rows.audit_row(line))

    assert msgspec.structs.asdict(entry) == msgspec.structs.asdict(line)


@given(answer=values.ANSWERS)
def test_an_answer_comes_back_equal(database: Database, answer: Answer) -> None:
    assert rows.answer_of(through(database, "requests", rows.request_row(b"\x00" * 16, answer))) == answer


def test_every_kind_of_event_comes_back_equal_and_names_its_job(seed: int) -> None:
    lives = Lives(Random(seed))
    seen = set()
    for _ in range(5000):
        for event in lives.turn():
            seen.add(type(event))
            row = rows.event_row(event)
            assert rows.event_of(row) == event
            at, kind, job_id, node, body = row
            assert (at, kind) == (event.at, type(event).__name__)
            assert job_id == rows_subject(body)
            assert node == getattr(event, "node", None)
        if seen == set(get_args(Event)):
            return
    pytest.fail(f"these never happened: {set(get_args(Event)) - seen}")


def rows_subject(body: str) -> int | None:
    """The job that the JSON of an event names, read without its types."""
    fields = msgspec.json.decode(body)
    for name in ("attempt_id", "step_id"):
        if name in fields:
            return int(fields[name][0])
    return fields.get("job_id", fields.get("array_job_id"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("table", list(rows.COLUMNS))
def test_the_columns_are_those_of_the_schema_and_keys_come_first(database: Database, table: str) -> None:
    columns = list(database[table].columns_dict)
    assert set(rows.COLUMNS[table]) <= set(columns)
    assert set(columns) - set(rows.COLUMNS[table]) <= {"is_forgotten", "seq"}
    if table in rows.KEYS:
        assert rows.COLUMNS[table][: len(rows.KEYS[table])] == rows.KEYS[table]
        assert tuple(database[table].pks) == rows.KEYS[table]


def test_a_row_of_the_wrong_shape_is_not_read() -> None:
    with pytest.raises(ValueError, match="unpack"):
        rows.job_of((1, "short"))


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_changed_is_an_empty_batch() -> None:
    assert not rows.materialise(Cluster(), ())


def test_a_batch_drains_the_changes_and_never_holds_a_live_object(seed: int) -> None:
    lives = Lives(Random(seed))
    for _ in range(300):
        events = lives.turn()
        batch = rows.materialise(lives.cluster, events)

        assert lives.cluster.changes == Changes()
        assert batch.events == tuple(event for event in events if not isinstance(event, Audited))
        assert len(batch.audit) == len(events) - len(batch.events)
        for of_table in (*batch.upserts.values(), *batch.deletes.values()):
            assert of_table, "an empty table has no place in a batch"
            for row in of_table:
                assert all(value is None or type(value) in (int, float, str, bytes) for value in row), row


def test_a_batch_holds_only_the_rows_that_were_touched() -> None:
    lives = Lives(Random(1))
    for _ in range(200):
        lives.turn()
    lives.cluster.changes = Changes()
    job = next(job for job in lives.cluster.jobs.values() if job.state is JobState.PENDING)

    lives.cluster.changes.jobs[job.job_id] = None
    batch = rows.materialise(lives.cluster, ())

    assert batch.upserts == {"jobs": (rows.job_row(job, lives.cluster.attempt_of(job)),)}
    assert batch.deletes == {}


def test_the_columns_for_people_tell_what_a_running_job_holds(seed: int) -> None:
    lives = Lives(Random(seed))
    checked = 0
    while checked < 20:
        lives.turn()
        for job in lives.cluster.jobs.values():
            attempt = lives.cluster.attempt_of(job)
            if job.state is not JobState.RUNNING or attempt is None:
                continue
            row = dict(zip(rows.COLUMNS["jobs"], rows.job_row(job, attempt), strict=True))
            assert row["nodes"] == ",".join(grant.node for grant in attempt.grants)
            assert row["gpus"] == sum(len(grant.gpus) for grant in attempt.grants)
            assert row["cpus"] == sum(len(grant.cpus) for grant in attempt.grants)
            checked += 1


def test_folding_the_stored_events_gives_the_cluster(seed: int) -> None:
    lives = Lives(Random(seed))
    folded = Cluster()
    for _ in range(300):
        for event in lives.turn():
            apply(folded, rows.event_of(rows.event_row(event)))

    assert folded == lives.cluster
    invariants.check(lives.cluster)
