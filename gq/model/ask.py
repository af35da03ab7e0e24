"""Asks: requests of one user to the owner of a running job.  Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class AskAnswer(StrEnum):
    RELEASE = "release"
    """The owner ended or requeued the job."""
    SHRINK = "shrink"
    """The owner let the job continue with fewer GPUs or nodes."""
    DECLINE = "decline"


class AskInfo(msgspec.Struct, kw_only=True):
    """An ask as commands show it."""

    job_id: int
    label: str
    """The job as users write it: ``7``, or ``7_3`` for a task."""
    holder: str
    job_state: str
    by: str
    at: float
    text: str
    answer: AskAnswer | None = None
    """None: the owner has not answered."""
    answer_text: str = ""
    answered_by: str = ""
    answered_at: float | None = None
