"""Crontabs on real daemons: a line of each minute, the controller killed meanwhile; refused, edited and removed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_state

MINUTE_S = 60.0


@pytest.fixture
def cluster(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=1, fake_gpus=2, cpus=8)


def set_crontab(cluster: PrivateCluster, text: str) -> None:
    assert cluster.ok("gqcron", "-", stdin=text) == ""


def entries(cluster: PrivateCluster) -> list[dict[str, Any]]:
    return list(json.loads(cluster.ok("gqcron", "--status", "--json"))["entries"])


def jobs(cluster: PrivateCluster) -> list[dict[str, Any]]:
    """Those that the crontab became."""
    return [one for one in json.loads(cluster.ok("gqacct", "-a", "-X", "--json")) if one["cron"]]


@pytest.mark.slow
def test_each_line_becomes_a_job_once_in_its_minute_though_the_controller_is_killed(cluster: PrivateCluster) -> None:
    home = cluster.workdir
    head = f"HOME={home}\nGREETING='hello there'\nCRON_TZ=Asia/Kolkata\n"
    good = "#GQ --gpus=1 --output=good-%j.txt --job-name=good\n* * * * * echo $GREETING $GQ_GPUS $PWD\n"
    set_crontab(cluster, f"{head}{good}* * * * * exit 3\n0 0 1 1 * never\n")
    assert [one["schedule"] for one in entries(cluster)] == ["* * * * *", "* * * * *", "0 0 1 1 *"]
    cluster.kill("gqd")
    cluster.up()

    wait_until(lambda: len(jobs(cluster)) == 2, MINUTE_S + LONG_S, "both lines were due")
    cluster.kill("gqd")
    cluster.up()
    named = {one["name"]: one for one in jobs(cluster)}
    done = {name: await_state(cluster, str(one["job_id"]), "COMPLETED", "FAILED") for name, one in named.items()}

    assert {name: one["state"] for name, one in done.items()} == {"good": "COMPLETED", "exit": "FAILED"}
    path = home / f"good-{done['good']['job_id']}.txt"
    assert path.read_text() == f"hello there 1 {home}\n"
    assert done["good"]["cron"] == "line 5: * * * * *"
    told, failed, never = entries(cluster)
    assert (told["state"], told["trouble"]) == ("COMPLETED", None)
    assert (failed["job_id"], failed["state"]) == (done["exit"]["job_id"], "FAILED")
    assert failed["trouble"].startswith(f"job {failed['job_id']} is FAILED")
    assert (never["job_id"], never["last_due_at"]) == (None, None)
    assert told["next_at"][0].endswith("+05:30")
    submits = [one["submit_at"][:16] for one in jobs(cluster)]
    assert len(submits) == 2 * len(set(submits)), "two jobs in each minute, no more"
    cluster.ok("gqcron", "-r")
    assert cluster.run("gqcron", "-l").stderr.startswith("error: no crontab for ")


def test_what_the_cluster_cannot_do_is_refused_with_its_line_and_what_was_there_stays(cluster: PrivateCluster) -> None:
    text = "# mine\n0 20 * * * train\n"
    set_crontab(cluster, text)
    for bad, said in (
        ("#GQ --gpus=99\n0 0 * * * x\n", "line 2: the job can never run"),
        ("#GQ -p nowhere\n0 0 * * * x\n", "line 2: partition `nowhere` does not exist"),
        ("CRON_TZ=Mars/Olympus\n0 0 * * * x\n", "stdin:1: `Mars/Olympus` is not a time zone"),
        ("0 0 * * *\n", "stdin:1: `0 0 * * *` is not a crontab line"),
    ):
        done = cluster.run("gqcron", "-", stdin=bad)
        assert done.returncode in (1, 2) and said in done.stderr
    assert cluster.ok("gqcron", "-l") == text
    assert cluster.ok("gqcron", "-n2").count("0 20 * * *") == 2


def test_a_crontab_is_edited_and_what_was_written_is_kept_while_the_controller_is_away(cluster: PrivateCluster) -> None:
    editor = cluster.workdir / "editor"
    editor.write_text("#!/bin/sh\necho '0 3 * * * nightly' >> \"$1\"\n")
    editor.chmod(0o755)
    environ = {"VISUAL": str(editor), "TMPDIR": str(cluster.workdir)}
    done = cluster.run("gqcron", "-e", **environ)
    assert (done.returncode, done.stdout) == (0, "") and "the crontab has 1 entry" in done.stderr
    assert cluster.ok("gqcron", "-l").endswith("0 3 * * * nightly\n")

    away = cluster.workdir / "away"
    away.write_text(f"#!/bin/sh\necho '0 4 * * * later' >> \"$1\"\nkill -9 $(cat {cluster.directory}/gqd.pid)\n")
    away.chmod(0o755)
    begun = time.monotonic()
    done = cluster.run("gqcron", "-e", stdin="n\n", **{**environ, "VISUAL": str(away)})
    assert done.returncode == 3 and time.monotonic() - begun < LONG_S
    [kept] = cluster.workdir.glob("gqcron-*/crontab")
    assert f"your text is saved in {kept}" in done.stderr
    cluster.up()
    assert cluster.ok("gqcron", str(kept)) == ""
    assert cluster.ok("gqcron", "-l").endswith("0 4 * * * later\n")
