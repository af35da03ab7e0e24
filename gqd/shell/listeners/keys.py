"""What a CURVE key is good for, as of now: the controller's table of keys, and the files in ``keys/nodes``.

Asked at every handshake and again at every message, so that a key that was revoked a moment ago opens nothing, on
links that stand neither.  It changes nothing but the file of a node that was removed.
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
"""How long what the files say is believed where their directory shows no change."""
_SETTLED_S = 0.1
"""A directory that changed so short a time before it was read may have changed after, within one tick of its clock."""


class KeyHolder(NamedTuple):
    """Who proved a key.  ``name``: of the node or the user; of a token: the node that it is for, or empty."""

    kind: KeyKind
    name: str
    uid: int | None = None
    is_file: bool = False
    """Pinned by hand."""


class KeyRing:
    """`rows` is the deciding code's own table, which it changes; `now` is wall time, as in ``expires_at``.

    `void_files`: nodes that were removed, and whose file may still be there.
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
        """None: this key opens nothing (any more)."""
        row = self._rows().get(public)
        if row is None:
            name = self._pinned().get(public)
            return None if name is None or name in self._void_files() else KeyHolder(KeyKind.NODE, name, is_file=True)
        if row.expires_at is not None and row.expires_at <= self._now():
            return None
        return KeyHolder(row.kind, row.name, row.uid)

    def remove_file(self, node: str) -> None:
        """The key of this node that was pinned by hand; when this returns no power cut brings it back.  `OSError`."""
        path = node_public_path(self._keys_dir, node)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_directory(path.parent)
        self._read_at = float("-inf")

    def _pinned(self) -> dict[str, str]:
        """Public key → node; read again where the directory has changed."""
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
