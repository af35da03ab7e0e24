"""What the doors turned away: counted by the doors, said in the log, and told to the deciding code for the audit trail.

Owns how often.  The trail is only ever added to, on a disk that strangers must not fill: the same thing from the same
place at most once a minute, and of all things together so many a minute and no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gqd.shell.inbox import Inbox
from gqd.shell.metrics import Counters
from gqd.shell.turned_away import TurnedAway
from gqd.state.input import DoorIncident

AGAIN_S = 60.0
MAX_PER_MINUTE = 120
"""Places and things that are remembered, and so entries of the trail, in one minute."""


class Incidents:
    def __init__(
        self,
        inbox: Inbox,
        counters: Counters,
        turned_away: TurnedAway | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox = inbox
        self._counters = counters
        self._turned_away = turned_away or TurnedAway()
        self._now = now
        self._told_at: dict[tuple[str, str], float] = {}

    def tell(self, action: str, origin: str, detail: str, user: str = "", uid: int | None = None) -> None:
        """`origin` as in `AuditEntry`: ``local``, ``node n1``, the address of a stranger."""
        self._turned_away.say(_host(origin), detail)
        now = self._now()
        if now - self._told_at.get((action, origin), float("-inf")) < AGAIN_S:
            return
        if not self._has_room(now):
            self._counters.incidents_untold += 1
            return
        self._told_at[(action, origin)] = now
        self._counters.incidents += 1
        self._inbox.put(DoorIncident(action=action, origin=origin, detail=detail, user=user, uid=uid))

    def _has_room(self, now: float) -> bool:
        if len(self._told_at) >= MAX_PER_MINUTE:
            self._told_at = {key: at for key, at in self._told_at.items() if now - at < AGAIN_S}
        return len(self._told_at) < MAX_PER_MINUTE


def _host(origin: str) -> str:
    """The origin as the log puts it."""
    return origin if origin.startswith(("node ", "key ", "local", "somebody")) else f"a host at {origin}"
