"""The checks of `gq doctor` on a private cluster: one function per check, each with a verdict and a fix.

Checks change nothing.  Basic checks come first, because their results often explain later results.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from gq.cli.doctor.system import Answer
from gq.cli.framework.output import plural
from gq.config.config import Config
from gq.config.private_cluster import count_gpus
from gq.connection.locate import MAX_SOCKET_PATH, ROOT_UID, Location
from gq.errors import GqError
from gq.host import daemons
from gq.host.service import CONTROLLER
from gq.model.nodelist import compress
from gq.units import format_memory

_LOW_DISK_MIB = 1024
_NO_DISK_MIB = 100
_SKEW_S = 5.0
_LOG_BYTES = 256 * 1024
_SHOWN_ERRORS = 3
_IS_ERROR = re.compile(r'^\S+ (error|critical) |"level": ?"(error|critical)"|^Traceback|^error: ')
"""Plain and JSON lines of the daemons' logs, and what a daemon says that cannot start."""
_INSTANT = re.compile(r'^(?:\{"at": ?")?(\d{4}-\d\d-\d\dT[^\s"]+)')
_FIXED_BY = {
    "gq.toml was not reloaded": "gq.toml was reloaded",
    "does not accept this node's key": " is part of cluster ",
    "breaks off the handshake": " is part of cluster ",
    "does not let this node in": " is part of cluster ",
}
"""Words of a logged error → words of a later line of the same log that says that the error is fixed."""
MIN_PYTHON = (3, 11)


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the checks examine; None where a fact is not available."""

    location: Location
    config: Config | None
    config_error: GqError | None
    answer: Answer | None
    now: float

    @property
    def daemons(self) -> list[daemons.Daemon]:
        nodes = self.config.nodes if self.config is not None else ()
        return daemons.daemons_of(self.location, [node.name for node in nodes])

    @property
    def last_errors(self) -> dict[str, tuple[str, str]]:
        """Message and hint of the error that ended each stopped daemon, by the daemon's name."""
        dead = [daemon for daemon in self.daemons if daemon.pid() is None]
        return {daemon.name: error for daemon in dead if (error := last_error(daemon.log_path)) is not None}


Check = Callable[[CheckContext], Iterator[CheckResult]]


def python_version(context: CheckContext) -> Iterator[CheckResult]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        yield CheckResult("python", Verdict.FAIL, f"Python {version} is too old", "install Python 3.11 or newer")
    else:
        yield CheckResult("python", Verdict.OK, f"Python {version} at {sys.executable}")


def commands_on_path(context: CheckContext) -> Iterator[CheckResult]:
    here = str(Path(sys.executable).parent)
    found = shutil.which("gqrun")
    if found is None:
        fix = f"export PATH={here}:$PATH (job scripts need gqrun, too)"
        yield CheckResult("path", Verdict.WARN, "the commands of gq are not in PATH", fix)
    else:
        yield CheckResult("path", Verdict.OK, f"commands are in {Path(found).parent}")


def directory(context: CheckContext) -> Iterator[CheckResult]:
    """Check owner and mode: the directory is for its owner alone, and root may run this check."""
    path = Path(context.location.state_dir)
    try:
        found = path.stat()
    except OSError as error:
        yield CheckResult("directory", Verdict.FAIL, f"{path}: {error.strerror}", "`gq up` makes it")
        return
    if os.geteuid() not in (found.st_uid, ROOT_UID):
        yield CheckResult(
            "directory", Verdict.FAIL, f"{path} belongs to user {found.st_uid}", "use --dir with one of yours"
        )
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield CheckResult("directory", Verdict.FAIL, f"others may write to {path}", f"chmod 700 {path}")
    elif found.st_mode & 0o077:
        yield CheckResult("directory", Verdict.WARN, f"others may read {path}", f"chmod 700 {path}")
    else:
        whose = "yours" if found.st_uid == os.geteuid() else f"uid {found.st_uid}'s"
        yield CheckResult("directory", Verdict.OK, f"{path} is {whose} alone")


def secrets(context: CheckContext) -> Iterator[CheckResult]:
    """Files that hold scripts, environments and keys."""
    root = Path(context.location.state_dir)
    for path in [root / "gq.db", root / "blobs.db", *root.glob("keys/**/*.key")]:
        if path.exists() and path.stat().st_mode & 0o077:
            yield CheckResult("secrets", Verdict.FAIL, f"others may read {path}", f"chmod 600 {path}")


