"""A host with users, for tests of a gqnode that root runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import MARK
from tests.system.hosts import Network, network


@pytest.fixture(scope="module")
def net(pytestconfig: pytest.Config) -> Iterator[Network]:
    """Of one host; every cgroup and every process of it is gone when the module is over."""
    with network(["n1"], pytestconfig.stash[MARK]) as made:
        yield made
