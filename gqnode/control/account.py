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
