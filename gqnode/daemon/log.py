"""The node daemon's log: one line per fact, with the job as a field."""

from __future__ import annotations

import logging

from gq.host.log import set_up
from gq.model.ids import AttemptId


def set_up_logging(level: str, as_json: bool) -> None:
    set_up(logging.getLogger("gqnode"), level, as_json)


def about(attempt_id: AttemptId, **facts: object) -> dict[str, object]:
    """``extra`` of a line about an attempt."""
    return {"fields": {"job": attempt_id.job_id, "attempt": attempt_id.attempt, **facts}}
