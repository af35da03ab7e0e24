"""Run-time estimates, made once when a job is submitted or its time limit changes.  Pure.

An estimate affects queue order and backfill.  It never ends a job, and no promised start depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.model.resource import ResourceRequest, min_demand
from gqd.state.index.queue import Member
from gqd.state.runtime_history import predict

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def expected_s(
    draft: TurnBuilder, member: Member, resources: ResourceRequest, asked_s: int | None, time_limit_s: int | None
) -> float | None:
    """Expected run time in seconds; None: unknown.

    The time limit if the owner set one, else a prediction from the last jobs like it, capped by the limit.  With the
    policy `expect = "limit"` only the limit counts.
    """
    scheduling = draft.policy.scheduling
    is_own_limit = asked_s is not None and time_limit_s is not None
    if is_own_limit or scheduling.expect == "limit":
        return None if time_limit_s is None else float(time_limit_s)
    guessed_s = predict(draft.cluster.lengths, member, min_demand(resources).gpus, scheduling.history_jobs)
    if guessed_s is None:
        guessed_s = scheduling.expected_without_history_s
    return guessed_s if time_limit_s is None else min(guessed_s, float(time_limit_s))
