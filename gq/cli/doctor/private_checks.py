"""What `gq doctor` looks at: one function per question, each with a verdict and the way to mend it.

Every check only looks.  They go from the ground up: what the first ones find often explains the later ones.
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

from gq.cli.framework.output import plural
from gq.cli.gq.status import Answer
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
_MENDED_BY = {
    "gq.toml is not read again": "gq.toml was read again",
    "does not accept this node's key": " is part of cluster ",
    "breaks off the handshake": " is part of cluster ",
    "does not let this node in": " is part of cluster ",
}
"""Words of an error → words of a later line of the same log that says that it is over."""
LEAST_PYTHON = (3, 11)


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """The answer to one question."""

    check: str
    verdict: Verdict
    message: str
    mend: str = ""


class Patient(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at, as far as it is there."""

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
        """By name of a daemon that does not run: message and hint of the error that ended it."""
        dead = [daemon for daemon in self.daemons if daemon.pid() is None]
        return {daemon.name: error for daemon in dead if (error := last_error(daemon.log_path)) is not None}


Check = Callable[[Patient], Iterator[Finding]]


def python_version(patient: Patient) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < LEAST_PYTHON:
        yield Finding("python", Verdict.FAIL, f"Python {version} is too old", "install Python 3.11 or newer")
    else:
        yield Finding("python", Verdict.OK, f"Python {version} at {sys.executable}")


def commands_on_path(patient: Patient) -> Iterator[Finding]:
    here = str(Path(sys.executable).parent)
    found = shutil.which("gqrun")
    if found is None:
        mend = f"export PATH={here}:$PATH (job scripts need gqrun, too)"
        yield Finding("path", Verdict.WARN, "the commands of gq are not in PATH", mend)
    else:
        yield Finding("path", Verdict.OK, f"commands are in {Path(found).parent}")


def directory(patient: Patient) -> Iterator[Finding]:
    """Owner and mode: what lies there is for its owner alone, whose cluster root may look over, too."""
    path = Path(patient.location.state_dir)
    try:
        found = path.stat()
    except OSError as error:
        yield Finding("directory", Verdict.FAIL, f"{path}: {error.strerror}", "`gq up` makes it")
        return
    if os.geteuid() not in (found.st_uid, ROOT_UID):
        yield Finding(
            "directory", Verdict.FAIL, f"{path} belongs to user {found.st_uid}", "use --dir with one of yours"
        )
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding("directory", Verdict.FAIL, f"others may write to {path}", f"chmod 700 {path}")
    elif found.st_mode & 0o077:
        yield Finding("directory", Verdict.WARN, f"others may read {path}", f"chmod 700 {path}")
    else:
        whose = "yours" if found.st_uid == os.geteuid() else f"uid {found.st_uid}'s"
        yield Finding("directory", Verdict.OK, f"{path} is {whose} alone")


def secrets(patient: Patient) -> Iterator[Finding]:
    """Files that hold scripts, environments and keys."""
    root = Path(patient.location.state_dir)
    for path in [root / "gq.db", root / "blobs.db", *root.glob("keys/**/*.key")]:
        if path.exists() and path.stat().st_mode & 0o077:
            yield Finding("secrets", Verdict.FAIL, f"others may read {path}", f"chmod 600 {path}")


def disk_space(patient: Patient) -> Iterator[Finding]:
    path = Path(patient.location.state_dir)
    if not path.exists():
        return
    free_mib = shutil.disk_usage(path).free // 1024**2
    message = f"{format_memory(free_mib)} free under {path}"
    if free_mib < _NO_DISK_MIB:
        yield Finding("disk", Verdict.FAIL, message, "gqd stops when it cannot write: make room")
    elif free_mib < _LOW_DISK_MIB:
        yield Finding("disk", Verdict.WARN, message, "make room before the disk is full")
    else:
        yield Finding("disk", Verdict.OK, message)


def sockets(patient: Patient) -> Iterator[Finding]:
    location = patient.location
    longest = max((len(os.fsencode(f"{location.run_dir}/{name}")) for name in _socket_names(patient)), default=0)
    path = Path(location.run_dir)
    if longest > MAX_SOCKET_PATH:
        mend = "use a shorter XDG_RUNTIME_DIR or shorter node names"
        yield Finding("sockets", Verdict.FAIL, f"a socket's path has {longest} bytes, {MAX_SOCKET_PATH} can be", mend)
    elif path.exists() and (path.stat().st_uid != _owner_uid(location) or path.stat().st_mode & 0o077):
        mend = "`gq down`, remove it, `gq up`"
        yield Finding("sockets", Verdict.FAIL, f"{path} is not a directory of the cluster's owner alone", mend)
    else:
        yield Finding("sockets", Verdict.OK, f"in {path}")


def _owner_uid(location: Location) -> int:
    """The user who runs the cluster: root may look over the cluster of another."""
    state_dir = Path(location.state_dir)
    return state_dir.stat().st_uid if state_dir.exists() else os.geteuid()


def _socket_names(patient: Patient) -> list[str]:
    nodes = patient.config.nodes if patient.config is not None else ()
    return ["nodes.sock", *(f"step-{node.name}.sock" for node in nodes)]


