"""Users whom MUNGE vouches for, and those who would be one of them."""

from __future__ import annotations

import pytest

from gq.connection.curve import fresh_keys
from gq.model.ids import RequestId
from gq.wire import client as wire
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S
from tests.munge import wait_for_age
from tests.requires import needs_munge, needs_program, needs_root
from tests.system.accounts import ALICE, BOB, Account
from tests.system.attacks import CONTAINED, REFUSED, attack
from tests.system.hosts import CONTROLLER_PORT
from tests.system.site import OF_ANOTHER_SITE, Link, Site
from tests.system.speaker import Keys
from tests.system.stage import FRANK_OF_LOGIN, GHOST, Stage

pytestmark = [
    needs_root,
    needs_munge,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

ROOT = Account("root", 0)
MANY = 300
AND_MORE = 3000
"""Which do not even prove a key."""
STRANGER = "introduce_first"


def is_stranger(link: Link) -> bool:
    """Nothing that it asks is done."""
    return link.ask(wire.WhoAmI()) == STRANGER


@attack("A MUNGE credential is used a second time", REFUSED, "MungeReplayed: refused")
def test_a_munge_credential_is_used_a_second_time(site: Site) -> None:
    alice, bob = site.link(ALICE), site.link()
    credential = site.credential(ALICE, alice.payload)
    assert alice.introduce(credential, ALICE) == "Done"

    assert bob.introduce(credential, ALICE) == "munge_replayed"
    assert is_stranger(bob)
    assert alice.introduce(credential, ALICE) == "munge_replayed"
    assert alice.ask(wire.Ping()) == "Done"


@attack("A MUNGE credential of another user is used before its owner uses it", REFUSED, "MungeOtherKey: refused")
def test_a_munge_credential_of_another_user_is_used_before_its_owner_uses_it(site: Site) -> None:
    bob = site.link()
    credential = site.credential(ALICE, site.link(ALICE).payload)

    assert bob.introduce(credential, ALICE) == "munge_other_key"
    assert is_stranger(bob)


@attack("A MUNGE credential that was made for another service", REFUSED, "MungeOtherKey: refused")
def test_a_munge_credential_that_was_made_for_another_service(site: Site) -> None:
    bob = site.link()
    for words in (b"", bob.keys.public, b"gq-client-key:", bob.payload + b"x", bob.payload[:-1]):
        assert bob.introduce(site.credential(ALICE, words), ALICE) == "munge_other_key"

    assert is_stranger(bob)


@attack("An expired MUNGE credential", REFUSED, "MungeExpired: refused")
def test_an_expired_munge_credential(site: Site) -> None:
    link = site.link()
    credential = site.credential(BOB, link.payload, "--ttl=1")
    wait_for_age(1)

    assert link.introduce(credential) == "munge_expired"
    assert is_stranger(link)


@attack("A MUNGE credential of another site", REFUSED, "MungeInvalid: refused")
def test_a_munge_credential_of_another_site(site: Site) -> None:
    link = site.link()

    assert link.introduce(site.credential(BOB, link.payload, directory=OF_ANOTHER_SITE)) == "munge_invalid"
    assert is_stranger(link)


@attack("Send a request without an introduction", REFUSED, "NoIntroduction: refused")
def test_send_a_request_without_an_introduction(site: Site) -> None:
    link = site.link()
    cancel = wire.CancelJobs(filter=wire.JobFilter(users=(ALICE.name,)))
    for body in (wire.ListJobs(), cancel, wire.AddKey(public=link.keys.public.decode(), user=BOB.name)):
        assert link.ask(body) == STRANGER

    assert site.rows("SELECT count(*) FROM keys WHERE public = ?", link.keys.public.decode()) == [(0,)]


@attack("Root of a host of the site connects by MUNGE", REFUSED, "MungeRoot: refused")
def test_root_of_a_host_of_the_site_connects_by_munge(site: Site) -> None:
    for name in (ROOT, ALICE):
        link = site.link_of(site.desk)
        assert link.introduce(site.credential(ROOT, link.payload), name) == "munge_root"
        assert is_stranger(link)


@attack("Take another user's name with an own MUNGE credential", REFUSED, "IdentityMismatch: refused")
def test_take_another_users_name_with_an_own_munge_credential(site: Site) -> None:
    link = site.link()
    for account in (ALICE, ROOT, Account("bob\nalice", 0), Account("bob\0", 0), Account("", 0)):
        assert link.introduce(site.credential(BOB, link.payload), account) == "identity_mismatch"

    assert is_stranger(link)


@attack("MUNGE vouches for a user with another uid, or for an unknown name", REFUSED, "IdentityMismatch: refused")
def test_munge_vouches_for_a_user_with_another_uid_or_for_an_unknown_name(site: Site) -> None:
    for account in (FRANK_OF_LOGIN, GHOST):
        link = site.link(account)
        assert link.introduce(site.credential(account, link.payload), account) == "identity_mismatch"
        assert is_stranger(link)


@attack("Be an operator by a group of a host where MUNGE vouches", REFUSED, "UpdateNodes: not_operator")
def test_be_an_operator_by_a_group_of_a_host_where_munge_vouches(site: Site) -> None:
    link = site.link()
    assert link.introduce(site.credential(BOB, link.payload)) == "Done"

    assert "gqops" in site.desk.user(BOB).ok("id", "-Gn")
    assert link.ask(wire.UpdateNodes(names=("n1",), action="drain", reason="mine")) == "not_operator"


@attack("Use another user's name on a connection that MUNGE vouched for", REFUSED, "IdentityMismatch: refused")
def test_use_another_users_name_on_a_connection_that_munge_vouched_for(site: Site) -> None:
    link = site.link()
    assert link.introduce(site.credential(BOB, link.payload)) == "Done"

    assert link.introduce(site.credential(BOB, link.payload), ALICE) == "identity_mismatch"
    assert link.ask(wire.CancelJobs(filter=wire.JobFilter(partitions=("none",)))) == "JobsDone"
    said = site.await_audit(0, "CancelJobs", "done")
    assert said.user == BOB.name and said.origin.startswith("munge (")


@attack("A key is introduced at the node socket", REFUSED, "HandshakeRefused: refused")
def test_a_key_is_introduced_at_the_node_socket(site: Site) -> None:
    link = site.link(port=CONTROLLER_PORT)
    body = wire.Introduce(user=BOB.name, credential=site.credential(BOB, link.payload))
    link.line.send(wire.introduction(RequestId(bytes(16)), body))

    assert link.line.receive(1.0) is None


@attack("MUNGE where the controller does not accept it", REFUSED, "HandshakeRefused: refused")
def test_munge_where_the_controller_does_not_accept_it(stage: Stage) -> None:
    keys = fresh_keys()
    line = stage.strangers_line(stage.client_door, Keys(keys.public, keys.secret, stage.server_key), RECONNECT_IVL=-1)
    link = Link(line, keys)
    body = wire.Introduce(user=BOB.name, credential="MUNGE:that nobody reads:")
    link.line.send(wire.introduction(RequestId(bytes(16)), body))

    assert link.line.receive(1.0) is None


@attack("Many connections without an introduction", CONTAINED, "TooManyLinks: refused")
def test_many_connections_without_an_introduction(site: Site) -> None:
    """While they stand, one with an enrolled key is served, and one with MUNGE from another address."""
    ctl, enrolled = site.net.hosts["ctl"], fresh_keys()
    site.client.ask(wire.AddKey(public=enrolled.public.decode(), user=ALICE.name))
    crowd, before = site.link(), site.counters()["links_cut"]
    address = site.new_address()
    for _ in range(MANY):
        keys = fresh_keys()
        door = f"tcp://{address}:0;{site.client_door}"
        crowd.line.speaker.dial(door, Keys(keys.public, keys.secret, site.server_key))
    host, _, port = site.client_door.partition(":")
    crowd.line.speaker.half_open((host, int(port)), AND_MORE, address)
    wait_until(lambda: site.counters()["links_cut"] > before, LONG_S, "the oldest of them are hung up on")

    assert site.link(ALICE, keys=enrolled).ask(wire.Ping()) == "Done"
    link = site.link()
    assert link.introduce(site.credential(BOB, link.payload)) == "Done"
    assert link.ask(wire.Ping()) == "Done"
    assert ctl.run("gqctl", "whoami").returncode == 0
