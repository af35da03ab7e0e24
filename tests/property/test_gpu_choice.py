"""GPUs of one node, against trying every choice: a clique of NVLink is used wherever the free ones have one."""

from __future__ import annotations

from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gq.model.node import Gpu
from gq.model.resource import ResourceRequest
from gqd.sched.placement.placement import place
from gqd.sched.request import shape_of
from gqd.sched.snapshot.gpu_links import GpuTopology, choose_gpus, topology_of
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts


@st.composite
def nodes(draw: st.DrawFn, most: int) -> tuple[list[Gpu], int, int]:
    """(GPUs of a node, mask of the free ones, how many are wanted)."""
    size = draw(st.integers(2, most))
    pairs = list(combinations(range(size), 2))
    links = {pair: draw(st.sampled_from([0, 0, 1, 4])) for pair in pairs}
    levels = {pair: draw(st.sampled_from([None, 10, 30, 50])) for pair in pairs}
    gpus = [
        Gpu(
            index=one,
            uuid=f"GPU-{one}",
            type="a100",
            memory_mib=1,
            numa=draw(st.sampled_from([None, 0, 1])),
            nvlink=tuple((other, links[min(one, other), max(one, other)]) for other in range(size) if other != one),
            pcie=tuple(
                (other, level)
                for other in range(size)
                if other != one and (level := levels[min(one, other), max(one, other)]) is not None
            ),
        )
        for one in range(size)
    ]
    free = draw(st.integers(1, 2**size - 1) | st.just(2**size - 1))
    return gpus, free, draw(st.integers(1, free.bit_count()))


def is_clique(topology: GpuTopology, chosen: tuple[int, ...]) -> bool:
    return all(topology.links[one][other] for one, other in combinations(chosen, 2))


def links_in(topology: GpuTopology, chosen: tuple[int, ...]) -> int:
    return sum(topology.links[one][other] for one, other in combinations(chosen, 2))


@settings(max_examples=400, deadline=None)
@given(nodes(most=8))
def test_a_full_clique_is_used_whenever_one_exists_and_of_these_the_best_linked(
    node: tuple[list[Gpu], int, int],
) -> None:
    gpus, free, count = node
    topology = topology_of(gpus)
    indices = [one for one in range(len(gpus)) if free >> one & 1]

    chosen = choose_gpus(topology, free, count)

    assert len(chosen) == count and set(chosen) <= set(indices) and list(chosen) == sorted(set(chosen))
    if topology is None:
        return
    every = list(combinations(indices, count))
    cliques = [one for one in every if is_clique(topology, one)]
    assert is_clique(topology, chosen) == bool(cliques)
    assert links_in(topology, chosen) == max(links_in(topology, one) for one in cliques or every)


@settings(max_examples=200, deadline=None)
@given(st.lists(nodes(most=8), min_size=1, max_size=3), st.integers(1, 8))
def test_a_job_is_given_a_full_clique_whenever_its_node_has_one_free(
    held: list[tuple[list[Gpu], int, int]], count: int
) -> None:
    facts = tuple(
        NodeFacts(f"n{place}", 8, 1000, (("a100", (1 << len(gpus)) - 1),), topology=topology_of(gpus))
        for place, (gpus, _, _) in enumerate(held)
    )
    free = [mask for _, mask, _ in held]
    overlay = Overlay(facts, [255] * len(held), free, [1000] * len(held))

    grants = place(overlay, shape_of(ResourceRequest(gpus_per_node=count), "main"), list(range(len(held))))

    assert (grants is None) == all(mask.bit_count() < count for mask in free)
    for grant in grants or ():
        number = int(grant.node[1:])
        topology = facts[number].topology
        indices = [one for one in range(8) if held[number][1] >> one & 1]
        if topology is not None:
            is_there = any(is_clique(topology, one) for one in combinations(indices, count))
            assert is_clique(topology, grant.gpus) == is_there


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**16 - 1), min_size=16, max_size=16), st.integers(2, 15))
@example([2**16 - 1] * 16, 8)
def test_a_clique_is_found_among_more_gpus_than_can_be_tried_one_by_one(rows: list[int], count: int) -> None:
    links = [[int(bool(rows[min(a, b)] >> max(a, b) & 1)) if a != b else 0 for b in range(16)] for a in range(16)]
    far = tuple([tuple([100] * 16)] * 16)
    topology = GpuTopology(tuple(map(tuple, links)), far, tuple([-1] * 16))

    chosen = choose_gpus(topology, 2**16 - 1, count)

    assert len(set(chosen)) == count
    assert is_clique(topology, chosen) == (largest_clique(links) >= count)


def largest_clique(links: list[list[int]]) -> int:
    """By growing all cliques at once, size by size."""
    cliques = {frozenset([one]) for one in range(len(links))}
    size = 0
    while cliques:
        size += 1
        cliques = {
            clique | {one}
            for clique in cliques
            for one in range(max(clique) + 1, len(links))
            if all(links[one][other] for other in clique)
        }
    return size
