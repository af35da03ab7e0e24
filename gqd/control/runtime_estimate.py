"""How long a job is expected to run, said once, when it is submitted or its limit is changed.  Pure.

An expectation orders the queue and fills holes; it never ends a job, and no promised start rests on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.resource import ResourceRequest, min_demand
from gqd.state.index.queue import Member
from gqd.state.runtime_history import predict

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def expected_s(
    draft: TurnBuilder, who: Member, resources: ResourceRequest, asked_s: int | None, time_limit_s: int | None
) -> float | None:
    """The limit that its owner asked for, else what the last jobs like it took, and never more than its limit.

    By the policy's `expect` only the limit counts; None: nobody knows.
    """
    scheduling = draft.policy.scheduling
    is_own_limit = asked_s is not None and time_limit_s is not None
    if is_own_limit or scheduling.expect == "limit":
        return None if time_limit_s is None else float(time_limit_s)
    guessed_s = predict(draft.cluster.lengths, who, min_demand(resources).gpus, scheduling.history_jobs)
    if guessed_s is None:
        guessed_s = scheduling.expected_without_history_s
    return guessed_s if time_limit_s is None else min(guessed_s, float(time_limit_s))
