"""A job's life on real daemons: limits and signals, hold and begin, requeue, and the ways to wait for its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import gq
from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import (
    LONG_S,
    await_state,
    config,
    facts,
    record_counts,
    state,
    submit,
    why,
)

pytestmark = pytest.mark.xdist_group("job_life")  # so that the cluster is set up once
WRITES_SIGNALS = """#!/bin/sh
for name in USR1 USR2 TERM; do trap "echo $name >> heard" $name; done
echo began >> heard
while :; do sleep 0.05; done
"""


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    """A process that ignores TERM is killed after a second."""
    return module_yard.make(config=config(nodes=2, grace_s=1))


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def heard(cluster: PrivateCluster) -> list[str]:
    path = cluster.workdir / "heard"
    return path.read_text().split() if path.exists() else []


def lasted_s(cluster: PrivateCluster, job: str) -> float:
    found = facts(cluster, job)
    start, end = (datetime.fromisoformat(found[name]) for name in ("start_at", "end_at"))
    return (end - start).total_seconds()


# ── time limits and signals ───────────────────────────────────────────────────────────────────────────────────


def test_a_job_at_its_time_limit_is_told_and_then_killed(cluster: PrivateCluster) -> None:
    job = submit(cluster, "-t", "0:02", script=WRITES_SIGNALS)
    ended = await_state(cluster, job, "TIMEOUT")
    assert heard(cluster) == ["began", "TERM"]
    assert ended["reason"] == "TimeLimit"
    assert 2 <= lasted_s(cluster, job) < LONG_S
    assert "DUE TO TIME LIMIT" in (cluster.workdir / f"gq-{job}.out").read_text()
    assert "time limit of 2 s" in why(cluster, job)["why"]


@pytest.mark.slow
def test_a_job_that_ends_within_the_grace_time_is_timed_out_all_the_same(cluster: PrivateCluster) -> None:
    job = submit(
        cluster, "-t", "0:02", script="#!/bin/sh\ntrap 'echo saved; exit 0' TERM\nwhile :; do sleep 0.05; done\n"
    )
    await_state(cluster, job, "TIMEOUT")
    assert "saved" in (cluster.workdir / f"gq-{job}.out").read_text().splitlines()


@pytest.mark.slow
def test_a_warning_signal_reaches_the_script_so_long_before_the_limit(cluster: PrivateCluster) -> None:
    submitted_at = time.time()
    job = submit(cluster, "-t", "0:08", "--signal=B:USR1@5", script=WRITES_SIGNALS)
    wait_until(lambda: "USR1" in heard(cluster), LONG_S, "the script hears of it")
    assert time.time() - submitted_at >= 2.9, "not before three of eight seconds"
    await_state(cluster, job, "TIMEOUT")
    assert heard(cluster) == ["began", "USR1", "TERM"]


def test_a_warning_signal_reaches_the_steps_and_not_the_script_unless_it_is_asked_for(cluster: PrivateCluster) -> None:
    (cluster.workdir / "step.sh").write_text(WRITES_SIGNALS)
    script = "#!/bin/sh\ntrap 'echo script >> heard' USR2\ngqrun -N2 sh ./step.sh\n"
    job = submit(cluster, "-N2", "-t", "0:06", "--signal=USR2@3", script=script)
    wait_until(lambda: heard(cluster).count("USR2") == 2, LONG_S, "the tasks on both nodes hear of it")
    cluster.ok("gqdel", job)
    await_state(cluster, job, "CANCELLED", "TIMEOUT")
    assert "script" not in heard(cluster)


def test_a_running_job_can_be_signalled_and_goes_on(cluster: PrivateCluster) -> None:
    job = submit(cluster, script=WRITES_SIGNALS)
    wait_until(lambda: heard(cluster) == ["began"], LONG_S, "it runs")
    cluster.ok("gqdel", "--batch", "--signal=USR2", job)
    wait_until(lambda: heard(cluster) == ["began", "USR2"], LONG_S, "it hears of it")
    assert state(cluster, job) == "RUNNING"
    cluster.ok("gqdel", job)
    await_state(cluster, job, "CANCELLED")
    assert heard(cluster) == ["began", "USR2", "TERM"]


# ── hold, begin, requeue ──────────────────────────────────────────────────────────────────────────────────────


def test_a_held_job_waits_until_it_is_released(cluster: PrivateCluster) -> None:
    held = submit(cluster, "--hold", wrap="true")
    behind = submit(cluster, wrap="true")
    await_state(cluster, behind, "COMPLETED")
    assert (facts(cluster, held)["state"], facts(cluster, held)["reason"]) == ("PENDING", "JobHeldUser")
    assert f"gqctl release {held}" in why(cluster, held)["hint"]

    later = submit(cluster, "-w", "n1", "--begin=now+1hour", wrap="true")
    cluster.ok("gqctl", "release", held)
    await_state(cluster, held, "COMPLETED")
    cluster.ok("gqctl", "hold", later)
    assert facts(cluster, later)["reason"] == "JobHeldUser"


@pytest.mark.slow
def test_a_job_begins_when_it_was_asked_to_and_not_before(cluster: PrivateCluster) -> None:
    submitted_at = time.time()
    job = submit(cluster, "--begin=now+5", wrap="date +%s.%N")
    wait_until(lambda: _reason(cluster, job) == "BeginTime", LONG_S, "the queue says why it waits")
    await_state(cluster, job, "COMPLETED")
    assert float(cluster.ok("gqlog", job)) >= submitted_at + 4, "whole seconds are counted"


def _reason(cluster: PrivateCluster, job: str) -> str:
    return cluster.ok("gqstat", "-h", "-j", job, "-o", "%r").strip()


def test_a_requeued_job_runs_again_under_its_id_and_appends_to_its_output(cluster: PrivateCluster) -> None:
    script = "#!/bin/sh\necho attempt $GQ_RESTART_COUNT ${SLURM_RESTART_COUNT-first}\n[ -e go ] || exec sleep 600\n"
    job = submit(cluster, "--open-mode=append", script=script)
    log = cluster.workdir / f"gq-{job}.out"
    wait_until(lambda: log.exists() and "attempt 0 first" in log.read_text(), LONG_S, "it runs")
    (cluster.workdir / "go").touch()
    cluster.ok("gqctl", "requeue", job)
    ended = await_state(cluster, job, "COMPLETED")
    assert ended["restart_count"] == 1
    written = log.read_text().splitlines()
    assert (written[0], written[-1]) == ("attempt 0 first", "attempt 1 1")


def test_a_script_that_requeues_its_own_job_is_run_again(cluster: PrivateCluster) -> None:
    script = '#!/bin/sh\n[ "$GQ_RESTART_COUNT" -ge 2 ] && exit 0\ngqctl requeue "$GQ_JOB_ID"\nexec sleep 600\n'
    job = submit(cluster, script=script)
    assert await_state(cluster, job, "COMPLETED")["restart_count"] == 2


@pytest.mark.parametrize("option", ["--time-min=1"])
def test_options_of_later_versions_are_refused_as_such(shared_cluster: PrivateCluster, option: str) -> None:
    before = record_counts(shared_cluster)
    done = shared_cluster.run("gqsub", option, "--wrap", "true")
    assert done.returncode != 0
    assert "not available in this version" in done.stderr
    assert option.partition("=")[0] in done.stderr
    assert record_counts(shared_cluster) == before


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_waiting_returns_the_highest_code_the_first_one_or_that_time_ran_out(shared_cluster: PrivateCluster) -> None:
    quick = submit(shared_cluster, wrap="exit 3")
    killed = submit(shared_cluster, wrap="kill -9 $$")
    endless = submit(shared_cluster, wrap="exec sleep 600")
    assert shared_cluster.run("gqwait", quick).returncode == 3
    assert shared_cluster.run("gqwait", quick, killed).returncode == 128 + 9
    assert shared_cluster.run("gqwait", "--any", endless, quick).returncode == 3
    assert shared_cluster.run("gqwait", "--timeout", "0.2", endless).returncode == 124
    waiting = shared_cluster.start("gqwait", endless)
    shared_cluster.ok("gqdel", endless)
    waiting.communicate(timeout=LONG_S)
    assert waiting.returncode == 128 + 15
    assert shared_cluster.run("gqsub", "--wait", "--wrap", "exit 6").returncode == 6


def test_python_queues_waits_cancels_and_is_told_why_not(
    shared_cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GQ_DIR", str(shared_cluster.directory))
    output = str(shared_cluster.workdir / "api-%j.out")
    with gq.connect() as client:
        job = client.submit(
            ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 4"], gpus=2, name="from-python", output=output
        )
        ended = job.wait(timeout_s=LONG_S)
        assert (ended.state, ended.exit_code, ended.name) == ("FAILED", 4, "from-python")
        assert Path(job.output_path).read_text() == "0,1\n"

        endless = client.submit("exec sleep 600", output=output)
        with pytest.raises(TimeoutError):
            endless.wait(timeout_s=0.2)
        endless.cancel()
        assert endless.wait(timeout_s=LONG_S).state == "CANCELLED"

        request = client.prepare("true", output="/dev/null")
        jobs = [one for one in client.submit_many([request] * 20) if not isinstance(one, gq.Refusal)]
        assert len({one.id for one in jobs}) == 20
        assert {one.wait(timeout_s=LONG_S).state for one in jobs} == {"COMPLETED"}

        with pytest.raises(gq.Refusal, match="main"):
            client.submit("true", partition="mian")


def test_what_a_job_printed_is_the_same_in_the_log_the_account_and_the_json(shared_cluster: PrivateCluster) -> None:
    job = submit(shared_cluster, "-J", "told", "-N2", "--gpus-per-node=1", "-t", "5", wrap="gqrun -l hostname; exit 2")
    assert shared_cluster.run("gqlog", "-f", job).returncode == 2
    found = facts(shared_cluster, job)
    assert (found["name"], found["gpus"], found["nodes"], found["exit_code"]) == ("told", 2, ["n1", "n2"], 2)
    assert found["time_limit_s"] == 300
    line = shared_cluster.ok("gqacct", "-j", job, "-X", "-n", "-P", "-o", "jobname,state,exitcode,nnodes").strip()
    assert line == "told|FAILED|2:0|2"
    [with_steps] = json.loads(shared_cluster.ok("gqacct", "-j", job, "--json"))
    assert [(one["step"], one["state"], one["nodes"]) for one in with_steps["steps"]] == [
        (0, "COMPLETED", ["n1", "n2"])
    ]
