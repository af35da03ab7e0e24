"""The first time at which a job fits, against ending the running jobs one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest
from gqd.sched.placement import place
from gqd.sched.shape import shape_of
from gqd.sched.timeline import earliest_fit
from gqd.sched.view import NodeFacts, Overlay, RunningJob

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
