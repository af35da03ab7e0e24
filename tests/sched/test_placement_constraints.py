"""Where jobs go, beyond how much they ask: what hangs together, what is wished for, what is scarce besides GPUs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gq.errors import Refusal
from gq.model.node import Gpu
from gq.model.resource import Amount, Grant, ResourceRequest
from gq.model.scheduling import Scheduling, Switch
from gqd.sched.placement.feasible import capacities, eligible_places
from gqd.sched.placement.placement import is_possible, place
from gqd.sched.request import Shape, shape_of
from gqd.sched.snapshot.gpu_links import topology_of
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.snapshot.node_table import node_table_of
from gqd.state.policy import Partition

MAIN = Partition(name="main")


def shape(**request: Any) -> Shape:
    return shape_of(ResourceRequest(**request), "main")


def node(name: str, cpus: int = 8, gpus: int = 8, gpu_type: str = "a100", **fields: Any) -> NodeFacts:
    mask = (1 << gpus) - 1
    types = fields.pop("gpu_types", ((gpu_type, mask),) if gpus else ())
    return NodeFacts(name, cpus, 1000, types, gpu_memory=fields.pop("gpu_memory", ((16384, mask),)), **fields)


def overlay(*nodes: NodeFacts, **fields: Any) -> Overlay:
    view = Overlay.empty(tuple(nodes))
    for name, value in fields.items():
        setattr(view, name, value)
    return view


def busy(view: Overlay, **gpus: int) -> Overlay:
    """So many GPUs of each node are taken, with a CPU each."""
    for name, count in gpus.items():
        view.take(view.node_table.index_of[name], Grant(node=name, cpus=tuple(range(count)), gpus=tuple(range(count))))
    return view


def where(view: Overlay, wanted: Shape, **how: Any) -> dict[str, tuple[int, ...]] | None:
    """Node → GPUs."""
    grants = place(view, wanted, eligible_places(view.nodes, wanted, MAIN), **how)
    return None if grants is None else {grant.node: grant.gpus for grant in grants}


def names(view: Overlay, wanted: Shape, **how: Any) -> list[str] | None:
    placed = where(view, wanted, **how)
    return None if placed is None else list(placed)


# ── whole nodes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("taken", "gpus", "expected"),
    [
        ({}, 4, {"n1": 4}),
        ({"n2": 3}, 4, {"n2": 4}),
        ({"n2": 5}, 4, {"n1": 4}),
        ({}, 16, {"n1": 8, "n2": 8}),
        ({"n1": 1}, 16, {"n2": 8, "n3": 8}),
        ({"n1": 1}, 20, {"n1": 4, "n2": 8, "n3": 8}),
        ({"n1": 5}, 20, None),
        ({"n1": 1, "n2": 1}, 16, None),
        ({}, 25, None),
    ],
)
def test_gpus_that_fill_nodes_take_whole_ones_and_the_rest_where_it_fits_best(
    taken: dict[str, int], gpus: int, expected: dict[str, int] | None
) -> None:
    view = busy(overlay(node("n1"), node("n2"), node("n3")), **taken)

    placed = where(view, shape(gpus=gpus, is_dense=True))

    assert (placed and {name: len(of) for name, of in placed.items()}) == expected


def test_gpus_that_fill_nodes_are_measured_by_the_nodes_that_may_be_used() -> None:
    view = overlay(node("n1", gpus=2), node("n2", gpus=2), node("n3", gpus=8))
    wanted = shape(gpus=4, is_dense=True, exclude=("n3",))

    assert where(view, wanted) == {"n1": (0, 1), "n2": (0, 1)}
    assert where(view, shape(gpus=4, is_dense=True)) == {"n3": (0, 1, 2, 3)}


def test_after_single_gpus_were_placed_a_whole_node_is_free_as_long_as_the_sum_allows() -> None:
    view = overlay(*(node(f"n{number}") for number in range(4)))
    for count in range(1, 25):
        grants = place(view, shape(gpus=1), [0, 1, 2, 3])
        assert grants is not None
        view.take_all(view.node_table.index_of, grants)
        assert int(np.count_nonzero(view.gpu_counts == 8)) == (32 - count) // 8


def test_of_equally_free_nodes_the_one_that_came_to_it_first_is_taken() -> None:
    view = busy(overlay(node("n1"), node("n2"), node("n3")), n1=2, n2=2, n3=2)
    assert names(view, shape(gpus=1)) == ["n1"]

    view.since = np.array([3, 1, 2])
    assert names(view, shape(gpus=1)) == ["n2"]
    assert names(view, shape(nodes_min=2, nodes_max=2, gpus_per_node=6)) == ["n2", "n3"]


# ── inside a node ─────────────────────────────────────────────────────────────────────────────────────────────


def linked(*groups: tuple[int, ...], numa: dict[int, int] | None = None) -> tuple[Gpu, ...]:
    """GPUs; those of a group are linked, each with each."""
    peers = {one: [other for group in groups if one in group for other in group if other != one] for one in range(8)}
    return tuple(
        Gpu(
            index=one,
            uuid=f"GPU-{one}",
            type="a100",
            memory_mib=16384,
            nvlink=tuple((other, 4) for other in peers[one]),
            numa=(numa or {}).get(one),
        )
        for one in range(8)
    )


QUADS = topology_of(linked((0, 1, 2, 3), (4, 5, 6, 7)))


@pytest.mark.parametrize(
    ("taken", "count", "expected"),
    [
        ((), 4, (0, 1, 2, 3)),
        ((0,), 4, (4, 5, 6, 7)),
        ((0,), 1, (1,)),
        ((0, 4, 5), 2, (6, 7)),
        ((0,), 3, (1, 2, 3)),
        ((0, 5), 4, (1, 2, 3, 4)),
    ],
)
def test_gpus_of_a_job_are_linked_and_those_that_are_left_stay_together(
    taken: tuple[int, ...], count: int, expected: tuple[int, ...]
) -> None:
    view = overlay(node("n1", topology=QUADS))
    view.take(0, Grant(node="n1", gpus=taken))

    assert where(view, shape(gpus=count)) == {"n1": expected}


def test_without_links_the_nearest_on_pcie_are_taken() -> None:
    levels = {(0, 1): 10, (2, 3): 10}
    gpus = tuple(
        Gpu(
            index=one, uuid=str(one), type="a100", memory_mib=1,
            pcie=tuple((o, levels.get((min(one, o), max(one, o)), 50)) for o in range(4) if o != one),
        )
        for one in range(4)
    )  # fmt: skip
    view = overlay(node("n1", gpus=4, topology=topology_of(gpus)))
    view.take(0, Grant(node="n1", gpus=(0,)))

    assert where(view, shape(gpus=2)) == {"n1": (2, 3)}
    assert where(view, shape(gpus=1)) == {"n1": (1,)}


NUMA = topology_of(
    linked((0, 1, 2, 3), (4, 5, 6, 7), numa={**dict.fromkeys(range(4), 0), **dict.fromkeys(range(4, 8), 1)})
)
HALVES = ((0, 0x0F), (1, 0xF0))


def test_cpus_come_from_the_numa_node_of_the_gpus() -> None:
    view = overlay(node("n1", topology=NUMA, cpu_numa=HALVES))
    view.take(0, Grant(node="n1", gpus=(0, 1, 2, 3)))

    grants = place(view, shape(gpus=2, cpus_per_gpu=2), [0])
    assert grants is not None and (grants[0].gpus, grants[0].cpus) == ((4, 5), (4, 5, 6, 7))
    more = place(view, shape(gpus=2, cpus_per_gpu=3), [0])
    assert more is not None and more[0].cpus == (0, 1, 4, 5, 6, 7)


def test_a_job_without_gpus_takes_cpus_where_gpus_are_busy() -> None:
    view = overlay(node("n1", topology=NUMA, cpu_numa=HALVES))
    view.take(0, Grant(node="n1", gpus=(4, 5, 6, 7)))

    grants = place(view, shape(cpus_per_task=2), [0])

    assert grants is not None and grants[0].cpus == (4, 5)


def test_a_job_without_gpus_goes_to_nodes_without_idle_gpus() -> None:
    view = busy(overlay(node("n1"), node("n2"), node("n3", gpus=0)), n2=6)
    assert names(view, shape()) == ["n3"]
    assert names(view, shape(exclude=("n3",))) == ["n2"]


def test_cores_are_kept_for_idle_gpus_until_these_are_taken() -> None:
    view = overlay(node("n1", cpus=10, gpus=2), cores_kept=2)

    assert names(view, shape(cpus_per_task=6)) == ["n1"]
    assert names(view, shape(cpus_per_task=7)) is None
    assert names(view, shape(cpus_per_task=7, gpus=1)) == ["n1"], "who wants GPUs may have them"
    assert names(view, shape(is_exclusive=True)) == ["n1"], "and who takes the whole node"
    view.take(0, Grant(node="n1", cpus=(0,), gpus=(0, 1)))
    assert names(view, shape(cpus_per_task=9)) == ["n1"]


def test_what_is_reserved_for_later_leaves_usable_what_is_free_now() -> None:
    now = overlay(node("n1", gpus=4, cpus=4))
    now.take(0, Grant(node="n1", cpus=(1, 2), gpus=(1, 2, 3)))
    later = now.copy()
    later.give_back(0, Grant(node="n1", cpus=(1, 2), gpus=(1, 2, 3)))
    later.free_now = (now.free_cpus, now.free_gpus)

    [grant] = place(later, shape(gpus=3, cpus_per_gpu=1), [0]) or ()
    assert (grant.gpus, grant.cpus) == ((1, 2, 3), (0, 1, 2))
    [grant] = place(later, shape(gpus=4), [0]) or ()
    assert grant.gpus == (0, 1, 2, 3)


# ── which cards ───────────────────────────────────────────────────────────────────────────────────────────────

TIERS = Scheduling(gpu_tiers=("v100", "a100", "h100"), low_tier_qos=("scavenger",), high_tier_qos=("high",))


def test_low_qos_takes_the_oldest_card_that_fits_and_high_qos_the_newest() -> None:
    sizes = {"v100": 16384, "a100": 40960, "h100": 81920}
    view = overlay(
        *(node(f"n-{kind}", gpu_type=kind, gpu_memory=((mib, 0xFF),)) for kind, mib in sizes.items()), scheduling=TIERS
    )
    busy(view, **{"n-a100": 4})

    assert names(view, shape(gpus=1), qos="scavenger") == ["n-v100"]
    assert names(view, shape(gpus=1, min_gpu_mem_mib=20000), qos="scavenger") == ["n-a100"]
    assert names(view, shape(gpus=1), qos="high") == ["n-h100"]
    assert names(view, shape(gpus=1), qos="normal") == ["n-a100"], "others by best fit"
    assert names(view, shape(gpus=1, gpu_type="h100"), qos="scavenger") == ["n-h100"]
    assert names(view, shape(gpus=16), qos="high") == ["n-v100", "n-h100"], "as far as they go"


def test_on_a_node_with_several_types_the_tier_decides_and_else_one_type_is_used() -> None:
    mixed = node("n1", gpu_types=(("v100", 0b0000_1111), ("h100", 0b0111_0000)), gpus=7)
    view = overlay(mixed, scheduling=TIERS)

    assert where(view, shape(gpus=2), qos="scavenger") == {"n1": (0, 1)}
    assert where(view, shape(gpus=2), qos="high") == {"n1": (4, 5)}
    assert where(view, shape(gpus=3)) == {"n1": (4, 5, 6)}, "of the type that fits best"
    assert where(view, shape(gpus=4)) == {"n1": (0, 1, 2, 3)}
    assert where(view, shape(gpus=5)) == {"n1": (0, 1, 2, 3, 4)}


def test_gpus_with_too_little_memory_are_not_given() -> None:
    view = overlay(node("n1", gpu_memory=((16384, 0x0F), (40960, 0xF0))), node("n2"))

    assert where(view, shape(gpus=2, min_gpu_mem_mib=32768)) == {"n1": (4, 5)}
    assert where(view, shape(gpus=5, min_gpu_mem_mib=32768)) is None
    view.take(0, Grant(node="n1", gpus=(4, 5, 6)))
    assert where(view, shape(gpus=2, min_gpu_mem_mib=32768)) is None
    assert where(view, shape(gpus=1, min_gpu_mem_mib=32768)) == {"n1": (7,)}


# ── constraints and wishes ────────────────────────────────────────────────────────────────────────────────────


def racks() -> Overlay:
    """r1: a1 a2 a3; r2: b1 b2; InfiniBand on a1 and b1."""
    fast = {"a1", "b1"}
    return overlay(
        *(
            node(
                name,
                features=frozenset({f"rack{rack}"} | ({"ib"} if name in fast else set())),
                attributes={"cuda": "12.4" if rack == 1 else "11.8"},
            )
            for name, rack in (("a1", 1), ("a2", 1), ("a3", 1), ("b1", 2), ("b2", 2))
        )
    )


@pytest.mark.parametrize(
    ("nodes", "constraint", "expected"),
    [
        (1, "rack2", ["b1"]),
        (1, "rack2&!ib", ["b2"]),
        (1, "cuda<12", ["b1"]),
        (2, "cuda>=12.4", ["a1", "a2"]),
        (3, "rack2", None),
        (3, "[rack1|rack2]", ["a1", "a2", "a3"]),
        (2, "[rack2|rack1]", ["b1", "b2"]),
        (4, "[rack1|rack2]", None),
        (4, "rack1|rack2", ["a1", "a2", "a3", "b1"]),
        (3, "rack2*1", ["a1", "a2", "b1"]),
        (4, "[rack1*2&rack2*2]", ["a1", "a2", "b1", "b2"]),
        (3, "ib*2", ["a1", "a2", "b1"]),
        (3, "ib*2&[rack1|rack2]", None),
        (2, "ib*1&rack2*1", ["a1", "b1"]),
    ],
)
def test_nodes_are_what_the_constraint_says(nodes: int, constraint: str, expected: list[str] | None) -> None:
    assert names(racks(), shape(nodes_min=nodes, nodes_max=nodes, gpus_per_node=8, constraint=constraint)) == expected


def test_counts_say_how_many_nodes_there_are_where_nothing_else_does() -> None:
    assert names(racks(), shape(gpus_per_node=1, constraint="[rack1*2&rack2*1]")) == ["a1", "a2", "b1"]
    assert names(racks(), shape(gpus=10, constraint="rack2*2")) == ["b1", "b2"]
    with pytest.raises(Refusal, match="needs 2 nodes of a kind, --nodes allows 1"):
        shape(nodes_min=1, nodes_max=1, constraint="ib*2")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraint": "a&"}, "--constraint=a&: at position 3"),
        ({"prefer": "a*2"}, "--prefer=a*2: counts"),
        ({"prefer": "[a|b]"}, "are valid in --constraint only"),
        ({"min_gpu_mem_mib": 100}, "--min-gpu-mem needs GPUs"),
        ({"switches": 0}, "--switches=0 is less than 1"),
        ({"is_dense": True}, "--fill-nodes needs --gpus"),
        ({"is_dense": True, "gpus": 4, "ntasks": 4}, "--fill-nodes needs --gpus"),
        ({"resources": (Amount("a b", 1),)}, "`a b` is not a name"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal) as refused:
        shape(**fields)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        (
            {"gpus": 1, "gpus_per_node": 8, "nodes_min": 2},
            "--gpus=1 is not a multiple of --gpus-per-node=8",
            "--gpus=16",
        ),
        ({"gpus": 3, "gpus_per_task": 2, "ntasks": 4}, "--gpus=3 is not a multiple of --gpus-per-task=2", "--gpus=8"),
        ({"gpus_per_node": 3, "gpus_per_task": 2}, "--gpus-per-node=3 is not a multiple of", "--gpus-per-node=2"),
    ],
)
def test_counts_of_gpus_that_contradict_each_other_are_refused_with_a_count_that_would_do(
    fields: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(Refusal, match=message) as refused:
        shape(**fields)
    assert refused.value.hint == f"{hint} would be; a header line of the script may set either of the two"


def test_preferred_nodes_come_before_best_fit_and_are_waited_for() -> None:
    view = busy(racks(), a1=4)
    wanted = shape(nodes_min=1, nodes_max=1, gpus=8, prefer="rack2")
    assert names(view, wanted) == ["b1"]

    busy(view, b1=1, b2=1)
    assert names(view, wanted, waited_s=599.0) is None
    assert names(view, wanted, waited_s=600.0) == ["a2"]
    assert names(view, shape(nodes_max=1, gpus=8, prefer="rack9"), waited_s=0.0) == ["a2"], "nothing to wait for"


def test_nodes_that_hold_the_data_are_preferred_and_not_waited_for() -> None:
    view = overlay(node("n1"), node("n2", data=frozenset({"imagenet"})), node("n3", data=frozenset({"imagenet", "c4"})))

    assert names(view, shape(gpus=1, data=("imagenet",)), waited_s=0.0) == ["n2"]
    assert names(view, shape(gpus=1, data=("imagenet", "c4")), waited_s=0.0) == ["n3"]
    busy(view, n2=8, n3=8)
    assert names(view, shape(gpus=1, data=("imagenet",)), waited_s=0.0) == ["n1"]


# ── topology ──────────────────────────────────────────────────────────────────────────────────────────────────

LEAVES = (
    Switch(name="leaf1", nodes=("n1", "n2", "n3")),
    Switch(name="leaf2", nodes=("n4", "n5")),
    Switch(name="leaf3", nodes=("n6", "n7")),
    Switch(name="spine1", switches=("leaf1", "leaf2")),
    Switch(name="spine2", switches=("leaf3",)),
)


def tree(**taken: int) -> Overlay:
    return busy(overlay(*(node(f"n{number}") for number in range(1, 8)), switches=LEAVES), **taken)


def gang(nodes: int, **more: Any) -> Shape:
    return shape(nodes_min=nodes, nodes_max=nodes, gpus_per_node=8, **more)


def test_a_gang_goes_into_the_smallest_part_of_the_tree_without_being_asked() -> None:
    assert names(tree(), gang(2)) == ["n4", "n5"]
    assert names(tree(n4=1), gang(2)) == ["n6", "n7"]
    assert names(tree(), gang(3)) == ["n1", "n2", "n3"]
    assert names(tree(n1=1), gang(4)) == ["n2", "n3", "n4", "n5"], "below one spine"
    assert names(tree(), shape(gpus=16, is_dense=True)) == ["n4", "n5"]
    assert names(tree(), shape(gpus=20)) == ["n1", "n2", "n3"]


def test_a_gang_holds_out_for_few_switches_and_relaxes_level_by_level() -> None:
    view = tree(n1=1, n4=1)
    wanted = gang(3, switches=1, switches_wait_s=60)

    assert names(view, wanted, waited_s=0.0) is None
    assert names(view, wanted, waited_s=59.0) is None
    assert names(view, wanted, waited_s=60.0) == ["n2", "n3", "n5"], "one spine"
    assert names(tree(n1=1, n4=1, n5=1), wanted, waited_s=119.0) is None
    assert names(tree(n1=1, n4=1, n5=1), wanted, waited_s=120.0) == ["n2", "n3", "n6"]


def test_as_many_switches_as_were_allowed_may_be_used_at_once() -> None:
    view = tree(n1=1)

    assert names(view, gang(4, switches=1), waited_s=0.0) is None
    assert names(view, gang(4, switches=2), waited_s=0.0) == ["n2", "n3", "n4", "n5"]
    assert names(view, gang(2, switches=1, switches_wait_s=0), waited_s=0.0) is not None


def test_a_node_on_no_switch_is_a_switch_of_its_own() -> None:
    view = overlay(node("n1"), node("n9"), node("n8"), switches=(Switch(name="leaf1", nodes=("n1",)),))

    assert names(view, shape(gpus=8, switches=1), waited_s=0.0) == ["n1"]
    assert names(view, gang(2, switches=1), waited_s=0.0) is None
    assert names(view, gang(2, switches=1), waited_s=math.inf) == ["n1", "n9"]


def test_a_range_of_nodes_is_not_cut_short_for_being_near() -> None:
    assert len(names(tree(), shape(nodes_min=2, nodes_max=5, gpus_per_node=8)) or ()) == 5


# ── what is counted besides ───────────────────────────────────────────────────────────────────────────────────


def test_generic_resources_are_counted_on_each_node() -> None:
    view = overlay(node("n1", resources=(("fpga", 1),)), node("n2", resources=(("fpga", 2), ("tmp", 100))))
    wanted = shape(resources=(Amount("fpga", 2),))

    [grant] = place(view, wanted, [0, 1]) or ()
    assert (grant.node, grant.resources) == ("n2", (Amount("fpga", 2),))
    checkpoint = view.checkpoint()
    view.take(1, grant)
    assert place(view, wanted, [0, 1]) is None
    assert not is_possible(view, (grant,), {"n2": 1})
    assert names(view, shape(resources=(Amount("fpga", 1),))) == ["n1"]
    assert names(view, shape(resources=(Amount("tmp", 100),))) == ["n2"]
    assert names(view, shape(resources=(Amount("tmp", 101),))) is None
    assert names(view, shape(resources=(Amount("nic", 1),))) is None
    view.rollback(checkpoint)
    assert is_possible(view, (grant,), {"n2": 1})


def test_licences_are_counted_once_for_the_whole_job() -> None:
    view = overlay(node("n1"), node("n2"), free_licenses={"matlab": 3})
    wanted = shape(nodes_min=2, nodes_max=2, licenses=(Amount("matlab", 2),))

    grants = place(view, wanted, [0, 1])

    assert grants is not None and [grant.licenses for grant in grants] == [(Amount("matlab", 2),), ()]
    view.take_all(view.node_table.index_of, grants)
    assert view.free_licenses == {"matlab": 1}
    assert place(view, wanted, [0, 1]) is None and not is_possible(view, grants, view.node_table.index_of)
    for grant in grants:
        view.give_back(view.node_table.index_of[grant.node], grant)
    assert place(view, wanted, [0, 1]) == grants


# ── vectors ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_counts_and_masks_stay_in_step_through_taking_giving_back_and_rolling_back() -> None:
    view = overlay(node("n1"), node("n2", gpu_types=(("a100", 0x0F), ("h100", 0xF0))))
    counts = view.kind_counts(("h100", 0))
    assert counts.tolist() == [0, 4]
    checkpoint = view.checkpoint()
    grant = Grant(node="n2", cpus=(0, 1), gpus=(3, 4), memory_mib=100)

    view.take(1, grant)
    twin = view.copy()
    assert (view.gpu_counts.tolist(), view.cpu_counts.tolist(), view.memory.tolist()) == ([8, 6], [8, 6], [1000, 900])
    assert view.kind_counts(("h100", 0)).tolist() == [0, 3]
    view.rollback(checkpoint)
    assert (view.gpu_counts.tolist(), view.cpu_counts.tolist(), view.memory.tolist()) == ([8, 8], [8, 8], [1000, 1000])
    assert view.kind_counts(("h100", 0)).tolist() == [0, 4]
    assert twin.gpu_counts.tolist() == [8, 6] and twin.kind_counts(("h100", 0)).tolist() == [0, 3]
    twin.give_back(1, grant)
    assert twin.free_gpus == view.free_gpus and twin.memory.tolist() == [1000, 1000]


def test_what_is_found_of_nodes_is_kept_as_long_as_they_are_the_same() -> None:
    nodes = (node("n1"), node("n2"))
    assert node_table_of(nodes) is node_table_of(nodes)
    assert node_table_of(nodes) is not node_table_of((node("n1"), node("n2")))
    assert eligible_places(nodes, shape(gpus=1), MAIN) is eligible_places(nodes, shape(gpus=2), MAIN)
    assert eligible_places(nodes, shape(exclude=("n1",)), MAIN).tolist() == [1]


def test_room_is_counted_in_units_of_the_request() -> None:
    view = busy(overlay(node("n1"), node("n2"), node("n3", gpus=0)), n2=6)

    assert capacities(view, shape(gpus=4), np.arange(3)).tolist() == [4, 2, 0]
    assert capacities(view, shape(ntasks=100, cpus_per_task=3), np.arange(3)).tolist() == [2, 0, 2]
    assert capacities(view, shape(gpus=9, mem_per_gpu_mib=400), np.arange(3)).tolist() == [2, 2, 0]
