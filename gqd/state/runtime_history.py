"""Run times of ended jobs, by member and number of GPUs, to predict the run times of similar jobs.  Pure.

For each user in each account the last run times are kept, over all jobs and by the number of GPUs requested.  The
policy decides how many of them a prediction uses, and what is predicted without any (`gqd.control.runtime_estimate`).
At most `MAX_SIGNATURES` signatures are kept; the one that was updated least recently is forgotten first.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gq.model.scheduling import MAX_HISTORY_JOBS

MAX_SIGNATURES = 10_000
ANY_GPUS = -1


class Signature(NamedTuple):
    """Jobs with similar run times: the same user, account and number of GPUs."""

    user: str
    account: str
    gpus: int
    """Number of GPUs requested; `ANY_GPUS`: all of the user's jobs."""


class RuntimeSamples(NamedTuple):
    """Run times of the last jobs with one signature."""

    at: float
    lengths_s: tuple[float, ...]
    """Run times in seconds, the latest last."""


RuntimeHistory: TypeAlias = dict[Signature, RuntimeSamples]
"""Samples by signature, the least recently updated first."""


def learn(lengths: RuntimeHistory, signature: Signature, ran_s: float, at: float) -> list[Signature]:
    """Add a run time; return the signatures that were changed or forgotten."""
    samples = lengths.pop(signature, None)
    before = () if samples is None else samples.lengths_s
    lengths[signature] = RuntimeSamples(at, (*before, round(max(0.0, ran_s), 3))[-MAX_HISTORY_JOBS:])
    touched = [signature]
    while len(lengths) > MAX_SIGNATURES:
        oldest = next(iter(lengths))
        del lengths[oldest]
        touched.append(oldest)
    return touched


def predict(lengths: RuntimeHistory, member: tuple[str, str], gpus: int, max_jobs: int) -> float | None:
    """Mean of the member's last `max_jobs` run times with this number of GPUs, else of all jobs; None: no samples."""
    for requested in (gpus, ANY_GPUS):
        samples = lengths.get(Signature(*member, requested))
        if samples is not None:
            last = samples.lengths_s[-max_jobs:]
            return max(1.0, sum(last) / len(last))
    return None
