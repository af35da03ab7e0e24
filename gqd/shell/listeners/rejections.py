"""Records what the listeners reject, in the log and, as inputs, for the audit trail.

Owns the rate: the trail is append-only, and attackers must not fill the disk.  The same rejection from the same origin
is recorded once a minute, and at most `MAX_PER_MINUTE` in total.  Decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gqd.shell.inbox import Inbox
from gqd.shell.log import LOG
from gqd.shell.metrics import Counters
from gqd.state.input import DoorIncident

AGAIN_S = 60.0
MAX_PER_MINUTE = 120
"""Rejections recorded in one minute."""
MAX_WORDS = 300
"""Characters of a reason, which may quote text of the rejected peer."""


class Rejections:
    def __init__(self, inbox: Inbox, counters: Counters, now: Callable[[], float] = time.monotonic) -> None:
        self._inbox = inbox
        self._counters = counters
        self._now = now
        self._told_at: dict[tuple[str, str], float] = {}
        self._is_overrun = False

    def record(self, action: str, origin: str, detail: str, user: str = "", uid: int | None = None) -> None:
        """Record a rejection; `origin` as in `AuditEntry`: ``local``, ``node n1``, or an address."""
        now = self._now()
        place = (
            f"{origin} {uid}" if origin == "local" else origin
        )  # many rejections of one user do not hide those of another
        if now - self._told_at.get((action, place), float("-inf")) < AGAIN_S:
            return
        if not self._has_room(now):
            self._counters.incidents_untold += 1
            return
        self._told_at[(action, place)] = now
        self._counters.incidents += 1
        detail = "".join(one if one.isprintable() else "?" for one in detail[:MAX_WORDS])
        LOG.warning("%s was rejected: %s", _who(origin), detail)
        self._inbox.put(DoorIncident(action=action, origin=origin, detail=detail, user=user, uid=uid))

    def _has_room(self, now: float) -> bool:
        if len(self._told_at) >= MAX_PER_MINUTE:
            self._told_at = {key: at for key, at in self._told_at.items() if now - at < AGAIN_S}
        has_room = len(self._told_at) < MAX_PER_MINUTE
        if not has_room and not self._is_overrun:
            LOG.warning("too many peers are rejected to log them all: see `incidents_untold`")
        self._is_overrun = not has_room
        return has_room


def _who(origin: str) -> str:
    """The origin in words, for the log."""
    if origin == "local":
        return "a process on this host"
    return origin if origin.startswith(("node ", "key ", "munge ")) else f"a host at {origin}"
