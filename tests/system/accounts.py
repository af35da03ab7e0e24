"""Users of the hosts of a test: files of accounts that lie over the machine's own, which are never written.

Every host has its own, so that one host can know a user whom another does not know, or by another number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Account(NamedTuple):
    """A user, with a group of the same name and number; `groups` are others that the user is in."""

    name: str
    uid: int
    groups: tuple[str, ...] = ()


ALICE = Account("alice", 2001)
BOB = Account("bob", 2002)
CAROL = Account("carol", 2003, ("gqops",))
"""An operator, where the configuration says so."""
DORA = Account("dora", 2004)
"""An administrator, likewise."""
GQ = Account("gq", 990)
"""The user that gqd runs as, where the configuration says so."""
EVERYBODY = (ALICE, BOB, CAROL, DORA)

_SYSTEM = (Account("daemon", 1), Account("nobody", 65534))
_FIRST_GROUP = 3000


def files(accounts: Sequence[Account]) -> dict[str, str]:
    """Name below /etc → content: ``passwd``, ``group`` and ``shadow``, as they are on a host with these users."""
    named = sorted({group for account in accounts for group in account.groups})
    passwd = ["root:x:0:0:root:/root:/bin/sh"]
    passwd += [f"{one.name}:x:{one.uid}:{one.uid}::/nonexistent:/usr/sbin/nologin" for one in _SYSTEM]
    passwd += [f"{one.name}:x:{one.uid}:{one.uid}::{home_of(one)}:/bin/sh" for one in accounts]
    group = [f"{one.name}:x:{one.uid}:" for one in (Account("root", 0), *_SYSTEM, *accounts)]
    for number, name in enumerate(named, _FIRST_GROUP):
        group.append(f"{name}:x:{number}:{','.join(one.name for one in accounts if name in one.groups)}")
    shadow = [f"{line.partition(':')[0]}:*:19000:0:99999:7:::" for line in passwd]
    return {"passwd": _text(passwd), "group": _text(group), "shadow": _text(shadow)}


def home_of(account: Account) -> str:
    return f"/run/home/{account.name}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join([*lines, ""])
