"""Whom the processes of an attempt run as, as this node's own user database says.  Pure."""

from __future__ import annotations

import msgspec


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Looked up once, before the cell is made, and kept with the attempt: its later steps ask nobody again."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """All of them, the primary one included."""
    home: str = "/"
    shell: str = "/bin/sh"


class UserRule(msgspec.Struct, frozen=True, kw_only=True):
    """The users whose jobs this node runs, by its own gq.toml, whatever the controller says."""

    node: str
    min_uid: int
    allowed_users: tuple[str, ...] = ()
    """Names of accounts with a smaller uid whose jobs run all the same; never root's."""
    root_jobs: bool = False

    def refusal(self, user: str, uid: int) -> str:
        """Why no process of a job runs as this user here; empty: it may."""
        if uid == 0:
            setting = "[access] root_jobs = true in its own gq.toml allows it"
            return "" if self.root_jobs else f"{self.node} runs nothing of a job as uid 0 ({user}); {setting}"
        if uid >= self.min_uid or user in self.allowed_users:
            return ""
        setting = f'allowed_users = ["{user}"] or a smaller min_uid of [[node]] in its own gq.toml allows it'
        return f"{self.node} runs no jobs of uids below {self.min_uid}, and {user} has uid {uid}; {setting}"
