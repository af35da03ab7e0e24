"""Who may come in from another host: CURVE keys, and what each is good for.  Pure.

Whoever holds the secret half of a key proves it in the handshake; what a key is good for is the controller's
knowledge, never the holder's claim.  A *join key* is a token: the secret half is the token, so that it is never on
the controller's disk, and the handshake of `gqnode join` is encrypted and authenticated both ways from the first byte.
"""

from __future__ import annotations

from enum import Enum

import msgspec

PUBLIC_KEY_CHARACTERS = 40
"""Z85, of secret halves, too."""
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {character: value for value, character in enumerate(_Z85)}


class KeyKind(Enum):
    NODE = "node"
    """A node daemon's."""
    USER = "user"
    """Of a user on a machine that is not part of the cluster."""
    JOIN = "join"
    """Lets one node join, once."""


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as people are shown it; nothing in it is secret."""

    public: str
    """Z85."""
    kind: KeyKind
    name: str
    """Of the node or the user; of a join key: the node that it is for, empty: any."""
    uid: int | None = None
    """Of the user."""
    is_login: bool = False
    """The node is a login node: it runs nothing and vouches for all users of its host."""
    added_at: float = 0.0
    added_by: str = ""
    expires_at: float | None = None
    joined: str = ""
    """The node that a join key let in."""
    note: str = ""


def is_key(text: str) -> bool:
    """32 bytes in Z85: each five characters are a number below 2**32."""
    if len(text) != PUBLIC_KEY_CHARACTERS or not all(one in _Z85_VALUE for one in text):
        return False
    for start in range(0, PUBLIC_KEY_CHARACTERS, 5):
        number = 0
        for one in text[start : start + 5]:
            number = number * 85 + _Z85_VALUE[one]
        if number >= 1 << 32:
            return False
    return True
