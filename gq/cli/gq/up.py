"""gq up: a private cluster on this machine, made on the first call and completed on every other.

Owns the order of steps: write the configuration, start each daemon that does not run, wait until gqd answers and
every node has registered, tell how to go on.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping

import msgspec

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask
from gq.cli.framework.output import plural, write_json_list, write_line
from gq.config import private_cluster
from gq.config.config import Config
from gq.config.private_cluster import ClusterOptions
from gq.connection.client import Client
from gq.connection.locate import Location, default_directory, make_run_dir, private_location
from gq.errors import Refusal, Unreachable, UsageError
from gq.host import daemons
from gq.host.daemons import Daemon
from gq.model.node import NodeInfo
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import parse_memory_mib
from gq.wire.client import Done, ListNodes, Nodes, Ping

READY_WITHIN_S = 60.0
_POLL_S = 0.02

Started = Mapping[str, "subprocess.Popen[bytes]"]
"""Names of the daemons that this call started."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A private cluster that is up."""

    location: Location
    config: Config
    nodes: tuple[NodeInfo, ...]
    started: tuple[str, ...]
    """Names of the daemons that this call had to start."""


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq up` takes no operand, not `{arguments.operands[0]}`")
    options = ClusterOptions(
        nodes=arguments.integer("nodes", at_least=1, at_most=private_cluster.MAX_NODES),
        fake_gpus=arguments.integer("fake-gpus", at_least=0, at_most=64),
        cpus_per_node=arguments.integer("cpus-per-node", at_least=1, at_most=4096),
        memory_per_node_mib=arguments.read("mem-per-node", parse_memory_mib),
    )
    ready = bring_up(directory_of(arguments), options, os.environ)
    if arguments.has("json"):
        write_json_list([_json(ready)])
    else:
        _tell(ready, options)
    return 0


def directory_of(arguments: Arguments) -> str:
    """``--dir``, else ``GQ_DIR``, else the user's default."""
    return arguments.text("dir") or os.environ.get("GQ_DIR") or default_directory(os.environ)


def bring_up(directory: str, options: ClusterOptions, environ: Mapping[str, str]) -> Ready:
    """Make the cluster in `directory` if it is new, start what does not run, and wait until all of it is ready."""
    location = private_location(directory, environ)
    config, _ = private_cluster.ensure_config(location, options)
    with daemons.only_one(location):
        make_run_dir(location)
        everyone = daemons.daemons_of(location, [node.name for node in config.nodes])
        since = time.time()
        missing = [daemon for daemon in everyone if daemon.pid() is None]
        environment = daemons.environment(location, environ)
        started = {daemon.name: daemons.start(daemon, environment) for daemon in missing}
        nodes = _await_ready(location, config, everyone, started, since)
    return Ready(location=location, config=config, nodes=nodes, started=tuple(started))


def _await_ready(
    location: Location, config: Config, everyone: list[Daemon], started: Started, since: float
) -> tuple[NodeInfo, ...]:
    """Until gqd answers and has heard from every node (from one that was started now: since then)."""
    deadline = time.monotonic() + READY_WITHIN_S
    with Client(location, timeout_s=10.0) as client:
        while True:
            daemons.check_alive(started, everyone)
            nodes = _nodes(client)
            late = [node.name for node in config.nodes if not _is_ready(node.name, nodes, started, since)]
            if nodes is not None and not late:
                return tuple(nodes.values())
            if time.monotonic() > deadline:
                raise _too_late(everyone, nodes, late)
            time.sleep(_POLL_S)


def _nodes(client: Client) -> dict[str, NodeInfo] | None:
    """The nodes as gqd knows them; None while it does not answer."""
    try:
        ask(client, Ping(), Done)
        return {node.node: node for node in ask(client, ListNodes(), Nodes).nodes}
    except Unreachable:
        return None


def _is_ready(name: str, nodes: Mapping[str, NodeInfo] | None, started: Started, since: float) -> bool:
    node = nodes.get(name) if nodes is not None else None
    if node is None or node.last_heard_at is None or node.state == "UNKNOWN":
        return False
    is_fresh = f"gqnode-{name}" in started or "gqd" in started
    return not is_fresh or node.last_heard_at >= since


def _too_late(everyone: list[Daemon], nodes: Mapping[str, NodeInfo] | None, late: list[str]) -> Refusal:
    if nodes is None:
        silent, what = everyone[0], "gqd does not answer"
    else:
        silent = next(daemon for daemon in everyone if daemon.name == f"gqnode-{late[0]}")
        what = f"{', '.join(late)} did not register"
    return Refusal(
        "not_ready",
        f"{what} within {READY_WITHIN_S:g} s; {silent.log_path} ends with:\n{daemons.log_tail(silent)}",
        "run `gq doctor` to find the cause",
    )


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────


def _tell(ready: Ready, options: ClusterOptions) -> None:
    nodes, location = ready.nodes, ready.location
    gpus = [gpu for node in nodes for gpu in node.gpus]
    is_pretended = any(node.fake_gpus for node in ready.config.nodes)
    what = (
        f"{plural(len(nodes), 'node')}, {plural(sum(node.cpus for node in nodes), 'CPU')}, {plural(len(gpus), 'GPU')}"
    )
    if not gpus and not options.fake_gpus:
        warn("no GPU was found on this machine, so the nodes have none; to try gq without GPUs, use `--fake-gpus N`")
    for node in nodes[:1]:
        if node.cpus < len(node.gpus):
            message = f"{node.node} has {plural(node.cpus, 'CPU')} for"
            how = f"set cpus = {len(node.gpus)} in gq.toml so that each GPU can have its job"
            warn(
                f"{message} {plural(len(node.gpus), 'GPU')}, so at most {plural(node.cpus, 'job')} can run at once; "
                f"{how}"
            )
    prefix = "" if location.state_dir == _default() else f"GQ_DIR={shlex.quote(location.state_dir)} "
    gpu_option = "--gpus 1 " if gpus else ""
    write_line(f"cluster  {ready.config.cluster} is up: {what}{' (pretended)' if is_pretended else ''}")
    write_line(f"where    {location.state_dir}   (settings gq.toml, logs *.log)")
    write_line(f"submit   {prefix}gqsub {gpu_option}--wrap 'hostname; sleep 10'")
    write_line(f"look     {prefix}gqinfo   gqstat   gqlog -f JOB   gqwhy JOB")
    write_line(f"stop     {prefix}gq down")
    if not ready.started:
        warn("the cluster was already up")


def _default() -> str:
    return private_location(default_directory(os.environ), os.environ).state_dir


def _json(ready: Ready) -> dict[str, object]:
    return {
        "directory": ready.location.state_dir,
        "cluster": ready.config.cluster,
        "nodes": [node.node for node in ready.nodes],
        "cpus": sum(node.cpus for node in ready.nodes),
        "gpus": sum(len(node.gpus) for node in ready.nodes),
        "started": list(ready.started),
    }


DIR = Option(name="dir", metavar="DIR", help="Directory of the cluster (GQ_DIR, else ~/.local/state/gq).")
COMMAND = Command(
    name="gq up",
    summary="Start a private cluster on this machine: a controller and node daemons, in the background, as you.",
    options=(
        DIR,
        Option(name="nodes", metavar="COUNT", help="Number of node daemons: n1, n2 … (1)."),
        Option(name="fake-gpus", metavar="COUNT", help="Pretend COUNT GPUs on each node instead of real GPUs."),
        Option(name="cpus-per-node", metavar="COUNT", help="CPUs of each node (an equal share of the machine's)."),
        Option(name="mem-per-node", metavar="SIZE", help="Memory of each node (an equal share of the machine's)."),
        JSON,
    ),
    run=run,
    details=(
        "The first call writes gq.toml; later calls start daemons that do not run, and keep jobs and settings. Real "
        "GPUs and memory are divided among the nodes; a node may have more CPUs than the machine."
    ),
)
