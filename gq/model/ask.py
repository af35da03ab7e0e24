"""A favour that somebody asks of the holder of a job.  Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class AskAnswer(StrEnum):
    RELEASE = "release"
    """The job was ended, or queued again, for whoever asked."""
    SHRINK = "shrink"
    """The job went on with fewer GPUs, or nodes."""
    DECLINE = "decline"


class AskInfo(msgspec.Struct, kw_only=True):
    """As it is shown."""

    job_id: int
    label: str
    """The job as people write it: ``7``, of a task ``7_3``."""
    holder: str
    job_state: str
    by: str
    at: float
    text: str
    answer: AskAnswer | None = None
    """None: not yet."""
    answer_text: str = ""
    answered_by: str = ""
    answered_at: float | None = None
