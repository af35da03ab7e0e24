"""The user account that an attempt's processes run under, from this node's own user database.  Pure."""

from __future__ import annotations

import msgspec


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user account, looked up once before the cell is made and stored with the attempt for its later steps."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """All group ids of the user, the primary group included."""
    home: str = "/"
    shell: str = "/bin/sh"


class UserRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule in this node's own gq.toml that says which users' jobs it runs, whatever the controller orders."""

    node: str
    min_uid: int
    allowed_users: tuple[str, ...] = ()
    """Names of users whose jobs run although their uid is below `min_uid`; never root."""
    root_jobs: bool = False

    def refusal(self, user: str, uid: int) -> str:
        """Return why this node runs no process of a job as this user; empty if it does."""
        if uid == 0:
            setting = "[access] root_jobs = true in its own gq.toml allows it"
            return "" if self.root_jobs else f"{self.node} runs nothing of a job as uid 0 ({user}); {setting}"
        if uid >= self.min_uid or user in self.allowed_users:
            return ""
        setting = f'allowed_users = ["{user}"] or a smaller min_uid of [[node]] in its own gq.toml allows it'
        return f"{self.node} runs no jobs of uids below {self.min_uid}, and {user} has uid {uid}; {setting}"
