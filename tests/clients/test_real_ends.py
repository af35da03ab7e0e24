"""What `gqlog` and `gqacct` tell of jobs that never ran, or were ended, on real daemons."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.clients.lent import lent, standing
from tests.clusters import PrivateCluster, wait_until

pytestmark = pytest.mark.xdist_group("real_ends")  # so that the cluster is set up once


@pytest.fixture(scope="module")
def _cluster(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, cpus=4) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with lent(_cluster, request) as cluster:
        yield cluster


def submit(cluster: PrivateCluster, *options: str) -> str:
    return cluster.ok("gqsub", "--parsable", *options).strip()


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["once", "followed"])
def test_gqlog_of_a_job_that_could_not_start_says_why_and_returns_its_code(
    cluster: PrivateCluster, follow: tuple[str, ...]
) -> None:
    job = submit(cluster, "-o", "/nowhere/at/all/out", "--wrap", "true")
    code = cluster.run("gqwait", job).returncode

    done = cluster.run("gqlog", *follow, job)

    assert code not in (0, 125)
    assert (done.stdout, done.returncode) == ("", code)
    assert done.stderr.startswith(f"job {job} has no output: it ")
    assert "/nowhere/at/all" in done.stderr


def test_gqlog_of_a_job_that_was_cancelled_while_it_waited_says_by_whom(cluster: PrivateCluster) -> None:
    job = submit(cluster, "-H", "--wrap", "true")
    cluster.ok("gqdel", job)
    for follow in ((), ("-f",)):
        done = cluster.run("gqlog", *follow, job)
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr.startswith(f"job {job} has no output: it was cancelled by ")


def test_a_silent_job_that_completed_has_nothing_to_explain(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--wrap", "true")
    cluster.ok("gqwait", job)
    done = cluster.run("gqlog", job)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_gqacct_tells_the_ends_of_jobs_as_sacct_does(cluster: PrivateCluster) -> None:
    jobs = [
        submit(cluster, *options)
        for options in (
            ("--wrap", "gqrun sh -c 'touch begun; exec sleep 600'"),
            ("-H", "--wrap", "true"),
            ("--wrap", "exit 3"),
            ("--wrap", "kill -9 $$"),
        )
    ]
    ended, held, failed, killed = jobs
    wait_until((cluster.workdir / "begun").exists)
    cluster.ok("gqdel", ended, held)
    cluster.run("gqwait", *jobs)

    lines = cluster.ok("gqacct", "-n", "-P", "-j", ",".join(jobs), "-o", "jobid,state,exitcode").splitlines()

    by = f"CANCELLED by {os.getuid()}"
    step = lines.pop(1)
    assert lines == [f"{ended}|{by}|0:0", f"{held}|{by}|0:0", f"{failed}|FAILED|3:0", f"{killed}|FAILED|0:9"]
    assert step.startswith(f"{ended}.0|") and step.endswith("|0:15")
    told = {str(one["job_id"]): one for one in json.loads(cluster.ok("gqacct", "--json", "-a"))}
    assert told[held]["why"].startswith("it was cancelled by ")
    assert told[failed]["why"].startswith("it failed with exit code 3")
    assert told[failed]["reason"] == "NonZeroExitCode"
    assert told[killed]["why"].startswith("it was ended by signal 9")
    assert cluster.ok("gqacct", "-n", "-P", "-j", f"{ended}.0", "-o", "jobid,exitcode") == f"{ended}.0|0:15\n"
