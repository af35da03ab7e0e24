"""Reports of a job about its checkpoints and resumption: messages between clients and the controller."""

from __future__ import annotations

import msgspec


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class CheckpointDone(_Body, frozen=True, kw_only=True):
    """The running job has saved all of its work so far: ending it now loses nothing.  → `Done`

    More than once a second it has no effect.
    """

    job_id: int


class ResumeDone(_Body, frozen=True, kw_only=True):
    """The restarted job has reached the point where it was stopped.  → `Done`

    Only the first report of an attempt counts, and only in attempts after the first.
    """

    job_id: int


class GiveUpGpus(_Body, frozen=True, kw_only=True):
    """The running job has stopped using the GPUs or nodes that it must release: they may be taken at once.  → `Done`

    ``generation``: of the request to release; None: the newest.  Without a release under way nothing changes.
    """

    job_id: int
    generation: int | None = None
