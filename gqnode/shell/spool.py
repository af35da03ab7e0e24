"""What this node must remember of its attempts, one directory per attempt.  (skeleton)"""

from __future__ import annotations

from gq.model.ids import AttemptId
from gqnode.control.attempt import AttemptRecord


class Spool:
    """``<root>/<job>.<attempt>/``: the record, its blobs, and what its shepherd writes."""

    def __init__(self, root: str) -> None: ...

    def directory(self, attempt_id: AttemptId) -> str:
        """Where the attempt's files are (exists after the first `save`)."""
        raise NotImplementedError

    def save(self, record: AttemptRecord, blobs: dict[str, bytes] | None = None) -> None:
        """Keep the record (and blobs it names) in place of what was there; `OSError` if it cannot be: nothing changed then."""

    def blob(self, attempt_id: AttemptId, digest: str) -> bytes:
        """A script or an environment saved with the attempt."""
        raise NotImplementedError

    def load(self) -> list[AttemptRecord]:
        """All records, by attempt; what cannot be read is logged and set aside under ``<root>/corrupt/``."""
        raise NotImplementedError

    def drop(self, attempt_id: AttemptId) -> None:
        """Remove the attempt's directory; nothing if there is none."""
