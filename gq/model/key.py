"""CURVE keys that give access to the cluster from other hosts.  Pure.

The holder of a key proves in the handshake that it has the secret half; the controller alone decides what the key
allows, never the holder's claim.  A *join key* is a token: the token is the secret half, so that it is never on the
controller's disk, and the handshake of `gqnode join` is encrypted and authenticated both ways from the first byte.
"""

from __future__ import annotations

from enum import Enum

import msgspec

PUBLIC_KEY_CHARACTERS = 40
"""Length of a key in Z85, for both halves of a pair."""
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {character: value for value, character in enumerate(_Z85)}


class KeyKind(Enum):
    NODE = "node"
    """The key of a node daemon."""
    USER = "user"
    """The key of a user on a machine that is not part of the cluster."""
    JOIN = "join"
    """A key that lets one node join, once."""


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as commands show it; nothing in it is secret."""

    public: str
    """The public half in Z85."""
    kind: KeyKind
    name: str
    """Name of the node or the user; for a join key, the node that may join, empty: any node."""
    uid: int | None = None
    """The user's uid."""
    is_login: bool = False
    """Whether the node is a login node, which runs no jobs and authenticates all users of its host."""
    added_at: float = 0.0
    added_by: str = ""
    expires_at: float | None = None
    joined: str = ""
    """The node that joined with the key."""
    note: str = ""


def is_key(text: str) -> bool:
    """Whether the text is 32 bytes in Z85, in which each group of five characters is a number below 2**32."""
    if len(text) != PUBLIC_KEY_CHARACTERS or not all(character in _Z85_VALUE for character in text):
        return False
    for start in range(0, PUBLIC_KEY_CHARACTERS, 5):
        number = 0
        for character in text[start : start + 5]:
            number = number * 85 + _Z85_VALUE[character]
        if number >= 1 << 32:
            return False
    return True
