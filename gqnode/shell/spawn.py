"""The forkserver: a small process that forks shepherds.  (skeleton)"""

from __future__ import annotations


class Spawner:
    """The daemon's end.  Make it before any heavy import: `Spawner.start()` forks."""

    @classmethod
    def start(cls) -> Spawner:
        """Fork the forkserver out of this (still slim, single-threaded) process."""
        return cls()
