"""Authentication by MUNGE: the keys that users have introduced with a MUNGE credential, and until when they are valid.

Owns the calls of munged, in a few threads with a deadline, so that the loop never waits.  Nothing here is durable, and
the deciding code does not see it: a client introduces a forgotten key again.
"""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gq.connection import munge
from gq.errors import Refusal
from gq.wire.client import Introduce
from gqd.shell.listeners.users import UserDirectory

KEEP_S = 3600.0
MAX_KEPT = 20_000
MAX_KEPT_OF_USER = 256
"""Keys of one user; each command makes a key, and the oldest are forgotten first."""
THREADS = 4
MAX_WAITING = 64
DECODE_S = 5.0
"""Deadline of a call; libmunge blocks a thread for twice this time if munged hangs."""


class VouchedUser(NamedTuple):
    """The user of an introduced key; `until` by the monotonic clock."""

    user: str
    uid: int
    until: float


class MungeAuth:
    def __init__(self, users: UserDirectory, socket: str = "", now: Callable[[], float] = time.monotonic) -> None:
        """Raises `Refusal` if libmunge is missing, or if other users could replace munged's socket."""
        munge.load()
        _refuse_open_directory(socket or munge.DEFAULT_SOCKET)
        self._users = users
        self._socket = socket
        self._now = now
        self._kept: dict[str, VouchedUser] = {}
        """The users by public key, the oldest first."""
        self._of_user: dict[int, dict[str, None]] = {}
        self._waiting = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="munge")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def holder(self, public: str) -> VouchedUser | None:
        """The user of a key; None: it was not introduced, or too long ago."""
        found = self._kept.get(public)
        return found if found is not None and self._now() < found.until else None

    def has_known(self, public: str) -> bool:
        """Whether the key was ever introduced, as far as it is not forgotten."""
        return public in self._kept

    async def introduce(self, public: str, body: Introduce) -> VouchedUser:
        """Check a credential and remember the key's user.  `Refusal`, as `munge.MungeRefused` if the uid is known."""
        decoded = await self._decode(body.credential)
        if decoded.payload != munge.payload_of(public):
            message = "this MUNGE credential was not made by gq for the key of this link"
            raise munge.MungeRefused("munge_other_key", message, "make a credential for each key", decoded.uid)
        try:
            peer = self._users.introduced(body.user, decoded.uid, "")
        except Refusal as error:
            raise munge.MungeRefused(error.code, error.message, error.hint, decoded.uid) from error
        return self._keep(public, VouchedUser(peer.user, peer.uid, self._now() + KEEP_S))

    async def _decode(self, credential: str) -> munge.Decoded:
        if self._waiting >= MAX_WAITING:
            raise Refusal("busy", f"{MAX_WAITING} other requests already wait for MUNGE", "try again in a moment")
        self._waiting += 1
        try:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, munge.decode, credential, self._socket)
            return await asyncio.wait_for(asked, DECODE_S)
        except TimeoutError:
            message = f"munged on the controller's host did not answer within {DECODE_S:g} s"
            raise Refusal("munge_down", message, "ask an administrator to check munged") from None
        finally:
            self._waiting -= 1

    def _keep(self, public: str, fresh: VouchedUser) -> VouchedUser:
        self._forget(public)
        theirs = self._of_user.setdefault(fresh.uid, {})
        if len(theirs) >= MAX_KEPT_OF_USER:
            self._forget(next(iter(theirs)))
        elif len(self._kept) >= MAX_KEPT:
            self._forget(next(iter(self._kept)))
        self._kept[public] = fresh
        self._of_user.setdefault(fresh.uid, {})[public] = None
        return fresh

    def _forget(self, public: str) -> None:
        old = self._kept.pop(public, None)
        if old is None:
            return
        theirs = self._of_user[old.uid]
        del theirs[public]
        if not theirs:
            del self._of_user[old.uid]


def _refuse_open_directory(socket: str) -> None:
    """Refuse a directory in which other users could put a socket, and so vouch for any user."""
    directory = Path(socket).parent
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError:
        return  # munged creates it when it starts
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refusal(
            "unsafe_munge",
            f"{directory}, where munged has its socket, can be written by others (mode {stat.S_IMODE(mode):04o})",
            f"chmod go-w {directory}, or set [controller] munge_socket",
        )
