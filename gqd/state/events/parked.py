"""Events of parked attempts, which are suspended for a preemptor and lend their resources.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class JobParking(EventBase, frozen=True, kw_only=True):
    """The attempt's node is ordered to suspend its processes and to report the GPU memory that they occupy."""

    attempt_id: AttemptId
    to: JobId
    """The preemptor."""


class JobParked(EventBase, frozen=True, kw_only=True):
    """The attempt is suspended; the lent resources are free for the preemptor only."""

    attempt_id: AttemptId
    lent: Grant
    """Lent CPUs and GPUs; the attempt keeps its memory and all other resources."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB that the attempt still occupies) for the lent GPUs."""


class JobUnparked(EventBase, frozen=True, kw_only=True):
    """The attempt has got the lent resources back, and is to be resumed."""

    attempt_id: AttemptId
