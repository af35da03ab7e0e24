"""Reads all pages of the list of accounts, members, QOS and limits."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gq.wire.client import Accounts, ListAccounts

PAGE = 2000


def whole_list(ask: Callable[[ListAccounts], Accounts], query: ListAccounts) -> Accounts:
    """Return all pages of the query as one answer; a controller of the previous version sends everything at once."""
    query = msgspec.structs.replace(query, limit=PAGE)
    pages = [ask(query)]
    while pages[-1].more:
        pages.append(ask(msgspec.structs.replace(query, after=pages[-1].last)))
    return Accounts(
        accounts=tuple([account for page in pages for account in page.accounts]),
        members=tuple([member for page in pages for member in page.members]),
        qos=tuple([one for page in pages for one in page.qos]),
        limits=tuple([limit for page in pages for limit in page.limits]),
        defaults={user: account for page in pages for user, account in page.defaults.items()},
        past=tuple([one for page in pages for one in page.past]),
    )
