"""Reservations on real daemons, with short times: made, used, not come to, by a cron line, in each other's way."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import vobject

from tests.clients.lent import lent, standing
from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import MakeCluster, await_file, await_state, config, state, submit, why
from tests.integration.mount_namespace import own_mounts
from tests.requires import needs_root, skip_or_fail

ROOT = Path(__file__).parents[2]
GPUS = 4
HEAD = """
[reservations]
clear_time = "1s"
[[partition]]
name = "main"
default = true
max_time = "1d"
"""


CONFIG = config(nodes=2, cpus=8, gpus=GPUS, head=HEAD, prepare_s=20, grace_s=2)
"""Two nodes with four GPUs each; whatever runs there ends within a day."""
pytestmark = pytest.mark.xdist_group("reservations")  # so that the cluster is set up once


@pytest.fixture(scope="module")
def _cluster(request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    with standing(request, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: PrivateCluster, request: pytest.FixtureRequest) -> Iterator[PrivateCluster]:
    """Nothing is reserved there, now or later."""
    with lent(_cluster, request) as cluster:
        yield cluster
    for one in json.loads(_cluster.ok("gqresv", "list", "--json")):
        _cluster.ok("gqresv", "delete", one["name"], "--quiet")


def reservation(cluster: PrivateCluster, name: str) -> dict[str, Any]:
    """With what is past of it; of several that had the name, the last."""
    found = json.loads(cluster.ok("gqresv", "show", name, "--json", "--since=1h"))
    return dict(max(found, key=lambda one: (one["state"] in ("ACTIVE", "PLANNED"), one["created_at"])))


def occurrences(cluster: PrivateCluster, name: str) -> list[dict[str, Any]]:
    return list(reservation(cluster, name)["occurrences"])


def await_occurrence(cluster: PrivateCluster, name: str, wanted: str, number: int = 1, within_s: float = 60) -> None:
    def is_there() -> bool:
        return any((one["number"], one["state"]) == (number, wanted) for one in occurrences(cluster, name))

    wait_until(is_there, within_s, f"{name} {number} is {wanted}")


def test_the_line_of_the_readme_reserves_on_a_fresh_cluster_and_holds_up_no_job_without_gpus(
    private_cluster: MakeCluster,
) -> None:
    [line] = re.findall(r"`(gqresv create --name=paper [^`]*)`", (ROOT / "README.md").read_text())
    cluster = private_cluster(fake_gpus=4, cpus=4)

    done = cluster.run(*shlex.split(line))

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Reservation paper created: 4 GPUs on n1")
    note, hint = done.stderr.splitlines()
    assert "jobs without --time in partition `main` have no time limit" in note
    assert "default_time and max_time of [[partition]] `main`" in hint
    without_gpus = submit(cluster, wrap="true")
    with_gpus, short = submit(cluster, "--gpus=1", wrap="true"), submit(cluster, "--gpus=1", "-t10", wrap="true")
    await_state(cluster, without_gpus, "COMPLETED")
    await_state(cluster, short, "COMPLETED")
    assert state(cluster, with_gpus) == "PENDING"
    assert "reservation `paper`" in why(cluster, with_gpus)["why"]


def create(cluster: PrivateCluster, name: str, *words: str) -> str:
    return cluster.ok("gqresv", "create", f"--name={name}", *words)


# ── one ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_names_it_runs_in_it_and_who_would_run_into_it_waits(cluster: PrivateCluster) -> None:
    told = create(cluster, "paper", f"--gpus={2 * GPUS}", "--start=now+5s", "--duration=10m")
    outside = submit(cluster, "--gpus=1", "--time=2m", "--wrap", "true")
    inside = submit(
        cluster, "--gpus=1", "--time=2m", "--reservation=paper", "--wrap", "echo $GQ_JOB_RESERVATION; exec sleep 600"
    )
    late = submit(cluster, "--gpus=1", "--time=2h", "--reservation=paper", "--wrap", "true")

    assert told.splitlines()[0].startswith("Reservation paper created: 8 GPUs on n[1-2]")
    await_occurrence(cluster, "paper", "ACTIVE")
    await_state(cluster, inside, "RUNNING")
    assert await_file(cluster.workdir / f"gq-{inside}.out") == "paper\n"
    assert cluster.ok("gqstat", "-h", "-j", inside, "-o", "%v") == "paper\n"
    assert (state(cluster, outside), state(cluster, late)) == ("PENDING", "PENDING")
    assert "paper" in why(cluster, outside)["why"]
    assert "paper" in why(cluster, late)["why"]
    assert [one["job_ids"] for one in occurrences(cluster, "paper")] == [[int(inside)]]

    cluster.ok("gqresv", "end", "paper")

    await_state(cluster, outside, "COMPLETED")
    assert state(cluster, inside) == "RUNNING"
    assert cluster.ok("gqacct", "-X", "-n", "-P", "-j", inside, "-o", "reservation,state") == "paper|RUNNING\n"


def test_who_does_not_come_loses_it_and_others_have_its_gpus_at_once(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=CONFIG)  # that nobody has used
    create(cluster, "unused", f"--gpus={2 * GPUS}", "--start=now+2s", "--duration=10m", "--no-show=3s")
    waiting = submit(cluster, f"--gpus={2 * GPUS}", "--nodes=2", "--time=5m", "--wrap", "true")

    await_occurrence(cluster, "unused", "RELEASED")
    await_state(cluster, waiting, "COMPLETED")

    [usage] = json.loads(cluster.ok("gqresv", "list", "--usage", "--json"))
    assert (usage["occurrences"], usage["no_shows"], usage["used_gpu_s"]) == (1, 1, 0)
    assert usage["booked_gpu_s"] < 10 * 60 * 2 * GPUS / 2
    assert "no job started in it within 3 s" in cluster.ok("gqresv", "list", "--occurrences", "--since=1h")


def test_what_is_refused_is_offered_otherwise_and_each_offer_can_be_had(cluster: PrivateCluster) -> None:
    create(cluster, "first", "--gpus=6", "--start=now+1h", "--duration=2h")
    words = ("gqresv", "create", "--name=second", "--gpus=4", "--start=now+2h", "--duration=4h", "--no-show=20m")

    refused = cluster.run(*words)
    offers = json.loads(cluster.run(*words, "--json").stdout)["offers"]

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: `second` cannot have 4 GPUs from ")
    assert len(offers) >= 2
    for offer in offers:
        assert offer["command"].split("--start=")[0] in refused.stderr
        cluster.ok(*shlex.split(offer["command"]))
        [one] = occurrences(cluster, "second")
        assert one["gpus"] == offer["gpus"]
        assert reservation(cluster, "second")["no_show_s"] == 20 * 60
        cluster.ok("gqresv", "delete", "second")
    assert [one["name"] for one in json.loads(cluster.ok("gqresv", "list", "--json"))] == ["first"]


REFUSED = [
    (["--start=2020-01-01", "--duration=1h"], "is in the past: it is"),
    (["--start=now", "--duration=1h", "--gpus=99"], "it asks for 99 GPUs"),
    (["--start=now", "--duration=1h", "--users=no-such-user"], "user `no-such-user` is not known"),
    (["--start=now", "--duration=1h", "--accounts=no-such"], "account `no-such` does not exist"),
    (["--cron=0 0 30 2 *", "--duration=1h"], "never occurs: there is no such day"),
    (["--cron=*/5 * * * *", "--duration=6m"], "repeats after 5 min"),
    (["--cron=0 25 * * *", "--duration=6m"], "`25` is not a"),
    (["--start=now+10m", "--duration=1h", "--gpus=8"], "reservation there holds some of them until"),
    (["--start=now", "--duration=1h", "--partition=other"], "partition `other` does not exist"),
]


def test_what_cannot_be_is_said_and_changes_nothing(cluster: PrivateCluster) -> None:
    create(cluster, "there", "--gpus=4", "--start=now+5m", "--duration=1h")
    before = cluster.ok("gqresv", "list", "--json")

    for words, why_not in REFUSED:
        done = cluster.run("gqresv", "create", "--name=x", "--gpus=1", *words)

        assert (done.returncode, done.stdout) == (1, ""), words
        assert why_not in done.stderr
        assert cluster.ok("gqresv", "list", "--json") == before


@pytest.mark.slow
def test_reservations_survive_a_crash_and_move_from_a_node_that_is_drained(private_cluster: MakeCluster) -> None:
    cluster = private_cluster(config=CONFIG)
    create(cluster, "paper", f"--gpus={GPUS}", "--nodes=1", "--start=now+10m", "--duration=1h")
    [before] = occurrences(cluster, "paper")
    cluster.kill("gqd")
    cluster.up()
    assert occurrences(cluster, "paper") == [before]

    [node] = before["nodes"]
    cluster.ok("gqctl", "node", "drain", node, "--reason=test")

    wait_until(lambda: occurrences(cluster, "paper")[0]["nodes"] not in ([node], []), 60, "it has moved")
    [after] = occurrences(cluster, "paper")
    assert (after["gpus"], after["missing_gpus"]) == (GPUS, 0)
    assert f"{node} is drained: it has moved to " in after["why"]
    [other] = after["nodes"]
    cluster.ok("gqctl", "node", "drain", other, "--reason=test")
    wait_until(lambda: occurrences(cluster, "paper")[0]["missing_gpus"] == GPUS, 60, "nothing is left for it")
    cluster.ok("gqctl", "node", "resume", other)
    wait_until(lambda: occurrences(cluster, "paper")[0]["gpus"] == GPUS, 90, "it is found again")


# ── again and again ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_series_is_planned_at_each_full_minute_and_single_times_are_skipped_and_moved(
    cluster: PrivateCluster,
) -> None:
    create(cluster, "often", "--gpus=2", "--cron=* * * * *", "--duration=30s", "--no-show=10s")
    planned = occurrences(cluster, "often")

    assert len(planned) > 10
    assert all(one["start_at"].split("T")[1][5:8] == ":00" for one in planned)
    cluster.ok("gqresv", "skip", "often", str(planned[2]["number"]))
    cluster.ok("gqresv", "edit", "often", str(planned[3]["number"]), "--duration=40s")
    cluster.ok("gqresv", "renew", "often", "--duration=20s")
    now = {one["number"]: one for one in occurrences(cluster, "often")}
    assert now[planned[2]["number"]]["state"] == "SKIPPED"
    assert now[planned[3]["number"]]["end_at"] != planned[3]["end_at"]


@pytest.mark.slow  # it waits for a full minute
def test_a_time_of_a_series_begins_at_the_full_minute_and_is_used(cluster: PrivateCluster) -> None:
    create(cluster, "often", "--gpus=2", "--cron=* * * * *", "--duration=30s", "--no-show=10s")
    job = submit(cluster, "--gpus=2", "--time=10s", "--reservation=often", "--wrap", "true")

    await_state(cluster, job, "COMPLETED", within_s=150)
    first = next(one for one in occurrences(cluster, "often") if one["used_at"])
    assert first["state"] in ("ACTIVE", "OVER")


def test_another_reader_understands_the_calendar_and_it_can_be_taken_back(cluster: PrivateCluster) -> None:
    create(
        cluster, "night", "--gpus=2", "--cron=0 20 * * *", "--tz=Europe/Berlin", "--duration=10h", "--comment=for us"
    )
    cluster.ok("gqresv", "skip", "night", "3")
    before = [one["start_at"] for one in occurrences(cluster, "night") if one["state"] == "PLANNED"]
    file = cluster.workdir / "night.ics"
    cluster.ok("gqresv", "ics", "night", "-o", str(file))

    event = vobject.readOne(file.read_text()).vevent
    begins = [one.timestamp() for one in islice(event.rruleset, len(before))]
    assert begins == [datetime.fromisoformat(one).timestamp() for one in before]
    cluster.ok("gqresv", "delete", "night", "--quiet")
    cluster.ok("gqresv", "ics", f"--import={file}")
    assert [one["start_at"] for one in occurrences(cluster, "night") if one["state"] == "PLANNED"] == before


# ── from a real cron ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@needs_root
def test_a_real_cron_may_ask_again_and_again_and_has_nothing_to_mail(cluster: PrivateCluster) -> None:
    daemon = shutil.which("cron", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if daemon is None:
        skip_or_fail("needs Debian's cron")
    done, said = cluster.workdir / "done", cluster.workdir / "said"
    variables = "".join(f"{name}={cluster.environ[name]}\n" for name in ("GQ_DIR", "XDG_RUNTIME_DIR", "PATH"))
    line = (
        f"* * * * * gqresv create --name=nightly --replace --start=now --duration=10m --gpus=2 >>{said} 2>&1;"
        f" echo $? >>{done}\n"
    )
    table = cluster.workdir / "crontab"
    table.write_text(f'SHELL=/bin/sh\nMAILTO=""\n{_python_path()}{variables}{line}{line}')
    with own_mounts(_for_cron(table)) as root:
        process = cluster.start(*root.prefix, daemon, "-f", "-L", "15")
        try:
            wait_until(lambda: done.exists() and done.read_text().count("\n") >= 2, 130, "cron has run both lines")
        finally:
            process.kill()
            process.wait(10)

    assert (done.read_text().split()[:2], said.read_text()) == (["0", "0"], "")
    [one] = occurrences(cluster, "nightly")
    assert (one["state"], one["gpus"]) == ("ACTIVE", 2)


def _python_path() -> str:
    path = os.environ.get("PYTHONPATH", "")
    return f"PYTHONPATH={path}\n" if path else ""


def _for_cron(table: Path) -> str:
    """A machine whose only crontab is this one of root's."""
    return "\n".join(
        [
            "mount -t tmpfs none /run",
            "mount -t tmpfs none /etc/cron.d",
            "mount --bind /dev/null /etc/crontab",
            "mount -t tmpfs none /var/spool/cron",
            "install -d -m 1730 /var/spool/cron/crontabs",
            f"install -m 600 {shlex.quote(str(table))} /var/spool/cron/crontabs/root",
        ]
    )


def test_asked_for_again_it_is_so_already_and_other_words_change_it(cluster: PrivateCluster) -> None:
    words = ("gqresv", "create", "--name=nightly", "--replace", "--gpus=2", "--duration=1h")
    assert cluster.ok(*words, "--start=now") == ""
    [first] = occurrences(cluster, "nightly")
    wait_until(lambda: time.time() > datetime.fromisoformat(first["start_at"]).timestamp() + 2, what="it is later")

    assert json.loads(cluster.ok(*words, "--start=now", "--json"))[0]["is_changed"] is False
    assert occurrences(cluster, "nightly") == [first]
    cluster.ok("gqresv", "update", "nightly", "--gpus=3")
    assert occurrences(cluster, "nightly")[0]["gpus"] == 3
    refused = cluster.run("gqresv", "create", "--name=nightly", "--gpus=2", "--start=now", "--duration=1h")
    assert (refused.returncode, "already exists" in refused.stderr) == (1, True)
