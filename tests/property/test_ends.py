"""When running jobs end, and what may fit by numbers alone: against what is worked out anew, end by end."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gqd.sched.placement.placement import place
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.request import shape_of
from gqd.sched.reservation.booking import ReservedGrants
from gqd.sched.snapshot.model import Overlay, RunningJob
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.timeline.capacity_bound import CapacityBound, ReleaseRows, rows_of
from gqd.sched.timeline.timeline import Release, Timeline, release_of
from gqd.state.policy import Policy

NODES = tuple(
    NodeFacts(f"n{number}", 8, 100, (("a" if number % 2 else "b", (1 << gpus) - 1),))
    for number, gpus in enumerate((4, 4, 2, 8))
)
PLACES = {node.name: place for place, node in enumerate(NODES)}
ALL = list(PLACES.values())

JOBS = st.builds(
    RunningJob,
    job_id=st.integers(1, 5).map(JobId),
    user=st.just("ada"),
    grants=st.sampled_from(ALL).map(lambda one: (Grant(node=f"n{one}", cpus=(0,), gpus=(0,)),)),
    ends_at=st.none() | st.integers(0, 12).map(float),
    is_stranded=st.booleans(),
    began_at=st.integers(0, 4).map(float),
    expected_s=st.none() | st.integers(0, 9).map(float),
)


@settings(max_examples=300, deadline=None)
@given(
    there=st.lists(JOBS, max_size=5, unique_by=lambda one: one.job_id),
    steps=st.lists(st.tuples(st.integers(0, 3), st.none() | JOBS, st.booleans()), min_size=1, max_size=8),
    by_limit=st.booleans(),
)
def test_ends_that_are_kept_from_pass_to_pass_are_those_that_are_worked_out_anew(
    there: list[RunningJob], steps: list[tuple[int, RunningJob | None, bool]], by_limit: bool
) -> None:
    """Time goes on; now and then a job comes in the place of the one of its number, and the first goes."""
    policy = Policy()
    warm, now, running = EligibilityCache(NODES, policy), 0.0, tuple(there)
    for passed_s, one, goes in steps:
        now += passed_s
        if one is not None:
            running = (*(each for each in running if each.job_id != one.job_id), one)
        if goes:
            running = running[1:]

        assert warm.endings(running, now, by_limit) == EligibilityCache(NODES, policy).endings(running, now, by_limit)
        assert warm.endings(running, now, not by_limit) == EligibilityCache(NODES, policy).endings(
            running, now, not by_limit
        )


HELD = st.lists(
    st.tuples(st.sampled_from(ALL), st.integers(0, 7), st.integers(0, 40)), max_size=40, unique_by=lambda one: one[:2]
)
REQUESTS = (
    st.builds(ResourceRequest, gpus=st.integers(1, 12), is_dense=st.booleans())
    | st.builds(ResourceRequest, gpus=st.integers(1, 4), gpu_type=st.sampled_from(["a", "b"]))
    | st.builds(ResourceRequest, ntasks=st.integers(1, 9), mem_per_cpu_mib=st.sampled_from([None, 10, 30]))
    | st.builds(ResourceRequest, nodes_min=st.integers(1, 4), gpus_per_node=st.integers(1, 4))
    | st.builds(ResourceRequest, nodes_min=st.integers(1, 3), is_exclusive=st.booleans(), mem_per_node_mib=st.just(0))
)


@settings(max_examples=300, deadline=None)
@given(held=HELD, kept=HELD, request=REQUESTS, low=st.integers(-1, 5))
def test_numbers_rule_out_nothing_that_fits_and_find_the_first_that_may(
    held: list[tuple[int, int, int]], kept: list[tuple[int, int, int]], request: ResourceRequest, low: int
) -> None:
    """Every end gives back a CPU, some memory, and a GPU where the node has so many; some of that is kept."""
    shape, overlay = shape_of(request, "main"), Overlay.empty(NODES)
    grants = [_grant(*one) for one in held]
    for grant in grants:
        overlay.take_all(PLACES, (grant,))
    endings = [release_of(0.0, PLACES, (grant,)) for grant in grants]
    taken = [rows_of(release_of(0.0, PLACES, (_grant(*one),)).cells) for one in kept]
    sums, counts = ReleaseRows.of([one.packed for one in endings]), range(len(endings) + 1)

    may = [CapacityBound(overlay, sums, shape, ALL).may_fit(count, taken) for count in counts]
    later = list(accumulate(endings, _given_back, initial=overlay))
    fits = [place(_beside(one, kept), shape, ALL) is not None for one in later]

    assert [has for has, told in zip(fits, may, strict=True) if has and not told] == []
    assert may == sorted(may)
    low = min(low, len(endings))
    first = next((count for count in counts if count > low and may[count]), None)
    assert CapacityBound(overlay, sums, shape, ALL).first(low, len(endings), taken) == first


def test_of_a_node_with_more_gpus_than_a_number_has_bits_the_first_start_is_found_without_numbers() -> None:
    nodes = (NodeFacts("n1", 8, 100, (("a", (1 << 80) - 1),)),)
    overlay, places = Overlay.empty(nodes), {"n1": 0}
    held = [Grant(node="n1", gpus=tuple(range(40 * one, 40 * one + 40))) for one in (0, 1)]
    overlay.take_all(places, held)
    endings = [release_of(at, places, (grant,)) for at, grant in zip((50.0, 70.0), held, strict=True)]
    window = ReservedGrants(0.0, 60.0, (held[0],))
    shape = shape_of(ResourceRequest(gpus=20), "main")

    fit = Timeline(overlay, places, 10.0, endings).earliest(shape, [0], 100.0, (window,))

    assert fit is not None
    assert (fit.at, len(fit.grants[0].gpus)) == (60.0, 20)


def _grant(node: int, one: int, memory_mib: int) -> Grant:
    gpus = (one,) if NODES[node].gpu_mask >> one & 1 else ()
    return Grant(node=f"n{node}", cpus=(one,), gpus=gpus, memory_mib=memory_mib // 4)


def _given_back(overlay: Overlay, ending: Release) -> Overlay:
    later = overlay.copy()
    later.give_back_cells(ending.cells)
    return later


def _beside(overlay: Overlay, kept: list[tuple[int, int, int]]) -> Overlay:
    left = overlay.copy()
    for one in kept:
        left.take_all(PLACES, (_grant(*one),))
    return left
