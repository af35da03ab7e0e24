"""Empty hours of a reservation, on real daemons: who borrows them saves its work and goes when the first job comes."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_state, config, instants, state, submit, why
from tests.integration.test_reservations import HEAD, create, occurrences

TRAIN = Path(__file__).parents[2] / "examples" / "jobs" / "train.py"
BORROWS = ("-G4", "-t", "10", "-q", "scavenger")


def cluster_of(make: MakeCluster) -> PrivateCluster:
    return make(config=config(nodes=1, cpus=8, gpus=4, head=HEAD, prepare_s=20, grace_s=2))


def test_empty_hours_are_filled_until_the_first_job_of_the_reservation_comes(private_cluster: MakeCluster) -> None:
    cluster = cluster_of(private_cluster)
    create(cluster, "paper", "--gpus=4", "--start=now", "--duration=30m")
    ordinary = submit(cluster, "-G1", "-t", "1", "--wrap", "true")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(TRAIN))} 100000 0.03"
    job = submit(cluster, *BORROWS, "--signal=USR1@2", "-o", "train.log", wrap=f"gqrun {command}")
    log = cluster.workdir / "train.log"
    wait_until(lambda: log.exists() and " at step " in log.read_text(), LONG_S, "the training goes on")
    assert "it borrows from reservation paper, and may be preempted at any time" in why(cluster, job)["why"]
    assert state(cluster, ordinary) == "PENDING"
    [kept] = occurrences(cluster, "paper")
    assert (kept["used_at"], kept["job_ids"], kept["lent_to"]) == (None, [], [int(job)])

    first = submit(cluster, "-G4", "-t", "5", "--reservation=paper", "--wrap", "sleep 600")

    begun = await_state(cluster, first, "RUNNING")
    assert log.read_text().count("PREEMPTED BY JOB " + first) == 1
    [saved_at, *_] = instants(cluster, "JobCheckpointed", job)
    [gone_at] = instants(cluster, "PreemptionDecided", first)
    start_at = datetime.fromisoformat(begun["start_at"]).timestamp()
    assert gone_at <= saved_at <= start_at + 1
    assert "in reservation paper at" in why(cluster, job)["why"]
    assert [one["job_ids"] for one in occurrences(cluster, "paper")] == [[int(first)]]

    cluster.ok("gqdel", first)
    again = await_state(cluster, job, "RUNNING")
    assert (again["restart_count"], again["borrows"]) == (1, ["paper"])


@pytest.mark.slow
def test_what_is_never_lent_stays_empty(private_cluster: MakeCluster) -> None:
    cluster = cluster_of(private_cluster)
    create(cluster, "quiet", "--gpus=4", "--start=now", "--duration=30m", "--flags=NO_LEND")
    job = submit(cluster, *BORROWS, "--wrap", "true")
    assert "quiet" in why(cluster, job)["why"]
    cluster.ok("gqresv", "update", "quiet", "--flags=")
    await_state(cluster, job, "COMPLETED")
    assert json.loads(cluster.ok("gqctl", "qos", "show", "scavenger", "--json"))[0]["borrows_reserved"] is True
