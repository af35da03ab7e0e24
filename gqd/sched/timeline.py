"""When something would fit, from the time limits of what runs.  Pure.

An estimate: running jobs end at their limits, none earlier; nothing else starts meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from gq.model.resource import Grant
from gqd.sched.placement import place
from gqd.sched.shape import Shape
from gqd.sched.view import Overlay, RunningJob


def earliest_fit(
    overlay: Overlay, shape: Shape, candidates: list[int], running: Sequence[RunningJob], now: float
) -> tuple[float, tuple[Grant, ...]] | None:
    """(instant, grants) of the first time that the shape fits as running jobs reach their limits.

    None: not before a job without a limit ends.  The overlay is left as it was.  What fits once fits also when more
    is free, so the first time is found by halving.
    """
    if (grants := place(overlay, shape, candidates)) is not None:
        return now, grants
    checkpoint = overlay.checkpoint()
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    ending = sorted((job for job in running if job.ends_at is not None and not job.is_stranded), key=_end)
    try:
        first = _first_fit(overlay, shape, candidates, places, ending)
        return None if first is None else (max(now, _end(ending[first[0]])), first[1])
    finally:
        overlay.rollback(checkpoint)


def _first_fit(
    overlay: Overlay, shape: Shape, candidates: list[int], places: dict[str, int], ending: list[RunningJob]
) -> tuple[int, tuple[Grant, ...]] | None:
    """(position of the first job after whose end it fits, grants)."""
    found: tuple[int, tuple[Grant, ...]] | None = None
    low, high = 0, len(ending)  # what ended before `low` is given back; it fits once `high` have ended, if ever
    middle = high
    while low < high:
        checkpoint = overlay.checkpoint()
        _give_back(overlay, places, ending[low:middle])
        grants = place(overlay, shape, candidates)
        if grants is None and found is None:
            return None  # not even when all have ended
        if grants is None:
            low = middle
        else:
            overlay.rollback(checkpoint)
            found, high = (middle - 1, grants), middle - 1
        middle = (low + high + 1) // 2
    return found


def _give_back(overlay: Overlay, places: dict[str, int], ended: list[RunningJob]) -> None:
    for job in ended:
        for grant in job.grants:
            if grant.node in places:
                overlay.give_back(places[grant.node], grant)


def _end(job: RunningJob) -> float:
    assert job.ends_at is not None
    return job.ends_at
