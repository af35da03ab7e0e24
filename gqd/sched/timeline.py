"""When something would fit, from the time limits of what runs.  Pure.

An estimate: running jobs end at their limits, none earlier; nothing else starts meanwhile.
"""

from __future__ import annotations

from gq.model.resource import Grant
from gqd.sched.placement import place
from gqd.sched.shape import Shape
from gqd.sched.view import Overlay, RunningJob

MAX_STEPS = 10_000


def earliest_fit(
    overlay: Overlay, shape: Shape, candidates: list[int], running: tuple[RunningJob, ...], now: float
) -> tuple[float, tuple[Grant, ...]] | None:
    """(instant, grants) of the first time that the shape fits as running jobs reach their limits.

    None: not before a job without a limit ends.  The overlay is left as it was.
    """
    if (grants := place(overlay, shape, candidates)) is not None:
        return now, grants
    checkpoint = overlay.checkpoint()
    places = {node.name: one for one, node in enumerate(overlay.nodes)}
    ending = sorted((job for job in running if job.ends_at is not None and not job.is_stranded), key=_end)
    try:
        for job in ending[:MAX_STEPS]:
            for grant in job.grants:
                if grant.node in places:
                    overlay.give_back(places[grant.node], grant)
            if (grants := place(overlay, shape, candidates)) is not None:
                return max(now, _end(job)), grants
        return None
    finally:
        overlay.rollback(checkpoint)


def _end(job: RunningJob) -> float:
    assert job.ends_at is not None
    return job.ends_at
