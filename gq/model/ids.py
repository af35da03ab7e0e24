"""Identifiers of jobs, attempts, steps and nodes.  Users name a job by its id; the wire names `(job_id, attempt)`."""

from __future__ import annotations

import re
from typing import NewType

import msgspec

JobId = NewType("JobId", int)
NodeName = NewType("NodeName", str)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Pattern of the names of clusters, partitions and nodes."""
RequestId = NewType("RequestId", bytes)  # 16 random bytes chosen by the client; they identify a request


class AttemptId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """An attempt: one try at running a job.  The first attempt is 1; a requeue creates the next."""

    job_id: JobId
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}"


class StepId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A step: one `gqrun` inside an attempt.  Steps count from 0 in each attempt."""

    job_id: JobId
    attempt: int
    step: int

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.job_id, self.attempt)

    def __str__(self) -> str:
        return f"{self.job_id}.{self.step}"
