"""What is known of a running job whose GPUs or nodes may become more and fewer.  Values, and their invariant.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.preemption import notice_s

if TYPE_CHECKING:
    from gq.model.job import SignalSpec
    from gqd.state.cluster import Cluster
    from gqd.state.preemption import Claim
    from gqd.state.records import Attempt

LEAVE_GRACE_S = 5
"""What is left on a node that a job has left gets TERM, and so much later KILL."""
NOTICE_S = 10.0
"""From when a job is told to when what it is to give up is taken, where its ``--signal`` does not say."""


class Left(msgspec.Struct, frozen=True, array_like=True):
    """A share of a node that the attempt has left; its part stays until the node says that nothing is there."""

    grant: Grant
    ends_at: float
    """By then it is empty."""


class Agreement(msgspec.Struct, frozen=True, array_like=True):
    """A job's owner has agreed to keep at most `keeps` GPUs or nodes, because a user asked for the others.

    The agreement ends with the asker's job: the first job of that user that starts after the answer.
    """

    keeps: int
    user: str
    """The user who asked."""
    uid: int
    job_id: JobId | None = None
    """The asker's job (of an array the array's record); None: no job of the asker has started since the answer."""


class Elastic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of an attempt.  What it holds is in its grants; what is to go is held until its node says so.

    Of GPUs it is on one node.  Of nodes (`is_of_nodes`) whole grants come and go, and no GPU of one does.
    """

    least: tuple[int, ...] = ()
    """The GPUs that it began with: these stay its own."""
    most: int
    """So many GPUs, or nodes, it asked for."""
    agreed: int | None = None
    """The lowest number of GPUs, or nodes, in the agreements that are in force; None: there are none."""
    agreements: tuple[Agreement, ...] = ()
    """The agreements, one for each user who asked and whose job has not ended yet."""
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
    cpu_s_before: float = 0.0
    """Likewise CPU-seconds."""
    billed_s_before: float = 0.0
    """Weighted ones."""
    is_of_nodes: bool = False
    joined: tuple[tuple[str, int], ...] = ()
    """The nodes beyond those that it began with, and the generation in which each came: a node may come again."""
    going: tuple[str, ...] = ()
    """Those of them that it is to give up by `ends_at`."""
    left: tuple[Left, ...] = ()
    """What it does not have any more, and its node has not said to be empty."""

    @property
    def takes(self) -> int:
        """So many GPUs, or nodes, it takes, if they are idle."""
        return self.most if self.agreed is None else self.agreed

    def join_of(self, node: str) -> int:
        """When that came to it; 0: it began with it, or does not have it."""
        return dict(self.joined).get(node, 0)


def has_joined(attempt: Attempt, node: str) -> bool:
    """It came while the attempt ran, and the attempt goes on without it; also when it has left already."""
    one = attempt.elastic
    return one is not None and one.is_of_nodes and (bool(one.join_of(node)) or is_left(attempt, node))


def is_left(attempt: Attempt, node: str) -> bool:
    one = attempt.elastic
    return one is not None and any(each.grant.node == node for each in one.left)


def is_going(attempt: Attempt, node: str) -> bool:
    return attempt.elastic is not None and node in attempt.elastic.going


def staying_on(attempt: Attempt) -> tuple[Grant, ...]:
    """What it holds, without the nodes that go."""
    return tuple([staying(attempt, one) for one in attempt.grants if not is_going(attempt, one.node)])


def staying(attempt: Attempt, grant: Grant) -> Grant:
    """A grant of it without what it is about to give up: nothing new begins on that."""
    one = attempt.elastic
    if one is None or one.keeps is None:
        return grant
    return msgspec.structs.replace(grant, gpus=one.keeps, cpus=grant.cpus if one.keeps_cpus is None else one.keeps_cpus)


def going_of(attempt: Attempt) -> list[Left]:
    """What it is about to give up, and what it has given up and its node still has."""
    one = attempt.elastic
    if one is None:
        return []
    if one.is_of_nodes:
        ends_at = one.ends_at or 0.0
        here = [grant for grant in attempt.grants if grant.node in one.going and grant.node in attempt.parts]
        return [Left(grant, ends_at) for grant in here] + list(one.left)
    if one.keeps is None or one.ends_at is None:
        return []
    held = attempt.grants[0]
    stays = staying(attempt, held)
    going = msgspec.structs.replace(
        held,
        tasks=0,
        gpus=tuple(one for one in held.gpus if one not in stays.gpus),
        cpus=tuple(one for one in held.cpus if one not in stays.cpus),
        memory_mib=0,
        resources=(),
        licenses=(),
    )
    return [Left(going, one.ends_at)]


def shrink_notice_s(signal: SignalSpec | None) -> float:
    """From when a job is told to when what it is to give up is taken."""
    return NOTICE_S if signal is None else notice_s(signal)


class Giver(NamedTuple):
    """Who is giving up some of what a claim is to have."""

    attempt_id: AttemptId
    gpus: int
    cpus: int
    ends_at: float
    node: str = ""
    """Of which it gives up all that it has."""


def givers_to(cluster: Cluster, claim: Claim) -> list[Giver]:
    by_node = {grant.node: grant for grant in claim.grants}
    found = []
    for attempt_id, attempt in cluster.elastic.items():
        for going, ends_at in ((one.grant, one.ends_at) for one in going_of(attempt)):
            wanted = by_node.get(going.node)
            if wanted is None:
                continue
            gpus, cpus = set(going.gpus).intersection(wanted.gpus), set(going.cpus).intersection(wanted.cpus)
            if gpus or cpus:
                node = going.node if attempt.elastic is not None and attempt.elastic.is_of_nodes else ""
                found.append(Giver(attempt_id, len(gpus), len(cpus), ends_at, node))
    return found


def check(cluster: Cluster) -> None:
    """Invariant 16; see `gqd.state.cluster`."""
    for attempt_id, attempt in cluster.attempts.items():
        one = attempt.elastic
        if one is None:
            continue
        if one.is_of_nodes:
            _check_nodes(attempt, one)
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


def _check_nodes(attempt: Attempt, one: Elastic) -> None:
    name, held = f"16: elastic {attempt.attempt_id}", [grant.node for grant in attempt.grants]
    joined, left = [node for node, _ in one.joined], [each.grant.node for each in one.left]
    assert len(held) == len(set(held)) and len(held) <= one.most, f"{name} holds {held}, and may have {one.most}"
    assert held[len(held) - len(joined) :] == joined and len(joined) < len(held), f"{name}: {joined} came to {held}"
    assert set(one.going) <= set(joined), f"{name} gives up {one.going} of {joined}"
    assert bool(one.going) == (one.ends_at is not None), f"{name} gives up something at no time, or nothing"
    assert not set(left) & set(held), f"{name} has left {left}, and holds {held}"
    assert set(left) <= attempt.parts.keys() <= {*held, *left}, f"{name} has parts on {list(attempt.parts)}"
    assert one.keeps is None and not one.least, f"{name} is of nodes, and of GPUs"
