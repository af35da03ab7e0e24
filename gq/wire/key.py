"""Keys that open the cluster, and tokens with which nodes join: messages between clients and the controller."""

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
    """Only a node of this name; empty: any that is not a member yet."""
    is_login: bool = False


class AddKey(_Body, frozen=True, kw_only=True):
    """Enrol a user's CURVE key, for machines outside the cluster.  → `Done`"""

    public: str
    user: str = ""
    """Empty: the caller.  Another's: administrators only."""
    note: str = ""


class ListKeys(_Body, frozen=True, kw_only=True):
    """The caller's keys; operators and administrators see all.  → `Keys`"""

    user: str = ""
    """Only this user's; empty: all that may be seen."""


class RevokeKey(_Body, frozen=True, kw_only=True):
    """From now on the key opens nothing, also on links that stand.  → `Done`"""

    public: str
    """Or its first characters, at least 6, where only one key begins so."""


class TokenCreated(_Body, frozen=True, kw_only=True):
    """What a node needs besides the token: where the controller listens, and its public key (Z85)."""

    endpoint: str
    server_key: str
    expires_at: float


class Keys(_Body, frozen=True, kw_only=True):
    keys: tuple[KeyInfo, ...]
