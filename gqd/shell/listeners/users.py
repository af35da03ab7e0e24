"""Users of this host: looks up names and uids, and decides which users the controller serves.

Owns the look-ups in the user database and a short-lived cache of them.  A user is a name and a uid; a node or a key
that names a user must give both as this host knows them.  A private cluster serves only the controller's own uid and
root, which need not be in the user database.
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
"""Time for which a missing user is cached; shorter, since an administrator may just be adding the user."""
MAX_KEPT = 10_000
ROOT_UID = 0


class _Account(NamedTuple):
    user: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    gids: frozenset[int]


class UserDirectory:
    """Identifies users.  All methods that return a `Peer` raise `Refusal` if the user is not served."""

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
        """The user of a local connection, whose uid and gid the kernel reported."""
        if not self.is_shared:
            return self._of_private(uid, gid)
        found = self._by_uid(uid)
        if found is None:
            raise Refusal(
                "unknown_user",
                f"uid {uid} has no name on the controller's host",
                "jobs run as named users: add an account there",
            )
        # Only a group of the user: a set-gid program has another one.
        return Peer(uid=uid, gid=gid if gid in found.gids else found.gid, user=found.user, groups=found.groups)

    def relayed(self, node: str, user: str, uid: int, gid: int) -> Peer:
        """The user for whom a node relays a request; the deciding code checks whether the node may."""
        if not self.is_shared:
            return msgspec.structs.replace(self._of_private(uid, gid), via_node=node)
        return msgspec.structs.replace(self._same(user, uid, f"on {node}"), via_node=node)

    def enrolled(self, user: str, uid: int, key: str, address: str) -> Peer:
        """The user of an enrolled key."""
        if not self.is_shared:
            found = self._of_private(uid, self._gid(uid))
        else:
            found = self._same(user, uid, "in the list of keys")
        return msgspec.structs.replace(found, key=key, address=address)

    def introduced(self, user: str, uid: int, address: str) -> Peer:
        """The user whose uid MUNGE vouches for; `user` is the name that the client gave for its host."""
        if uid == ROOT_UID:
            raise Refusal(
                "munge_root",
                "root of another host is not root here, although MUNGE authenticates it",
                "run the command as a user, on the controller's host, or with a key that root enrolled there",
            )
        found = self._same(user, uid, "on its host") if self.is_shared else self._of_private(uid, self._gid(uid))
        return msgspec.structs.replace(found, by_munge=True, address=address)

    def owner(self, user: str, uid: int) -> Peer:
        """The user who made an earlier request, such as a crontab, that is carried out now."""
        if not self.is_shared:
            return self._of_private(uid, self._gid(uid))
        return self._same(user, uid, "when it was asked for")

    def named(self, user: str) -> NamedUser | None:
        """The account of this name; None: it does not exist."""
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
        """The user of this name, who must have the same uid on this host; `Refusal` otherwise."""
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

    # ── the user database ─────────────────────────────────────────────────────────────────────────────────────────

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
        except (KeyError, ValueError, OverflowError, OSError):  # it does not exist, or could not exist
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
    """The account's name, or the uid as text if it has none (containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text[:64])