def configuration(patient: Patient) -> Iterator[Finding]:
    if patient.config_error is not None:
        error = patient.config_error
        yield Finding("config", Verdict.FAIL, error.message, error.hint)
    elif patient.config is not None:
        yield Finding("config", Verdict.OK, f"{patient.config.path}: {plural(len(patient.config.nodes), 'node')}")


def running(patient: Patient) -> Iterator[Finding]:
    """Every daemon is a living process; one that ended with an error is told by that error."""
    errors = patient.last_errors
    for name, (message, hint) in errors.items():
        mend = f"{hint or f'see {name}.log'}; then `gq up`"
        yield Finding(name, Verdict.FAIL, f"{message} ({name} does not run)", mend)
    dead = [daemon.name for daemon in patient.daemons if daemon.pid() is None and daemon.name not in errors]
    if dead:
        mend = f"`gq up` starts them; the end of {dead[0]}.log says why it ended"
        yield Finding("daemons", Verdict.FAIL, f"not running: {', '.join(dead)}", mend)
    elif not errors:
        yield Finding("daemons", Verdict.OK, f"all {len(patient.daemons)} run")


def answering(patient: Patient) -> Iterator[Finding]:
    if patient.answer is None:
        mend = "see gqd.log; `gq down && gq up` begins anew"
        if CONTROLLER in patient.last_errors:
            mend = f"see the finding {CONTROLLER}"
        yield Finding("controller", Verdict.FAIL, "gqd does not answer", mend)
        return
    info = patient.answer.info
    yield Finding("controller", Verdict.OK, f"gqd {info.gq_version} answers")


def registered(patient: Patient) -> Iterator[Finding]:
    """Every configured node has registered and is heard."""
    if patient.answer is None or patient.config is None:
        return
    for settings in patient.config.nodes:
        node = patient.answer.nodes.get(settings.name)
        name = f"node {settings.name}"
        if node is None or node.state == "UNKNOWN":
            yield Finding(name, Verdict.FAIL, "has not registered", f"see gqnode-{settings.name}.log")
        elif node.state in ("DOWN", "DRAINED", "DRAINING"):
            reason = f": {node.reason}" if node.reason else ""
            yield Finding(name, Verdict.WARN, f"is {node.state.lower()}{reason}", f"gqctl node resume {settings.name}")
        else:
            yield Finding(name, Verdict.OK, f"is {node.state.lower()}, enforces {node.isolation.summary()}")


def partitions(patient: Patient) -> Iterator[Finding]:
    """Every node that a partition names has registered once."""
    if patient.answer is None or patient.config is None:
        return
    for partition in patient.config.partitions:
        missing = [name for name in partition.nodes or () if name not in patient.answer.nodes]
        if missing:
            told = f"names nodes that have never registered: {compress(missing)}"
            mend = "correct its `nodes` in gq.toml, then gqctl config reload; `gqinfo -N` lists the nodes"
            yield Finding(f"partition {partition.name}", Verdict.WARN, told, mend)


def clocks(patient: Patient) -> Iterator[Finding]:
    """Nodes are heard all the time, so the last word of each should be of now."""
    if patient.answer is None:
        return
    for node in patient.answer.nodes.values():
        if node.last_heard_at is not None and node.last_heard_at - patient.now > _SKEW_S:
            ahead = node.last_heard_at - patient.now
            yield Finding("clock", Verdict.WARN, f"this clock is {ahead:.0f} s behind gqd's", "set it by NTP")
            return
    yield Finding("clock", Verdict.OK, time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(patient.now)))


def accelerators(patient: Patient) -> Iterator[Finding]:
    """What NVML shows against what the nodes offer."""
    found = count_gpus()
    pretended = sum(len(node.fake_gpus) for node in patient.config.nodes) if patient.config is not None else 0
    if pretended:
        yield Finding("gpus", Verdict.OK, f"{pretended} pretended by gq.toml; NVML shows {found}")
    elif found:
        yield Finding("gpus", Verdict.OK, f"NVML shows {found}")
    elif Path("/dev/nvidiactl").exists():
        mend = "`nvidia-smi` says more; the driver and its library must be of one version"
        yield Finding("gpus", Verdict.FAIL, "there is an NVIDIA device, but NVML shows no GPU", mend)
    else:
        yield Finding("gpus", Verdict.WARN, "no GPU on this machine", "`gq up --fake-gpus N` pretends some")


def logs(patient: Patient) -> Iterator[Finding]:
    """Errors that the daemons wrote lately."""
    told = {name: f"error: {message}" for name, (message, _) in patient.last_errors.items()}
    errors = [
        (daemon.name, line)
        for daemon in patient.daemons
        for line in recent_errors(daemon.log_path, daemon.pid())
        if line != told.get(daemon.name)
    ]
    for name, line in errors[-_SHOWN_ERRORS:]:
        yield Finding("logs", Verdict.WARN, f"{name}: {line}", f"see {name}.log")
    if not errors:
        yield Finding("logs", Verdict.OK, "no other errors" if told else "no errors")


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
    return [line for index, line in enumerate(lines) if _IS_ERROR.search(line) and not _is_mended(lines, index)]


def _is_mended(lines: list[str], index: int) -> bool:
    over = next((words for error, words in _MENDED_BY.items() if error in lines[index]), None)
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
