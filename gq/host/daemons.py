"""The daemons of a private cluster as processes: finding, starting in the background, and stopping them.

The module owns the pid files.  A pid file counts only if the command line of its process is this very daemon's, since
process ids are reused.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from gq.connection.locate import Location
from gq.errors import Refusal
from gq.host.interpreter import isolated_python

END_JOBS_SIGNAL = signal.SIGUSR2
"""Signal to a gqnode: end this node's jobs, with their grace time, then exit; no controller is needed."""
_POLL_S = 0.02
_JOB_ID = b"GQ_JOB_ID="
_VERBS = frozenset({"init", "join", "keygen", "leave", "restart", "start", "stop"})
"""Verbs of gqd and gqnode: a process with a verb is a command and no daemon."""
_CLOCK_STEP_S = 0.05
"""Maximum error, in seconds, of a start time computed from two files of /proc."""
_MAX_WORDS_BEFORE = 5
"""Words of a command line before the name of the program: an interpreter and its options."""
_LOG_TAIL_LINES = 15


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon of the cluster in `directory`."""

    name: str
    """``gqd``, or ``gqnode-n1``: the stem of its files."""
    module: str
    arguments: tuple[str, ...]
    directory: str
    log_directory: str = ""
    """Empty: `directory`."""

    @property
    def pid_path(self) -> Path:
        return Path(self.directory, f"{self.name}.pid")

    @property
    def log_path(self) -> Path:
        return Path(self.log_directory or self.directory, f"{self.name}.log")

    def pid(self) -> int | None:
        """Return the daemon's process id if it is alive, or None."""
        try:
            pid = int(self.pid_path.read_text())
        except (OSError, ValueError):
            return None
        return pid if self._is_process(pid) else None

    def _is_process(self, pid: int) -> bool:
        words = _command_line(pid)
        is_program = any(Path(word).name == self.module for word in words[:_MAX_WORDS_BEFORE])
        is_daemon = is_program and not _has_verb(words)
        return is_daemon and all(argument in words for argument in self.arguments) and not is_zombie(pid)

    def pids(self) -> list[int]:
        """Return every process of this host that is this daemon, with or without pid file; containers are excluded."""
        return [pid for pid in _all_pids() if self._is_process(pid) and _is_on_same_host(pid)]


def daemons_of(location: Location, nodes: Iterable[str]) -> list[Daemon]:
    """Return the controller's daemon, then the nodes'."""
    directory = location.state_dir
    where = ("--dir", directory)
    return [
        Daemon(name="gqd", module="gqd", arguments=where, directory=directory),
        *(
            Daemon(name=f"gqnode-{node}", module="gqnode", arguments=("--name", node, *where), directory=directory)
            for node in nodes
        ),
    ]


def nodes_started(location: Location) -> list[str]:
    """Return the nodes with a pid file, or a lock beside the sockets, whether or not the settings have them."""
    paths = [*Path(location.state_dir).glob("gqnode-*.pid"), *Path(location.run_dir).glob("gqnode-*.lock")]
    return sorted({path.stem.removeprefix("gqnode-") for path in paths})


def _command_line(pid: int) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0")]


def _all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - none needs a Path


def _has_verb(words: list[str]) -> bool:
    """Whether a command line is a command, such as `gqd restart`, and no daemon."""
    return any(word in _VERBS and not before.startswith("--") for before, word in itertools.pairwise(words))


def _is_on_same_host(pid: int) -> bool:
    """Whether the process has the mounts of this process, unlike a process in a container."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - no path
    except OSError:  # the process ended, or is not readable
        return False


def is_zombie(pid: int) -> bool:
    """Whether the process has ended and its parent has not collected it, or is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True
    return after_name.split()[0] in "ZX"


