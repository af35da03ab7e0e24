"""What every test shares: hypothesis's settings, real clusters, and the check that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.clusters import (
    MARK_VARIABLE,
    ClusterYard,
    PrivateCluster,
    cluster_yard,
    describe,
    kill_all,
    marked,
    new_mark,
    processes,
    rests,
)

# A user's Python compiles gq once.  Set here before any test is imported, and for every daemon and command started.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

MARK = pytest.StashKey[str]()
FAILED = pytest.StashKey[bool]()
LINGER_S = 10.0
"""How long a process that a test ended may take to be gone."""
SLOW_S = 10.0
"""A test whose body takes longer is to be made faster, or to be marked `slow`."""


def pytest_configure(config: pytest.Config) -> None:
    # Started in the background of a script, this process ignores SIGINT, and so would every command that it tries.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[MARK] = os.environ[MARK_VARIABLE] = new_mark()
    # In CI the same examples each time, so that a change is judged by what it did; elsewhere new ones each time.
    hypothesis.settings.register_profile("gq", deadline=None, print_blob=True)
    hypothesis.settings.register_profile("gq-ci", deadline=None, print_blob=True, derandomize=True)
    hypothesis.settings.load_profile("gq-ci" if os.environ.get("GQ_TEST_REQUIRE") else "gq")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start daemons, which `make quick` leaves out."""
    for item in items:
        if "cluster_base" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.daemons)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that should be faster, or marked.  Nothing fails: a busy machine makes every test slow."""
    passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    unmarked = [one for one in passed if one.duration > SLOW_S and "slow" not in one.keywords]
    if not unmarked:
        return
    terminalreporter.section(f"longer than {SLOW_S:g} s without the marker `slow`")
    for report in sorted(unmarked, key=lambda one: -one.duration):
        terminalreporter.write_line(f"{report.duration:6.1f} s  {report.nodeid}")


# ── nothing is left behind ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def no_process_is_left(pytestconfig: pytest.Config) -> Iterator[None]:
    """After each test no process lives that it started.  Set up first, so it looks after all else is torn down."""
    mark = pytestconfig.stash[MARK]
    before = processes()
    yield
    deadline = time.monotonic() + LINGER_S
    while left := [pid for pid in marked(mark, processes() - before) if not rests(pid, before)]:
        if time.monotonic() > deadline:
            stories = [describe(pid) for pid in left]
            kill_all(left)
            pytest.fail(f"the test left processes behind: {stories}")
        time.sleep(0.02)


# ── real clusters ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def cluster_base(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Where the clusters of this test process live: short, because a socket's path must be."""
    base = Path("/tmp") / pytestconfig.stash[MARK]
    base.mkdir(mode=0o700)
    yield base
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def private_cluster(
    request: pytest.FixtureRequest, cluster_base: Path, pytestconfig: pytest.Config
) -> Iterator[Callable[..., PrivateCluster]]:
    """``private_cluster(nodes=2, fake_gpus=4, cpus=8)`` → a running cluster of this test's own."""
    with cluster_yard(cluster_base, pytestconfig.stash[MARK]) as yard:
        yield yard.make
        if request.node.stash.get(FAILED, False):
            print("\n".join(cluster.logs() for cluster in yard.clusters))


@pytest.fixture(scope="module")
def module_yard(cluster_base: Path, pytestconfig: pytest.Config) -> Iterator[ClusterYard]:
    """Makes clusters that the tests of a module share (`PrivateCluster.lent`)."""
    with cluster_yard(cluster_base, pytestconfig.stash[MARK]) as yard:
        yield yard


@pytest.fixture(scope="session")
def _shared_yard(cluster_base: Path, pytestconfig: pytest.Config) -> Iterator[ClusterYard]:
    with cluster_yard(cluster_base, pytestconfig.stash[MARK]) as yard:
        yield yard


@pytest.fixture(scope="session")
def shared_cluster(_shared_yard: ClusterYard) -> PrivateCluster:
    """Two nodes of four pretended GPUs and sixteen CPUs, for tests that only submit and look.

    Lives until the run ends: leave no job behind, drain nothing, stop nothing.
    """
    return _shared_yard.make(nodes=2, fake_gpus=4, cpus=16)
