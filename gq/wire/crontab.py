"""Requests about crontabs, and their answers; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.model.crontab import CronEntry, CrontabInfo


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class CronJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A crontab entry and the script and environment of its jobs, as in a `Submit`."""

    entry: CronEntry
    script: bytes = b""
    environment: dict[str, str] = {}


class SetCrontab(_Body, frozen=True, kw_only=True):
    """Replace a crontab; unchanged entries keep their state.  → `Crontab`

    ``text`` is stored only to be shown and edited; ``jobs`` define what runs.
    """

    text: str
    jobs: tuple[CronJob, ...]
    user: str = ""
    """Empty: the caller's own crontab.  Administrators only may set another user's, since its jobs run as that user."""


class GetCrontab(_Body, frozen=True, kw_only=True):
    """Get a crontab with the next ``count`` due times of each entry.  → `Crontab`"""

    user: str = ""
    count: int = 1


class RemoveCrontab(_Body, frozen=True, kw_only=True):
    """Remove a crontab; jobs already queued continue.  → `Done`"""

    user: str = ""


class ListCrontabs(_Body, frozen=True, kw_only=True):
    """List the crontabs of all users (operators).  → `Crontabs`"""

    after: str = ""
    """Last user of the previous answer."""
    limit: int = 500


class Crontab(_Body, frozen=True, kw_only=True):
    crontab: CrontabInfo


class Crontabs(_Body, frozen=True, kw_only=True):
    """Crontabs in the order of users."""

    crontabs: tuple[CrontabInfo, ...]
    more: bool = False