def started_at(pid: int) -> float:
    """Return when a process started, to about 10 ms; 0: it is gone."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    return time.time() - uptime_s + ticks / os.sysconf("SC_CLK_TCK") - _CLOCK_STEP_S


@contextlib.contextmanager
def only_one(location: Location) -> Iterator[None]:
    """Block a second `gq up` or `gq down` of the same cluster until this one is done."""
    fd = os.open(location.state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def start(daemon: Daemon, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the daemon in a session of its own, detached from this terminal.

    In a log directory, where logrotate(8) manages the files, the log is appended to; elsewhere the log of the previous
    start is renamed to `.log.1`.
    """
    if not daemon.log_directory and daemon.log_path.exists():
        daemon.log_path.replace(daemon.log_path.with_suffix(".log.1"))
    command = [*isolated_python(environ), "-m", daemon.module, *daemon.arguments]
    with daemon.log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=daemon.directory,
            env=dict(environ),
            start_new_session=True,
        )
    fresh = daemon.pid_path.with_suffix(".new")
    fresh.write_text(f"{process.pid}\n")
    fresh.replace(daemon.pid_path)
    return process


def environment(location: Location, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of daemons: the caller's, without the variables of a job or of another cluster."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GQ_")}
    return {**kept, **location.environment()}


def check_alive(started: Mapping[str, subprocess.Popen[bytes]], daemons: Iterable[Daemon]) -> None:
    """Raise `Refusal`, with the end of its log, if a daemon that was just started has ended."""
    for daemon in daemons:
        process = started.get(daemon.name)
        if process is not None and process.poll() is not None:
            daemon.pid_path.unlink(missing_ok=True)
            raise Refusal(
                "daemon_failed",
                f"{daemon.name} did not start (exit status {process.returncode}); {daemon.log_path} ends with:\n"
                + log_tail(daemon),
                "fix the error and run `gq up` again; `gq doctor` checks the rest",
            )


def log_size(daemon: Daemon) -> int:
    """Return the size of the daemon's log in bytes; 0: no log."""
    try:
        return daemon.log_path.stat().st_size
    except OSError:
        return 0


def log_tail(daemon: Daemon, lines: int = _LOG_TAIL_LINES, begin: int = 0) -> str:
    """Return the last lines of the daemon's log, indented, and nothing before byte `begin`."""
    try:
        with daemon.log_path.open("rb") as log:
            log.seek(max(begin, daemon.log_path.stat().st_size - 65536))
            text = log.read().decode("utf-8", "replace")
    except OSError as error:
        return f"    (cannot be read: {error.strerror})"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (empty)"


def stop(daemons: Iterable[Daemon], patience_s: float = 10.0) -> list[str]:
    """Send TERM to every process of these daemons, then KILL; return the names of the daemons that had to be killed."""
    alive = {pid: daemon.name for daemon in daemons for pid in daemon.pids()}
    stubborn: list[str] = []
    for signum, until in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        if signum == signal.SIGKILL:
            stubborn = list(alive.values())
        alive = end(alive, signum, until)
    for daemon in daemons:
        daemon.pid_path.unlink(missing_ok=True)
    return stubborn


def end(alive: Mapping[int, str], signum: signal.Signals, within_s: float) -> dict[int, str]:
    """Signal these processes and wait until they have ended; return the processes that are left after `within_s`."""
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
    left = dict(alive)
    deadline = time.monotonic() + within_s
    while left and time.monotonic() < deadline:
        left = {pid: name for pid, name in left.items() if not is_zombie(pid)}
        time.sleep(_POLL_S if left else 0)
    return left


def job_processes(location: Location) -> dict[int, str]:
    """Return the processes of this cluster's jobs → job id, from their environment; jobs outlive daemons."""
    marks = {os.fsencode(f"{name}={value}") for name, value in location.environment().items()}
    found = {}
    for pid in _all_pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        job_id = next(
            (os.fsdecode(variable[len(_JOB_ID) :]) for variable in variables if variable.startswith(_JOB_ID)), ""
        )
        if job_id and marks.issubset(variables):
            found[pid] = job_id
    return found
