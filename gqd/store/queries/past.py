"""Queries of ended jobs for dependencies that name jobs no longer in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from gq.model.state import JobState, Outcome
from gq.model.tasks import pack_tasks
from gqd.state.input import PastJob
from gqd.state.records import Job
from gqd.store.rows.rows import COLUMNS, job_of

_ENDED = (
    f"SELECT {', '.join(COLUMNS['jobs'])} FROM jobs"
    " WHERE state = 'ENDED' AND job_id IN (SELECT value FROM json_each(?))"
)


def select_past(connection: sqlite3.Connection, job_ids: Collection[int]) -> dict[int, PastJob]:
    rows = connection.execute(_ENDED, (json.dumps(sorted(job_ids)),))
    return {row[0]: past_of(job_of(row)) for row in rows}


def past_of(job: Job) -> PastJob:
    """The facts about an ended job that dependencies need."""
    assert job.state is JobState.ENDED
    tasks = job.array
    return PastJob(
        is_success=job.outcome is Outcome.COMPLETED,
        started=job.start_at is not None,
        start_at=job.start_at,
        succeeded_tasks="" if tasks is None else pack_tasks(tasks.succeeded),
        ended_tasks="" if tasks is None else pack_tasks(tasks.succeeded | tasks.failed | tasks.cancelled),
    )
