"""What is known of a running job whose GPUs may become more and fewer.  Values, and their invariant.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gq.model.ids import AttemptId, JobId
from gqd.state.preemption import notice_s

if TYPE_CHECKING:
    from gq.model.job import SignalSpec
    from gq.model.resource import Grant
    from gqd.state.cluster import Attempt, Claim, Cluster

NOTICE_S = 10.0
"""From when a job is told to when what it is to give up is taken, where its ``--signal`` does not say."""


class Elastic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of an attempt on one node.  What it holds is in its grant; what is to go is held until the node says so."""

    least: tuple[int, ...]
    """The GPUs that it began with: these stay its own."""
    most: int
    """So many it takes, if they are idle."""
    generation: int = 0
    """Grows with each change; the node acts on the newest."""
    keeps: tuple[int, ...] | None = None
    """What it is to have when the others are gone; None: nothing is to go."""
    ends_at: float | None = None
    """By then they are gone; earlier, if the job says that it has given them up."""
    to: tuple[tuple[JobId, int], ...] = ()
    """For whom they are given up, and how many for each."""
    changed_at: float | None = None
    """When it came to hold what it holds; None: it began with it."""
    gpu_s_before: float = 0.0
    """GPU-seconds from its start until then."""
    billed_s_before: float = 0.0
    """Weighted ones."""


def staying(attempt: Attempt, grant: Grant) -> Grant:
    """A grant of it without what it is about to give up: nothing new begins on that."""
    keeps = None if attempt.elastic is None else attempt.elastic.keeps
    return grant if keeps is None else msgspec.structs.replace(grant, gpus=keeps)


def shrink_notice_s(signal: SignalSpec | None) -> float:
    """From when a job is told to when what it is to give up is taken."""
    return NOTICE_S if signal is None else notice_s(signal)


def givers_to(cluster: Cluster, claim: Claim) -> list[tuple[AttemptId, int, float]]:
    """Who is giving up some of what a claim is to have: how many GPUs, and by when."""
    by_node = {grant.node: set(grant.gpus) for grant in claim.grants}
    found = []
    for attempt_id, attempt in cluster.elastic.items():
        one = attempt.elastic
        if one is None or one.keeps is None or one.ends_at is None:
            continue
        going = set(attempt.grants[0].gpus) - set(one.keeps)
        if count := len(going & by_node.get(attempt.batch_node, set())):
            found.append((attempt_id, count, one.ends_at))
    return found


def check(cluster: Cluster) -> None:
    """Invariant 16; see `gqd.state.cluster`."""
    for attempt_id, attempt in cluster.attempts.items():
        one = attempt.elastic
        if one is None:
            continue
        name, held = f"16: elastic {attempt_id}", set(attempt.grants[0].gpus)
        assert len(attempt.grants) == 1, f"{name} is on several nodes"
        assert held.issuperset(one.least), f"{name} began with {one.least} and holds {sorted(held)}"
        assert len(held) <= one.most, f"{name} holds {sorted(held)}, and may have {one.most}"
        assert (one.keeps is None) == (one.ends_at is None), f"{name} gives up something at no time, or nothing"
        if one.keeps is not None:
            assert set(one.least) <= set(one.keeps) < held, f"{name} is to keep {one.keeps} of {sorted(held)}"
    known = {attempt_id for attempt_id, attempt in cluster.holding.items() if attempt.elastic is not None}
    assert known == cluster.elastic.keys(), "16: the index of elastic attempts differs from them"
