"""A controller that lies to a node daemon of root, as one does that an attacker has taken over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gq.wire import step as step_wire
from tests.conftest import MARK
from tests.node.shared_node import SharedNode, shared_node
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, Account
from tests.system.attacks import NOTHING, REFUSED, attack
from tests.system.hosts import Network, network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks_controller"),  # so that the host is set up once
    pytest.mark.timeout(120),
]
ROOT = Account("root", 0)
DAEMON = Account("daemon", 1)
PROOF = "/run/proof"
SHADOW = "/etc/shadow"


@pytest.fixture(scope="module")
def net(pytestconfig: pytest.Config) -> Iterator[Network]:
    with network(["n1"], pytestconfig.stash[MARK]) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["shared", "not-shared"])
def node(request: pytest.FixtureRequest, net: Network) -> Iterator[SharedNode]:
    """Its controller says that the cluster is shared, or that everything belongs to the daemon's own user."""
    with shared_node(net, is_shared=request.param) as made:
        yield made


def why_not(node: SharedNode, account: Account) -> str:
    fields = {"chdir": "/", "output_path": "/dev/null"}
    refused = node.refusal_of(node.submit(account, f"touch {PROOF}", None, **fields))
    assert not node.host.path(PROOF).exists()
    return refused.why


@attack("A controller orders a node to run a job as root", REFUSED, NOTHING)
def test_a_controller_orders_a_node_to_run_a_job_as_root(node: SharedNode) -> None:
    assert why_not(node, ROOT) == (
        "n1 runs nothing of a job as uid 0 (root); [access] root_jobs = true in its own gq.toml allows it"
    )


@attack("A controller orders a node to run a job as a system user", REFUSED, NOTHING)
def test_a_controller_orders_a_node_to_run_a_job_as_a_system_user(net: Network) -> None:
    with shared_node(net) as node:
        assert "n1 runs no jobs of uids below 1000, and daemon has uid 1" in why_not(node, DAEMON)


@attack("A controller reads a file of root's through the log of a job", REFUSED, NOTHING)
def test_a_controller_reads_a_file_of_roots_through_the_log_of_a_job(node: SharedNode) -> None:
    key = node.controller.hellos[-1].ticket_key
    for account in (ROOT, DAEMON):
        ticket = step_wire.LogTicket(1, 1, SHADOW, account.uid, expires_at=2e10)
        [answer] = node.say(step_wire.OpenLog(ticket=step_wire.seal(ticket, key)))
        assert isinstance(answer, step_wire.StepRefused), answer
        assert "n1 runs no" in answer.message, answer.message


@attack("A controller orders a node to run a user's job as another user", REFUSED, NOTHING)
def test_a_controller_orders_a_node_to_run_a_users_job_as_another_user(net: Network) -> None:
    with shared_node(net, is_shared=False) as node:
        assert "it runs no jobs of alice" in why_not(node, ALICE)
