"""gq as it is measured: a private cluster from `gq up`, and one open connection of the Python client."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from gq import api
from gq.connection.client import Client
from gq.connection.locate import find_cluster
from gq.errors import Refusal
from gq.model.tasks import parse_tasks
from gq.wire import client as wire
from tests.benchmarks.side import Words, resident_mib
from tests.clusters import ClusterYard, PrivateCluster, marked, wait_until

NODES = 4
CPUS = 64
GPUS = 8
ANSWER_S = 120.0
ANOTHER, ANOTHER_UID = "another", 54321
_HOLD_S = 25.0


class GqSide:
    def __init__(self, cluster: PrivateCluster, connection: Client) -> None:
        self._cluster = cluster
        self.connection = connection
        self.client = api.Client(connection)
        self.words = Words("gqsub", "gqrun", "gqalloc", "gqstat", "gqinfo", "gqdel")

    @property
    def workdir(self) -> Path:
        return self._cluster.workdir

    @property
    def environ(self) -> dict[str, str]:
        return self._cluster.environ

    def ok(self, *argv: str) -> str:
        return self._cluster.ok(*argv, timeout_s=ANSWER_S)

    def prepare(self, command: str, name: str = "") -> wire.Submit:
        script, name = f"#!/bin/sh\n{command}\n", name or command.partition(" ")[0]
        return self.client.prepare(
            script, environment=self.environ, output="/dev/null", chdir=str(self.workdir), name=name
        )

    def submit_many(self, command: str, count: int, name: str = "") -> list[int]:
        """Over one connection, many on the way at once."""
        jobs = []
        for answer in self.client.submit_many([self.prepare(command, name)] * count):
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

    def pending(self, name: str) -> int:
        """Pending jobs of this name, no more than one page of them."""
        wanted = wire.JobFilter(states=("PENDING",), names=(name,))
        answer = self.connection.ask(wire.ListJobs(filter=wanted))
        assert isinstance(answer, wire.Jobs)
        return len(answer.jobs)

    def pending_tasks(self, array_id: int) -> int:
        """Of the tasks of an array those that wait in it."""
        answer = self.connection.ask(wire.ListJobs(filter=wire.JobFilter(job_ids=(array_id,))))
        assert isinstance(answer, wire.Jobs)
        return sum(parse_tasks(job.array_tasks).bit_count() for job in answer.jobs if job.array_tasks)

    def await_running(self, count: int) -> None:
        """Until so many jobs hold resources and run."""
        wait_until(lambda: self._running_count() >= count, ANSWER_S, f"{count} jobs run")

    def _running_count(self) -> int:
        answer = self.connection.ask(wire.GetCluster())
        assert isinstance(answer, wire.Cluster)
        return answer.info.jobs_running

    def running(self) -> set[int]:
        answer = self.connection.ask(wire.ListJobs(filter=wire.JobFilter(states=("RUNNING",))))
        assert isinstance(answer, wire.Jobs)
        return {job.job_id for job in answer.jobs}

    def counters(self) -> dict[str, int]:
        """The controller's own."""
        answer = self.connection.ask(wire.GetCluster())
        assert isinstance(answer, wire.Cluster)
        return answer.info.counters

    def kill_controller(self) -> None:
        os.kill(self._cluster.pid("gqd"), signal.SIGKILL)

    def start_again(self) -> None:
        wait_until(self._is_controller_gone, what="gqd is gone")
        self._cluster.up()

    def _is_controller_gone(self) -> bool:
        return not marked(self._cluster.directory.name, [self._cluster.pid("gqd")])

    def give_to_another(self, keeping: int) -> None:
        """All pending jobs but the last so many are somebody else's from now on, as in a cluster for many users."""
        self.kill_controller()
        wait_until(self._is_controller_gone, what="gqd is gone")
        with contextlib.closing(sqlite3.connect(self._cluster.directory / "gq.db")) as db, db:
            mine = "SELECT job_id FROM jobs WHERE state = 'PENDING' ORDER BY job_id DESC LIMIT ?"
            db.execute(
                f"UPDATE jobs SET user = ?, uid = ? WHERE state = 'PENDING' AND job_id NOT IN ({mine})",
                (ANOTHER, ANOTHER_UID, keeping),
            )
            columns = "account, shares, is_default, from_group, usage, usage_at, usage_rate"
            db.execute(f"INSERT INTO members (user, {columns}) SELECT ?, {columns} FROM members LIMIT 1", (ANOTHER,))
        self._cluster.up()

    def controller_memory_mib(self) -> float:
        return resident_mib(self._cluster.pid("gqd"))


@contextlib.contextmanager
def fresh_cluster(yard: ClusterYard, cpus: int = CPUS) -> Iterator[GqSide]:
    """A cluster of its own, ended with all that it runs.  `cpus`: of each node."""
    cluster = yard.make(nodes=NODES, fake_gpus=GPUS, cpus=cpus)
    try:
        with Client(find_cluster(cluster.environ), timeout_s=ANSWER_S, patience_s=ANSWER_S) as connection:
            yield GqSide(cluster, connection)
    finally:
        yard.clusters.remove(cluster)
        cluster.end()
