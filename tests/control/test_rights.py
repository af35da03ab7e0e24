"""Every request × every kind of caller, each really asked, against the table of rights."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from gq.cli._run import load
from gq.errors import Refusal
from gq.wire import client
from gqd.control.access import COMMANDS, REACH, RIGHTS, Reach, Right, Role
from gqd.state.input import Peer
from gqd.state.policy import Policy
from tests.builders import ADAM, ALICE, BOB, CARL, OLGA, OWNER, ROOT, STRANGER, named, via
from tests.control.scene import ALICES_KEY, REQUESTS, scene
from tests.hosts import CoreHost

KINDS = get_args(client.RequestBody)
DENIALS = {
    "not_served", "not_vouched", "not_owner", "not_coordinator", "not_operator", "not_administrator", "root_jobs",
}  # fmt: skip

CALLERS: dict[str, Peer] = {
    "the owner": ALICE,
    "another user": BOB,
    "a coordinator": CARL,
    "an operator": OLGA,
    "an administrator": ADAM,
    "root": ROOT,
    "the owner, by a key": msgspec.structs.replace(ALICE, key=ALICES_KEY, address="198.51.100.9"),
    "the owner, by a key that is not known": msgspec.structs.replace(ALICE, key="x" * 40, address="198.51.100.9"),
    "the owner's name with another uid": msgspec.structs.replace(ALICE, uid=2999),
    "another's name with the owner's uid": msgspec.structs.replace(BOB, uid=ALICE.uid),
    "the owner, through the node of their job": via("n1", ALICE),
    "the owner, through another compute node": via("n2", ALICE),
    "another user, through the node of the job": via("n1", BOB),
    "an operator, through a compute node": via("n1", OLGA),
    "an administrator, through a compute node": via("n1", ADAM),
    "a coordinator, through a compute node": via("n1", CARL),
    "root, through a compute node": via("n1", ROOT),
    "a user, through a node that is not there": via("n99", ALICE),
    "the owner, through a login node": via("login1", ALICE),
    "another user, through a login node": via("login1", BOB),
    "a coordinator, through a login node": via("login1", CARL),
    "an operator, through a login node": via("login1", OLGA),
    "an administrator, through a login node": via("login1", ADAM),
}

ANYONE = {
    name for name in CALLERS if "compute node" not in name and "not there" not in name and "not known" not in name
}
ANYONE -= {"another user, through the node of the job"}
OWNERS = {
    "the owner",
    "the owner, by a key",
    "the owner, through the node of their job",
    "the owner, through a login node",
}
COORDINATORS = {"a coordinator", "a coordinator, through a login node"}
OPERATORS = {"an operator", "an operator, through a login node"}
ADMINISTRATORS = {"an administrator", "root", "an administrator, through a login node"}

ALLOWED: dict[Right, set[str]] = {
    Right.ANYONE: ANYONE,
    Right.OWNER: OWNERS | OPERATORS | ADMINISTRATORS,
    Right.OWNER_ONLY: OWNERS | ADMINISTRATORS,
    Right.SELF: (OWNERS | ADMINISTRATORS) - {"the owner, through the node of their job"},
    Right.COORDINATOR: COORDINATORS | OPERATORS | ADMINISTRATORS,
    Right.OPERATOR: OPERATORS | ADMINISTRATORS,
    Right.ADMINISTRATOR: ADMINISTRATORS,
}
"""Who may ask it about what is alice's, or about what is in the account that carl coordinates."""


Frozen = bytes
"""A cluster as it is before it is asked: thawed for each question, in half the time that a copy takes."""


@pytest.fixture(scope="module")
def prepared() -> Frozen:
    return pickle.dumps(scene())


@pytest.fixture(scope="module")
def private() -> Frozen:
    """Also where somebody has the name or the groups of an administrator."""
    policy = Policy(
        owner_uid=OWNER.uid, administrators=("mallory", "%wheel"), endpoint="tcp://c:1", server_key="S" * 40
    )
    return pickle.dumps(scene(policy, owner=PRIVATE_OWNER, administrator=ROOT))


