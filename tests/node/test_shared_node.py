"""Jobs of a shared cluster run as who submitted them, with that user's rights and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gq.model.state import Outcome
from tests.conftest import MARK
from tests.node.shared_node import SharedNode, shared_node
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, CAROL, Account
from tests.system.hosts import Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("hosts"),
    pytest.mark.timeout(120),
]
WHO = "id -u; id -g; id -G"


@pytest.fixture(scope="module")
def net(pytestconfig: pytest.Config) -> Iterator[Network]:
    network = Network(["n1"], pytestconfig.stash[MARK])
    yield network
    network.end()


@pytest.fixture
def node(net: Network) -> Iterator[SharedNode]:
    with shared_node(net) as node:
        yield node


def output(node: SharedNode, account: Account = ALICE, name: str = "out") -> list[str]:
    return node.user(account).path(name).read_text().splitlines()


# ── who it runs as ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_script_runs_as_its_submitter_with_all_groups_and_nothing_of_root(node: SharedNode) -> None:
    ended = node.run(CAROL, f"{WHO}; grep -E 'Uid|Gid|CapEff|CapPrm|CapInh' /proc/self/status; cat $0 | head -1")

    assert (ended.outcome, ended.why) == (Outcome.COMPLETED, "")
    uid, gid, groups, uids, gids, *rest = output(node, CAROL)
    assert (uid, gid, groups.split()) == ("2003", "2003", ["2003", "3000"])
    assert uids.split()[1:] == ["2003"] * 4 and gids.split()[1:] == ["2003"] * 4
    assert [line.split()[1] for line in rest[:3]] == ["0" * 16] * 3
    assert rest[3] == "#!/bin/sh"
    assert node.user(CAROL).path("out").stat().st_uid == CAROL.uid
