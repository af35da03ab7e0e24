"""What a waiting job is shown to want."""

from __future__ import annotations

from typing import Any

import pytest

from gq.model.resource import Demand, ResourceRequest, min_demand


@pytest.mark.parametrize(
    ("asked", "demand"),
    [
        ({}, Demand(1, 1, 1, 0, 0)),
        ({"nodes_min": 4, "gpus_per_node": 8, "mem_per_node_mib": 100}, Demand(4, 4, 4, 32, 400)),
        ({"ntasks": 30, "gpus_per_task": 1, "cpus_per_task": 2}, Demand(1, 30, 60, 30, 0)),
        ({"nodes_min": 2, "nodes_max": 4}, Demand(2, 2, 2, 0, 0)),
        ({"ntasks": 10, "ntasks_per_node": 4}, Demand(3, 10, 10, 0, 0)),
        ({"gpus": 12, "gpus_per_node": 8}, Demand(2, 2, 2, 12, 0)),
        ({"gpus": 12, "gpus_per_task": 4, "cpus_per_gpu": 3}, Demand(1, 3, 36, 12, 0)),
        ({"nodelist": ("n1", "n2"), "ntasks_per_node": 3}, Demand(2, 6, 6, 0, 0)),
        ({"ntasks": 8, "mem_per_cpu_mib": 10}, Demand(1, 8, 8, 0, 80)),
        ({"constraint": "[rack1*2&rack2*1]&ib"}, Demand(3, 3, 3, 0, 0)),
        ({"constraint": "&"}, Demand(1, 1, 1, 0, 0)),
        ({"gpus": 2, "mem_per_gpu_mib": 10}, Demand(1, 1, 1, 2, 20)),
    ],
)
def test_the_defaults_are_filled_in(asked: dict[str, Any], demand: Demand) -> None:
    assert min_demand(ResourceRequest(**asked)) == demand
