"""Lists of who may use a partition or a QOS.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Listed(Protocol):
    """`gqd.state.policy.Partition`, `gq.model.account.QosInfo`; all three empty: everybody."""

    @property
    def users(self) -> tuple[str, ...]: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def accounts(self) -> tuple[str, ...]: ...


def is_listed(listed: Listed, user: str, groups: Sequence[str], path: Sequence[str]) -> bool:
    """One of the three lists is enough; `path`: the account and those above it."""
    if not (listed.users or listed.groups or listed.accounts):
        return True
    return (
        user in listed.users
        or any(one in listed.groups for one in groups)
        or any(one in listed.accounts for one in path)
    )
