"""This host as a part of the system's cluster: its configured role, its daemons, and the controller's answer.

This module gathers the facts for `gq doctor`.  It changes nothing and skips facts that it may not read.
"""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gq.cli.framework.connection import ask
from gq.config.config import Config, NodeSettings, load_config
from gq.connection.client import Client
from gq.connection.curve import node_key_path, server_key_path
from gq.connection.locate import CONTROLLER_DIR, SYSTEM_CONFIG, Location, controller_location
from gq.errors import GqError, Refusal, Unreachable
from gq.host.daemons import started_at
from gq.host.service import CONTROLLER, NODE, UNIT_DIR
from gq.model.audit import AuditEntry
from gq.model.node import ClusterInfo, NodeInfo
from gq.wire.client import AuditTrail, Cluster, GetCluster, Identity, ListNodes, Nodes, QueryAudit, WhoAmI

ANSWER_S = 3.0
"""Time limit for the controller's answer."""
LATELY_S = 3600.0
_OF_DOORS = frozenset({"HandshakeRefused", "Impostor", "Join", "RevokedKey", "TokenMisused", "TokenReused"})
"""Actions in the audit trail that record a refused host."""
_FIXED_BY_JOIN = frozenset({"HandshakeRefused", "Join", "RevokedKey", "TokenReused"})
UNIT_DIRS = (UNIT_DIR, "/usr/lib/systemd/system", "/lib/systemd/system")


class Answer(msgspec.Struct, frozen=True):
    """The state of the cluster and of its nodes, as gqd reports it."""

    info: ClusterInfo
    nodes: dict[str, NodeInfo]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs on this host."""

    program: str
    pid: int
    since: float
    node: str = ""
    """Value of its option ``--name``."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about this host; None where a fact is not available."""

    location: Location
    config: Config | None
    config_error: GqError | None
    name: str
    """Name of the host."""
    is_controller: bool
    """Whether gqd runs here, or is meant to."""
    node: NodeSettings | None
    """The [[node]] that this host is, or is meant to be."""
    processes: tuple[Process, ...]
    identity: Identity | None = None
    answer: Answer | None = None
    answer_error: GqError | None = None
    asked_at: float = 0.0
    """When the controller answered, on this host's clock."""
    answer_took_s: float = 0.0
    is_root: bool = True
    trail: tuple[AuditEntry, ...] = ()
    """Recent refusals of hosts and tokens, if the caller may read them."""
    trail_is_known: bool = False

    @property
    def controller(self) -> Location:
        """Location of gqd's state."""
        return controller_location(self.location, self.config.controller.user if self.config is not None else "")

    def process(self, program: str) -> Process | None:
        return next((process for process in self.processes if process.program == program), None)

    @property
    def is_remote_node(self) -> bool:
        """Whether this host is a node of a controller on another host."""
        return self.node is not None and self.node.controller is not None

    @property
    def is_outside(self) -> bool:
        """Whether this host is outside the cluster: its commands use the network and a user's key."""
        return self.config is not None and self.config.client.controller is not None and self.node is None

    @property
    def roles(self) -> str:
        """``controller``, ``node n1``, ``login host``, or several."""
        words = ["controller"] if self.is_controller else []
        if self.node is not None:
            words.append(f"login host {self.node.name}" if self.node.login else f"node {self.node.name}")
        return " and ".join(words) or "part of no cluster"


def find_host(location: Location, asks: Callable[[Host], bool] = lambda host: True) -> Host:
    """Gather all facts once; `asks` decides whether the controller is asked from such a host."""
    config, error = _config(location)
    processes = _processes()
    node = None if config is None else _own_node(location, config, processes)
    host = Host(
        location=location,
        config=config,
        config_error=error,
        name=socket.gethostname(),
        is_controller=_is_controller(location, config, node, processes),
        node=node,
        processes=processes,
        is_root=os.geteuid() == 0,
    )
    return _with_answer(host) if asks(host) else host


def _config(location: Location) -> tuple[Config | None, GqError | None]:
    try:
        return load_config(location), None
    except GqError as error:
        return None, error


# ── what this host is ─────────────────────────────────────────────────────────────────────────────────────────


def _own_node(location: Location, config: Config, processes: tuple[Process, ...]) -> NodeSettings | None:
    """Find this host's [[node]] by running daemons, their files, keys, the host name, or as the only node."""
    known = {node.name: node for node in config.nodes}
    state_dir, short = Path(location.state_dir), socket.gethostname().partition(".")[0]
    candidates = [process.node for process in processes if process.node]
    candidates += [name for name in known if _exists(state_dir / "nodes" / name)]
    if not _is_known_as_controller(location):  # where the keys of all nodes may have been made
        candidates += [name for name in known if _exists(node_key_path(location.keys_dir, name))]
    candidates += [socket.gethostname(), short]
    found = next((known[name] for name in candidates if name in known), None)
    is_joined_alone = len(known) == 1 and not _is_known_as_controller(location)
    return next(iter(known.values())) if found is None and is_joined_alone else found


def _is_controller(
    location: Location, config: Config | None, node: NodeSettings | None, processes: tuple[Process, ...]
) -> bool:
    if any(process.program == CONTROLLER for process in processes) or _is_known_as_controller(location):
        return True
    if config is None or config.client.controller is not None:
        return False
    has_other_hosts = any(node.controller is not None for node in config.nodes)
    return node.controller is None if node is not None else not has_other_hosts


