"""Gangs of roles on random clusters: what they get is free, exact and disjoint, and the overlay is left as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gq.model.resource import ResourceRequest, Role, RoleRequest
from gqd.sched.placement.placement import place
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts

CPUS, GPUS, MEMORY_MIB = 8, 4, 1000
Units = list[tuple[int, int, int]]
"""Tasks: CPUs, GPUs, MiB."""


def overlays() -> st.SearchStrategy[Overlay]:
    node = st.tuples(st.integers(0, 2**CPUS - 1), st.integers(0, 2**GPUS - 1), st.integers(0, MEMORY_MIB))
    return st.lists(node, min_size=1, max_size=4).map(_overlay)


def _overlay(free: list[tuple[int, int, int]]) -> Overlay:
    facts = tuple(NodeFacts(f"n{i}", CPUS, MEMORY_MIB, (("fake", 2**GPUS - 1),)) for i in range(len(free)))
    return Overlay(facts, [one[0] for one in free], [one[1] for one in free], [one[2] for one in free])


def role_requests() -> st.SearchStrategy[RoleRequest]:
    return st.builds(
        RoleRequest,
        ntasks=st.integers(1, 4),
        cpus_per_task=st.integers(1, 3),
        gpus_per_task=st.sampled_from([None, None, 1, 2]),
        mem_per_cpu_mib=st.sampled_from([None, 50, 200]),
    )


def gangs() -> st.SearchStrategy[ResourceRequest]:
    return st.lists(role_requests(), min_size=1, max_size=3).map(
        lambda ones: ResourceRequest(
            roles=tuple(Role(name=f"r{number}", resources=one) for number, one in enumerate(ones))
        )
    )


def fits(free: list[list[int]], tasks: Units) -> bool:
    """Every way of dealing the tasks out is tried."""
    if not tasks:
        return True
    for node in free:
        left = [have - want for have, want in zip(node, tasks[0], strict=True)]
        if min(left) >= 0:
            before, node[:] = node[:], left
            found = fits(free, tasks[1:])
            node[:] = before
            if found:
                return True
    return False


def units(gang: ResourceRequest) -> Units:
    return [
        (cpus, one.gpus_per_task or 0, (one.mem_per_cpu_mib or 0) * cpus)
        for role in gang.roles
        for one in [role.resources]
        for cpus in [one.cpus_per_task or 1]
        for _ in range(one.ntasks or 1)
    ]


@given(overlays(), gangs())
def test_a_gang_gets_what_it_asks_for_of_what_is_free_or_nothing(overlay: Overlay, gang: ResourceRequest) -> None:
    before = (list(overlay.free_cpus), list(overlay.free_gpus), list(overlay.free_memory_mib))
    grants = place(overlay, shape_of(gang, "main"), list(range(len(overlay.nodes))))

    assert (list(overlay.free_cpus), list(overlay.free_gpus), list(overlay.free_memory_mib)) == before
    if grants is None:
        return
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    for grant in grants:
        one = places[grant.node]
        assert sum(1 << cpu for cpu in grant.cpus) & ~overlay.free_cpus[one] == 0
        assert sum(1 << gpu for gpu in grant.gpus) & ~overlay.free_gpus[one] == 0
        assert grant.memory_mib <= overlay.free_memory_mib[one]
        assert sorted(cpu for share in grant.roles for cpu in share.cpus) == list(grant.cpus)
        assert sorted(gpu for share in grant.roles for gpu in share.gpus) == list(grant.gpus)
        assert (sum(share.tasks for share in grant.roles), sum(share.memory_mib for share in grant.roles)) == (
            grant.tasks,
            grant.memory_mib,
        )
    for role in gang.roles:
        shares = [share for grant in grants for share in grant.roles if share.role == role.name]
        tasks = sum(share.tasks for share in shares)
        assert tasks == role.resources.ntasks
        assert sum(len(share.gpus) for share in shares) == tasks * (role.resources.gpus_per_task or 0)
        assert sum(len(share.cpus) for share in shares) == tasks * (role.resources.cpus_per_task or 1)


@given(overlays(), gangs())
def test_a_gang_that_gets_something_could_and_one_of_a_single_role_gets_it_whenever_it_can(
    overlay: Overlay, gang: ResourceRequest
) -> None:
    free = [
        [overlay.free_cpus[one].bit_count(), overlay.free_gpus[one].bit_count(), overlay.free_memory_mib[one]]
        for one in range(len(overlay.nodes))
    ]
    grants = place(overlay, shape_of(gang, "main"), list(range(len(overlay.nodes))))
    is_possible = fits(free, units(gang))

    assert grants is None or is_possible
    if len(gang.roles) == 1:
        assert (grants is not None) == is_possible
