"""The Python API against a real controller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gq
from gq.api import JobOptions
from gq.request.options import SUB, shown_options
from tests.shell.rig import short_directory
from tests.shell.test_daemon import Gqd, own_gqd

pytestmark = pytest.mark.xdist_group("api")  # so that the controller is started once

NOT_KEYWORDS = {"wrap", "export", "parsable", "wait", "test-only", "what-if", "no-requeue", "chain", "if"}
"""What the API says otherwise, or does not need."""


@pytest.fixture(scope="module")
def gqd() -> Iterator[Gqd]:
    with own_gqd() as one:
        one.start()
        yield one


@pytest.fixture
def cluster(gqd: Gqd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[gq.Client]:
    monkeypatch.setenv("GQ_DIR", str(gqd.directory))
    monkeypatch.chdir(tmp_path)
    with gq.connect() as client:
        yield client


def test_importing_gq_loads_nothing_else() -> None:
    code = (
        "import sys, gq; print(sorted(name for name in sys.modules if name.split('.')[0] in ('gq', 'zmq', 'msgspec')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "['gq', 'gq.version']"


def test_keywords_are_the_options_of_gqsub() -> None:
    keywords = {"job-name" if name == "name" else name.replace("_", "-") for name in JobOptions.__annotations__}
    assert keywords == {option.name for option in shown_options(SUB)} - NOT_KEYWORDS


def test_what_may_be_repeated_may_be_a_list(cluster: gq.Client) -> None:
    request = cluster.prepare("true x", role=["ps:1", "worker:2,cpus=2"], data=["c4", "pile"], switches="1@10m")
    asked = request.spec.resources

    assert [(role.name, role.resources.ntasks, role.resources.data) for role in asked.roles] == [
        ("ps", 1, ("c4", "pile")),
        ("worker", 2, ("c4", "pile")),
    ]
    assert (asked.switches, asked.switches_wait_s) == (1, 600)


def test_a_list_of_notifications_is_one_target_each(cluster: gq.Client) -> None:
    targets = ["command:/bin/true", "command:/bin/false"]

    spec = cluster.prepare("true x", notify=targets, notify_on="end").spec

    assert [f"{target.kind}:{target.to}" for target in spec.notify] == targets


def test_a_sweep_may_be_a_dictionary(cluster: gq.Client) -> None:
    said = cluster.prepare("true x", sweep={"lr": [1e-3, 0.5], "note": ["a b", "c,d"]}, array="%auto").spec

    assert said.sweep == (("lr", ("0.001", "0.5")), ("note", ("a b", "c,d")))
    assert (said.array, said.array_auto) == ("0-3", True)
    assert said.sweep == cluster.prepare("true x", sweep="lr=0.001,0.5 note='a b','c,d'").spec.sweep


def test_a_job_is_submitted_looked_at_and_cancelled(cluster: gq.Client, tmp_path: Path) -> None:
    job = gq.submit(["sleep", "100"], name="nap", time="2h", output="out-%j.txt", requeue=False)
    shown = job.info()
    assert (shown.name, shown.state, shown.time_limit_s, shown.requeue) == ("nap", "PENDING", 7200, False)
    assert shown.command == "sleep 100"
    assert job.output_path == tmp_path / f"out-{job.id}.txt"
    with pytest.raises(TimeoutError):
        job.wait(0.1)
    job.cancel()
    assert job.wait(10).state == "CANCELLED"
    job.cancel()


def test_a_connection_that_nobody_closed_is_collected_with_what_refers_to_it(gqd: Gqd) -> None:
    """In a process of its own: the collector hung, which nothing inside can end."""
    code = "import gc, gq; it = gq.connect(); it.submit('true x'); it.me = it; del it; gc.collect(); print('collected')"
    environ = {**os.environ, "GQ_DIR": str(gqd.directory)}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "collected\n", "")


def test_jobs_queued_one_by_one_hold_nothing_open(cluster: gq.Client) -> None:
    jobs = [gq.submit("true x")]
    before = len(list(Path("/proc/self/fd").iterdir()))
    jobs += [gq.submit("true x") for _ in range(5)]
    assert [job.info().job_id for job in jobs] == [job.id for job in jobs]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_options_in_a_script_hold_where_no_keyword_says_otherwise(cluster: gq.Client, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --time=10 --comment=mine -N2\ntrue\n")
    shown = cluster.submit(script, comment="yours").info()
    assert (shown.name, shown.time_limit_s, shown.comment, shown.nodes_wanted) == ("train.sh", 600, "yours", 2)


def test_a_command_line_and_a_scripts_text_are_both_taken(cluster: gq.Client) -> None:
    assert cluster.prepare("echo hi; echo ho").script == b"#!/bin/sh\necho hi; echo ho\n"
    assert cluster.prepare("#!/bin/bash\necho hi\n").script == b"#!/bin/bash\necho hi\n"
    assert cluster.prepare(["echo", "a b"]).script == b"#!/bin/sh\necho 'a b'\n"


def test_the_environment_is_this_processs_or_the_one_that_is_given(
    cluster: gq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAVOUR", "plum")
    assert cluster.prepare("true x").environment["FLAVOUR"] == "plum"
    given = cluster.prepare("true x", environment={"A": "1"}).environment
    assert given["A"] == "1"
    assert "FLAVOUR" not in given


def test_many_prepared_jobs_go_over_one_connection_and_a_refusal_is_an_item(cluster: gq.Client) -> None:
    good, bad = cluster.prepare("true x"), cluster.prepare("true x", partition="nowhere")
    answers = list(cluster.submit_many([good, bad, good]))
    assert [type(one) for one in answers] == [gq.Job, gq.Refusal, gq.Job]
    assert isinstance(answers[0], gq.Job)
    assert isinstance(answers[2], gq.Job)
    assert answers[2].id == answers[0].id + 1


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ("train.sh", {}, "neither a file nor a command"),
        ("true x", {"gpu": 1}, "did you mean `gpus`?"),
        ("true x", {"time": "soon"}, "`time=`"),
        ([], {}, "empty"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(
    cluster: gq.Client, script: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(gq.Refusal) as caught:
        cluster.prepare(script, **options)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_a_cluster_that_is_not_up_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_directory() as directory:
        monkeypatch.setenv("GQ_DIR", directory)
        client = gq.Client(gq.connect()._connection)
        client._connection._patience_s = 0.0
        with pytest.raises(gq.Unreachable):
            client.submit("true x")


def test_an_array_is_one_job_whose_tasks_can_be_looked_at(cluster: gq.Client) -> None:
    array = cluster.submit(["true"], array="1-4%2", fail_fast=True, kill_on_invalid_dep=True, hold=True)

    [record] = array.tasks()
    assert (record.array_tasks, record.array_throttle, record.fail_fast) == ("1-4", 2, True)
    assert record.kill_on_invalid_dep
    assert array.info().array_tasks == "1-4"
    with pytest.raises(TimeoutError):
        array.wait(0.1)
    array.cancel()
    assert array.wait(10).state == "CANCELLED"


def test_a_job_may_wait_for_another_and_never_start(cluster: gq.Client) -> None:
    first = cluster.submit(["true"], hold=True)
    second = cluster.submit(["true"], dependency=f"afterok:{first.id}", kill_on_invalid_dep=True)
    third = cluster.submit(["true"], dependency=f"afterok:{first.id}", kill_on_invalid_dep=False)

    assert second.info().dependency == f"afterok:{first.id}"
    first.cancel()
    assert second.wait(10).reason == "DependencyNeverSatisfied"
    assert third.info().state == "PENDING"


def test_a_gate_in_a_script_is_refused_and_not_left_out(cluster: gq.Client, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#GQ --if='test -s out'\ntrue\n")

    with pytest.raises(gq.Refusal, match=r"job\.sh:2: `--if` is not available from Python"):
        cluster.submit(script)
