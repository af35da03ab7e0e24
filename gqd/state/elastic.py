"""What is known of a running job whose GPUs may become more and fewer.  Values, and their invariant.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    least_cpus: tuple[int, ...] = ()
    """The CPUs that it began with; likewise."""
    cpus_per_gpu: int = 0
    """So many come and go with each GPU."""
    generation: int = 0
    """Grows with each change; the node acts on the newest."""
    keeps: tuple[int, ...] | None = None
    """What it is to have when the others are gone; None: nothing is to go."""
    keeps_cpus: tuple[int, ...] | None = None
    """Of its CPUs; None: all of them."""
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
    one = attempt.elastic
    if one is None or one.keeps is None:
        return grant
    return msgspec.structs.replace(grant, gpus=one.keeps, cpus=grant.cpus if one.keeps_cpus is None else one.keeps_cpus)


def going_of(attempt: Attempt) -> Grant:
    """What it is about to give up."""
    held = attempt.grants[0]
    stays = staying(attempt, held)
    return msgspec.structs.replace(
        held,
        tasks=0,
        gpus=tuple(one for one in held.gpus if one not in stays.gpus),
        cpus=tuple(one for one in held.cpus if one not in stays.cpus),
        memory_mib=0,
        resources=(),
        licenses=(),
    )


def shrink_notice_s(signal: SignalSpec | None) -> float:
    """From when a job is told to when what it is to give up is taken."""
    return NOTICE_S if signal is None else notice_s(signal)


class Giver(NamedTuple):
    """Who is giving up some of what a claim is to have."""

    attempt_id: AttemptId
    gpus: int
    cpus: int
    ends_at: float


def givers_to(cluster: Cluster, claim: Claim) -> list[Giver]:
    by_node = {grant.node: grant for grant in claim.grants}
    found = []
    for attempt_id, attempt in cluster.elastic.items():
        one = attempt.elastic
        if one is None or one.keeps is None or one.ends_at is None:
            continue
        going, wanted = going_of(attempt), by_node.get(attempt.batch_node)
        if wanted is None:
            continue
        gpus, cpus = set(going.gpus).intersection(wanted.gpus), set(going.cpus).intersection(wanted.cpus)
        if gpus or cpus:
            found.append(Giver(attempt_id, len(gpus), len(cpus), one.ends_at))
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
        cpus = set(attempt.grants[0].cpus)
        assert cpus.issuperset(one.least_cpus), f"{name} began with CPUs {one.least_cpus} and holds {sorted(cpus)}"
        assert (one.keeps is None) == (one.ends_at is None), f"{name} gives up something at no time, or nothing"
        if one.keeps is not None:
            assert set(one.least) <= set(one.keeps) < held, f"{name} is to keep {one.keeps} of {sorted(held)}"
            keeps_cpus = cpus if one.keeps_cpus is None else set(one.keeps_cpus)
            assert set(one.least_cpus) <= keeps_cpus <= cpus, f"{name} is to keep CPUs {one.keeps_cpus} of {cpus}"
    known = {attempt_id for attempt_id, attempt in cluster.holding.items() if attempt.elastic is not None}
    assert known == cluster.elastic.keys(), "16: the index of elastic attempts differs from them"
