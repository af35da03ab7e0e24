"""What a job says of itself while others may want its place: messages between clients and the controller."""

from __future__ import annotations

import msgspec


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class CheckpointDone(_Body, frozen=True, kw_only=True):
    """All that the running job has done so far is saved: if it is ended now, that is not lost.  → `Done`

    Said more often than once a second it changes nothing.
    """

    job_id: int


class ResumeDone(_Body, frozen=True, kw_only=True):
    """The running job, which was started again, is where it was before.  → `Done`

    Only the first time in an attempt counts, and of one that is not the first.
    """

    job_id: int


class GiveUpGpus(_Body, frozen=True, kw_only=True):
    """The running job uses no longer what it was told to give up: that may be taken at once.  → `Done`

    ``generation``: of what it was told; None: of the newest.  Where nothing is to go, nothing changes.
    """

    job_id: int
    generation: int | None = None
