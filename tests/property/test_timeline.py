"""The first time at which a job fits, against ending the running jobs one by one."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq.model.ids import JobId
from gq.model.resource import Amount, Grant, ResourceRequest
from gqd.sched.placement.placement import place
from gqd.sched.request import shape_of
from gqd.sched.snapshot.model import Overlay, RunningJob
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.timeline.timeline import Timeline, earliest_fit, release_of

NODES = tuple(NodeFacts(f"n{number}", 4, 100, (("a", 0b1111),)) for number in (1, 2, 3))
ENDS = st.none() | st.integers(0, 5).map(float)


@settings(max_examples=200, deadline=None)
@given(
    held=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), ENDS), max_size=8, unique_by=lambda one: one[:2]),
    request=st.builds(ResourceRequest, ntasks=st.integers(1, 6), gpus_per_task=st.integers(1, 2))
    | st.builds(ResourceRequest, nodes_min=st.integers(1, 3), gpus_per_node=st.integers(1, 4)),
)
def test_it_is_the_first_end_after_which_the_job_fits(
    held: list[tuple[int, int, float | None]], request: ResourceRequest
) -> None:
    shape = shape_of(request, "main")
    running = [
        RunningJob(JobId(number), "ada", (Grant(node=f"n{node + 1}", cpus=(one,), gpus=(one,)),), ends_at)
        for number, (node, one, ends_at) in enumerate(held)
    ]
    overlay = Overlay.empty(NODES)
    places = {node.name: one for one, node in enumerate(NODES)}
    for job in running:
        overlay.take_all(places, job.grants)
    before = (list(overlay.free_cpus), list(overlay.free_gpus))

    fit = earliest_fit(overlay, shape, [0, 1, 2], running, now=2.0)

    assert (overlay.free_cpus, overlay.free_gpus) == before
    expected = None
    for now in (None, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        for job in running:
            if now is not None and job.ends_at == now:
                overlay.give_back(places[job.grants[0].node], job.grants[0])
        if place(overlay, shape, [0, 1, 2]) is not None:
            expected = max(2.0, now or 0.0)
            break
    assert (None if fit is None else fit[0]) == expected


class Held(NamedTuple):
    """By somebody who is protected."""

    at: float
    until: float
    grants: tuple[Grant, ...]


SLOTS = st.tuples(st.integers(0, 2), st.integers(0, 3))
WINDOWS = st.lists(st.tuples(SLOTS, st.integers(0, 6), st.integers(1, 4)), max_size=6)


@settings(max_examples=400, deadline=None)
@given(
    held=st.lists(st.tuples(SLOTS, ENDS, st.booleans()), max_size=10, unique_by=lambda one: one[0]),
    taken=WINDOWS,
    length=st.integers(1, 5).map(float) | st.just(inf),
    request=st.builds(ResourceRequest, ntasks=st.integers(1, 6), gpus_per_task=st.integers(1, 2))
    | st.builds(ResourceRequest, nodes_min=st.integers(1, 3), gpus_per_node=st.integers(1, 4)),
)
@pytest.mark.slow
def test_beside_those_who_are_protected_it_is_the_first_instant_at_which_it_fits_for_so_long(
    held: list[tuple[tuple[int, int], float | None, bool]],
    taken: list[tuple[tuple[int, int], int, int]],
    length: float,
    request: ResourceRequest,
) -> None:
    """Some of those that run hold a licence, too."""
    shape, now = shape_of(request, "main"), 2.0
    overlay = Overlay.empty(NODES)
    overlay.free_licenses = {"solver": 100}
    places = {node.name: one for one, node in enumerate(NODES)}
    ends = [(now if at is None else max(now, at), _grant(slot, has), at is None) for slot, at, has in held]
    for _, grant, _ in ends:
        overlay.take_all(places, (grant,))
    windows = [Held(float(at), float(at + lasts), (_grant(slot, False),)) for slot, at, lasts in taken]
    endings = [release_of(inf if is_endless else at, places, (grant,)) for at, grant, is_endless in ends]

    fit = Timeline(overlay, places, now, endings).earliest(shape, [0, 1, 2], length, windows)

    instants = {now} | {at for at, _, is_endless in ends if not is_endless} | {one.until for one in windows}
    expected = None
    for at in sorted(one for one in instants if one >= now):
        free = overlay.copy()
        for ends_at, grant, is_endless in ends:
            if not is_endless and ends_at <= at:
                free.give_back(places[grant.node], grant)
        for one in windows:
            if one.at < at + length and one.until > at:
                free.take_all(places, one.grants)
        if place(free, shape, [0, 1, 2]) is not None:
            expected = at
            break
    assert (None if fit is None else fit.at) == expected


def _grant(slot: tuple[int, int], has_license: bool) -> Grant:
    node, one = slot
    licenses = (Amount("solver", 1),) if has_license else ()
    return Grant(node=f"n{node + 1}", cpus=(one,), gpus=(one,), licenses=licenses)
