"""`gqnode leave`: this host is no node any more.  The counterpart of `join`.

Owns the order: nothing is taken away while jobs run, unless that is wanted; then they end first, by the daemon, which
knows how.  The controller is asked where it hears root of this host (on its own host and on login hosts); elsewhere
its administrator is told what to do.  The keys go before gq.toml, so that an interrupted call is simply made again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gq.config.config import Config, NodeSettings, load_config
from gq.config.node_tables import without_node
from gq.connection.client import Client
from gq.connection.curve import node_key_path, node_public_path, server_public_path
from gq.connection.locate import Location
from gq.errors import Refusal, Unreachable
from gq.host import service
from gq.host.daemons import END_JOBS_SIGNAL
from gq.host.files import lock_holder, write_file
from gq.wire.client import RemoveNode
from gqnode.control.attempt import Phase
from gqnode.daemon.spool import Spool

LOCK_FILE = ".lock"
STOP_WITHIN_S = 15.0
END_JOBS_WITHIN_S = 30.0
"""Beyond the grace of jobs."""
_ATTEMPT = re.compile(r"\d+\.\d+")
_POLL_S = 0.05


def leave(location: Location, own_node: Callable[[Config], NodeSettings], is_forced: bool) -> list[str]:
    """Remove this host from the cluster; return the closing messages."""
    if os.geteuid() != 0:
        raise Refusal("needs_root", "`gqnode leave` changes this host for all users: run it as root")
    config = load_config(location)
    node = own_node(config)
    spool = Path(location.state_dir, "nodes", node.name)
    left = _text_without(config, node)
    jobs = _jobs(spool)
    if jobs and not is_forced:
        raise _jobs_run(node, jobs)
    if jobs and _daemon_pid(spool) is None:
        raise Refusal(
            "no_daemon", f"{_counted(jobs)} on this node, and gqnode is not running to end them", "start gqnode first"
        )
    done = _ask_controller(location, node)
    _end_daemon(spool, config.timers.grace_s, has_jobs=bool(jobs))
    if late := _unended(spool):
        raise _jobs_run(node, late)
    _remove_keys(location, config, node)
    _write_settings(Path(location.config_path), left)
    shutil.rmtree(spool, ignore_errors=True)
    said = [f"this host is no longer node {node.name} of cluster {config.cluster}"]
    return said if done else [*said, "on the controller, as an administrator:", f"  gqctl node remove {node.name}"]


def _jobs_run(node: NodeSettings, jobs: list[str]) -> Refusal:
    wait = f"`gqctl node drain {node.name}` keeps new jobs away; --force ends running jobs"
    return Refusal("jobs_run", f"{_counted(jobs)} on this node", wait)


def _counted(jobs: list[str]) -> str:
    shown = ", ".join(jobs[:5]) + (" …" if len(jobs) > 5 else "")
    return f"job {shown} is" if len(jobs) == 1 else f"{len(jobs)} jobs ({shown}) are"


def _jobs(spool: Path) -> list[str]:
    if not spool.is_dir():
        return []
    return sorted(path.name.partition(".")[0] for path in spool.iterdir() if _ATTEMPT.fullmatch(path.name))


def _unended(spool: Path) -> list[str]:
    """Return the attempts that may still have processes; valid once no daemon writes there any more."""
    if not spool.is_dir():
        return []
    records = Spool(str(spool)).load()
    return [str(record.launch.attempt_id.job_id) for record in records if record.phase is not Phase.ENDED]


# ── the controller ────────────────────────────────────────────────────────────────────────────────────────────


def _ask_controller(location: Location, node: NodeSettings) -> bool:
    """Whether it has removed the node.  From a host that runs jobs it would refuse, and note, what root asks."""
    if node.controller is not None and not node.login:
        return False
    try:
        with Client(location, timeout_s=5.0) as client:
            client.ask(RemoveNode(name=node.name, reason="gqnode leave"))
    except Refusal as refusal:
        return refusal.code == "unknown_node"
    except Unreachable:
        return False
    return True


# ── the daemon ────────────────────────────────────────────────────────────────────────────────────────────────


def _daemon_pid(spool: Path) -> int | None:
    """Process id of the gqnode that holds the lock."""
    return lock_holder(str(spool / LOCK_FILE))


def _end_daemon(spool: Path, grace_s: int, has_jobs: bool) -> None:
    """End the daemon, with or without its jobs, and do not start it again at the next boot."""
    if service.has_systemd():
        service.disable(service.NODE)
    if has_jobs:
        _signal(spool, END_JOBS_SIGNAL)
        _await_end(spool, grace_s + END_JOBS_WITHIN_S)
    if service.has_systemd():
        service.stop(service.NODE)
    else:
        _signal(spool, signal.SIGTERM)
    _await_end(spool, STOP_WITHIN_S)


def _signal(spool: Path, number: int) -> None:
    pid = _daemon_pid(spool)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _await_end(spool: Path, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while (pid := _daemon_pid(spool)) is not None:
        if time.monotonic() > deadline:
            raise Refusal("not_ended", f"gqnode (process {pid}) has not ended in {within_s:g} s", "check its log")
        time.sleep(_POLL_S)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _remove_keys(location: Location, config: Config, node: NodeSettings) -> None:
    secret = node_key_path(location.keys_dir, node.name)
    gone = [secret, secret.with_name(f"{secret.name}.new"), node_public_path(location.keys_dir, node.name)]
    if config.controller.listen is None and len(config.nodes) == 1:
        gone.append(server_public_path(location.keys_dir))
    for path in gone:
        path.unlink(missing_ok=True)


def _text_without(config: Config, node: NodeSettings) -> str:
    """gq.toml as it is to be; empty: nothing of a cluster is left on this host."""
    if config.controller.listen is None and len(config.nodes) == 1:
        return ""
    text = without_node(Path(config.path).read_text("utf-8"), node.name)
    if text is None:
        raise Refusal(
            "not_by_rule", f"the table of {node.name} in {config.path} has a form that cannot be removed automatically",
            "write it as [[node]] with one key a line, or remove it by hand",
        )  # fmt: skip
    return text


def _write_settings(path: Path, text: str) -> None:
    """Write the settings; the previous file is kept beside the new file."""
    write_file(path.with_name(f"{path.name}.old"), path.read_text("utf-8"), 0o644)
    if text:
        write_file(path, text, 0o644)
    else:
        path.unlink()
