"""What `gqlog` and `gqacct` tell of jobs that never ran, or were ended, on real daemons."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from tests.clusters import PrivateCluster, wait_until

MakeCluster = Callable[..., PrivateCluster]


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(cpus=4)


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["once", "followed"])
def test_gqlog_of_a_job_that_could_not_start_says_why_and_returns_its_code(
    cluster: PrivateCluster, follow: tuple[str, ...]
) -> None:
    cluster.ok("gqsub", "-D", "/nowhere/at/all", "-o", f"{cluster.workdir}/out", "--wrap", "true")
    code = cluster.run("gqwait", "1").returncode

    done = cluster.run("gqlog", *follow, "1")

    assert code not in (0, 125)
    assert (done.stdout, done.returncode) == ("", code)
    assert done.stderr.startswith("job 1 has no output: it ")
    assert "/nowhere/at/all" in done.stderr


def test_gqlog_of_a_job_that_was_cancelled_while_it_waited_says_by_whom(cluster: PrivateCluster) -> None:
    cluster.ok("gqsub", "-H", "--wrap", "true")
    cluster.ok("gqdel", "1")
    for follow in ((), ("-f",)):
        done = cluster.run("gqlog", *follow, "1")
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr.startswith("job 1 has no output: it was cancelled by ")


def test_a_silent_job_that_completed_has_nothing_to_explain(cluster: PrivateCluster) -> None:
    cluster.ok("gqsub", "--wait", "--wrap", "true")
    done = cluster.run("gqlog", "1")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_gqacct_tells_the_ends_of_jobs_as_sacct_does(cluster: PrivateCluster) -> None:
    cluster.ok("gqsub", "--wrap", "gqrun sh -c 'touch begun; exec sleep 600'")
    cluster.ok("gqsub", "-H", "--wrap", "true")
    cluster.ok("gqsub", "--wrap", "exit 3")
    cluster.ok("gqsub", "--wrap", "kill -9 $$")
    wait_until((cluster.workdir / "begun").exists)
    cluster.ok("gqdel", "1", "2")
    cluster.run("gqwait", "1", "2", "3", "4")

    lines = cluster.ok("gqacct", "-n", "-P", "-a", "-o", "jobid,state,exitcode").splitlines()

    by = f"CANCELLED by {os.getuid()}"
    step = lines.pop(1)
    assert lines == [f"1|{by}|0:0", f"2|{by}|0:0", "3|FAILED|3:0", "4|FAILED|0:9"]
    assert step.startswith("1.0|") and step.endswith("|0:15")
    told = {one["job_id"]: one for one in json.loads(cluster.ok("gqacct", "--json", "-a"))}
    assert told[2]["why"].startswith("it was cancelled by ")
    assert told[3]["why"].startswith("it failed with exit code 3")
    assert told[3]["reason"] == "NonZeroExitCode"
    assert told[4]["why"].startswith("it was ended by signal 9")
    assert cluster.ok("gqacct", "-n", "-P", "-j", "1.0", "-o", "jobid,exitcode") == "1.0|0:15\n"
