"""Checks of the names of accounts, QOS, users and groups, and of the number of accounts and QOS.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.ids import NAME

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_USER_NAME = 64


def refuse_bad_name(noun: str, name: str) -> None:
    if not NAME.fullmatch(name):
        hint = "use letters, digits, `.`, `_` and `-`, at most 63, a letter or a digit first"
        raise Refusal("bad_name", f"{name[:80]!r} is not a name for {'an' if noun[0] in 'aeiou' else 'a'} {noun}", hint)


def refuse_bad_user(noun: str, name: str) -> None:
    """`Refusal` for a bad user or group name; the operating system allows more than `NAME`."""
    is_word = bool(name) and name.isprintable() and not any(one in " ,:%/" for one in name) and name[0] != "-"
    if not is_word or len(name) > MAX_USER_NAME:
        hint = f"at most {MAX_USER_NAME} printable characters, without spaces and `,:%/`"
        raise Refusal("bad_name", f"{name[:80]!r} is not the name of a {noun}", hint)


def refuse_too_many(draft: TurnBuilder) -> None:
    cluster, most = draft.cluster, draft.policy.limits.accounts
    if len(cluster.accounts) + len(cluster.qos) + len(cluster.limits) >= most:
        message = f"the cluster already has {most} accounts, QOS and limits, the maximum"
        raise Refusal("too_many_accounts", message, "remove some, or raise limits.accounts in gq.toml")
