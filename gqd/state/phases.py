"""Small words of the durable state: what follows an attempt's end, who holds a job, how far a part is.  Pure."""

from __future__ import annotations

from enum import StrEnum


class AfterEnding(StrEnum):
    """What becomes of a job when its attempt's parts are all gone."""

    END = "end"
    REQUEUE = "requeue"
    """Pending again; counts as a restart if the attempt had started."""
    RETRY = "retry"
    """Pending again after a failed launch; keeps its place, counts nothing."""


class Hold(StrEnum):
    """Who holds a pending job."""

    USER = "user"
    ADMIN = "admin"
    LAUNCH = "launch"
    """The system, after too many failed launches."""


class PartPhase(StrEnum):
    """How far one node's share of an attempt is; the order that is owed to the node follows from it."""

    PREPARING = "preparing"
    """Owed: `Prepare`."""
    PREPARED = "prepared"
    GOING = "going"
    """Owed: `Go` (a job of one node: `Prepare` with go)."""
    LIVE = "live"
    STOPPING = "stopping"
    """Owed: `Stop`."""
