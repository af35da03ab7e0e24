"""What happens to elastic jobs in the random lives of `tests.store.lives`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from gq.model.resource import Grant
from gq.model.state import JobState
from gqd.state import parked
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.events.event import Event
from gqd.state.records import Attempt, Elastic, Node

Free = Callable[[Node, Random, tuple[int, int] | None], Grant | None]
"""Some of what a node has free."""


def resized(cluster: Cluster, random: Random, now: float, free_of: Free) -> Iterator[Event]:
    """An elastic job takes a GPU of its node, or a node, is told to give some up, and has."""
    running = [cluster.attempts[job.attempt_id] for job in cluster.jobs.values() if job.state is JobState.RUNNING]
    stretched = [(attempt, attempt.elastic) for attempt in running if attempt.elastic is not None]
    if not stretched:
        return
    attempt, one = random.choice(stretched)
    if one.is_of_nodes:
        yield from _nodes(cluster, random, now, attempt, one, free_of)
    else:
        yield from _gpus(cluster, random, now, attempt, one)


def _gpus(cluster: Cluster, random: Random, now: float, attempt: Attempt, one: Elastic) -> Iterator[Event]:
    held, billing = attempt.grants[0].gpus, random.randrange(3_000_000)
    lent = parked.lent_masks(cluster).get(attempt.batch_node, (0, 0))
    free = cluster.nodes[attempt.batch_node].free_gpu_mask & ~lent[1]
    idle = [gpu for gpu in range(free.bit_length()) if free >> gpu & 1]
    if one.keeps is not None and random.random() < 0.5:
        yield event.ShrinkAccepted(at=now, attempt_id=attempt.attempt_id)
    elif one.keeps is not None:
        yield event.GpusGivenUp(at=now, attempt_id=attempt.attempt_id, billing=billing)
    elif len(held) < one.most and idle and random.random() < 0.7:
        gpus = (random.choice(idle),)
        yield event.GpusAdded(at=now, attempt_id=attempt.attempt_id, gpus=gpus, billing=billing)
    elif len(held) > len(one.least) and random.random() < 0.2:
        owner = cluster.jobs[random.choice(list(cluster.jobs))]
        askers = ((owner.user, owner.uid),) if random.random() < 0.7 else ()
        yield event.ShrinkAgreed(at=now, attempt_id=attempt.attempt_id, agreed=len(held) - 1, askers=askers)
    elif len(held) > len(one.least):
        yield event.ShrinkDecided(at=now, attempt_id=attempt.attempt_id, keeps=one.least, ends_at=now + 10)


def _nodes(
    cluster: Cluster, random: Random, now: float, attempt: Attempt, one: Elastic, free_of: Free
) -> Iterator[Event]:
    lent, attempt_id, billing = parked.lent_masks(cluster), attempt.attempt_id, random.randrange(3_000_000)
    held = {*attempt.parts, *(grant.node for grant in attempt.grants)}
    others = [node for node in cluster.nodes.values() if node.name not in held]
    shares = [grant for node in others if (grant := free_of(node, random, lent.get(node.name)))]
    joined = tuple(node for node, _ in one.joined)
    if one.going:
        yield event.NodesLeft(at=now, attempt_id=attempt_id, nodes=one.going, ends_at=now + 5, billing=billing)
    elif joined and random.random() < 0.5:
        yield event.NodesGoing(at=now, attempt_id=attempt_id, nodes=joined[:1], ends_at=now + 10)
    elif shares and len(attempt.grants) < one.most:
        yield event.NodeAdded(at=now, attempt_id=attempt_id, grant=shares[0], billing=billing)
