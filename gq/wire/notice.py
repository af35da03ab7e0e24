"""Asking for notices and for the change log: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.notice import EventInfo, NoticeInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class QueryEvents(_Body, frozen=True, kw_only=True):
    """Lines of the change log, oldest first: of the caller's jobs; operators see all.  → `Events`

    Paged by ``after``.  Where there is none yet, the answer is held back for ``wait_s`` (at most 30) until there is.
    """

    after: int = 0
    """Lines with a larger number."""
    since: float | None = None
    """Not from before."""
    job_ids: tuple[int, ...] = ()
    """An array's id means all of its tasks, too."""
    types: tuple[str, ...] = ()
    limit: int = 1000
    wait_s: float = 0.0
    from_now: bool = False
    """Nothing that there is already: the answer says only after which number to go on."""


class ListNotices(_Body, frozen=True, kw_only=True):
    """The caller's notices, newest last; operators see those of all.  → `Notices`"""

    user: str = ""
    """Of this one only."""
    job_ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    after: int = 0
    limit: int = 1000


class Events(_Body, frozen=True, kw_only=True):
    """``last``: ask on with ``after`` = this."""

    events: tuple[EventInfo, ...] = ()
    last: int = 0
    more: bool = False


class Notices(_Body, frozen=True, kw_only=True):
    """``dropped``: by user, notices for which there was no room since the last one for which there was."""

    notices: tuple[NoticeInfo, ...] = ()
    dropped: dict[str, int] = {}
    more: bool = False