def _is_known_as_controller(location: Location) -> bool:
    """Whether files of gqd are here; every user can see that its directory exists."""
    paths = (Path(location.state_dir, CONTROLLER_DIR), Path(location.state_dir, "gq.db"))
    return any(map(_exists, paths)) or _exists(server_key_path(location.keys_dir))


def _exists(path: Path) -> bool:
    """Whether the path exists; False if it is not accessible."""
    try:
        return path.exists()
    except OSError:
        return False


def _processes() -> tuple[Process, ...]:
    """Return this host's daemons of the system's cluster, which run without ``--dir``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = [os.fsdecode(word) for word in (entry / "cmdline").read_bytes().split(b"\0")]
            program = _program(words)
            if program and "--dir" not in words:
                since = started_at(int(entry.name))
                found.append(Process(program=program, pid=int(entry.name), since=since, node=_value(words, "--name")))
        except OSError:  # ended meanwhile
            continue
    return tuple(sorted(found, key=lambda one: one.pid))


def _program(words: list[str]) -> str:
    """``gqd`` or ``gqnode``, started as a console script or as a module; not its helper processes' children."""
    for index, word in enumerate(words[:5]):
        if Path(word).name in (CONTROLLER, NODE):
            is_command = index == 0 or words[index - 1] == "-m" or Path(words[index - 1]).name.startswith("python")
            return Path(word).name if is_command and "keygen" not in words and "join" not in words else ""
    return ""


def _value(words: list[str], option: str) -> str:
    return next((after for word, after in itertools.pairwise(words) if word == option), "")


# ── what the controller says ──────────────────────────────────────────────────────────────────────────────────


def ask_controller(location: Location) -> Answer | None:
    """Ask gqd of a private cluster for its state; None if it does not answer within five seconds."""
    try:
        with Client(location, timeout_s=5.0) as client:
            info = ask(client, GetCluster(), Cluster).info
            return Answer(info, {node.node: node for node in ask(client, ListNodes(), Nodes).nodes})
    except Unreachable:
        return None


def _with_answer(host: Host) -> Host:
    """Return the host with the controller's answer, or with the error."""
    try:
        with Client(host.location, timeout_s=ANSWER_S) as client:
            began = time.time()
            identity = ask(client, WhoAmI(), Identity)
            took_s = time.time() - began
            host = msgspec.structs.replace(host, identity=identity, asked_at=began + took_s / 2, answer_took_s=took_s)
            info = ask(client, GetCluster(), Cluster).info
            nodes = {node.node: node for node in ask(client, ListNodes(), Nodes).nodes}
            host = msgspec.structs.replace(host, answer=Answer(info, nodes))
            if host.is_controller and identity.role != "user":
                return msgspec.structs.replace(host, trail=_turned_away(client, began), trail_is_known=True)
            return host
    except (Refusal, Unreachable) as error:
        return msgspec.structs.replace(host, answer_error=error)
    except GqError as error:
        return msgspec.structs.replace(host, answer_error=error)


def _turned_away(client: Client, now: float) -> tuple[AuditEntry, ...]:
    """Return the refused hosts, without those that have joined since."""
    refused = ask(client, QueryAudit(outcome="refused", since=now - LATELY_S), AuditTrail).entries
    joined = ask(client, QueryAudit(outcome="done", action="Join", since=now - LATELY_S), AuditTrail).entries
    joined_at = {entry.origin: entry.at for entry in joined}
    return tuple(one for one in refused if one.action in _OF_DOORS and not _is_fixed(one, joined_at))


def _is_fixed(entry: AuditEntry, joined_at: dict[str, float]) -> bool:
    """Whether the host has joined since it was refused."""
    return entry.action in _FIXED_BY_JOIN and entry.at < joined_at.get(entry.origin, 0.0)


# ── commands that mend ────────────────────────────────────────────────────────────────────────────────────────


def unit_of(program: str) -> Path | None:
    """The unit file of a daemon."""
    paths = (Path(directory, f"{program}.service") for directory in UNIT_DIRS)
    return next((path for path in paths if _exists(path)), None)


def start_command(host: Host, program: str) -> str:
    """Return the shell command that starts a daemon."""
    return _daemon_command(host, program, "start")


def join_command(host: Host) -> str:
    """Return the two steps that make this host a node (again); the token must be carried over."""
    is_again = " --force" if host.node is not None else ""
    name = host.node.name if host.node is not None else host.name
    controller = (host.node.controller if host.node is not None else None) or "tcp://CONTROLLER:7133"
    token = f"gqctl token create --node-name={name}"
    return f"on the controller: {token}; here, with that on standard input: gqnode join {controller}{is_again} --start"


def restart_command(host: Host, program: str) -> str:
    """The shell command that restarts `program` on this host."""
    return _daemon_command(host, program, "restart")


def _daemon_command(host: Host, program: str, verb: str) -> str:
    words = [program]
    if host.location.config_path != SYSTEM_CONFIG:
        words += ["--config", host.location.config_path]
    if program == NODE and host.node is not None and host.config is not None and len(host.config.nodes) > 1:
        words += ["--name", host.node.name]
    return shlex.join([*words, verb])
