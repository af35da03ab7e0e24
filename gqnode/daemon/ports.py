"""Ports for the rendezvous of jobs: leased to one attempt at a time, from this node's own range.

A lease says only that no other job of this node was told the same port; nothing listens on it until the job does.
"""

from __future__ import annotations

import socket

from gq.errors import Refusal
from gq.model.ids import AttemptId


class PortLeases:
    def __init__(self, first: int, last: int) -> None:
        self._first = first
        self._count = last - first + 1
        self._next = 0
        self._leased: dict[AttemptId, int] = {}

    def lease(self, attempt_id: AttemptId, wanted: int = 0) -> int:
        """A free port; `wanted` (leased before a restart) whatever else.  `Refusal` when none is left.

        Ports are given round the range, so that one that was just used rests.
        """
        if attempt_id in self._leased:
            return self._leased[attempt_id]
        if wanted:
            self._leased[attempt_id] = wanted
            return wanted
        taken = set(self._leased.values())
        for step in range(self._count):
            port = self._first + (self._next + step) % self._count
            if port not in taken and _is_free(port):
                self._next = (port - self._first + 1) % self._count
                self._leased[attempt_id] = port
                return port
        last = self._first + self._count - 1
        raise Refusal("no_port", f"no port of {self._first}–{last} is free", "enlarge the node's port_range")

    def keep(self, attempt_id: AttemptId, port: int) -> None:
        """Leased in an earlier life of the daemon."""
        self._leased[attempt_id] = port

    def release(self, attempt_id: AttemptId) -> None:
        self._leased.pop(attempt_id, None)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