def disk_space(context: CheckContext) -> Iterator[CheckResult]:
    path = Path(context.location.state_dir)
    if not path.exists():
        return
    free_mib = shutil.disk_usage(path).free // 1024**2
    message = f"{format_memory(free_mib)} free under {path}"
    if free_mib < _NO_DISK_MIB:
        yield CheckResult("disk", Verdict.FAIL, message, "gqd stops when it cannot write: make room")
    elif free_mib < _LOW_DISK_MIB:
        yield CheckResult("disk", Verdict.WARN, message, "make room before the disk is full")
    else:
        yield CheckResult("disk", Verdict.OK, message)


def sockets(context: CheckContext) -> Iterator[CheckResult]:
    location = context.location
    longest = max((len(os.fsencode(f"{location.run_dir}/{name}")) for name in _socket_names(context)), default=0)
    path = Path(location.run_dir)
    if longest > MAX_SOCKET_PATH:
        fix = "use a shorter XDG_RUNTIME_DIR or shorter node names"
        yield CheckResult(
            "sockets", Verdict.FAIL, f"a socket's path has {longest} bytes, {MAX_SOCKET_PATH} can be", fix
        )
    elif path.exists() and (path.stat().st_uid != _owner_uid(location) or path.stat().st_mode & 0o077):
        fix = "`gq down`, remove it, `gq up`"
        yield CheckResult("sockets", Verdict.FAIL, f"{path} is not a directory of the cluster's owner alone", fix)
    else:
        yield CheckResult("sockets", Verdict.OK, f"in {path}")


def _owner_uid(location: Location) -> int:
    """The user who runs the cluster: root may look over the cluster of another."""
    state_dir = Path(location.state_dir)
    return state_dir.stat().st_uid if state_dir.exists() else os.geteuid()


def _socket_names(context: CheckContext) -> list[str]:
    nodes = context.config.nodes if context.config is not None else ()
    return ["nodes.sock", *(f"step-{node.name}.sock" for node in nodes)]


def configuration(context: CheckContext) -> Iterator[CheckResult]:
    if context.config_error is not None:
        error = context.config_error
        yield CheckResult("config", Verdict.FAIL, error.message, error.hint)
    elif context.config is not None:
        yield CheckResult("config", Verdict.OK, f"{context.config.path}: {plural(len(context.config.nodes), 'node')}")


def running(context: CheckContext) -> Iterator[CheckResult]:
    """Every daemon is a living process; one that ended with an error is told by that error."""
    errors = context.last_errors
    for name, (message, hint) in errors.items():
        fix = f"{hint or f'see {name}.log'}; then `gq up`"
        yield CheckResult(name, Verdict.FAIL, f"{message} ({name} does not run)", fix)
    dead = [daemon.name for daemon in context.daemons if daemon.pid() is None and daemon.name not in errors]
    if dead:
        fix = f"`gq up` starts them; the end of {dead[0]}.log says why it ended"
        yield CheckResult("daemons", Verdict.FAIL, f"not running: {', '.join(dead)}", fix)
    elif not errors:
        yield CheckResult("daemons", Verdict.OK, f"all {len(context.daemons)} run")


def answering(context: CheckContext) -> Iterator[CheckResult]:
    if context.answer is None:
        fix = "see gqd.log; `gq down && gq up` begins anew"
        if CONTROLLER in context.last_errors:
            fix = f"see the finding {CONTROLLER}"
        yield CheckResult("controller", Verdict.FAIL, "gqd does not answer", fix)
        return
    info = context.answer.info
    yield CheckResult("controller", Verdict.OK, f"gqd {info.gq_version} answers")


def registered(context: CheckContext) -> Iterator[CheckResult]:
    """Every configured node has registered and is heard."""
    if context.answer is None or context.config is None:
        return
    for settings in context.config.nodes:
        node = context.answer.nodes.get(settings.name)
        name = f"node {settings.name}"
        if node is None or node.state == "UNKNOWN":
            yield CheckResult(name, Verdict.FAIL, "has not registered", f"see gqnode-{settings.name}.log")
        elif node.state in ("DOWN", "DRAINED", "DRAINING"):
            reason = f": {node.reason}" if node.reason else ""
            yield CheckResult(
                name, Verdict.WARN, f"is {node.state.lower()}{reason}", f"gqctl node resume {settings.name}"
            )
        else:
            yield CheckResult(name, Verdict.OK, f"is {node.state.lower()}, enforces {node.isolation.summary()}")


