"""Telling, on real daemons: a server that fails twice first, a restart between, commands as jobs, the event stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_file, await_state, config, submit
from tests.shell.listeners import HttpListener, listening, serving


def telling(*lines: str, **timers: float) -> str:
    return config(cpus=4, head="\n".join(["[notify]", "retry_min_s = 0.2", "timeout_s = 2", *lines]), **timers)


def listed(listener: HttpListener) -> str:
    return f'webhook_hosts = ["{listener.authority}"]'


def notices(cluster: PrivateCluster, *options: str) -> list[dict[str, Any]]:
    return list(json.loads(cluster.ok("gqctl", "notice", "list", "--json", *options)))


def await_notices(cluster: PrivateCluster, count: int, *states: str) -> list[dict[str, Any]]:
    def are_there() -> bool:
        return sum(one["state"] in states for one in notices(cluster)) >= count

    wait_until(are_there, LONG_S, f"{count} notices are {states}")
    return notices(cluster)


# ── webhooks ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_server_that_fails_twice_first_is_told_in_the_end(private_cluster: MakeCluster) -> None:
    with listening(503, 500) as listener:
        cluster = private_cluster(config=telling(listed(listener)))
        job = submit(cluster, f"--notify=webhook:{listener.url}", "--notify-on=fail", wrap="exit 3")
        [told] = await_notices(cluster, 1, "delivered")

    assert [one.said["job_id"] for one in listener.heard] == [int(job)] * 3
    assert (told["attempts"], told["on"], told["to"]) == (3, "fail", f"http://{listener.authority}/…")
    said = listener.heard[-1].said
    assert (said["state"], said["exit_code"], said["event"]) == ("FAILED", 3, "fail")


@pytest.mark.slow
def test_what_was_not_written_down_as_told_is_told_again_after_a_crash(private_cluster: MakeCluster) -> None:
    with listening(*[503] * 3) as listener:
        cluster = private_cluster(config=telling(listed(listener)).replace("0.2", "1"))
        submit(cluster, f"--notify=webhook:{listener.url}", wrap="true")
        wait_until(lambda: listener.heard, LONG_S, "it is tried")
        cluster.kill("gqd")
        cluster.up()
        await_notices(cluster, 1, "delivered")

    assert len(listener.heard) >= 4
    assert {one.said["notice_id"] for one in listener.heard} == {1}


def test_a_server_that_never_answers_keeps_nobody_waiting(private_cluster: MakeCluster) -> None:
    """It takes the connection and says nothing; jobs of the same user start and end meanwhile."""
    silent = threading.Event()
    listener = HttpListener()
    original = listener.server.RequestHandlerClass
    listener.server.finish_request = lambda request, address: silent.wait(30) and original  # type: ignore[method-assign]
    with serving(listener.server):
        cluster = private_cluster(config=telling(listed(listener)))
        for _ in range(8):
            submit(cluster, f"--notify=webhook:{listener.url}", "--notify-on=begin,end", wrap="true")
        last = submit(cluster, wrap="true")
        assert cluster.run("gqwait", last, "--timeout", "30").returncode == 0
        waiting = [one for one in notices(cluster) if one["state"] == "waiting"]
        silent.set()

    assert waiting


def test_what_is_not_allowed_is_refused_at_submission_with_the_setting(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=telling())
    refused = (
        ("webhook:http://169.254.169.254/latest", "this cluster sends no webhooks"),
        ("mail", "this cluster sends no mail"),
        ("pigeon:home", "is not one of"),
    )
    for target, words in refused:
        done = cluster.run("gqsub", f"--notify={target}", "--wrap", "true")
        assert done.returncode in (1, 2)
        assert words in done.stderr
    path = cluster.directory / "gq.toml"
    path.write_text(telling('webhook_hosts = ["hooks.example.org"]'))
    cluster.ok("gqctl", "config", "reload")
    done = cluster.run("gqsub", "--notify=webhook:http://169.254.169.254/latest", "--wrap", "true")
    assert done.returncode in (1, 2)
    assert "webhooks to" in done.stderr
    assert json.loads(cluster.ok("gqstat", "--json")) == []


@pytest.mark.slow
def test_a_list_of_hosts_with_the_metadata_address_is_not_taken(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=telling())
    file = cluster.directory / "gq.toml"
    file.write_text(telling('webhook_hosts = ["169.254.169.254"]'))

    done = cluster.run("gqctl", "config", "reload")
    file.write_text(telling())

    assert (done.returncode, "address of cloud credentials" in done.stderr) == (1, True)


# ── mail, commands ────────────────────────────────────────────────────────────────────────────────────────────


def test_mail_goes_out_by_sendmail_and_a_script_for_slurm_asks_for_it(
    private_cluster: MakeCluster, tmp_path: Path
) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/mail.new\nmv {tmp_path}/mail.new {tmp_path}/mail\n")
    program.chmod(0o755)
    cluster = private_cluster(config=telling(f'mail = "{program}"'))
    script = "#!/bin/sh\n#SBATCH --mail-type=END --mail-user=ada@example.org\ntrue\n"
    job = submit(cluster, script=script)

    mail = await_file(tmp_path / "mail")
    assert "To: ada@example.org" in mail
    assert f"job {job} (gqsub) has ended COMPLETED" in mail


@pytest.mark.slow
def test_a_script_for_slurm_is_queued_with_a_note_where_there_is_no_mail(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=telling())
    done = cluster.run("gqsub", "--mail-type=ALL", "--wrap", "true")

    assert (done.returncode, done.stdout) == (0, "Submitted batch job 1\n")
    assert "--mail-type has no effect: this cluster sends no mail" in done.stderr


def test_a_command_runs_as_a_job_of_its_owner_on_a_node(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=telling())
    seen = cluster.workdir / "seen"
    command = f'env | grep ^GQ_ > "{seen}.new"; mv "{seen}.new" "{seen}"'
    job = submit(cluster, "--job-name=it's $HOME", f"--notify=command:{command}", wrap="exit 4")
    variables = dict(line.split("=", 1) for line in await_file(seen).splitlines() if "=" in line)
    runner = await_state(cluster, str(int(job) + 1), "COMPLETED")

    assert runner["name"] == f"notify-{job}"
    assert (variables["GQ_NOTIFY_JOB_ID"], variables["GQ_NOTIFY_EXIT_CODE"]) == (job, "4")
    assert variables["GQ_NOTIFY_NAME"] == "it's $HOME"
    assert variables["GQ_JOB_ID"] == str(int(job) + 1)
    assert json.loads(variables["GQ_NOTIFY_BODY"])["state"] == "FAILED"
    assert [one["state"] for one in notices(cluster)] == ["delivered"]


@pytest.mark.slow
def test_a_command_that_fails_is_run_again_and_shown_until_it_succeeds(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=telling())
    good = cluster.workdir / "good"
    submit(cluster, f"--notify=command:test -e {good} || exit 3", wrap="true")
    wait_until(lambda: any(one["attempts"] >= 2 for one in notices(cluster)), LONG_S, "the command was run twice")
    shown = " ".join(cluster.ok("gqctl", "notice", "list").split())
    [row] = notices(cluster)

    assert "the command exited with code 3 (job " in shown
    assert (row["state"], row["why"].partition(" (job")[0]) == ("waiting", "the command exited with code 3")
    good.touch()
    [row] = await_notices(cluster, 1, "delivered")
    assert (row["state"], row["why"]) == ("delivered", "")


def test_an_array_sends_one_sum(private_cluster: MakeCluster) -> None:
    with listening() as listener:
        cluster = private_cluster(config=telling(listed(listener)))
        options = ("--array=0-3", f"--notify=slack:{listener.url}", "--notify-on=begin,end")
        submit(cluster, *options, wrap="test $GQ_ARRAY_TASK_ID != 2")
        await_notices(cluster, 2, "delivered")

    texts = sorted(one.said["text"] for one in listener.heard)
    assert [set(one.said) for one in listener.heard] == [{"text"}] * 2
    assert "4 tasks, 3 completed, 1 failed; failed first: 1_2 " in texts[0]
    assert "has started" in texts[1]


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def follower(private_cluster: MakeCluster) -> Iterator[tuple[PrivateCluster, subprocess.Popen[str], list[Any]]]:
    """A cluster, and somebody who follows its events from the first on."""
    cluster = private_cluster(config=config(cpus=4))
    process = cluster.start("gqctl", "events", "-f", "--since", "0")
    lines: list[Any] = []
    stdout = process.stdout
    assert stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(json.loads(one) for one in stdout), daemon=True)
    reader.start()
    yield cluster, process, lines
    if process.poll() is None:
        process.kill()
    reader.join(10)


def test_events_are_followed_over_a_restart_and_can_be_resumed_from_any_number(follower: Any) -> None:
    cluster, process, lines = follower
    first = submit(cluster, wrap="true")
    wait_until(lambda: any(one["type"] == "JobEnded" for one in lines), LONG_S, "its end is seen")
    cluster.kill("gqd")
    cluster.up()
    second = submit(cluster, wrap="true")
    wait_until(lambda: [one["type"] for one in lines].count("JobEnded") == 2, LONG_S, "the end of the second is seen")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr is not None and "Traceback" not in process.stderr.read()

    numbers = [one["seq"] for one in lines]
    assert numbers == sorted(set(numbers)), "none twice, none out of order"
    submitted = [one["event"]["spec"]["name"] for one in lines if one["type"] == "JobSubmitted"]
    assert submitted == ["wrap", "wrap"]
    middle = numbers[len(numbers) // 2]
    rest = cluster.ok("gqctl", "events", "--since", str(middle)).splitlines()
    assert [json.loads(one)["seq"] for one in rest][: len(numbers) - numbers.index(middle) - 1] == [
        number for number in numbers if number > middle
    ]
    of_one = cluster.ok("gqctl", "events", "--since", "1h", "--job", second, "--type", "JobStarted,JobEnded")
    told = [(one["type"], one["job_id"]) for one in map(json.loads, of_one.splitlines())]
    assert told == [("JobStarted", int(second)), ("JobEnded", int(second))]
    assert int(first) < int(second)


def test_an_event_that_there_is_not_is_refused_with_the_nearest(shared_cluster: PrivateCluster) -> None:
    done = shared_cluster.run("gqctl", "events", "--type", "JobStartet")

    assert done.returncode == 1
    assert "did you mean `JobStarted`?" in done.stderr
