"""Delivers notices: to URLs and mail systems in threads, to commands as a job of their owner.

Owns the threads, whose number the deciding code bounds.  Nothing waits for them, not even at the end: a notice without
a reported result stays in the outbox and is sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable

from gq.errors import Refusal
from gq.model.notice import COMMAND, MAIL, NotifySettings
from gqd.shell.inbox import Inbox
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.log import LOG
from gqd.shell.notify import mail, webhook
from gqd.shell.notify.webhook import NotDelivered
from gqd.state.effect import SendNotice
from gqd.state.input import NoticeCommand, NoticeReported, Peer

SCRIPT = b"""\
#!/bin/sh
# Run for a notice of gq: the command, then what it is told of as NAME=VALUE.
command=$1
shift
for one in "$@"; do
    export "${one?}"
done
exec /bin/sh -c "$command"
"""
SCRIPT_DIGEST = hashlib.sha256(SCRIPT).hexdigest()

Send = Callable[[NotifySettings, SendNotice], None]


def send_now(settings: NotifySettings, notice: SendNotice) -> None:
    """Deliver one notice, in a thread; raises `NotDelivered`."""
    if notice.kind == MAIL:
        mail.send(settings, notice.user, notice.to, notice.body)
    else:
        webhook.post(settings, notice.kind, notice.to, notice.body)


class Notifier:
    """Starts deliveries and reports their results to the inbox; `settings` may be changed."""

    def __init__(self, settings: NotifySettings, users: UserDirectory, inbox: Inbox, send: Send = send_now) -> None:
        self.settings = settings
        self._users = users
        self._inbox = inbox
        self._send = send
        self._is_closed = False

    def take(self, notice: SendNotice) -> None:
        """Begin one delivery; its result goes into the inbox."""
        if notice.kind == COMMAND:
            self._take_command(notice)
            return
        loop = asyncio.get_running_loop()
        name = f"notice-{notice.notice_id}"
        threading.Thread(target=self._deliver, args=(loop, notice), name=name, daemon=True).start()

    def close(self) -> None:
        """Report no further results; threads that run end by themselves, or with the process."""
        self._is_closed = True

    def _take_command(self, notice: SendNotice) -> None:
        try:
            peer = self._owner(notice)
        except Refusal as refusal:
            self._report(notice, refusal.message, is_final=True)
            return
        command = NoticeCommand(notice_id=notice.notice_id, peer=peer, script_digest=SCRIPT_DIGEST)
        self._inbox.put(command, {SCRIPT_DIGEST: SCRIPT})

    def _owner(self, notice: SendNotice) -> Peer:
        return self._users.enrolled(notice.user, notice.uid, "", "")

    def _deliver(self, loop: asyncio.AbstractEventLoop, notice: SendNotice) -> None:
        """Deliver one notice and report the result; runs in a thread of its own."""
        why, is_final = "", False
        try:
            self._send(self.settings, notice)
        except NotDelivered as failure:
            why, is_final = str(failure) or "not delivered", failure.is_final
        except Exception as error:  # after any error the queue continues, and the owner sees the reason
            LOG.exception("a notice could not be sent")
            why = f"{type(error).__name__}: {error}"
        if not self._is_closed:
            try:
                loop.call_soon_threadsafe(self._report, notice, why, is_final)
            except RuntimeError:  # the loop has closed; after the restart the notice is sent again
                return

    def _report(self, notice: SendNotice, why: str, is_final: bool = False) -> None:
        if why:
            fields = {"notice": notice.notice_id, "attempt": notice.attempt}
            LOG.warning("a notice to %s was not delivered: %s", notice.user, why, extra={"fields": fields})
        if not self._is_closed:
            self._inbox.put(NoticeReported(notice_id=notice.notice_id, why=why, is_final=is_final))
