"""A cluster that the tests of one module share, none of which breaks it: lent empty, and emptied when it comes back.

Jobs' numbers go on from test to test.  Whoever kills a daemon needs a cluster of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from gq.connection.client import Client
from gq.connection.locate import private_location
from gq.model.state import ACTIVE_WORDS
from gq.wire import client as wire
from tests.clusters import PrivateCluster, cluster_yard, wait_until
from tests.conftest import FAILED, MARK

EMPTY_WITHIN_S = 60.0


@contextlib.contextmanager
def standing(request: pytest.FixtureRequest, **shape: int | str) -> Iterator[PrivateCluster]:
    """A running cluster of this shape, for a fixture of the whole module."""
    with cluster_yard(request.getfixturevalue("cluster_base"), request.config.stash[MARK]) as yard:
        yield yard.make(**shape)  # type: ignore[arg-type]


@contextlib.contextmanager
def lent(cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    """For one test: afterwards no command, no job and no file of it is left."""
    yield cluster
    if request.node.stash.get(FAILED, False):
        print(cluster.logs())
    for process in cluster.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    cluster.started.clear()
    end_all_jobs(cluster)
    for path in cluster.workdir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def end_all_jobs(cluster: PrivateCluster) -> None:
    """By requests of this process: two commands after each test would take longer than most tests."""
    with Client(private_location(str(cluster.directory), cluster.environ)) as client:

        def left() -> tuple[int, ...]:
            wanted = wire.JobFilter(states=tuple(sorted(ACTIVE_WORDS)))
            return tuple(job.job_id for job in client.ask_for(wire.ListJobs(filter=wanted), wire.Jobs).jobs)

        if active := left():
            client.ask(wire.CancelJobs(filter=wire.JobFilter(job_ids=active)))
            wait_until(lambda: not left(), EMPTY_WITHIN_S, "no job is left")
