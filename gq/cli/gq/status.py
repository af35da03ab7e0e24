"""gq status: show the daemons of a private cluster, or of the system's on this host, and the cluster's state.

It starts nothing and changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from gq.cli.doctor.system import Answer, ask_controller
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import chosen_cluster
from gq.cli.framework.output import Column, local_time, plural, write_json_list, write_line, write_table
from gq.cli.gq.up import DIR, directory_of
from gq.config.config import load_config
from gq.connection.locate import SYSTEM_CONFIG, Location, private_location, system_location
from gq.errors import Refusal, Unreachable, UsageError
from gq.host import daemons
from gq.host.daemons import Daemon
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import iso_instant

SYSTEM = Option(name="system", help="Show the system's cluster, even if you have a private cluster.")
_COLUMNS = (Column("DAEMON"), Column("PID", is_number=True), Column("STATE"), Column("LOG", is_wide=True))


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq status` takes no operand, not `{arguments.operands[0]}`")
    if (system := _system(arguments)) is not None:
        from gq.cli.doctor.system_status import show  # not for the many who have a private one

        return show(system, arguments.has("json"))
    location = private_location(directory_of(arguments), os.environ)
    if not Path(location.config_path).exists():
        raise Refusal("no_cluster", f"there is no cluster in {location.state_dir}", "`gq up` starts a cluster")
    config = load_config(location)
    everyone = daemons.daemons_of(location, [node.name for node in config.nodes])
    answer = ask_controller(location)
    states = {daemon.name: _state(daemon, answer) for daemon in everyone}
    if arguments.has("json"):
        write_json_list([_json(location, everyone, states, answer)])
    else:
        _write(location, everyone, states, answer)
    return 0 if all(state.startswith("up") for state in states.values()) else 1


def _system(arguments: Arguments) -> Location | None:
    """Return the system's cluster if ``--system`` is given or there is no other cluster, else None."""
    if arguments.has("system") and arguments.has("dir"):
        raise UsageError("contradiction", "`--dir` and `--system` exclude each other", "give one of them")
    if arguments.has("system"):
        return system_location(os.environ.get("GQ_CONFIG") or SYSTEM_CONFIG)
    if arguments.has("dir"):
        return None
    try:
        found = chosen_cluster()
    except Unreachable:
        return None
    return None if found.is_private else found


def _state(daemon: Daemon, answer: Answer | None) -> str:
    """Return ``up``, or the problem."""
    if daemon.pid() is None:
        return "down"
    if answer is None:
        return "silent" if daemon.name == "gqd" else "up, without its controller"
    if daemon.name == "gqd":
        return "up"
    node = answer.nodes.get(daemon.name.removeprefix("gqnode-"))
    return "not registered" if node is None else f"up, {node.state.lower()}"


def _write(location: Location, everyone: list[Daemon], states: dict[str, str], answer: Answer | None) -> None:
    rows = [(daemon.name, str(daemon.pid() or "-"), states[daemon.name], str(daemon.log_path)) for daemon in everyone]
    write_table(_COLUMNS, [rows])
    if answer is None:
        write_line(f"the cluster in {location.state_dir} does not answer; `gq up` starts the missing daemons")
        return
    info = answer.info
    jobs = f"{plural(info.jobs_running, 'job')} running, {info.jobs_pending} pending"
    write_line(f"cluster {info.cluster} in {location.state_dir}: {jobs}, up since {local_time(info.started_at)}")


def _json(
    location: Location, everyone: list[Daemon], states: dict[str, str], answer: Answer | None
) -> dict[str, object]:
    info = answer.info if answer is not None else None
    return {
        "directory": location.state_dir,
        "is_answering": info is not None,
        "cluster": info.cluster if info else None,
        "version": info.gq_version if info else None,
        "started_at": iso_instant(info.started_at) if info else None,
        "jobs_running": info.jobs_running if info else None,
        "jobs_pending": info.jobs_pending if info else None,
        "counters": info.counters if info else {},
        "daemons": [
            {"name": daemon.name, "pid": daemon.pid(), "state": states[daemon.name], "log": str(daemon.log_path)}
            for daemon in everyone
        ],
    }


COMMAND = Command(
    name="gq status",
    summary="Show which daemons run on this host, and the state of the cluster.",
    options=(DIR, SYSTEM, JSON),
    run=run,
    details="Returns 0 if all daemons run, else 1.",
)
