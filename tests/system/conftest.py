"""The stage of the attacks, and what must be true after each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gqnode.shepherd import keyring
from tests.conftest import FAILED, MARK
from tests.system.attacks import NOTHING, Row
from tests.system.hosts import network
from tests.system.site import ACCOUNTS as ACCOUNTS_OF_SITE
from tests.system.site import NAMES as NAMES_OF_SITE
from tests.system.site import Site, set_up_site
from tests.system.stage import ACCOUNTS, NAMES, Stage, set_stage

LATE = "NoHandshake"
"""May be about a connection of a test before: it is told when the connection ends."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "attack(row): a row of the table of attacks, see tests/system/attacks.py")


@pytest.fixture(scope="session")
def _stage(pytestconfig: pytest.Config) -> Iterator[Stage]:
    keyring.join_new(None)  # the daemons inherit a session keyring, as they do from a service manager or a login
    with network(NAMES, pytestconfig.stash[MARK], ACCOUNTS) as net:
        stage = set_stage(net)
        yield stage
        stage.client.close()
        stage.reader.end()


@pytest.fixture
def stage(request: pytest.FixtureRequest, _stage: Stage) -> Iterator[Stage]:
    """Shared by all attacks; afterwards the audit trail must say what the row says, and the cluster must be well."""
    before = max((one.seq for one in _stage.audit()), default=0)
    yield _stage
    _stage.end_speakers()
    if request.node.stash.get(FAILED, False):
        print(_stage.net.logs())
    else:
        _check_audit(_stage, request.node, before)
    _stage.is_well()


@pytest.fixture(scope="session")
def _site(pytestconfig: pytest.Config) -> Iterator[Site]:
    with network(NAMES_OF_SITE, pytestconfig.stash[MARK], ACCOUNTS_OF_SITE) as net:
        site = set_up_site(net)
        yield site
        site.client.close()
        site.reader.end()


@pytest.fixture
def site(request: pytest.FixtureRequest, _site: Site) -> Iterator[Site]:
    """As `stage`, where MUNGE says who users are."""
    before = max((one.seq for one in _site.audit()), default=0)
    yield _site
    _site.end_speakers()
    if request.node.stash.get(FAILED, False):
        print(_site.net.logs())
    else:
        _check_audit(_site, request.node, before)


def _check_audit(stage: Stage | Site, test: pytest.Item, before: int) -> None:
    mark = test.get_closest_marker("attack")
    row: Row | None = mark.args[0] if mark else None
    if row is None:
        return
    for said in row.audit:
        if said == NOTHING:
            refused = [one for one in stage.audit(before) if one.outcome != "done" and one.action != LATE]
            assert refused == [], f"the audit trail has {refused}"
        else:
            action, _, outcome = said.partition(": ")
            stage.await_audit(before, action, outcome)
