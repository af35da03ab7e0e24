"""What is asked of running jobs, on real daemons: more time, and standing still."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.effort import first
from tests.integration.jobs import LONG_S, MakeCluster, await_file, await_state, config, facts, submit

COUNTING = "i=0; while sleep 0.05; do i=$((i+1)); echo $i > {}; done"


def count(path: Path) -> Callable[[], int]:
    """How far a job that runs `COUNTING` has come."""
    return lambda: int(path.read_text().strip() or 0) if path.exists() else 0


def await_more(path: Path) -> None:
    so_far = count(path)()
    wait_until(lambda: count(path)() > so_far + 3, LONG_S, f"{path.name} is counted on")


def await_rest(*paths: Path) -> None:
    """Nothing is written for half a second, in which ten lines would be."""
    seen: list[list[int]] = []

    def rests() -> bool:
        seen.append([count(path)() for path in paths])
        return len(seen) > 25 and all(one == seen[-1] for one in seen[-25:])

    wait_until(rests, LONG_S, f"{[path.name for path in paths]} stand still")


# ── extend ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_running_job_gets_more_time_and_its_node_enforces_it(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, fake_gpus=4, cpus=8)
    job = submit(cluster, "-G4", "-t", "0:06", wrap="sleep 8")
    await_state(cluster, job, "RUNNING")

    said = cluster.ok("gqctl", "extend", job, "+2h")

    assert said.startswith(f"Job {job} may run until ")
    assert said.strip().endswith("its time limit is 2:00:06.")
    assert await_state(cluster, job, "COMPLETED", "TIMEOUT")["state"] == "COMPLETED"


def test_an_extension_that_would_put_off_a_promised_start_is_refused_with_its_name(
    private_cluster: MakeCluster,
) -> None:
    cluster = private_cluster(config=config(cpus=8, head='[scheduler]\npolicy = "conservative"'))
    job = submit(cluster, "-c8", "-t", "30", wrap="sleep 300")
    await_state(cluster, job, "RUNNING")
    waits = submit(cluster, "-c8", "-t", "30", wrap="true")
    wait_until(lambda: "is protected" in cluster.ok("gqwhy", waits), LONG_S, "it is promised a start")

    refused = cluster.run("gqctl", "extend", job, "+1h")

    assert refused.returncode == 1
    assert f"job {waits} of " in refused.stderr and "would start later" in refused.stderr.replace("\n", " ")
    assert "hint: no extension would be granted now" in refused.stderr
    assert cluster.run("gqctl", "extend", job, "1h").returncode == 2, "more, or in all?"


# ── ask and answer ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_favour_is_asked_seen_and_granted(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, cpus=8)
    job = submit(cluster, "-o", "out.txt", wrap="echo begun; sleep 300")
    out = cluster.workdir / "out.txt"
    await_file(out)

    cluster.ok("gqctl", "ask", job, "could you let go", "by noon?")

    line = f"gq: {_own_name(cluster)} asks: could you let go by noon? (`gqctl answer {job}` `release` or `decline`)"
    wait_until(lambda: line in out.read_text(), LONG_S, "it stands in the job's output")
    assert f"job {job} has a request from another user" in cluster.run("gqstat").stderr
    [told] = json.loads(cluster.ok("gqctl", "asks", "--json"))
    assert (told["label"], told["text"], told["answer"]) == (job, "could you let go by noon?", None)
    assert cluster.run("gqctl", "answer", job, "perhaps").returncode == 2

    cluster.ok("gqctl", "answer", job, "release", "you", "are", "welcome")

    await_state(cluster, job, "CANCELLED")
    header, row = cluster.ok("gqctl", "asks").splitlines()
    assert header.split() == ["JOB", "HOLDER", "ASKED", "BY", "ANSWER", "TEXT"]
    assert "release" in row and "could you let go by noon? - you are welcome" in row


def _own_name(cluster: PrivateCluster) -> str:
    [found] = json.loads(cluster.ok("gqctl", "whoami", "--json"))
    return str(found["user"])


# ── suspend and resume ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=first(1, ["auto", "none"]))
def frozen_by(request: pytest.FixtureRequest, private_cluster: MakeCluster) -> PrivateCluster:
    """A cluster whose node uses a freezer where it may, and one whose node sends signals."""
    node = f"[node.isolation]\nkill = '{request.param}'\n"
    return private_cluster(config=config(cpus=8) + node)


def test_a_job_and_its_steps_stand_still_over_restarts_and_go_on(frozen_by: PrivateCluster) -> None:
    cluster = frozen_by
    script, step = cluster.workdir / "script", cluster.workdir / "step"
    line = f"gqrun --overlap sh -c '{COUNTING.format(step)}' & {COUNTING.format(script)}"
    job = submit(cluster, "-n1", "-c2", wrap=line)
    await_file(step)
    await_file(script)

    cluster.ok("gqctl", "suspend", job)

    await_rest(script, step)
    assert cluster.ok("gqstat", "-h", "-o", "%t").strip() == "S"
    assert "it is suspended on n1" in cluster.ok("gqwhy", job).replace("\n", " ")
    for daemon in ("gqd", "gqnode-n1"):
        cluster.kill(daemon)
    cluster.up()
    await_state(cluster, job, "SUSPENDED")
    await_rest(script, step)

    cluster.ok("gqctl", "resume", job)

    await_more(script)
    await_more(step)
    told = facts(cluster, job)
    assert (told["state"], told["suspended_at"]) == ("RUNNING", None)
    assert told["suspended_s"] > 0.5
    cluster.ok("gqdel", job)
    await_state(cluster, job, "CANCELLED")


def test_a_suspended_job_can_be_cancelled_and_its_program_may_finish(frozen_by: PrivateCluster) -> None:
    cluster = frozen_by
    begun, saved = cluster.workdir / "begun", cluster.workdir / "saved"
    job = submit(cluster, wrap=f"trap 'echo saved > {saved}; exit 0' TERM; {COUNTING.format(begun)}")
    await_file(begun)
    cluster.ok("gqctl", "suspend", job)
    await_rest(begun)

    cluster.ok("gqdel", job)

    assert await_state(cluster, job, "CANCELLED", within_s=20.0)["suspended_s"] > 0.5
    assert saved.read_text() == "saved\n", "it heard its TERM, and had its grace"


@pytest.mark.slow
def test_the_time_limit_stands_still_with_the_job(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(nodes=1, cpus=8)
    counted = cluster.workdir / "counted"
    job = submit(cluster, "-t", "0:05", wrap=COUNTING.format(counted))
    await_file(counted)
    cluster.ok("gqctl", "suspend", job)
    wait_until(lambda: _since_s(cluster, job) > 6.0, LONG_S, "more than its limit is over")

    cluster.ok("gqctl", "resume", job)

    await_more(counted)
    ended = await_state(cluster, job, "TIMEOUT")
    assert ended["suspended_s"] > 1.0
    [row] = json.loads(cluster.ok("gqacct", "-X", "--json", "-j", job))
    assert row["suspended_s"] == ended["suspended_s"]
    elapsed, stood = cluster.ok("gqacct", "-X", "-n", "-P", "-j", job, "--format=ElapsedRaw,Suspended").split("|")
    assert int(elapsed) < 15
    assert stood.strip() >= "00:00:01"


def _since_s(cluster: PrivateCluster, job: str) -> float:
    """Since its start."""
    return time.time() - datetime.fromisoformat(facts(cluster, job)["start_at"]).timestamp()
