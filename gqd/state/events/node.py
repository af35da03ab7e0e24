"""Events of nodes: registered, lost, drained, removed.  Pure."""

from __future__ import annotations

from gq.model.node import Inventory
from gqd.state.events.record import EventBase


class NodeRegistered(EventBase, frozen=True, kw_only=True):
    node: str
    address: str
    inventory: Inventory
    incarnation: str
    boot_id: str
    step_endpoint: str
    step_public_key: str = ""
    ticket_key: bytes = b""


class NodeLost(EventBase, frozen=True, kw_only=True):
    """The node was silent for too long; it gets no jobs until it registers again."""

    node: str


class NodeDrained(EventBase, frozen=True, kw_only=True):
    """The node gets no new jobs; with ``gpu`` only that GPU is withheld."""

    node: str
    reason: str
    by: str
    gpu: int | None = None


class NodeSetDown(EventBase, frozen=True, kw_only=True):
    """An administrator set the node down: it gets no new jobs, and its jobs are ended as on a lost node."""

    node: str
    reason: str
    by: str


class NodeResumed(EventBase, frozen=True, kw_only=True):
    node: str
    gpu: int | None = None


class NodeBackedOff(EventBase, frozen=True, kw_only=True):
    """The planner leaves out the node until ``until``, after ``failures`` consecutive failed launches."""

    node: str
    until: float
    failures: int


class NodeBackoffCleared(EventBase, frozen=True, kw_only=True):
    node: str


class NodeRemoved(EventBase, frozen=True, kw_only=True):
    """The node was removed from the cluster, and its keys are void; its parts were emptied before (`PartEmptied`).

    A key that is pinned by a file is void until `KeyFileGone`.
    """

    node: str
    reason: str
    by: str


class KeyFileGone(EventBase, frozen=True, kw_only=True):
    """The pinned key file of a removed node was deleted; a file that appears later is a new one."""

    node: str
