"""Holders of CURVE keys, from the controller's table of keys and the files in ``keys/nodes``.

It is consulted at every handshake and for every message, so that a revoked key stops working at once, on existing links
as well.  It changes nothing except that it deletes the file of a removed node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import NamedTuple

from gq.connection.curve import node_public_path, pinned_nodes
from gq.host.files import sync_directory
from gq.model.key import KeyKind
from gqd.state.records import Key

FILES_AGAIN_S = 2.0
"""Maximum age of the files' content while their directory shows no change."""
_SETTLED_S = 0.1
"""A directory that changed this shortly before it was read may have changed again within a tick of its clock."""


class KeyHolder(NamedTuple):
    """The holder of a key.  ``name``: of the node or the user; for a token the node that it is for, or empty."""

    kind: KeyKind
    name: str
    uid: int | None = None
    is_file: bool = False
    """The key is in a file that an administrator put there."""


class KeyRing:
    """Looks up keys.  `rows` returns the deciding code's live table; `now` is wall time, as in ``expires_at``.

    `void_files`: names of removed nodes whose file may still exist.
    """

    def __init__(
        self,
        rows: Callable[[], Mapping[str, Key]],
        keys_dir: str,
        now: Callable[[], float],
        void_files: Callable[[], Container[str]] = tuple,
    ) -> None:
        self._rows = rows
        self._now = now
        self._keys_dir = keys_dir
        self._void_files = void_files
        self._files: dict[str, str] = {}
        self._changed_at_ns = -1
        self._read_at = float("-inf")
        self._is_settled = False

    def holder(self, public: str) -> KeyHolder | None:
        """The holder of a public key; None: the key is unknown, expired or revoked."""
        row = self._rows().get(public)
        if row is None:
            name = self._pinned().get(public)
            return None if name is None or name in self._void_files() else KeyHolder(KeyKind.NODE, name, is_file=True)
        if row.expires_at is not None and row.expires_at <= self._now():
            return None
        return KeyHolder(row.kind, row.name, row.uid)

    def remove_file(self, node: str) -> None:
        """Delete a node's key file, durably on return.  Raises `OSError`."""
        path = node_public_path(self._keys_dir, node)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_directory(path.parent)
        self._read_at = float("-inf")

    def _pinned(self) -> dict[str, str]:
        """Node names by public key, from the files; read again when the directory has changed."""
        changed_at_ns = self._directory_changed_at_ns()
        now = time.monotonic()
        is_fresh = self._is_settled and changed_at_ns == self._changed_at_ns and now - self._read_at < FILES_AGAIN_S
        if not is_fresh:
            self._changed_at_ns, self._read_at = changed_at_ns, now
            self._is_settled = time.time() - changed_at_ns / 1e9 > _SETTLED_S
            self._files = {public.decode("ascii"): name for public, name in pinned_nodes(self._keys_dir).items()}
        return self._files

    def _directory_changed_at_ns(self) -> int:
        try:
            return Path(self._keys_dir, "nodes").stat().st_mtime_ns
        except OSError:
            return 0
