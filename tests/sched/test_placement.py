"""Tables of small clusters: what a request gets, node by node."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gqd.sched.placement.placement import place
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from tests.builders import spec

Grants = dict[str, tuple[int, int, int]]
"""Node → (tasks, CPUs, GPUs)."""


def overlay(*nodes: tuple[int, int]) -> Overlay:
    """Nodes n1, n2 … with (free of 8 CPUs, free of 8 GPUs)."""
    facts = tuple(NodeFacts(f"n{i}", 8, 1000, (("fake", 0xFF),)) for i in range(1, len(nodes) + 1))
    cpus = [(1 << free) - 1 for free, _ in nodes]
    gpus = [(1 << free) - 1 for _, free in nodes]
    return Overlay(facts, cpus, gpus, [1000] * len(nodes))


FULL = (8, 8)
# fmt: off
CASES: list[tuple[str, dict[str, Any], tuple[tuple[int, int], ...], Grants | None]] = [
    ("one CPU by default, on the fullest node", {}, (FULL, (2, 0)), {"n2": (1, 1, 0)}),
    ("best fit keeps whole nodes free", {"gpus": 2}, (FULL, (8, 3), (8, 2)), {"n3": (1, 1, 2)}),
    ("per node: the same everywhere", {"nodes_min": 2, "gpus_per_node": 8}, (FULL, (8, 7), FULL), {"n1": (1, 1, 8), "n3": (1, 1, 8)}),
    ("per node: nothing if one is missing", {"nodes_min": 2, "gpus_per_node": 8}, (FULL, (8, 7)), None),
    ("a range of nodes takes as many as there are", {"nodes_min": 2, "nodes_max": 4, "gpus_per_node": 1}, (FULL, FULL, FULL), {"n1": (1, 1, 1), "n2": (1, 1, 1), "n3": (1, 1, 1)}),
    ("tasks with a GPU each fill few nodes", {"ntasks": 10, "gpus_per_task": 1}, (FULL, (8, 2), FULL), {"n1": (8, 8, 8), "n2": (2, 2, 2)}),
    ("30 tasks over four nodes", {"ntasks": 30, "gpus_per_task": 1}, (FULL,) * 4, {"n1": (8, 8, 8), "n2": (8, 8, 8), "n3": (8, 8, 8), "n4": (6, 6, 6)}),
    ("tasks over a fixed number of nodes go evenly", {"nodes_min": 2, "nodes_max": 2, "ntasks": 5}, (FULL, FULL, FULL), {"n1": (3, 3, 0), "n2": (2, 2, 0)}),
    ("tasks per node", {"nodes_min": 2, "ntasks_per_node": 4}, (FULL, (3, 8), FULL), {"n1": (4, 4, 0), "n3": (4, 4, 0)}),
    ("GPUs in all on one node if one has them", {"gpus": 8}, ((8, 7), FULL), {"n2": (1, 1, 8)}),
    ("GPUs in all over the fewest nodes", {"gpus": 12}, (FULL, (8, 4), (8, 5)), {"n1": (1, 1, 8), "n2": (1, 1, 4)}),
    ("GPUs in all evenly over N nodes", {"nodes_min": 2, "nodes_max": 2, "gpus": 6}, (FULL, FULL), {"n1": (1, 1, 3), "n2": (1, 1, 3)}),
    ("GPUs and tasks in all", {"gpus": 4, "ntasks": 8}, ((2, 8), FULL), {"n2": (8, 8, 4)}),
    ("GPUs and tasks in all over two nodes", {"nodes_min": 2, "nodes_max": 2, "gpus": 6, "ntasks": 4}, (FULL, FULL), {"n1": (2, 2, 3), "n2": (2, 2, 3)}),
    ("GPUs per node and per task imply the tasks", {"nodes_min": 2, "gpus_per_node": 4, "gpus_per_task": 2}, (FULL, FULL), {"n1": (2, 2, 4), "n2": (2, 2, 4)}),
    ("GPUs in all at so many per node and per task", {"gpus": 8, "gpus_per_node": 4, "gpus_per_task": 2}, (FULL, FULL), {"n1": (2, 2, 4), "n2": (2, 2, 4)}),
    ("a range of nodes is bound by GPUs in all", {"nodes_min": 1, "nodes_max": 4, "gpus": 8, "gpus_per_node": 4}, (FULL, FULL, FULL), {"n1": (1, 1, 4), "n2": (1, 1, 4)}),
    ("a listed node with little room leaves the rest to the others", {"nodelist": ("n1",), "nodes_min": 2, "nodes_max": 2, "ntasks": 7}, ((1, 0), (3, 0), (6, 0)), {"n1": (1, 1, 0), "n3": (6, 6, 0)}),
    ("tasks per GPU on one node", {"gpus": 2, "ntasks_per_gpu": 3}, ((5, 2), FULL), {"n2": (6, 6, 2)}),
    ("tasks per GPU follow the GPUs of each node", {"gpus": 6, "ntasks_per_gpu": 2}, ((4, 8), (8, 4)), {"n1": (4, 4, 2), "n2": (8, 8, 4)}),
    ("tasks per GPU with CPUs", {"ntasks": 4, "gpus": 2, "ntasks_per_gpu": 2, "cpus_per_task": 2}, ((7, 8), FULL), {"n2": (4, 8, 2)}),
    ("tasks per GPU on each node", {"nodes_min": 2, "gpus_per_node": 2, "ntasks_per_gpu": 2}, (FULL, (3, 8), FULL), {"n1": (4, 4, 2), "n3": (4, 4, 2)}),
    ("tasks per GPU over the nodes that GPUs imply", {"gpus": 4, "ntasks": 8, "gpus_per_node": 2, "ntasks_per_gpu": 2}, (FULL, FULL), {"n1": (4, 4, 2), "n2": (4, 4, 2)}),
    ("CPUs per GPU", {"gpus": 2, "cpus_per_gpu": 3}, (FULL,), {"n1": (1, 6, 2)}),
    ("CPUs per task", {"ntasks": 2, "cpus_per_task": 4}, ((7, 8), FULL), {"n2": (2, 8, 0)}),
    ("an exclusive job wants an idle node and gets all of it", {"is_exclusive": True}, ((7, 8), FULL), {"n2": (1, 8, 8)}),
    ("the listed node", {"nodelist": ("n2",), "gpus": 1}, ((8, 1), FULL), {"n2": (1, 1, 1)}),
    ("the listed nodes and one more", {"nodelist": ("n2",), "nodes_min": 2, "gpus_per_node": 8}, (FULL, FULL, FULL), {"n1": (1, 1, 8), "n2": (1, 1, 8)}),
    ("not the excluded node", {"exclude": ("n1",)}, (FULL, FULL), {"n2": (1, 1, 0)}),
    ("memory that is not there", {"mem_per_node_mib": 1001}, (FULL,), None),
    ("no type of that name", {"gpus": 1, "gpu_type": "h100"}, (FULL,), None),
]  # fmt: skip


@pytest.mark.parametrize(("what", "request_", "free", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_request_is_placed_as_the_table_says(
    what: str, request_: dict[str, Any], free: tuple[tuple[int, int], ...], expected: Grants | None
) -> None:
    view = overlay(*free)
    shape = shape_of(spec(**request_).resources, "main")
    candidates = [one for one, node in enumerate(view.nodes) if node.name not in shape.exclude]
    if shape.nodelist and len(shape.nodelist) >= shape.nodes_min:
        candidates = [one for one in candidates if view.nodes[one].name in shape.nodelist]
    before = (list(view.free_cpus), list(view.free_gpus))

    grants = place(view, shape, candidates)

    got = None if grants is None else {one.node: (one.tasks, len(one.cpus), len(one.gpus)) for one in grants}
    assert got == expected, what
    assert (view.free_cpus, view.free_gpus) == before, "placing changes nothing"


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"nodes_min": 2, "nodes_max": 2, "ntasks": 1}, "1 task cannot be spread over 2 nodes"),
    ({"nodes_min": 4, "nodes_max": 4, "gpus": 2}, "2 GPUs cannot be spread over 4 nodes"),
    ({"nodes_min": 3, "gpus": 4, "ntasks": 2}, "2 tasks cannot be spread over 3 nodes"),
    ({"nodes_min": 1, "nodes_max": 1, "nodelist": ("n1", "n2")}, "--nodelist names 2 nodes, --nodes allows 1"),
    ({"nodelist": ("n1", "n2"), "ntasks": 1}, "1 task cannot be spread over 2 nodes"),
    ({"nodes_min": 2, "nodes_max": 2, "ntasks": 8, "ntasks_per_node": 2}, "8 tasks at 2 per node need 4 nodes"),
    ({"gpus_per_node": 4, "gpus_per_task": 2, "ntasks_per_node": 3}, "contradicts the 2 tasks"),
    ({"gpus_per_node": 3, "gpus_per_task": 2}, "not a multiple"),
    ({"ntasks_per_gpu": 2}, "--ntasks-per-gpu needs GPUs, and the job requests none"),
    ({"gpus": 4, "ntasks": 6, "ntasks_per_gpu": 2}, "--ntasks=6 contradicts the 8 tasks of 4 GPUs at 2 per GPU"),
    ({"gpus": 4, "gpus_per_task": 1, "ntasks_per_gpu": 2}, "--ntasks-per-gpu and --gpus-per-task exclude each other"),
    ({"gpus": 4, "ntasks_per_node": 1, "ntasks_per_gpu": 2}, "--ntasks-per-gpu and --ntasks-per-node exclude"),
    ({"nodes_min": 1, "nodes_max": 2, "gpus": 4, "ntasks_per_gpu": 2}, "--ntasks-per-gpu and a range of --nodes=1-2"),
    ({"gpus": 1, "most_gpus": 4, "ntasks_per_gpu": 2}, "--gpus=1-4 and --ntasks-per-gpu exclude each other"),
    ({"gpus": 1, "ntasks_per_gpu": 0}, "--ntasks-per-gpu=0 is less than 1"),
    ({"nodes_min": 1, "nodes_max": 1, "gpus": 8, "gpus_per_node": 4}, "means 2 nodes"),
    ({"gpus_per_task": -1}, "--gpus-per-task=-1 is less than 0"),
    ({"mem_per_cpu_mib": -5}, "--mem-per-cpu=-5 is less than 1"),
    ({"cpus_per_gpu": -1}, "less than 1"),
    ({"ntasks": 1 << 62}, "more than 1000000"),
    ({"mem_per_node_mib": 1 << 62}, "--mem=4611686018427387904 is more than"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "message"), CONTRADICTIONS, ids=[case[1] for case in CONTRADICTIONS])
def test_what_contradicts_itself_or_makes_no_sense_is_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal) as refused:
        shape_of(spec(**request_).resources, "main")
    assert message in refused.value.message


def test_an_overlay_rolls_back_to_where_it_was() -> None:
    view = overlay(FULL, FULL)
    checkpoint = view.checkpoint()
    grants = place(view, shape_of(spec(nodes_min=2, gpus_per_node=8).resources, "main"), [0, 1])
    assert grants is not None
    view.take_all({"n1": 0, "n2": 1}, grants)
    assert view.free_gpus == [0, 0]
    view.rollback(checkpoint)
    assert view.free_gpus == [0xFF, 0xFF]
    assert view.free_memory_mib == [1000, 1000]
