"""Tokens, nodes that join with them, keys of users: added, named, revoked, expired."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.key import KeyKind, is_key
from gq.model.policy_tables import Limits
from gq.wire import client
from gqd.control.turn import Turn
from gqd.state.effect import CloseLink, Reply, SendJoined, SendWelcome
from gqd.state.events import event
from gqd.state.input import NodeJoin, Tick
from tests.builders import (
    ADAM,
    ALICE,
    BOB,
    OLGA,
    SHARED,
    client_request,
    hello,
    inventory,
    join,
    named,
    public_key,
    submit,
)
from tests.hosts import CoreHost

TOKEN, FIRST, SECOND = public_key(1), public_key(2), public_key(3)


def shared(**changes: object) -> CoreHost:
    return CoreHost(msgspec.structs.replace(SHARED, **changes))


def with_token(node: str = "", *, is_login: bool = False, ttl_s: int = 60, now: float = 0.0) -> CoreHost:
    host = shared()
    body = client.CreateToken(public=TOKEN, node=node, is_login=is_login, ttl_s=ttl_s)
    answer = host.ask(body, now=now, peer=ADAM)
    assert answer == client.TokenCreated(endpoint="tcp://ctl:7321", server_key="S" * 40, expires_at=now + ttl_s)
    return host


def why_closed(turn: Turn) -> str:
    """The turn only closed the link, and noted it."""
    [effect] = turn.effects
    assert isinstance(effect, CloseLink)
    assert [type(one) for one in turn.events] == [event.Audited]
    return effect.why


# ── what a key looks like ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (public_key(5), True),
        ("%nSc0" * 8, True),  # 0xFFFFFFFF
        ("%nSc1" * 8, False),  # one more
        ("#####" * 8, False),
        ("a" * 39, False),
        ("a" * 41, False),
        ("a" * 39 + "~", False),
        ("a" * 39 + "\n", False),
        ("", False),
    ],
)
def test_a_public_key_is_forty_characters_that_mean_thirty_two_bytes(text: str, is_one: bool) -> None:
    assert is_key(text) is is_one


def test_what_is_no_key_is_refused_wherever_one_is_given() -> None:
    host = shared()
    for body in (client.CreateToken(public="x"), client.AddKey(public="x")):
        with pytest.raises(Refusal, match="'x' is not a public key"):
            host.ask(body, peer=ADAM)
    assert not host.cluster.keys


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (client.CreateToken(public=TOKEN, ttl_s=0), "bad_number"),
        (client.CreateToken(public=TOKEN, ttl_s=31 * 86400), "bad_number"),
        (client.CreateToken(public=TOKEN, node="../n1"), "bad_node_name"),
        (client.CreateToken(public=TOKEN, node="n" * 64), "bad_node_name"),
    ],
)
def test_a_token_that_cannot_be_is_refused(body: client.CreateToken, code: str) -> None:
    host = shared()
    before = list(host.log)
    with pytest.raises(Refusal) as refused:
        host.ask(body, peer=ADAM)
    assert refused.value.code == code
    assert host.log == before


def test_there_are_no_tokens_where_nothing_listens_for_nodes() -> None:
    host = shared(endpoint="")
    with pytest.raises(Refusal, match="does not listen for nodes"):
        host.ask(client.CreateToken(public=TOKEN), peer=ADAM)


def test_no_more_keys_than_the_limit() -> None:
    host = shared(limits=Limits(keys=1))
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    for body in (client.AddKey(public=SECOND), client.CreateToken(public=TOKEN)):
        with pytest.raises(Refusal, match=r"already has 1 keys.*"):
            host.ask(body, peer=ADAM)


def test_asking_for_a_token_again_gets_the_same_answer_and_makes_one() -> None:
    host = shared()
    request = client_request(client.CreateToken(public=TOKEN), 77, ADAM)
    first = host.handle(request, now=1)
    again = host.handle(request, now=2)

    assert first.effects == again.effects
    assert [type(one) for one in first.events] == [event.KeyAdded, event.RequestAnswered, event.Audited]
    assert again.events == ()


def test_a_token_that_nobody_used_is_gone_when_its_time_is_over() -> None:
    host = with_token(ttl_s=60)
    assert host.handle(Tick(), now=59.9).events == ()
    turn = host.handle(Tick(), now=60)
    assert turn == Turn(events=(event.KeysExpired(at=60, publics=(TOKEN,)),))
    assert "unknown" in why_closed(host.handle(join("n1", TOKEN, FIRST), now=61))


def test_an_expired_token_opens_nothing_even_before_it_is_swept_away() -> None:
    host = with_token(ttl_s=60)
    assert "this token has expired" in why_closed(host.handle(join("n1", TOKEN, FIRST), now=60))
    assert host.trail[-1].outcome == "token_expired"


# ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_lets_one_node_in_and_its_key_is_known_from_then_on() -> None:
    host = with_token(is_login=True)
    fact = join("n1", TOKEN, FIRST)
    turn = host.handle(fact, now=5)

    joined, noted = turn.events
    assert joined == event.NodeJoined(at=5, token=TOKEN, node="n1", public=FIRST, is_login=True, address="192.0.2.7")
    assert isinstance(noted, event.Audited)
    assert (noted.origin, noted.action, noted.object, noted.outcome) == ("192.0.2.7", "Join", "node n1", "done")
    assert turn.effects == (SendJoined(route=fact.route, node="n1", is_login=True),)
    key = host.cluster.keys[FIRST]
    assert (key.kind, key.name, key.is_login, key.added_by) == (KeyKind.NODE, "n1", True, "adam")
    assert host.cluster.keys[TOKEN].joined == FIRST


def test_the_same_join_again_gets_the_same_answer_and_changes_nothing() -> None:
    host = with_token()
    fact = join("n1", TOKEN, FIRST)
    host.handle(fact, now=1)
    assert host.handle(fact, now=2) == Turn(effects=(SendJoined(route=fact.route, node="n1"),))


def test_a_used_token_lets_no_other_key_in_and_that_is_noted() -> None:
    host = with_token()
    host.handle(join("n1", TOKEN, FIRST), now=1)
    for node in ("n1", "n2"):
        assert "this token was already used by a node" in why_closed(host.handle(join(node, TOKEN, SECOND), now=2))
        noted = host.trail[-1]
        assert (noted.action, noted.object, noted.outcome) == ("TokenReused", f"node {node}", "token_reused")
    assert SECOND not in host.cluster.keys


@pytest.mark.parametrize("name", ["", "-n1", "n 1", "n1\n", "../../etc", "n" * 64, "ñ1", "n1;rm"])
def test_a_name_that_is_none_does_not_join(name: str) -> None:
    host = with_token()
    assert "not a name for a node" in why_closed(host.handle(join(name, TOKEN, FIRST), now=1))
    assert host.trail[-1].object.isprintable()


def test_a_token_for_one_node_lets_no_other_in() -> None:
    host = with_token("n1")
    assert "for node n1, not for n2" in why_closed(host.handle(join("n2", TOKEN, FIRST), now=1))


def test_a_node_of_another_version_does_not_join() -> None:
    host = with_token()
    fact = join("n1", TOKEN, FIRST)
    old = msgspec.structs.replace(fact, join=msgspec.structs.replace(fact.join, version=99))
    assert "version 99" in why_closed(host.handle(old, now=1))


def test_keys_that_are_no_tokens_let_nobody_join() -> None:
    host = shared()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    for token in (FIRST, SECOND):
        assert "unknown" in why_closed(host.handle(join("n1", token, TOKEN), now=1))


def test_the_key_of_a_user_does_not_become_a_nodes() -> None:
    host = with_token()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    assert "already enrolled" in why_closed(host.handle(join("n1", TOKEN, FIRST), now=1))
    assert host.cluster.keys[FIRST].kind is KeyKind.USER


def joined(host: CoreHost, node: str, key: str, now: float) -> None:
    """Joined and registered."""
    host.handle(join(node, TOKEN, key), now=now)
    host.handle(msgspec.structs.replace(hello(node), key=key))


def another_token(host: CoreHost, node: str = "") -> str:
    token = public_key(50)
    host.ask(client.CreateToken(public=token, node=node), peer=ADAM)
    return token


def test_a_member_is_not_replaced_by_whoever_has_a_token() -> None:
    """Neither while it is there, nor by a token that does not name it."""
    host = with_token()
    joined(host, "n1", FIRST, now=1)
    token = another_token(host, node="n1")
    assert "already a member of the cluster" in why_closed(host.handle(join("n1", token, SECOND), now=2))
    host.handle(Tick(), now=100)
    assert host.cluster.nodes["n1"].is_lost
    host.ask(client.RevokeKey(public=token), peer=ADAM)
    nameless = another_token(host)
    assert "already a member of the cluster" in why_closed(host.handle(join("n1", nameless, SECOND), now=101))


def test_a_lost_member_joins_anew_by_a_token_that_names_it_and_its_old_key_is_void() -> None:
    host = with_token()
    joined(host, "n1", FIRST, now=1)
    host.handle(Tick(), now=100)
    token = another_token(host, node="n1")
    turn = host.handle(join("n1", token, SECOND), now=101)

    assert [type(one) for one in turn.events] == [event.KeyRevoked, event.NodeJoined, event.Audited]
    assert FIRST not in host.cluster.keys
    assert host.cluster.keys[SECOND].name == "n1"


def test_a_node_that_was_removed_does_not_come_back_by_its_old_token() -> None:
    host = with_token()
    joined(host, "n1", FIRST, now=1)
    host.ask(client.RemoveNode(name="n1"), peer=ADAM)
    assert "this token was already used by a node" in why_closed(host.handle(join("n1", TOKEN, FIRST), now=2))
    fact = msgspec.structs.replace(hello("n1"), key=FIRST)
    why = "its key was revoked; join again with a new token"
    assert host.handle(fact, now=3) == Turn(effects=(CloseLink(route=fact.route, why=why, is_removed=True),))


def test_a_login_node_that_says_it_runs_jobs_is_not_welcome() -> None:
    """Those who run jobs vouch only for their owners; what a node says of itself grants nothing."""
    host = with_token(is_login=True)
    host.handle(join("l1", TOKEN, FIRST), now=1)
    turn = host.handle(msgspec.structs.replace(hello("l1"), key=FIRST), now=2)
    [closed] = turn.effects
    assert isinstance(closed, CloseLink)
    assert "login node, which runs no jobs" in closed.why
    assert not closed.is_removed, "a mistake in its gq.toml does not cost it what it runs"
    assert turn.events == ()
    relay = msgspec.structs.replace(hello("l1").hello, is_relay=True)
    turn = host.handle(msgspec.structs.replace(hello("l1"), hello=relay, key=FIRST), now=3)
    assert [type(one) for one in turn.effects] == [SendWelcome]


# ── keys of users ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_adds_a_key_of_their_own_and_sees_it() -> None:
    host = shared()
    host.ask(client.AddKey(public=FIRST, note="laptop\x1b[2J"), now=3, peer=ALICE)
    host.ask(client.AddKey(public=SECOND), peer=BOB)

    answer = host.ask(client.ListKeys(), peer=ALICE)
    assert isinstance(answer, client.Keys)
    [key] = answer.keys
    assert (key.public, key.kind, key.name, key.uid, key.added_by) == (FIRST, KeyKind.USER, "alice", 2001, "alice")
    assert key.note == r"laptop\x1b[2J"
    assert host.cluster.keys[FIRST].gid == ALICE.gid
    with pytest.raises(Refusal, match="keys of bob are not yours"):
        host.ask(client.ListKeys(user="bob"), peer=ALICE)


def test_operators_see_all_keys_and_tokens_and_whom_they_let_in() -> None:
    host = with_token("n1")
    host.ask(client.AddKey(public=SECOND), peer=BOB)
    host.handle(join("n1", TOKEN, FIRST), now=1)
    answer = host.ask(client.ListKeys(), peer=OLGA)
    assert isinstance(answer, client.Keys)
    assert [(one.public, one.kind, one.joined) for one in answer.keys] == [
        (TOKEN, KeyKind.JOIN, "n1"),
        (SECOND, KeyKind.USER, ""),
        (FIRST, KeyKind.NODE, ""),
    ]
    only = host.ask(client.ListKeys(user="bob"), peer=OLGA)
    assert isinstance(only, client.Keys)
    assert [one.public for one in only.keys] == [SECOND]


def test_an_administrator_adds_a_key_for_a_user_that_the_host_knows() -> None:
    host = shared()
    with pytest.raises(Refusal, match="no user `bob`"):
        host.ask(client.AddKey(public=FIRST, user="bob"), peer=ADAM)
    with pytest.raises(Refusal, match="no user `bob`"):
        host.ask(client.AddKey(public=FIRST, user="bob"), peer=ADAM, named_user=named(ALICE))
    host.ask(client.AddKey(public=FIRST, user="bob"), peer=ADAM, named_user=named(BOB))
    key = host.cluster.keys[FIRST]
    assert (key.name, key.uid, key.gid, key.added_by) == ("bob", BOB.uid, BOB.gid, "adam")


def test_a_key_is_known_once() -> None:
    host = shared()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    with pytest.raises(Refusal, match="already enrolled"):
        host.ask(client.AddKey(public=FIRST), peer=BOB)
    assert host.cluster.keys[FIRST].name == "alice"


def test_one_user_has_so_many_keys_and_no_more() -> None:
    host = shared()
    for number in range(100):
        host.ask(client.AddKey(public=public_key(100 + number)), peer=ALICE)
    with pytest.raises(Refusal, match="user alice has 100 keys"):
        host.ask(client.AddKey(public=FIRST), peer=ALICE)
    host.ask(client.AddKey(public=FIRST), peer=BOB)


# ── revoking ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_named_by_its_first_characters() -> None:
    host = shared()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    turn = host.handle(client_request(client.RevokeKey(public=FIRST[:6]), 900, ALICE), now=5)

    assert turn.events[0] == event.KeyRevoked(at=5, public=FIRST, by="alice")
    assert not host.cluster.keys
    assert [type(one) for one in turn.effects] == [Reply]


def test_what_names_no_key_or_several_is_refused_with_the_candidates() -> None:
    host = shared()
    one, other = "abcdefg" + "0" * 33, "abcdefh" + "0" * 33
    for public in (one, other):
        host.ask(client.AddKey(public=public), peer=ALICE)
    for prefix, code, hint in (
        ("abcde", "short_key", "first 6 characters"),
        ("abcdex", "unknown_key", "gqctl key show"),
        ("abcdef", "ambiguous_key", f"{one}, {other}"),
    ):
        with pytest.raises(Refusal) as refused:
            host.ask(client.RevokeKey(public=prefix), peer=ALICE)
        assert refused.value.code == code
        assert hint in refused.value.hint
    assert len(host.cluster.keys) == 2


def test_nobody_revokes_a_key_of_another_but_administrators() -> None:
    host = with_token()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    for peer in (BOB, OLGA):
        for public in (FIRST, TOKEN):
            with pytest.raises(Refusal, match="not yours"):
                host.ask(client.RevokeKey(public=public), peer=peer)
    for public in (FIRST, TOKEN):
        host.ask(client.RevokeKey(public=public), peer=ADAM)
    assert not host.cluster.keys


def test_a_request_by_a_key_that_was_revoked_meanwhile_is_refused() -> None:
    host = shared()
    host.ask(client.AddKey(public=FIRST), peer=ALICE)
    laptop = msgspec.structs.replace(ALICE, key=FIRST, address="198.51.100.9")
    host.ask(client.ListJobs(), peer=laptop)
    host.ask(client.RevokeKey(public=FIRST), peer=ALICE)
    with pytest.raises(Refusal, match="no longer known"):
        host.ask(client.ListJobs(), peer=laptop)
    assert host.trail[-1].outcome == "not_served"


def test_revoking_a_nodes_key_closes_its_link() -> None:
    host = with_token()
    joined(host, "n1", FIRST, now=1)
    job_id = host.start(submit(), peer=ALICE)
    turn = host.handle(client_request(client.RevokeKey(public=FIRST), 900, ADAM))
    [closed] = [one for one in turn.effects if isinstance(one, CloseLink)]
    assert "was revoked by adam" in closed.why
    assert closed.is_removed, "what it runs is to end"
    assert "n1" not in host.controller.volatile.links
    host.handle(Tick(), now=100)
    assert host.cluster.nodes["n1"].is_lost
    assert host.job(job_id).state.value != "RUNNING"


def test_a_join_by_whoever_holds_no_token_is_told_so() -> None:
    fact = NodeJoin(route=("tcp", b"x"), token="", address="203.0.113.5", join=join("n1", "", FIRST).join)
    host = CoreHost(SHARED, {"n9": inventory()})
    assert "unknown" in why_closed(host.handle(fact, now=1))
    assert (host.trail[-1].origin, host.trail[-1].outcome) == ("203.0.113.5", "unknown_token")
