"""Users of this host: who a uid is, whether this controller serves it, and whether another host means the same user.

Owns the look-ups in the user database, and remembers their answers for a short while.  A user is a name and a uid;
whoever else names one (a node, the row of a key) must name both as this host knows them.  In a private cluster only
the controller's own uid and root are served, and nobody need be in the user database.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gq.errors import Refusal
from gqd.state.input import NamedUser, Peer

KEEP_S = 60.0
KEEP_UNKNOWN_S = 5.0
"""That somebody is not there is believed for a shorter time: an administrator may just be adding them."""
MAX_KEPT = 10_000
ROOT_UID = 0


class _Account(NamedTuple):
    user: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    gids: frozenset[int]


class UserDirectory:
    """All methods that return a `Peer` raise `Refusal` for one who is not served."""

    def __init__(self, owner_uid: int, is_shared: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self.owner_uid = owner_uid
        self.is_shared = is_shared
        self._now = now
        self._kept: dict[int | str, tuple[float, _Account | None]] = {}
        self._private = {uid: user_name(uid) for uid in (owner_uid, ROOT_UID)}

    def may_be_node(self, uid: int) -> bool:
        """Whether processes of this uid on this host are trusted to be node daemons."""
        return uid in (self.owner_uid, ROOT_UID)

    def local(self, uid: int, gid: int) -> Peer:
        """One whose uid and gid the kernel of this host vouches for."""
        if not self.is_shared:
            return self._of_private(uid, gid)
        found = self._by_uid(uid)
        if found is None:
            raise Refusal(
                "unknown_user",
                f"uid {uid} has no name on the controller's host",
                "jobs run as named users: add the account there",
            )
        # Not any gid: that of a set-gid program is not the user's to keep.
        return Peer(uid=uid, gid=gid if gid in found.gids else found.gid, user=found.user, groups=found.groups)

    def relayed(self, node: str, user: str, uid: int, gid: int) -> Peer:
        """One whom the daemon of another host vouches for; whether it may do so is decided elsewhere."""
        if not self.is_shared:
            return msgspec.structs.replace(self._of_private(uid, gid), via_node=node)
        return msgspec.structs.replace(self._same(user, uid, f"on {node}"), via_node=node)

    def enrolled(self, user: str, uid: int, key: str, address: str) -> Peer:
        """The one to whom an enrolled key belongs."""
        if not self.is_shared:
            found = self._of_private(uid, self._gid(uid))
        else:
            found = self._same(user, uid, "in the list of keys")
        return msgspec.structs.replace(found, key=key, address=address)

    def introduced(self, user: str, uid: int, address: str) -> Peer:
        """One whose uid MUNGE vouches for, and whose name on that host is what it says."""
        if uid == ROOT_UID:
            raise Refusal(
                "munge_root",
                "root of another host is not root here, though MUNGE vouches for it",
                "be a user; or root on the controller's host, or by a key that root enrolled there",
            )
        found = self._same(user, uid, "on its host") if self.is_shared else self._of_private(uid, self._gid(uid))
        return msgspec.structs.replace(found, by_munge=True, address=address)

    def owner(self, user: str, uid: int) -> Peer:
        """One who asked for something once that is done now."""
        if not self.is_shared:
            return self._of_private(uid, self._gid(uid))
        return self._same(user, uid, "when it was asked for")

    def named(self, user: str) -> NamedUser | None:
        """The account of this name; None if there is none."""
        found = self._by_name(user)
        return None if found is None else NamedUser(user=found.user, uid=found.uid, gid=found.gid, groups=found.groups)

    def _gid(self, uid: int) -> int:
        found = self._by_uid(uid)
        return uid if found is None else found.gid

    def _of_private(self, uid: int, gid: int) -> Peer:
        if uid not in self._private:
            raise Refusal(
                "not_served",
                f"this controller serves only {self._private[self.owner_uid]} and root, not uid {uid}",
                "unset GQ_DIR and GQ_CONFIG to find a cluster that serves you",
            )
        return Peer(uid=uid, gid=gid, user=self._private[uid])

    def _same(self, user: str, uid: int, where: str) -> Peer:
        """The user of that name here, if it has that uid here, too."""
        found = self._by_name(user)
        name = _printable(user)
        if found is None:
            raise Refusal(
                "identity_mismatch",
                f"user {name} (uid {uid} {where}) is not known on the controller's host",
                f"add {name} there with uid {uid}",
            )
        if found.uid != uid:
            raise Refusal(
                "identity_mismatch",
                f"user {name} has uid {uid} {where} and uid {found.uid} on the controller's host",
                f"give {name} one uid on all hosts of the cluster; `gq doctor` compares them",
            )
        return Peer(uid=uid, gid=found.gid, user=found.user, groups=found.groups)

    # ── the user database ─────────────────────────────────────────────────────────────────────────────────────

    def _by_uid(self, uid: int) -> _Account | None:
        return self._look_up(uid, lambda: pwd.getpwuid(uid))

    def _by_name(self, user: str) -> _Account | None:
        return self._look_up(user, lambda: pwd.getpwnam(user))

    def _look_up(self, key: int | str, find: Callable[[], pwd.struct_passwd]) -> _Account | None:
        now = self._now()
        good_until, found = self._kept.get(key, (float("-inf"), None))
        if now < good_until:
            return found
        try:
            found = _account(find())
        except (KeyError, ValueError, OverflowError, OSError):  # not there, or nothing that could be there
            found = None
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = (now + (KEEP_S if found is not None else KEEP_UNKNOWN_S), found)
        return found


def _account(entry: pwd.struct_passwd) -> _Account:
    gids = os.getgrouplist(entry.pw_name, entry.pw_gid)
    names = tuple(sorted({name for gid in gids if (name := _group_name(gid))}))
    return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid, names, frozenset(gids))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def user_name(uid: int) -> str:
    """The account's name, or the number where there is none (containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text[:64])
