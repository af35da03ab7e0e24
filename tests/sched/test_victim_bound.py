"""Where a job could come to have room at all if others gave way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gq.model.resource import ResourceRequest, Role, RoleRequest
from gqd.sched.placement.prefilter import MinimumDemand, minimum_demand
from gqd.sched.preemption.victim_bound import GpusAt, promising_nodes
from gqd.sched.request import Shape, knows, shape_of
from gqd.sched.snapshot.model import Overlay
from tests.sched.test_preempt import node

FREE = (0, 0, 1, 4)
"""GPUs that are free on four nodes of four."""
LEAVING: list[GpusAt] = [((0, 3),), ((0, 1), (1, 2)), ((2, 1),)]
"""With them the nodes have 4, 2, 2 and 4."""


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        ({"gpus": 4, "nodes_max": 1}, [0, 3]),
        ({"gpus": 2, "nodes_max": 1}, [0, 1, 2, 3]),
        ({"gpus": 5, "nodes_max": 1}, []),
        ({"gpus": 12}, [0, 1, 2, 3]),
        ({"gpus": 13}, []),
        ({"nodes_min": 2, "gpus_per_node": 3}, [0, 3]),
        ({"nodes_min": 3, "gpus_per_node": 3}, []),
        ({"gpus": 4, "is_dense": True}, [0, 3]),
        ({"gpus": 8, "is_dense": True}, [0, 3]),
        ({"gpus": 7, "is_dense": True}, [0, 3]),
        ({"gpus": 6, "is_dense": True}, [0, 1, 2, 3]),
        ({"cpus_per_task": 8}, [0, 1, 2, 3]),
    ],
)
def test_places_that_could_come_to_have_room(request_: dict[str, Any], places: list[int]) -> None:
    nodes = tuple(node(number) for number in range(4))
    overlay = Overlay.empty(nodes)
    for place, free in enumerate(FREE):
        overlay.take_masks(place, 0, (1 << (4 - free)) - 1, 0)

    told = promising_nodes(overlay, shape_of(ResourceRequest(**request_), "main"), np.arange(4), LEAVING)

    assert told.tolist() == places


@pytest.mark.parametrize("attribute", sorted(Shape._field_defaults))
def test_a_short_cut_applies_only_to_shapes_whose_attributes_it_knows(attribute: str) -> None:
    attributes = frozenset(Shape._field_defaults)
    plain = shape_of(ResourceRequest(gpus=1), "main")
    shape = plain._replace(**{attribute: "any other value"})

    assert knows(frozenset(), plain)
    assert knows(attributes, shape)
    assert not knows(attributes - {attribute}, shape)


def test_jobs_with_roles_are_not_bounded_by_their_numbers() -> None:
    role = Role(name="worker", resources=RoleRequest(ntasks=2, gpus_per_task=4))
    shape = shape_of(ResourceRequest(roles=(role,)), "main")

    assert minimum_demand(shape) == MinimumDemand(nodes=1, gpus=0, cpus=0, memory_mib=0, all_gpus=0)
