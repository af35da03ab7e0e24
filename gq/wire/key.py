"""Requests for keys that give access to the cluster, and for tokens with which nodes join."""

from __future__ import annotations

import msgspec

from gq.model.key import KeyInfo
from gq.model.resource import Count


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all request and answer bodies: tagged with the class name."""


class CreateToken(_Body, frozen=True, kw_only=True):
    """Let one node join, once.  The caller made the key pair and keeps the secret half, the token.  → `TokenCreated`"""

    public: str
    ttl_s: Count = 3600
    node: str = ""
    """Name of the only node that may join; empty: any node that is not a member yet."""
    is_login: bool = False


class AddKey(_Body, frozen=True, kw_only=True):
    """Enrol a user's CURVE key, for machines outside the cluster.  → `Done`"""

    public: str
    user: str = ""
    """Empty: the caller's.  Administrators only may enrol another user's key."""
    note: str = ""


class ListKeys(_Body, frozen=True, kw_only=True):
    """List the caller's keys; operators and administrators see all keys.  → `Keys`"""

    user: str = ""
    """Only this user's keys; empty: all keys that the caller may see."""


class RevokeKey(_Body, frozen=True, kw_only=True):
    """Revoke a key at once, also on established links.  → `Done`"""

    public: str
    """The public half, or its first characters, at least 6, if they are unique."""


class TokenCreated(_Body, frozen=True, kw_only=True):
    """A token was created; the node also needs the controller's endpoint and public key (Z85)."""

    endpoint: str
    server_key: str
    expires_at: float


class Keys(_Body, frozen=True, kw_only=True):
    keys: tuple[KeyInfo, ...]
