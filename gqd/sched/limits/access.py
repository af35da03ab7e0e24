"""Access lists: which users, groups and accounts may use a partition or a QOS.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Listed(Protocol):
    """A partition (`gqd.state.policy.Partition`) or QOS (`gq.model.account.QosInfo`); three empty lists admit every
    user."""

    @property
    def users(self) -> tuple[str, ...]: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def accounts(self) -> tuple[str, ...]: ...


def is_listed(listed: Listed, user: str, groups: Sequence[str], path: Sequence[str]) -> bool:
    """Whether any of the three lists admits the user; `path` is the user's account followed by its parent accounts."""
    if not (listed.users or listed.groups or listed.accounts):
        return True
    return (
        user in listed.users
        or any(group in listed.groups for group in groups)
        or any(one in listed.accounts for one in path)
    )
