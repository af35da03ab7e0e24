"""The output of `gq status` on a host of the system's cluster: its daemons and their states.

It changes nothing.  On a host that runs jobs it does not ask the controller, which would refuse and log a request from
a user without a job there: a file of the node's daemon says whether it is linked.
"""

from __future__ import annotations

from pathlib import Path

from gq.cli.doctor.system import Host, find_host
from gq.cli.framework.output import Column, local_time, plural, write_json_list, write_line, write_table
from gq.connection.locate import Location
from gq.errors import Refusal
from gq.host.service import CONTROLLER, LOG_DIR, NODE, has_systemd
from gq.units import iso_instant

_COLUMNS = (Column("DAEMON"), Column("PID", is_number=True), Column("STATE"), Column("LOG", is_wide=True))


def show(location: Location, is_json: bool) -> int:
    host = find_host(location, asks=lambda host: not _runs_jobs_of_another_host(host))
    if host.config is None:
        raise host.config_error or Refusal("no_config", f"{location.config_path} cannot be read")
    states = _states(host)
    if not states:
        raise Refusal(
            "no_daemon",
            f"no daemon of {location.config_path} belongs on this host",
            "`gq doctor` looks over a host outside of the cluster",
        )
    if is_json:
        write_json_list([_json(host, states)])
    else:
        _write(host, states)
    return 0 if all(state.startswith("up") for state in states.values()) else 1


def _runs_jobs_of_another_host(host: Host) -> bool:
    return host.is_remote_node and host.node is not None and not host.node.login and not host.is_controller


def _states(host: Host) -> dict[str, str]:
    """Return the states of the daemons that belong on this host, and of others that run here."""
    running = {process.program for process in host.processes}
    wanted = {CONTROLLER: host.is_controller, NODE: host.node is not None}
    return {name: _state(host, name) for name in (CONTROLLER, NODE) if wanted[name] or name in running}


def _state(host: Host, program: str) -> str:
    """Return ``up``, or the problem."""
    if host.process(program) is None:
        return "down"
    if program == CONTROLLER:
        return "up" if host.answer is not None else "silent"
    return _node_state(host)


def _node_state(host: Host) -> str:
    node = host.node
    if node is None:
        return "not in gq.toml"
    if _runs_jobs_of_another_host(host):
        return "up, part of the cluster" if _is_linked(host, node.name) else "up, without its controller"
    if host.answer is None:
        return "up, without its controller"
    known = host.answer.nodes.get(node.name)
    if node.login:
        return "up, login host"
    return "not registered" if known is None else f"up, {known.state.lower()}"


def _is_linked(host: Host, node: str) -> bool:
    """Whether the daemon's file says that it is linked to the controller."""
    process = host.process(NODE)
    try:
        return process is not None and int(Path(host.location.member_path(node)).read_text()) == process.pid
    except (OSError, ValueError):
        return False


def _log(program: str) -> str:
    return f"journalctl -u {program}" if has_systemd() else f"{LOG_DIR}/{program}.log"


def _pid(host: Host, program: str) -> int | None:
    process = host.process(program)
    return process.pid if process is not None else None


def _write(host: Host, states: dict[str, str]) -> None:
    assert host.config is not None
    write_table(_COLUMNS, [[(one, str(_pid(host, one) or "-"), state, _log(one)) for one, state in states.items()]])
    write_line(f"this host is {host.roles} of cluster {host.config.cluster}, by {host.location.config_path}")
    if host.answer is not None:
        info = host.answer.info
        jobs = f"{plural(info.jobs_running, 'job')} running, {info.jobs_pending} pending"
        write_line(f"cluster {info.cluster}: {jobs}, up since {local_time(info.started_at)}")
    elif _runs_jobs_of_another_host(host):
        assert host.node is not None
        write_line(f"its controller is {host.node.controller}; `gqinfo -N` there shows what it says of this node")
    else:
        error = host.answer_error
        write_line(f"the controller does not answer{f': {error.message}' if error else ''}; `gq doctor` finds out why")


def _json(host: Host, states: dict[str, str]) -> dict[str, object]:
    """Return the keys that a private cluster shows, and ``node``; ``directory`` is the state directory."""
    info = host.answer.info if host.answer is not None else None
    return {
        "directory": host.location.state_dir,
        "node": host.node.name if host.node is not None else None,
        "is_answering": info is not None if not _runs_jobs_of_another_host(host) else None,
        "cluster": host.config.cluster if host.config else None,
        "version": info.gq_version if info else None,
        "started_at": iso_instant(info.started_at) if info else None,
        "jobs_running": info.jobs_running if info else None,
        "jobs_pending": info.jobs_pending if info else None,
        "counters": info.counters if info else {},
        "daemons": [
            {"name": one, "pid": _pid(host, one), "state": state, "log": _log(one)} for one, state in states.items()
        ],
    }
