"""Jobs of a real cluster: queued, looked at, waited for; always by the commands that users type."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from gq.connection.client import Client, expect
from gq.errors import GqError
from gq.model.ids import JobId
from gq.wire import client as wire
from tests.clusters import PrivateCluster, wait_until

MakeCluster = Callable[..., PrivateCluster]
Facts = dict[str, Any]
LONG_S = 60.0
"""For what takes a moment on an idle machine: a loaded one has two cores for all."""


def submit(cluster: PrivateCluster, *options: str, wrap: str = "", script: str = "", **environ: str) -> str:
    """Queue a job and return its id."""
    command = ("--wrap", wrap) if wrap else ()
    return cluster.ok("gqsub", "--parsable", *options, *command, stdin=script or None, **environ).strip()


def facts(cluster: PrivateCluster, job: str) -> Facts:
    """Everything that the job's record says, ended or not."""
    [found] = json.loads(cluster.ok("gqacct", "-X", "--json", "-j", job))
    return dict(found)


def state(cluster: PrivateCluster, job: str) -> str:
    return str(facts(cluster, job)["state"])


def await_state(cluster: PrivateCluster, job: str, *states: str, within_s: float = LONG_S) -> Facts:
    """Until the job is in one of these states; its facts then.

    The wait is over one connection, since a command for each look would take the CPU from the job.
    """
    seen: Facts = {}
    with Client(cluster.location) if _is_near(cluster, job) else nullcontext() as client:

        def is_there() -> bool:
            if client is not None and _state_heard(client, int(job)) not in states:
                return False
            seen.update(facts(cluster, job))
            return seen["state"] in states

        wait_until(is_there, within_s, f"job {job} is {' or '.join(states)}")
    return seen


def _is_near(cluster: PrivateCluster, job: str) -> bool:
    """The controller can be asked from this process, and for this job alone."""
    return isinstance(cluster, PrivateCluster) and job.isdecimal()


def _state_heard(client: Client, job: int) -> str:
    """The state of a job; empty while the controller does not answer."""
    with suppress(GqError):
        answer = expect(client.ask(wire.QueryHistory(filter=wire.JobFilter(job_ids=(JobId(job),)))), wire.Jobs)
        return answer.jobs[0].state if answer.jobs else ""
    return ""


def await_file(path: Path, within_s: float = LONG_S) -> str:
    """Until a job has written the file; what is in it."""
    wait_until(lambda: path.exists() and path.read_text(), within_s, f"{path} is written")
    return path.read_text()


def why(cluster: PrivateCluster, job: str) -> Facts:
    [story] = json.loads(cluster.ok("gqwhy", job, "--json"))
    return dict(story)


def counters(cluster: PrivateCluster) -> dict[str, int]:
    [status] = json.loads(cluster.run("gq", "status", "--json").stdout)
    return dict(status["counters"])


def _rows(cluster: PrivateCluster, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What the database says that other programs may read."""
    with contextlib.closing(sqlite3.connect(f"file:{cluster.directory}/gq.db?mode=ro", uri=True)) as database:
        return database.execute(query, values).fetchall()


def record_counts(cluster: PrivateCluster) -> tuple[int, int]:
    """How many jobs and how many events there are."""
    [[jobs, events]] = _rows(cluster, "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM events)")
    return int(jobs), int(events)


def instants(cluster: PrivateCluster, kind: str, job: str) -> list[float]:
    """When events of this kind happened to a job."""
    found = _rows(cluster, "SELECT at FROM events WHERE kind = ? AND job_id = ? ORDER BY seq", kind, int(job))
    return [float(at) for [at] in found]


def node_facts(cluster: PrivateCluster, node: str) -> Facts:
    [found] = json.loads(cluster.ok("gqinfo", "-N", "-n", node, "--json"))
    return dict(found)


def config(*, nodes: int = 1, cpus: int = 4, gpus: int = 0, memory: str = "1G", head: str = "", **timers: float) -> str:
    """gq.toml of a private cluster with its own timers; `head` comes first."""
    parts = [head, "[timers]", *(f"{name} = {value}" for name, value in timers.items())]
    for number in range(1, nodes + 1):
        parts += ["[[node]]", f'name = "n{number}"', 'address = "127.0.0.1"', f"cpus = {cpus}", f'memory = "{memory}"']
        parts += ["gpus = []", f"port_range = [{20000 + 100 * number}, {20099 + 100 * number}]"]
        parts += ["fake_gpu = [" + ", ".join(["{type = 'fake'}"] * gpus) + "]"]
    return "\n".join(parts) + "\n"
