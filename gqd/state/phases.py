"""Small enums of the durable state: what follows an attempt's end, the origin of a hold, the phase of a part.  Pure."""

from __future__ import annotations

from enum import StrEnum


class AfterEnding(StrEnum):
    """The job's fate when all parts of its attempt are empty."""

    END = "end"
    REQUEUE = "requeue"
    """The job is pending again; this counts as a restart if the attempt had started."""
    RETRY = "retry"
    """The job is pending again after a failed launch; it keeps its priority, and this counts as no restart."""


class Hold(StrEnum):
    """Origin of the hold of a pending job."""

    USER = "user"
    ADMIN = "admin"
    LAUNCH = "launch"
    """The controller held the job after too many failed launches."""


class PartPhase(StrEnum):
    """Phase of a part; the order that is owed to the part's node follows from it."""

    PREPARING = "preparing"
    """The node is owed `Prepare`."""
    PREPARED = "prepared"
    GOING = "going"
    """The node is owed `Go` (for a job on one node: `Prepare` with go)."""
    LIVE = "live"
    STOPPING = "stopping"
    """The node is owed `Stop`."""
