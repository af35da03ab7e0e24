"""Events of elastic attempts, which gain and give up GPUs or nodes.  Pure."""

from __future__ import annotations

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gqd.state.events.record import EventBase


class GpusAdded(EventBase, frozen=True, kw_only=True):
    """The attempt gained these GPUs and CPUs."""

    attempt_id: AttemptId
    gpus: tuple[int, ...]
    cpus: tuple[int, ...] = ()
    billing: int
    """Billing rate of all resources that the attempt holds now; see `JobAllocated`."""


class ShrinkDecided(EventBase, frozen=True, kw_only=True):
    """The attempt must release all GPUs but `keeps` by `ends_at`; it holds them until its node reports the release."""

    attempt_id: AttemptId
    keeps: tuple[int, ...]
    keeps_cpus: tuple[int, ...] | None = None
    """CPUs that the attempt keeps; None: all."""
    ends_at: float
    to: tuple[tuple[JobId, int], ...] = ()
    """(job, number of GPUs) for each job that the released GPUs are kept for."""


class ShrinkAccepted(EventBase, frozen=True, kw_only=True):
    """The job reported that it no longer uses the GPUs to be released."""

    attempt_id: AttemptId


class ShrinkAgreed(EventBase, frozen=True, kw_only=True):
    """The job's owner has agreed to keep at most `agreed` GPUs, or nodes, until the askers' jobs have ended."""

    attempt_id: AttemptId
    agreed: int
    askers: tuple[tuple[str, int], ...] = ()
    """Name and uid of each user who asked."""


class GpusGivenUp(EventBase, frozen=True, kw_only=True):
    """The node reported that the attempt has released the GPUs."""

    attempt_id: AttemptId
    billing: int


class NodeAdded(EventBase, frozen=True, kw_only=True):
    """The attempt gained a share of another node, which is to be prepared."""

    attempt_id: AttemptId
    grant: Grant
    billing: int
    """Billing rate of all resources that the attempt holds now."""


class NodesGoing(EventBase, frozen=True, kw_only=True):
    """The attempt must give up these nodes by `ends_at`."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    ends_at: float
    to: tuple[tuple[JobId, int], ...] = ()
    """(job, number of nodes) for each job that the nodes are kept for."""


class NodesLeft(EventBase, frozen=True, kw_only=True):
    """The attempt continues without these nodes: its processes there are ended, and each node is free when it is
    empty."""

    attempt_id: AttemptId
    nodes: tuple[str, ...]
    ends_at: float
    """Instant by which the nodes are expected to be empty."""
    billing: int
