"""Facts of jobs that give way by standing still, and lend what they hold: see `gqd.state.events.event`.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class JobParking(EventBase, frozen=True, kw_only=True):
    """Its node is to stop its processes where they are, and to say what they hold of the memory of its GPUs."""

    attempt_id: AttemptId
    to: JobId
    """For whom."""


class JobParked(EventBase, frozen=True, kw_only=True):
    """It stands still; what it lends is free for the other job, and for nobody else."""

    attempt_id: AttemptId
    lent: Grant
    """CPUs and GPUs; its memory and all else it keeps."""
    gpu_memory: tuple[tuple[int, int], ...] = ()
    """(GPU, MiB that it holds), of those that it lends."""


class JobUnparked(EventBase, frozen=True, kw_only=True):
    """It has back what it lent, and is to go on."""

    attempt_id: AttemptId
