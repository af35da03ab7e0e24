"""Requests for notices and for the change log: messages between clients and the controller."""

from __future__ import annotations

import msgspec

from gq.model.notice import EventInfo, NoticeInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class QueryEvents(_Body, frozen=True, kw_only=True):
    """Query the change log, oldest line first: of the caller's jobs; operators see all lines.  → `Events`

    Paged by ``after``.  While no line matches, the answer is held back for at most ``wait_s`` (at most 30).
    """

    after: int = 0
    """Only lines with a larger number."""
    since: float | None = None
    """Only lines from this instant on."""
    job_ids: tuple[int, ...] = ()
    """Job ids; an array's id stands for its tasks, too."""
    types: tuple[str, ...] = ()
    limit: int = 1000
    wait_s: float = 0.0
    from_now: bool = False
    """Return no existing line, only the number after which to continue."""


class ListNotices(_Body, frozen=True, kw_only=True):
    """List the caller's notices, newest last; operators see all notices.  → `Notices`"""

    user: str = ""
    """Only this user's notices."""
    job_ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    after: int = 0
    limit: int = 1000


class Events(_Body, frozen=True, kw_only=True):
    """A page of the change log; ``last`` is the ``after`` of the next request."""

    events: tuple[EventInfo, ...] = ()
    last: int = 0
    more: bool = False


class Notices(_Body, frozen=True, kw_only=True):
    """A page of notices; ``dropped``: user → notices dropped for lack of room since the user's last stored notice."""

    notices: tuple[NoticeInfo, ...] = ()
    dropped: dict[str, int] = {}
    more: bool = False
