"""Daemons killed at any moment, alone and together: nothing acknowledged is lost, nothing runs twice, jobs go on."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.api import Client
from gq.connection.client import Client as Connection
from gq.connection.locate import private_location
from gq.errors import Refusal
from tests.clusters import PrivateCluster, wait_until
from tests.effort import first
from tests.integration.jobs import (
    LONG_S,
    MakeCluster,
    await_file,
    await_state,
    config,
    facts,
    instants,
    record_counts,
    submit,
)

BURST = 160
KILLS = 3
PATIENCE_S = 60.0
LINES = 200
COUNTING = f"""#!/bin/sh
gqrun -N2 --label sh -c 'for i in $(seq {LINES}); do echo $i; sleep 0.02; done'
exit 5
"""


SAYS_ITSELF = re.compile(r"gqrun: (node n[12] (does not answer; waiting for it|is back)|(no|the) controller .*)")
"""What gqrun adds where a daemon takes long to come back."""


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=2, fake_gpus=1, cpus=16)


def output(cluster: PrivateCluster, job: str) -> list[str]:
    path = cluster.workdir / f"gq-{job}.out"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    "victims", first(1, [("gqd", "gqnode-n1", "gqnode-n2"), ("gqnode-n1",), ("gqnode-n2",)]), ids="+".join
)
def test_a_job_and_its_step_go_on_when_daemons_are_killed_and_no_line_is_lost_or_repeated(
    cluster: PrivateCluster, victims: tuple[str, ...]
) -> None:
    job = submit(cluster, "-N2", script=COUNTING)
    for share in (10, LINES // 2):
        wait_until(lambda share=share: len(output(cluster, job)) > share, LONG_S, "the step writes")  # type: ignore[misc]
        for daemon in victims:
            cluster.kill(daemon)
        cluster.up()

    ended = await_state(cluster, job, "FAILED")
    assert (ended["exit_code"], ended["restart_count"]) == (5, 0)
    lines = output(cluster, job)
    for rank in ("0: ", "1: "):
        written = [line for line in lines if line.startswith(rank)]
        assert written == [f"{rank}{number}" for number in range(1, LINES + 1)]
    others = [line for line in lines if not line.startswith(("0: ", "1: "))]
    assert [line for line in others if not SAYS_ITSELF.fullmatch(line)] == []


def test_a_job_that_ends_while_its_node_daemon_is_dead_is_reported_with_its_exit_code(cluster: PrivateCluster) -> None:
    job = submit(cluster, "-w", "n1", wrap="touch began; while [ ! -e go ]; do sleep 0.05; done; touch over; exit 7")
    wait_until((cluster.workdir / "began").exists, LONG_S, "the job runs")
    cluster.kill("gqnode-n1")
    (cluster.workdir / "go").touch()
    wait_until((cluster.workdir / "over").exists, LONG_S, "the job ends by itself")
    cluster.up()
    ended = await_state(cluster, job, "FAILED")
    assert (ended["exit_code"], ended["restart_count"]) == (7, 0)


# ── the controller, in the middle of a burst ──────────────────────────────────────────────────────────────────


class Burst:
    """A client that queues many jobs on one connection, while the controller comes and goes."""

    def __init__(self, cluster: PrivateCluster, count: int) -> None:
        self.acknowledged: list[int] = []
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._count = count
        self._thread = threading.Thread(target=self._submit, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(LONG_S * 2)
        assert not self._thread.is_alive(), f"{len(self.acknowledged)} of {self._count} acknowledged, no more come"
        if self.failure is not None:
            raise self.failure

    def _submit(self) -> None:
        location = private_location(str(self._cluster.directory), self._cluster.environ)
        workdir = str(self._cluster.workdir)
        try:
            with Client(Connection(location, timeout_s=LONG_S, patience_s=PATIENCE_S)) as client:
                request = client.prepare(
                    "echo ran >> ran-$GQ_JOB_ID", environment={}, chdir=workdir, output="/dev/null"
                )
                for answer in client.submit_many(self._requests(request)):
                    assert not isinstance(answer, Refusal), answer
                    self.acknowledged.append(answer.id)
        except BaseException as failure:
            self.failure = failure

    def _requests(self, request: object) -> Iterator[object]:
        for _ in range(self._count):
            time.sleep(0.01)  # a burst that lasts long enough to be interrupted
            yield request


def runs(workdir: Path) -> dict[int, int]:
    """How often each job ran."""
    return {int(path.name.partition("-")[2]): len(path.read_text().splitlines()) for path in workdir.glob("ran-*")}


@pytest.mark.slow
def test_a_controller_killed_during_a_burst_keeps_every_acknowledged_job_and_runs_each_once(
    cluster: PrivateCluster,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    steady = submit(cluster, wrap="echo began; while [ ! -e go ]; do sleep 0.1; done; exit 3")
    wait_until(lambda: output(cluster, steady) == ["began"], LONG_S, "the long job runs")
    before, _ = record_counts(cluster)
    burst = Burst(cluster, BURST)
    burst.start()
    for kill in range(KILLS):
        wait_until(lambda least=kill * BURST // KILLS // 2: len(burst.acknowledged) >= least, LONG_S, "some are in")  # type: ignore[misc]
        time.sleep(dice.uniform(0.0, 0.2))
        cluster.kill("gqd")
        cluster.up()
    burst.join()

    assert len(set(burst.acknowledged)) == BURST, "each submission is a job of its own"
    wait_until(lambda: len(runs(cluster.workdir)) >= BURST, LONG_S * 2, "all have run")
    assert record_counts(cluster)[0] == before + BURST, "asking again made no second job"
    wait_until(
        lambda: all(one == "COMPLETED" for one in _states(cluster, burst.acknowledged)), LONG_S, "all are reported"
    )
    assert runs(cluster.workdir) == dict.fromkeys(burst.acknowledged, 1), "each ran once"
    (cluster.workdir / "go").touch()
    assert await_state(cluster, steady, "FAILED")["exit_code"] == 3
    assert (output(cluster, steady), len(instants(cluster, "JobStarted", steady))) == (["began"], 1)


def _states(cluster: PrivateCluster, jobs: list[int]) -> list[str]:
    lines = cluster.ok("gqacct", "-X", "-n", "-P", "-o", "jobid,state", "-j", ",".join(map(str, jobs))).splitlines()
    assert len(lines) == len(jobs)
    return [line.partition("|")[2] for line in lines]


@pytest.mark.slow
def test_whatever_daemon_is_killed_whenever_each_job_and_each_gang_runs_exactly_once(cluster: PrivateCluster) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    command = "echo ran >> ran-$GQ_JOB_ID; gqrun sh -c 'echo $GQ_PROCID >> tasks-$GQ_JOB_ID'"
    jobs = {int(submit(cluster, f"-N{nodes}", wrap=command)): nodes for nodes in dice.choices((1, 2), k=12)}
    while len(runs(cluster.workdir)) < len(jobs):
        time.sleep(dice.uniform(0.0, 0.3))
        for daemon in dice.sample(("gqd", "gqnode-n1", "gqnode-n2"), dice.randint(1, 3)):
            cluster.kill(daemon)
        cluster.up()

    for job in jobs:
        ended = await_state(cluster, str(job), "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
        assert (ended["state"], ended["restart_count"]) == ("COMPLETED", 0), ended
    assert runs(cluster.workdir) == dict.fromkeys(jobs, 1)
    for job, nodes in jobs.items():
        tasks = (cluster.workdir / f"tasks-{job}").read_text().split()
        assert sorted(tasks) == [str(rank) for rank in range(nodes)]


# ── the controller, away ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_time_limit_is_enforced_while_the_controller_is_away_and_told_when_it_is_back(
    private_cluster: MakeCluster,
) -> None:
    cluster = private_cluster(config=config(grace_s=1))
    script = "#!/bin/sh\ntrap 'echo term >> heard' TERM\necho $$ > pid\nwhile :; do sleep 0.1; done\n"
    job = submit(cluster, "-t", "0:03", script=script)
    pid = int(await_file(cluster.workdir / "pid"))
    cluster.kill("gqd")
    assert await_file(cluster.workdir / "heard") == "term\n"
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), LONG_S, "it was killed after the grace time")
    cluster.up()

    ended = await_state(cluster, job, "TIMEOUT")
    assert ended["restart_count"] == 0
    assert 3 <= instants(cluster, "JobEnding", job)[0] - instants(cluster, "JobStarted", job)[0] < LONG_S


def test_jobs_that_end_while_the_controller_is_away_are_reported_when_it_is_back(cluster: PrivateCluster) -> None:
    jobs = [
        submit(cluster, wrap=f"while [ ! -e go ]; do sleep 0.05; done; touch over-{code}; exit {code}")
        for code in (0, 4)
    ]
    for job in jobs:
        await_state(cluster, job, "RUNNING")
    cluster.kill("gqd")
    (cluster.workdir / "go").touch()
    for code in (0, 4):
        wait_until((cluster.workdir / f"over-{code}").exists, LONG_S, "it ends without a controller")
    cluster.up()
    assert await_state(cluster, jobs[0], "COMPLETED")["exit_code"] == 0
    assert await_state(cluster, jobs[1], "FAILED")["exit_code"] == 4
    assert [facts(cluster, job)["restart_count"] for job in jobs] == [0, 0]
