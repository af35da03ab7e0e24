"""What is known of a running job whose GPUs may become more and fewer.  Values, and their invariant.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gq.model.ids import JobId

if TYPE_CHECKING:
    from gq.model.resource import Grant
    from gqd.state.cluster import Attempt, Cluster


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
