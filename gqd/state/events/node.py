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
    """Silent for too long; gets no jobs until it registers again."""

    node: str


class NodeDrained(EventBase, frozen=True, kw_only=True):
    """Gets no new jobs.  ``gpu``: only that one GPU is withheld."""

    node: str
    reason: str
    by: str
    gpu: int | None = None


class NodeSetDown(EventBase, frozen=True, kw_only=True):
    """By an administrator: no new jobs, and what runs there is ended as on a lost node."""

    node: str
    reason: str
    by: str


class NodeResumed(EventBase, frozen=True, kw_only=True):
    node: str
    gpu: int | None = None


class NodeBackedOff(EventBase, frozen=True, kw_only=True):
    """Left out of planning until ``until``, after ``failures`` launches in a row that it failed."""

    node: str
    until: float
    failures: int


class NodeBackoffCleared(EventBase, frozen=True, kw_only=True):
    node: str


class NodeRemoved(EventBase, frozen=True, kw_only=True):
    """No longer part of the cluster; its keys are void.  What it held was given up before (`PartEmptied`).

    A key of it that was pinned by hand is void, too, until `KeyFileGone`.
    """

    node: str
    reason: str
    by: str


class KeyFileGone(EventBase, frozen=True, kw_only=True):
    """The file with the key of a removed node is deleted: one that is put there now is a new one."""

    node: str
