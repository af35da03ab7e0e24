"""Who was turned away at a door, said in the log.

Owns how often: the same host for the same reason once in a while, since a host that is not let in knocks every
second.  Decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gqd.shell.log import LOG

SAY_AGAIN_S = 60.0
MAX_WORDS = 300
"""Characters of a reason: it may quote what the stranger says of itself."""
MAX_KNOWN = 256
"""So that strangers cannot make the memory grow; when there are more, the log repeats itself sooner."""


class TurnedAway:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._said_at: dict[tuple[str, str], float] = {}

    def say(self, who: str, why: str) -> None:
        why = "".join(one if one.isprintable() else "?" for one in why[:MAX_WORDS])
        now = self._now()
        if now - self._said_at.get((who, why), float("-inf")) < SAY_AGAIN_S:
            return
        if len(self._said_at) >= MAX_KNOWN:
            self._said_at.clear()
        self._said_at[(who, why)] = now
        LOG.warning("%s was turned away: %s", who, why)
