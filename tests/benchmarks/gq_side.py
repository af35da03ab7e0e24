"""gq as it is measured: a private cluster from `gq up`, and one open connection of the Python client."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from gq import api
from gq.client import Client
from gq.errors import Refusal
from gq.locate import find_cluster
from gq.wire import client as wire
from tests.benchmarks.side import Words, resident_mib
from tests.clusters import ClusterYard, PrivateCluster, marked, wait_until

NODES = 4
CPUS = 64
GPUS = 8
ANSWER_S = 120.0
_HOLD_S = 25.0


class GqSide:
    def __init__(self, cluster: PrivateCluster, connection: Client) -> None:
        self._cluster = cluster
        self.connection = connection
        self.client = api.Client(connection)
        self.words = Words("gqsub", "gqrun", "gqalloc", "gqstat", "gqinfo")

    @property
    def workdir(self) -> Path:
        return self._cluster.workdir

    @property
    def environ(self) -> dict[str, str]:
        return self._cluster.environ

    def ok(self, *argv: str) -> str:
        return self._cluster.ok(*argv, timeout_s=ANSWER_S)

    def prepare(self, command: str) -> wire.Submit:
        return self.client.prepare(
            f"#!/bin/sh\n{command}\n", environment=self.environ, output="/dev/null", chdir=str(self.workdir)
        )

    def submit_many(self, command: str, count: int) -> list[int]:
        """Over one connection, many on the way at once."""
        jobs = []
        for answer in self.client.submit_many([self.prepare(command)] * count):
            if isinstance(answer, Refusal):
                raise answer
            jobs.append(answer.id)
        return jobs

    def await_start(self, job_ids: Sequence[int]) -> None:
        self._await(job_ids, "started")

    def await_end(self, job_ids: Sequence[int]) -> None:
        self._await(job_ids, "ended")

    def _await(self, job_ids: Sequence[int], until: str) -> None:
        body = wire.WaitJobs(job_ids=tuple(job_ids), until=until, timeout_s=_HOLD_S)
        while True:
            answer = self.connection.ask(body)
            assert isinstance(answer, wire.Waited)
            if answer.is_done:
                return

    def running(self) -> set[int]:
        answer = self.connection.ask(wire.ListJobs(filter=wire.JobFilter(states=("RUNNING",))))
        assert isinstance(answer, wire.Jobs)
        return {job.job_id for job in answer.jobs}

    def kill_controller(self) -> None:
        os.kill(self._cluster.pid("gqd"), signal.SIGKILL)

    def start_again(self) -> None:
        pid = self._cluster.pid("gqd")
        wait_until(lambda: not marked(self._cluster.directory.name, [pid]), what="gqd is gone")
        self._cluster.up()

    def controller_memory_mib(self) -> float:
        return resident_mib(self._cluster.pid("gqd"))


@contextlib.contextmanager
def fresh_cluster(yard: ClusterYard) -> Iterator[GqSide]:
    """A cluster of its own, ended with all that it runs."""
    cluster = yard.make(nodes=NODES, fake_gpus=GPUS, cpus=CPUS)
    try:
        with Client(find_cluster(cluster.environ), timeout_s=ANSWER_S, patience_s=ANSWER_S) as connection:
            yield GqSide(cluster, connection)
    finally:
        yard.clusters.remove(cluster)
        cluster.end()
