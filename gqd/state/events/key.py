"""Events of keys and of hosts that join with them.  Pure."""

from __future__ import annotations

from gq.model.key import KeyKind
from gqd.state.events.record import EventBase


class KeyAdded(EventBase, frozen=True, kw_only=True):
    """A key was enrolled; see `gq.model.key.KeyInfo`."""

    public: str
    kind: KeyKind
    name: str
    by: str
    uid: int | None = None
    gid: int | None = None
    is_login: bool = False
    expires_at: float | None = None
    note: str = ""


class NodeJoined(EventBase, frozen=True, kw_only=True):
    """A host used the join key `token`, and `public` is its node key from now on."""

    token: str
    node: str
    public: str
    is_login: bool
    address: str


class KeyRevoked(EventBase, frozen=True, kw_only=True):
    public: str
    by: str


class KeysExpired(EventBase, frozen=True, kw_only=True):
    """Join keys expired."""

    publics: tuple[str, ...]
