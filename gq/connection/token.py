"""The token of `gqctl token create`: one word with which a host joins a cluster.

It holds the controller's public key, so that the host speaks to no other controller, and the secret half of a key that
lets one node join.  Any host with the token can join: it belongs into a file with mode 0600 or into a pipe, never on a
command line.  It does not contain the controller's address.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import zmq
from zmq.utils import z85

from gq.connection.curve import KeyPair
from gq.errors import Refusal

MARK = "gqj1"
"""Prefix that identifies a token and its version."""
KEY_BYTES = 32
MAX_CHARACTERS = 1000
"""Maximum length of a file that is read."""


class Token(NamedTuple):
    """The parts of a token, in Z85."""

    server_key: bytes
    join_keys: KeyPair


def format_token(server_key: bytes, join_secret: bytes) -> str:
    """Format a token from both keys in Z85."""
    both = z85.decode(server_key) + z85.decode(join_secret)
    return MARK + base64.urlsafe_b64encode(both).rstrip(b"=").decode()


def parse_token(text: str) -> Token:
    """Parse a token; the `Refusal` names the error, but never the text, which may be most of a secret."""
    word = text.strip()
    if not word.startswith(MARK):
        raise _bad(f"it does not begin with `{MARK}`" if word else "it is empty")
    data = _decoded(word.removeprefix(MARK))
    if len(data) != 2 * KEY_BYTES:
        raise _bad("it is cut off" if len(data) < 2 * KEY_BYTES else "it is too long")
    server_key, secret = z85.encode(data[:KEY_BYTES]), z85.encode(data[KEY_BYTES:])
    return Token(server_key, KeyPair(zmq.curve_public(secret), secret))


def _decoded(word: str) -> bytes:
    if not word.isascii():
        raise _bad("it has invalid characters")
    try:
        return base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise _bad("it has invalid characters, or is cut off") from None


def _bad(why: str) -> Refusal:
    return Refusal(
        "bad_token", f"the token is not valid: {why}", "create a token with `gqctl token create` on the controller"
    )
