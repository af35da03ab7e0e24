"""Hosts on which nothing of gq is: `a` is to be a controller, `b` and `c` nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.conftest import FAILED, MARK
from tests.system.hosts import Host, Network, network

MakeHosts = Callable[[Sequence[str]], dict[str, Host]]


@pytest.fixture
def net(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Callable[[Sequence[str]], Network]]:
    """``net("ab")`` → two hosts for one test alone."""
    with ExitStack() as stack:

        def make(names: Sequence[str]) -> Network:
            made = stack.enter_context(network(names, pytestconfig.stash[MARK]))
            stack.callback(lambda: print(_logs(made)) if request.node.stash.get(FAILED, False) else None)
            return made

        yield make


def _logs(net: Network) -> str:
    """Also of the daemons that the commands started."""
    parts = [net.logs()]
    for host in net.hosts.values():
        for log in sorted(host.path("/var/log/gq").glob("*.log")):
            parts.append("\n".join([f"── {log.name} of {host.name} ──", *log.read_text().splitlines()[-40:]]))
    return "\n".join(parts)


@pytest.fixture(scope="module")
def shared_net(pytestconfig: pytest.Config) -> Iterator[Network]:
    with network("ab", pytestconfig.stash[MARK]) as made:
        yield made


@pytest.fixture
def hosts(shared_net: Network) -> Iterator[dict[str, Host]]:
    """Two hosts that the tests of a module share; each finds them without anything of gq."""
    yield shared_net.hosts
    for host in shared_net.hosts.values():
        host.run("userdel", "gq")
        host.ok("sh", "-c", "rm -rf /etc/gq /etc/systemd/system/gq* /var/lib/gq /run/gq /run/systemd /var/log/gq")