PRIVATE_OWNER = msgspec.structs.replace(ALICE, uid=OWNER.uid)


def thawed(frozen: Frozen) -> CoreHost:
    host = pickle.loads(frozen)
    assert isinstance(host, CoreHost)
    return host


def is_allowed(frozen: Frozen, peer: Peer, kind: type) -> bool:
    """Ask it of a cluster of its own.  What is allowed must be done; any other refusal is this test's mistake."""
    ours = thawed(frozen)
    noted = len(ours.trail)
    try:
        answer = ours.ask(REQUESTS[kind], peer=peer, named_user=named(ALICE))
    except Refusal as refusal:
        assert refusal.code in DENIALS, f"{peer}: {refusal.code}: {refusal}"
        [line] = ours.trail[noted:]
        assert (line.user, line.uid, line.action, line.outcome) == (peer.user, peer.uid, kind.__name__, refusal.code)
        return False
    if isinstance(answer, client.Keys):
        return bool(answer.keys)
    if not isinstance(answer, client.JobsDone) or answer.job_ids:
        return True
    assert answer.refused
    assert [line.outcome for line in ours.trail[noted:]] == ["not_owner"]
    return False


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_everybody_may_ask_what_the_table_says_and_nothing_else(prepared: Frozen, kind: type) -> None:
    expected = ALLOWED[RIGHTS[kind]]
    if kind in (client.Submit, client.SubmitChain, client.WhatIf):
        expected = expected - {"root"}  # the one thing that root may not

    assert {name for name, peer in CALLERS.items() if is_allowed(prepared, peer, kind)} == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_private_cluster_serves_its_owner_and_root_and_nobody_else(private: Frozen, kind: type) -> None:
    for stranger in (STRANGER, ADAM, BOB, msgspec.structs.replace(STRANGER, user=PRIVATE_OWNER.user)):
        assert not is_allowed(private, stranger, kind), stranger
    for served in (PRIVATE_OWNER, ROOT, via("n1", PRIVATE_OWNER), via("n2", ROOT)):
        answer = thawed(private).ask(REQUESTS[kind], peer=served, named_user=named(PRIVATE_OWNER))
        assert not isinstance(answer, client.JobsDone) or answer.job_ids, served


def test_every_request_has_a_right_and_a_sample() -> None:
    assert set(RIGHTS) == set(KINDS) == set(REQUESTS)
    assert {right: set(reach) for right, reach in REACH.items()} == {right: set(Role) for right in Right}


def test_what_not_everybody_may_ask_is_refused_by_the_name_that_people_type() -> None:
    guarded = {kind for kind, right in RIGHTS.items() if Reach.NONE in REACH[right].values()}
    guarded |= {kind for kind, right in RIGHTS.items() if right is Right.COORDINATOR}
    assert guarded == COMMANDS.keys()


def test_the_manual_prints_the_table() -> None:
    page = (Path(__file__).parents[2] / "man" / "gq-protocol.7").read_text()
    rows = re.findall(r"^\.It (\w+) Ta (\w+) Ta (\w+) Ta (\w+)$", page, re.MULTILINE)

    assert rows == [(kind.__name__, *(REACH[right][role].value for role in Role)) for kind, right in RIGHTS.items()]


def test_no_role_may_less_than_one_below_it() -> None:
    order = ["none", "own", "all"]
    for reach in REACH.values():
        assert [order.index(reach[role].value) for role in sorted(Role)] == sorted(
            order.index(reach[role].value) for role in Role
        )


def test_a_refusal_names_a_command_that_exists() -> None:
    nouns = (load("gqctl").verbs or dict)()
    names = {verb.name for noun in nouns.values() for verb in (noun.verbs or dict)().values()}
    names |= {noun.name for noun in nouns.values()}

    named = {words.split("`")[1] for words in COMMANDS.values()}

    assert named - names == {"gqcron --all"}
