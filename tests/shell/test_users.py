"""Who a user is: a name and a uid, both as the controller's host knows them."""

from __future__ import annotations

import os
import pwd

import pytest

from gq.errors import Refusal
from gqd.shell.listeners.users import KEEP_UNKNOWN_S, MAX_KEPT, UserDirectory

USER = pwd.getpwnam("nobody")
ROOT = pwd.getpwuid(0)
SHARED = UserDirectory(owner_uid=0, is_shared=True)


def test_the_groups_of_a_user_are_those_of_this_host() -> None:
    found = SHARED.local(0, ROOT.pw_gid)
    assert (found.user, found.uid, found.gid) == ("root", 0, ROOT.pw_gid)
    assert "root" in found.groups
    assert found.via_node == found.key == ""


def test_the_gid_of_a_set_gid_program_is_not_the_users() -> None:
    strange = max(os.getgrouplist(USER.pw_name, USER.pw_gid)) + 1
    assert SHARED.local(USER.pw_uid, strange).gid == USER.pw_gid


@pytest.mark.parametrize(
    ("user", "uid", "words"),
    [
        (USER.pw_name, 4321, ("4321", str(USER.pw_uid), "n2")),
        ("root", USER.pw_uid, ("root", str(USER.pw_uid), "uid 0")),
        ("no-such-user", 0, ("no-such-user", "is not known")),
        ("", 0, ("is not known",)),
        ("nobody\n\x1b[2J", USER.pw_uid, ("nobody??[2J",)),
        ("a\0b", 5, ("a?b",)),
    ],
)
def test_a_user_of_another_host_must_have_name_and_uid_of_this_one(user: str, uid: int, words: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as caught:
        SHARED.relayed("n2", user, uid, 0)
    assert caught.value.code == "identity_mismatch"
    assert all(word in caught.value.message for word in words)
    assert caught.value.hint


def test_a_key_is_good_for_name_and_uid_as_they_were_when_it_was_enrolled() -> None:
    found = SHARED.enrolled(USER.pw_name, USER.pw_uid, "k" * 40, "192.0.2.7")
    assert (found.user, found.uid, found.gid, found.key, found.address) == (
        USER.pw_name, USER.pw_uid, USER.pw_gid, "k" * 40, "192.0.2.7"
    )  # fmt: skip
    with pytest.raises(Refusal) as caught:
        SHARED.enrolled(USER.pw_name, USER.pw_uid + 1, "k" * 40, "192.0.2.7")
    assert caught.value.code == "identity_mismatch"


def test_a_private_cluster_serves_its_owner_and_root_whatever_they_are_called() -> None:
    private = UserDirectory(owner_uid=2**31 - 7)
    assert private.local(2**31 - 7, 9).user == str(2**31 - 7)
    assert private.local(0, 0).groups == ()
    assert private.relayed("n1", "whoever", 0, 0).via_node == "n1"
    for refused in (lambda: private.local(1, 1), lambda: private.relayed("n1", "daemon", 1, 1)):
        with pytest.raises(Refusal) as caught:
            refused()
        assert caught.value.code == "not_served"


def test_only_the_daemons_own_uid_and_root_may_be_nodes() -> None:
    assert SHARED.may_be_node(0)
    assert not SHARED.may_be_node(USER.pw_uid)


def test_a_new_account_is_seen_after_a_moment_and_strangers_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = 100.0
    peers = UserDirectory(owner_uid=0, is_shared=True, now=lambda: at)
    assert peers.named("gqt-newcomer") is None
    account = pwd.struct_passwd(("gqt-newcomer", "x", 5000, USER.pw_gid, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: account)
    assert peers.named("gqt-newcomer") is None, "asked a moment ago"
    at += KEEP_UNKNOWN_S
    found = peers.named("gqt-newcomer")
    assert found is not None
    assert found.uid == 5000
    for number in range(MAX_KEPT + 10):
        peers.named(f"stranger-{number}")
    assert len(peers._kept) <= MAX_KEPT
