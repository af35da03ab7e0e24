"""Submits due crontab entries as jobs, after looking up their owner on this host.

The submissions pass the site's submit hook like all others.  Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gq.errors import Refusal
from gq.model.ids import RequestId
from gq.wire.client import Submit
from gqd.shell.listeners.users import UserDirectory
from gqd.state.effect import FireCron
from gqd.state.input import ClientRequest, Peer

NOBODY = ("", b"")
"""The route of the answer, which no client waits for."""


class CronFire:
    """Submits due entries through `enter`."""

    def __init__(self, users: UserDirectory, enter: Callable[[ClientRequest, dict[str, bytes]], None]) -> None:
        self._users = users
        self._enter = enter

    def fire(self, one: FireCron) -> None:
        """Submit one due entry; its script was stored when the crontab was set."""
        cron = one.cron
        try:
            peer = self._users.owner(cron.user, one.uid)
        except Refusal as refusal:
            peer = Peer(uid=one.uid, gid=one.uid, user=cron.user)
            cron = msgspec.structs.replace(cron, why_not=refusal.message)
        request = ClientRequest(
            peer=peer,
            route=NOBODY,
            request_id=RequestId(b""),
            body=Submit(spec=one.spec),
            cron=cron,
        )
        self._enter(request, {})
