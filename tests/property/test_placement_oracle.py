"""Placing against trying everything, on clusters so small that this can be done.

`place` finds a placement if and only if there is one, whatever is dealt out; what it finds is free, is enough, obeys
every limit, and takes no more nodes than need be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from gq.errors import Refusal
from gq.model.resource import Amount, Grant, ResourceRequest
from gqd.sched.placement.feasible import admits
from gqd.sched.placement.placement import is_possible, place
from gqd.sched.request import Shape, shape_of
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.policy import Partition

PARTITION = Partition(name="main")
CPUS, MEMORY_MIB = 4, 8


class Share(NamedTuple):
    """What one node might give."""

    tasks: int
    cpus: int
    gpus: int
    memory_mib: int


# ── small worlds and requests ─────────────────────────────────────────────────────────────────────────────────

TYPES = st.sampled_from([(), (("a", 0b1),), (("a", 0b11),), (("a", 0b111),), (("a", 0b01), ("b", 0b10))])
FREE = st.tuples(TYPES, st.integers(0, 2**CPUS - 1) | st.just(2**CPUS - 1), st.integers(0, 7) | st.just(7))
MAYBE: dict[str, st.SearchStrategy[Any]] = {
    "ntasks": st.integers(1, 6),
    "ntasks_per_node": st.integers(1, 3),
    "ntasks_per_gpu": st.integers(1, 3),
    "cpus_per_task": st.integers(1, 3),
    "cpus_per_gpu": st.integers(1, 3),
    "gpus": st.integers(1, 6),
    "gpus_per_node": st.integers(1, 2),
    "gpus_per_task": st.integers(1, 2),
    "gpu_type": st.sampled_from(["a", "b"]),
    "nodelist": st.sampled_from([("n1",), ("n2",), ("n1", "n3")]),
    "exclude": st.sampled_from([("n1",), ("n3",)]),
    "is_exclusive": st.just(True),
    "min_gpu_mem_mib": st.sampled_from([1, 2]),
    "resources": st.sampled_from([(Amount("x", 1),), (Amount("x", 2),)]),
    "constraint": st.sampled_from(["f", "!f", "f*1", "f*2", "f*1&g*1", "[f|g]", "[!f|f&g]"]),
}
KINDS = st.sampled_from([set(), {"ntasks"}, {"gpus"}, {"gpus", "ntasks"}])
NODES = st.sampled_from([{}, {}, {}, {"nodes_min": 1}, {"nodes_min": 2}, {"nodes_min": 1, "nodes_max": 2}])
MEMORY = st.sampled_from(
    [{}, {}, {"mem_per_node_mib": 3}, {"mem_per_node_mib": 0}, {"mem_per_cpu_mib": 2}, {"mem_per_gpu_mib": 3}]
)


@st.composite
def overlays(draw: st.DrawFn) -> Overlay:
    nodes = draw(st.lists(FREE, min_size=1, max_size=3))
    facts = tuple(
        NodeFacts(
            f"n{place}",
            CPUS,
            MEMORY_MIB,
            types,
            gpu_memory=((1, 0b101), (2, 0b010)),
            features=draw(st.sampled_from([frozenset(), frozenset({"f"}), frozenset({"g"}), frozenset({"f", "g"})])),
            resources=draw(st.sampled_from([(), (("x", 1),), (("x", 2),)])),
        )
        for place, (types, _, _) in enumerate(nodes, 1)
    )
    free_gpus = [gpus & facts[place].gpu_mask for place, (_, _, gpus) in enumerate(nodes)]
    memory = [draw(st.sampled_from([2, 5, MEMORY_MIB])) for _ in nodes]
    overlay = Overlay(facts, [cpus for _, cpus, _ in nodes], free_gpus, memory)
    if draw(st.booleans()):
        overlay.since = np.array(draw(st.permutations(range(len(nodes)))))
    return overlay


@st.composite
def requests(draw: st.DrawFn) -> ResourceRequest:
    chosen = draw(st.sets(st.sampled_from(sorted(MAYBE)), max_size=4)) | draw(KINDS)
    counts = draw(NODES)
    fixed = counts | ({"nodes_max": counts["nodes_min"]} if "nodes_min" in counts and "nodes_max" not in counts else {})
    return ResourceRequest(**{name: draw(MAYBE[name]) for name in sorted(chosen)}, **fixed, **draw(MEMORY))


# ── trying everything ─────────────────────────────────────────────────────────────────────────────────────────


def _is_idle(overlay: Overlay, one: int) -> bool:
    """Nobody holds anything here."""
    node = overlay.nodes[one]
    all_free = overlay.free_cpus[one] == (1 << node.cpus) - 1 and overlay.free_gpus[one] == node.gpu_mask
    return all_free and overlay.free_memory_mib[one] == node.memory_mib


def shares(overlay: Overlay, one: int, shape: Shape) -> set[Share]:
    """All that this node could give now, at least one of what is dealt out."""
    found = set()
    for tasks, gpus in _counts(shape):
        cpus = max(tasks * shape.cpus_per_task, gpus * shape.cpus_per_gpu)
        memory = _memory(shape, cpus, gpus)
        large = ~0 if shape.min_gpu_mem_mib < 2 else 0b010
        free_gpus = overlay.free_gpus[one] & overlay.nodes[one].type_mask(shape.gpu_type) & large
        if any(count > dict(overlay.nodes[one].resources).get(name, 0) for name, count in shape.resources):
            continue
        is_free = cpus <= overlay.free_cpus[one].bit_count() and gpus <= free_gpus.bit_count()
        if shape.is_exclusive and not _is_idle(overlay, one):
            continue
        if is_free and memory <= overlay.free_memory_mib[one]:
            found.add(Share(tasks, cpus, gpus, memory))
    return found


def _counts(shape: Shape) -> Iterator[tuple[int, int]]:
    """(tasks, GPUs) that a node may be given at all."""
    most = range(1, min(shape.tasks_per_node, 6) + 1)
    match shape.unit:
        case "node":
            yield shape.tasks_per_node, shape.gpus_per_node or shape.tasks_per_node * shape.gpus_per_task
        case "task":
            yield from ((tasks, shape.gpus_per_node or tasks * shape.gpus_per_task) for tasks in most)
        case _ if shape.ntasks is None:
            each = shape.tasks_per_gpu
            yield from ((each * gpus or shape.tasks_per_node, gpus) for gpus in range(1, shape.units + 1))
        case _:
            yield from product(most, range(1, shape.units + 1))


def _memory(shape: Shape, cpus: int, gpus: int) -> int:
    if shape.mem_per_node_mib is not None:
        return shape.mem_per_node_mib or MEMORY_MIB
    return (shape.mem_per_cpu_mib or 0) * cpus + (shape.mem_per_gpu_mib or 0) * gpus


def is_whole(shape: Shape, chosen: tuple[Share, ...]) -> bool:
    """The shares come to what was asked for."""
    tasks, gpus = sum(one.tasks for one in chosen), sum(one.gpus for one in chosen)
    match shape.unit:
        case "node":
            return True
        case "task":
            return tasks == shape.units
        case _:
            return gpus == shape.units and (shape.ntasks is None or tasks == shape.ntasks)


def sizes(overlay: Overlay, shape: Shape, candidates: list[int]) -> set[int]:
    """How many nodes a placement may have; empty: there is none."""
    possible = {one: shares(overlay, one, shape) for one in candidates}
    listed = {place for place, node in enumerate(overlay.nodes) if node.name in shape.nodelist}
    if len(listed) < len(shape.nodelist):
        return set()
    return {
        count
        for count in range(shape.nodes_min, min(shape.nodes_max, len(candidates)) + 1)
        for nodes in combinations(candidates, count)
        if listed <= set(nodes)
        and is_as_wanted(overlay, shape, nodes)
        and any(is_whole(shape, one) for one in product(*(possible[node] for node in nodes)))
        and is_as_wanted(overlay, shape, nodes)
        and any(is_whole(shape, one) for one in product(*(possible[node] for node in nodes)))
    }


def is_as_wanted(overlay: Overlay, shape: Shape, chosen: tuple[int, ...]) -> bool:
    """The nodes together are what the constraint says, spelled out for each of those that are tried."""
    features = [overlay.nodes[one].features for one in chosen]
    with_f, with_g = (sum(name in one for one in features) for name in "fg")
    count = len(features)
    return {
        "": True,
        "f": with_f == count,
        "!f": with_f == 0,
        "f*1": with_f >= 1,
        "f*2": with_f >= 2,
        "f*1&g*1": with_f >= 1 and with_g >= 1,
        "[f|g]": count in (with_f, with_g),
        "[!f|f&g]": with_f == 0 or with_f == with_g == count,
    }[shape.constraint]


# ── the properties ────────────────────────────────────────────────────────────────────────────────────────────


def check_placement(overlay: Overlay, shape: Shape, candidates: list[int], grants: tuple[Grant, ...]) -> None:
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    chosen = [places[grant.node] for grant in grants]
    assert is_possible(overlay, grants, places), "it gives what is not free"
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(candidates)
    assert is_as_wanted(overlay, shape, tuple(chosen)), f"{grants} is not what {shape.constraint} says"
    assert set(shape.nodelist) <= {grant.node for grant in grants}
    assert shape.nodes_min <= len(grants) <= shape.nodes_max
    given = []
    for grant, one in zip(grants, chosen, strict=True):
        gpus = sum(1 << gpu for gpu in grant.gpus)
        own = [share for share in shares(overlay, one, shape) if share.tasks == grant.tasks]
        if shape.is_exclusive:
            assert len(grant.cpus) == CPUS and gpus == overlay.nodes[one].gpu_mask
            given.append([share for share in own if share.memory_mib == grant.memory_mib])
        else:
            assert not gpus & ~overlay.nodes[one].fitting_mask(shape.gpu_type, shape.min_gpu_mem_mib)
            given.append([share for share in own if share == _share(grant)])
    assert any(is_whole(shape, one) for one in product(*given)), f"{grants} is not what was asked for"


def _share(grant: Grant) -> Share:
    return Share(grant.tasks, len(grant.cpus), len(grant.gpus), grant.memory_mib)


@settings(max_examples=400, deadline=None)
@given(overlay=overlays(), request=requests())
def test_a_placement_is_found_if_and_only_if_there_is_one(overlay: Overlay, request: ResourceRequest) -> None:
    try:
        shape = shape_of(request, "main")
    except Refusal as refusal:
        event(f"refused: {refusal.code}")
        assume(False)
    candidates = [
        one for one, node in enumerate(overlay.nodes) if PARTITION.has_node(node.name) and admits(shape, node)
    ]
    event(f"{shape.unit}{' and task' if shape.unit == 'gpu' and shape.ntasks else ''}")

    grants = place(overlay, shape, candidates)

    possible = sizes(overlay, shape, candidates)
    event("it fits" if possible else "it does not fit")
    if grants is None:
        assert not possible, f"it fits on {possible} nodes"
    else:
        assert possible, f"{grants} cannot be"
        check_placement(overlay, shape, candidates, grants)
        assert len(grants) == (max(possible) if shape.unit == "node" else min(possible))
        assert place(overlay, shape, candidates) == grants


def test_a_counted_feature_is_met_by_the_node_that_holds_the_whole_job() -> None:
    """The tightest node has room for one of the two tasks: with it as the counted node, the job would need both."""
    nodes = tuple(
        NodeFacts(name, CPUS, MEMORY_MIB, (("a", 3),), gpu_memory=((1, 0b101), (2, 0b010)), features=frozenset({"f"}))
        for name in ("n1", "n2")
    )
    overlay = Overlay(nodes, [0b1111, 0b1], [0b11, 0b11], [2, 2])
    shape = shape_of(ResourceRequest(ntasks=2, gpus=2, constraint="f*1"), "main")

    grants = place(overlay, shape, [0, 1])

    assert grants is not None and [grant.node for grant in grants] == ["n1"]
