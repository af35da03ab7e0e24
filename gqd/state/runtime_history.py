"""How long jobs ran, for guesses at how long the next ones will: a value by who submits and how many GPUs.  Pure.

Of each user in an account the lengths of the last jobs are kept, in all and by the number of GPUs asked for.  Which
of them a guess goes by, and what it is for a user of whom nothing is known, are the policy's
(`gqd.control.runtime_estimate`). There is room for so many signatures (`MOST_SIGNATURES`); the one that nothing was
learned of for longest goes first.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gq.model.scheduling import MAX_HISTORY_JOBS

MOST_SIGNATURES = 10_000
ANY_GPUS = -1


class Signature(NamedTuple):
    user: str
    account: str
    gpus: int
    """That the job asks for; `ANY_GPUS`: all of the user's jobs."""


class RuntimeSamples(NamedTuple):
    at: float
    lengths_s: tuple[float, ...]
    """The latest last."""


RuntimeHistory: TypeAlias = dict[Signature, RuntimeSamples]
"""In the order in which something was learned of them."""


def learn(lengths: RuntimeHistory, signature: Signature, ran_s: float, at: float) -> list[Signature]:
    """A job ran so long.  → what has changed, and what is forgotten for it"""
    known = lengths.pop(signature, None)
    before = () if known is None else known.lengths_s
    lengths[signature] = RuntimeSamples(at, (*before, round(max(0.0, ran_s), 3))[-MAX_HISTORY_JOBS:])
    touched = [signature]
    while len(lengths) > MOST_SIGNATURES:
        oldest = next(iter(lengths))
        del lengths[oldest]
        touched.append(oldest)
    return touched


def predict(lengths: RuntimeHistory, who: tuple[str, str], gpus: int, most: int) -> float | None:
    """The mean of the last `most` jobs of (user, account) with as many GPUs, else of all of theirs; None: there were
    none."""
    for one in (gpus, ANY_GPUS):
        known = lengths.get(Signature(*who, one))
        if known is not None:
            last = known.lengths_s[-most:]
            return max(1.0, sum(last) / len(last))
    return None
