"""Requests about crontabs, and what answers them; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.crontab import CronEntry, CrontabInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class CronJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry, and what its jobs run; as a `Submit` would bring it."""

    entry: CronEntry
    script: bytes = b""
    environment: dict[str, str] = {}


class SetCrontab(_Body, frozen=True, kw_only=True):
    """This is the crontab from now on; what is the same in it goes on as it was.  → `Crontab`

    ``text`` is kept to be shown and edited; what is done is what ``jobs`` say.
    """

    text: str
    jobs: tuple[CronJob, ...]
    user: str = ""
    """Empty: the caller's own; another's: administrators only, since it acts as that user."""


class GetCrontab(_Body, frozen=True, kw_only=True):
    """→ `Crontab`, with the next ``count`` due times of each entry"""

    user: str = ""
    count: int = 1


class RemoveCrontab(_Body, frozen=True, kw_only=True):
    """Jobs that it became go on.  → `Done`"""

    user: str = ""


class ListCrontabs(_Body, frozen=True, kw_only=True):
    """Those of all users (operators).  → `Crontabs`"""

    after: str = ""
    """Of the answer before, its last user."""
    limit: int = 500


class Crontab(_Body, frozen=True, kw_only=True):
    crontab: CrontabInfo


class Crontabs(_Body, frozen=True, kw_only=True):
    """By user."""

    crontabs: tuple[CrontabInfo, ...]
    more: bool = False
