"""gq down: end the jobs of a private cluster and stop its daemons.

Owns when that is refused (jobs run and nobody said yes) and what is left behind: the directory, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, job_pages
from gq.cli.framework.output import plural, write_json_list, write_line
from gq.cli.gq.up import DIR, bring_up, directory_of
from gq.config.config import load_config
from gq.config.private_cluster import ClusterOptions
from gq.connection.client import Client
from gq.connection.locate import RUN_LINK, Location, is_listening, private_location
from gq.errors import Refusal, Unreachable, UsageError
from gq.host import daemons
from gq.host.daemons import Daemon
from gq.model.job import JobInfo
from gq.model.state import ACTIVE_WORDS
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire.client import CancelJobs, JobFilter, JobsDone, ListJobs, Waited, WaitJobs

_END_WITHIN_S = 120.0
_WAIT_S = 5.0
_POLL_S = 0.05


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq down` takes no operand, not `{arguments.operands[0]}`")
    location = private_location(directory_of(arguments), os.environ)
    if not Path(location.config_path).exists():
        raise Refusal("no_cluster", f"there is no cluster in {location.state_dir}", "name the cluster with --dir")
    take_down(location, is_sure=arguments.has("yes"), keep_jobs=arguments.has("keep-jobs"))
    if arguments.has("json"):
        write_json_list([{"directory": location.state_dir, "state": "down"}])
    else:
        write_line(f"the cluster in {location.state_dir} is down")
    return 0


def take_down(location: Location, is_sure: bool, keep_jobs: bool) -> None:
    """End the jobs (unless they are kept) and stop every daemon."""
    everyone = daemons.daemons_of(location, _node_names(location))
    if not keep_jobs:
        _end_jobs(location, everyone, is_sure)
    with daemons.only_one(location):
        # Nodes first: a node that loses its controller would only write that into its log.
        stubborn = daemons.stop([*everyone[1:]]) + daemons.stop(everyone[:1])
        for name in stubborn:
            warn(f"{name} did not stop when asked and was killed")
        _remove_sockets(location)


def _node_names(location: Location) -> list[str]:
    """Return the configured nodes and all started nodes, which are stopped even if the settings have changed."""
    names = daemons.nodes_started(location)
    try:
        names += [node.name for node in load_config(location).nodes]
    except UsageError as error:
        warn(str(error))
    return list(dict.fromkeys(names))


def _remove_sockets(location: Location) -> None:
    """Remove the sockets and the locks of daemons that were killed; no process holds the locks any more."""
    directory = Path(location.run_dir)
    for path in [*directory.glob("*.sock"), *directory.glob("*.lock"), *directory.glob("member-*")]:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or somebody keeps something else in it
        directory.rmdir()
    Path(location.state_dir, RUN_LINK).unlink(missing_ok=True)


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _end_jobs(location: Location, everyone: list[Daemon], is_sure: bool) -> None:
    """Cancel what is in the queue and wait until it is gone; daemons that died are needed for that once more."""
    alive = [daemon for daemon in everyone if daemon.pid() is not None]
    if not alive and not daemons.job_processes(location):
        return
    if len(alive) < len(everyone):
        try:
            bring_up(location.state_dir, ClusterOptions(), os.environ)
        except (Refusal, Unreachable) as error:
            warn(f"the cluster cannot be started to end its jobs: {error.message}")
            _end_jobs_without_controller(location, everyone, is_sure)
            return
    with Client(location) as client:
        jobs = [job for page in job_pages(client, _active()) for job in page]
        running = [job for job in jobs if job.state != "PENDING"]
        if not jobs or not _is_agreed(running, len(jobs) - len(running), is_sure):
            return
        ask(client, CancelJobs(filter=JobFilter(job_ids=tuple(job.job_id for job in jobs))), JobsDone)
        _await_ends(client, running)


def _end_jobs_without_controller(location: Location, everyone: list[Daemon], is_sure: bool) -> None:
    """Have each node end its jobs, then end what is left of any job.  The queue stays as it is on disk."""
    job_ids = sorted(set(daemons.job_processes(location).values()))
    if not job_ids:
        return
    if not is_sure:
        _agree_to_end(job_ids)
    warn("each node ends its running jobs; the queue stays unchanged on disk")
    nodes = {pid: daemon.name for daemon in everyone[1:] for pid in _await_door(location, daemon)}
    for name in daemons.end(nodes, daemons.END_JOBS_SIGNAL, _END_WITHIN_S).values():
        warn(f"{name} did not end its jobs within {_END_WITHIN_S:g} s")
    for signum in (signal.SIGTERM, signal.SIGKILL):
        daemons.end(daemons.job_processes(location), signum, _WAIT_S)


def _await_door(location: Location, node: Daemon) -> list[int]:
    """The processes of a node daemon; one that was just started has its door open, and so takes signals."""
    path = location.step_endpoint(node.name.removeprefix("gqnode-")).removeprefix("ipc://")
    deadline = time.monotonic() + _WAIT_S
    while (found := node.pids()) and not is_listening(path) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _agree_to_end(job_ids: list[str]) -> None:
    """`Refusal` unless the user says yes on a terminal."""
    if not sys.stdin.isatty():
        hint = "add --yes to end them, or --keep-jobs to stop only the daemons"
        raise Refusal("jobs_run", f"jobs are running ({', '.join(job_ids[:5])})", hint)
    _confirm(f"end {plural(len(job_ids), 'running job')} and stop?")


def _confirm(question: str) -> None:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refusal("not_agreed", "nothing was stopped", "use --keep-jobs to stop only the daemons")


def _active() -> ListJobs:
    return ListJobs(filter=JobFilter(states=tuple(sorted(ACTIVE_WORDS))))


def _is_agreed(running: list[JobInfo], pending: int, is_sure: bool) -> bool:
    """Whether the jobs may be cancelled.  `Refusal` if some run and nobody can be asked; pending ones can stay."""
    if is_sure:
        return True
    what = f"{plural(len(running), 'running job')} and {plural(pending, 'pending one')}"
    if not sys.stdin.isatty():
        if not running:
            warn(f"{plural(pending, 'pending job')} stay in the queue until the next `gq up`")
            return False
        ids = ", ".join(str(job.job_id) for job in running[:5])
        raise Refusal(
            "jobs_run", f"jobs are running ({ids})", "add --yes to cancel them, or --keep-jobs to stop only the daemons"
        )
    _confirm(f"cancel {what} and stop?")
    return True


def _await_ends(client: Client, jobs: list[JobInfo]) -> None:
    """Until every job's processes are gone; the nodes give them their grace time."""
    deadline = time.monotonic() + _END_WITHIN_S
    job_ids = tuple(job.job_id for job in jobs)
    while job_ids and time.monotonic() < deadline:
        waited = ask(client, WaitJobs(job_ids=job_ids, timeout_s=_WAIT_S), Waited)
        if waited.is_done:
            return
        left = [job.job_id for job in waited.jobs if job.state in ACTIVE_WORDS]
        warn(f"waiting for {plural(len(left), 'job')} to end: {', '.join(map(str, left[:5]))}")
    if job_ids:
        raise Refusal(
            "jobs_stay", "some jobs did not end", "`gqstat` shows them; `gq down --keep-jobs` leaves them running"
        )


COMMAND = Command(
    name="gq down",
    summary="End the jobs of a private cluster and stop its daemons.",
    options=(
        DIR,
        Option(name="yes", letter="y", help="Do not ask; required if jobs run and there is no terminal."),
        Option(name="keep-jobs", help="Keep jobs: running jobs continue without daemons until `gq up`."),
        JSON,
    ),
    run=run,
    details=(
        "Running and pending jobs are cancelled, and gq waits for their processes to end. The directory with the job "
        "history stays."
    ),
)