def partitions(context: CheckContext) -> Iterator[CheckResult]:
    """Every node that a partition names has registered once."""
    if context.answer is None or context.config is None:
        return
    for partition in context.config.partitions:
        missing = [name for name in partition.nodes or () if name not in context.answer.nodes]
        if missing:
            told = f"names nodes that have never registered: {compress(missing)}"
            fix = "correct its `nodes` in gq.toml, then gqctl config reload; `gqinfo -N` lists the nodes"
            yield CheckResult(f"partition {partition.name}", Verdict.WARN, told, fix)


def clocks(context: CheckContext) -> Iterator[CheckResult]:
    """Nodes are heard all the time, so the last word of each should be of now."""
    if context.answer is None:
        return
    for node in context.answer.nodes.values():
        if node.last_heard_at is not None and node.last_heard_at - context.now > _SKEW_S:
            ahead = node.last_heard_at - context.now
            yield CheckResult("clock", Verdict.WARN, f"this clock is {ahead:.0f} s behind gqd's", "set it by NTP")
            return
    yield CheckResult("clock", Verdict.OK, time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(context.now)))


def accelerators(context: CheckContext) -> Iterator[CheckResult]:
    """Report the GPUs that NVML shows, and the fake GPUs of gq.toml."""
    found = count_gpus()
    pretended = sum(len(node.fake_gpus) for node in context.config.nodes) if context.config is not None else 0
    if pretended:
        yield CheckResult("gpus", Verdict.OK, f"{pretended} pretended by gq.toml; NVML shows {found}")
    elif found:
        yield CheckResult("gpus", Verdict.OK, f"NVML shows {found}")
    elif Path("/dev/nvidiactl").exists():
        fix = "`nvidia-smi` says more; the driver and its library must be of one version"
        yield CheckResult("gpus", Verdict.FAIL, "there is an NVIDIA device, but NVML shows no GPU", fix)
    else:
        yield CheckResult("gpus", Verdict.WARN, "no GPU on this machine", "`gq up --fake-gpus N` pretends some")


def logs(context: CheckContext) -> Iterator[CheckResult]:
    """Errors that the daemons wrote lately."""
    told = {name: f"error: {message}" for name, (message, _) in context.last_errors.items()}
    errors = [
        (daemon.name, line)
        for daemon in context.daemons
        for line in recent_errors(daemon.log_path, daemon.pid())
        if line != told.get(daemon.name)
    ]
    for name, line in errors[-_SHOWN_ERRORS:]:
        yield CheckResult("logs", Verdict.WARN, f"{name}: {line}", f"see {name}.log")
    if not errors:
        yield CheckResult("logs", Verdict.OK, "no other errors" if told else "no errors")


def recent_errors(path: Path, pid: int | None = None) -> list[str]:
    """The lines of errors in the end of a log; none where there is no log.

    Where the daemon runs (`pid`), what was written before its start is left out: it has been mended since.
    """
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    if pid is not None:
        lines = _lines_since(lines, daemons.started_at(pid))
    return [line for index, line in enumerate(lines) if _IS_ERROR.search(line) and not _is_fixed(lines, index)]


def _is_fixed(lines: list[str], index: int) -> bool:
    over = next((words for error, words in _FIXED_BY.items() if error in lines[index]), None)
    return over is not None and any(over in line for line in lines[index + 1 :])


def last_error(path: Path) -> tuple[str, str] | None:
    """(message, hint) of the error that a daemon ended with, by the last lines of its log; None: it ended otherwise."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    hint = lines.pop().removeprefix("hint: ") if lines and lines[-1].startswith("hint: ") else ""
    return (lines[-1].removeprefix("error: "), hint) if lines and lines[-1].startswith("error: ") else None


def _lines_since(lines: list[str], started_at: float) -> list[str]:
    """From the first line with an instant at or after `started_at` on."""
    for index, line in enumerate(lines):
        found = _INSTANT.match(line)
        if found and datetime.fromisoformat(found[1]).timestamp() >= started_at:
            return lines[index:]
    return []


CHECKS: tuple[Check, ...] = (
    python_version,
    commands_on_path,
    directory,
    secrets,
    disk_space,
    configuration,
    sockets,
    running,
    answering,
    registered,
    partitions,
    clocks,
    accelerators,
    logs,
)
"""In the order in which they are shown."""
