"""Looks up users in this node's own user database (passwd, LDAP …)."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from gq.errors import GqError
from gq.wire.node import Launch
from gqnode.control.account import Account, UserRule
from gqnode.daemon.threads import Threads

T = TypeVar("T")

THREADS = 2
ANSWER_S = 15.0
KEEP_S = 60.0
MAX_KEPT = 10_000


class UserError(GqError):
    """A user cannot be looked up, or does not match this node's user database."""


class Users:
    """``chooses``: this daemon is root's and serves the system's cluster, so it could run jobs as their submitters.

    Whether it is to is the controller's word (`hear`); until that came nobody is told anything.
    """

    def __init__(self, node: str, chooses: bool, rule: UserRule) -> None:
        self._node = node
        self._rule = rule
        self._chooses = chooses
        self._is_for_all = False
        """Whether the controller says that the cluster is shared, whatever this daemon can do."""
        self._loop = asyncio.get_running_loop()
        self._is_shared: asyncio.Future[bool] = self._loop.create_future()
        if not chooses:
            self._is_shared.set_result(False)
        self._threads = Threads(THREADS, "gqnode-users")
        self._by_name: dict[str, tuple[float, Account]] = {}
        self._names: dict[int, tuple[float, str]] = {}

    @property
    def is_shared(self) -> bool:
        return self.is_told and self._is_shared.result()

    @property
    def is_told(self) -> bool:
        """Whether it is known if the cluster is shared."""
        return self._is_shared.done() and not self._is_shared.cancelled()

    def hear(self, is_shared: bool) -> None:
        """Take the controller's answer whether the cluster is shared."""
        self._is_for_all = is_shared
        is_shared = is_shared and self._chooses
        if not self._is_shared.done():
            self._is_shared.set_result(is_shared)
        elif self._is_shared.result() != is_shared:
            self._is_shared = self._loop.create_future()
            self._is_shared.set_result(is_shared)

    def close(self) -> None:
        """Stop the look-ups; callers that wait for one are cancelled."""
        self._is_shared.cancel()
        self._threads.close()

    async def account_of(self, launch: Launch) -> Account | None:
        """Return the account for the attempt's processes; None: the daemon's.  `UserError` if it cannot run here."""
        if not await asyncio.shield(self._is_shared):
            self._refuse_strangers(launch)
            self._refuse_own_root()
            return None
        account = await self._account(launch.user)
        if account.uid != launch.uid:
            raise UserError(
                "identity_mismatch",
                f"user {launch.user} has uid {account.uid} on {self._node} and {launch.uid} on the controller",
            )
        self._refuse_by_rule(account.user, account.uid)
        # The submitter's own group of that moment, as after newgrp(1); but never one that the user is not in.
        return account if launch.gid not in account.groups else _with_group(account, launch.gid)

    async def reader_account(self, uid: int) -> Account | None:
        """The account that a log of `uid` is read as; None: the daemon's own user reads it."""
        if not self.is_shared or uid == os.geteuid():
            self._refuse_own_root()
            return None
        account = await self._account(await self.name_of(uid))
        self._refuse_by_rule(account.user, account.uid)
        return account

    async def name_of(self, uid: int) -> str:
        """`UserError` (``unknown_user``) if there is none of this number."""
        kept = self._names.get(uid)
        if kept and kept[0] > time.monotonic():
            return kept[1]
        name = await self._ask(partial(_name_of, uid), f"uid {uid}")
        if name is None:
            raise UserError("unknown_user", f"uid {uid} is not known on {self._node}")
        _keep(self._names, uid, name)
        return name

    async def _account(self, user: str) -> Account:
        kept = self._by_name.get(user)
        if kept and kept[0] > time.monotonic():
            return kept[1]
        account = await self._ask(partial(_look_up, user), f"user {user}")
        if account is None:
            raise UserError("unknown_user", f"user {user} is not known on {self._node}")
        _keep(self._by_name, user, account)
        return account

    async def _ask(self, call: Callable[[], T], about: str) -> T:
        try:
            return await asyncio.wait_for(self._threads.run(call), ANSWER_S)
        except TimeoutError:
            why = f"the name service of {self._node} did not answer within {ANSWER_S:g} s for {about}"
            raise UserError("name_service_silent", why) from None
        except OSError as error:
            why = f"the name service of {self._node} failed for {about}: {error.strerror or error}"
            raise UserError("name_service_failed", why) from error

    def _refuse_by_rule(self, user: str, uid: int) -> None:
        if why := self._rule.refusal(user, uid):
            raise UserError("user_not_allowed", why)

    def _refuse_own_root(self) -> None:
        """The rule also holds for the daemon's own user, root, where the controller calls its cluster not shared."""
        if self._chooses:
            self._refuse_by_rule("root", os.geteuid())

    def _refuse_strangers(self, launch: Launch) -> None:
        """A daemon that runs everything as its own user runs nothing of others.

        In a private cluster root's jobs have always been the owner's, with fewer rights than root has.
        """
        own = os.geteuid()
        if launch.uid == own or (launch.uid == 0 and not self._is_for_all):
            return
        why = "cannot become another user" if own else "this cluster is not shared"
        raise UserError(
            "not_own_user",
            f"gqnode on {self._node} runs as uid {own} and {why}: it runs no jobs of {launch.user} (uid {launch.uid})",
        )


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _look_up(user: str) -> Account | None:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(
        user=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid))),
        home=entry.pw_dir or "/",
        shell=entry.pw_shell or "/bin/sh",
    )


def _with_group(account: Account, gid: int) -> Account:
    return replace(account, gid=gid)


K = TypeVar("K")
V = TypeVar("V")


def _keep(kept: dict[K, tuple[float, V]], key: K, value: V) -> None:
    if len(kept) >= MAX_KEPT:
        kept.pop(next(iter(kept)))
    kept[key] = time.monotonic() + KEEP_S, value
