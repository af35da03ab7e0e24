"""Facts of running jobs whose GPUs become more or fewer: see `gqd.state.events.event`.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class GpusAdded(EventBase, frozen=True, kw_only=True):
    """It holds these, too, from now on."""

    attempt_id: AttemptId
    gpus: tuple[int, ...]
    cpus: tuple[int, ...] = ()
    billing: int
    """Of all that it holds now; see `JobAllocated`."""


class ShrinkDecided(EventBase, frozen=True, kw_only=True):
    """It is to have given up all but these by then; until its node says so it holds the others, too."""

    attempt_id: AttemptId
    keeps: tuple[int, ...]
    keeps_cpus: tuple[int, ...] | None = None
    """None: all that it has."""
    ends_at: float
    to: tuple[tuple[JobId, int], ...] = ()
    """The jobs for which they are kept, and how many of them for each."""


class ShrinkAccepted(EventBase, frozen=True, kw_only=True):
    """It says that it does not need them any more."""

    attempt_id: AttemptId


class ShrinkAgreed(EventBase, frozen=True, kw_only=True):
    """The job's owner has agreed to keep at most `agreed` GPUs, or nodes, until the askers' jobs have ended."""

    attempt_id: AttemptId
    agreed: int
    askers: tuple[tuple[str, int], ...] = ()
    """Name and uid of each user who asked."""


class GpusGivenUp(EventBase, frozen=True, kw_only=True):
    """Its node says that it has only what it was to keep."""

    attempt_id: AttemptId
    billing: int


class NodeAdded(EventBase, frozen=True, kw_only=True):
    """It holds this share of one more node, too, which is to be prepared for it."""

    attempt_id: AttemptId
    grant: Grant
    billing: int
    """As of `GpusAdded`."""


class NodesGoing(EventBase, frozen=True, kw_only=True):
    """It is to give these up, whole, by then."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    ends_at: float
    to: tuple[tuple[JobId, int], ...] = ()
    """As of `ShrinkDecided`."""


class NodesLeft(EventBase, frozen=True, kw_only=True):
    """It goes on without these: what is there of it is ended, and free when its node says that it is empty."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    ends_at: float
    """By then it should be."""
    billing: int
