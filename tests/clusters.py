"""Real private clusters for tests: started with `gq up`, driven by the commands a user types, and always ended.

Every cluster of one test process lies under one directory whose name is this process's mark, so that what a test
leaves behind can be found: a process with the mark in its environment, a socket bound below that directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gq.connection.client import Client, expect
from gq.connection.locate import Location, find_cluster
from gq.wire import client as wire
from tests import commands

BIN = Path(sys.executable).parent
"""Where the console scripts of this environment are."""
MARK_VARIABLE = "GQT_MARK"
UP_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
_OF_A_JOB = ("GQ_", "GQSUB_", "GQRUN_", "GQALLOC_", "SLURM_", "SBATCH_", "SRUN_")


def new_mark() -> str:
    return f"gqt-{secrets.token_hex(4)}"


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
    """Return as soon as `condition` holds; AssertionError after `timeout_s`.

    Between two looks it pauses as long as a look takes, 20 ms at least: commands that are run back to back would take
    the CPU from the daemons that they wait for.
    """
    began = time.monotonic()
    deadline = began + timeout_s
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_s:g} s: {what or condition}"
        time.sleep(min(max(0.02, now - began), 1.0))
        began = time.monotonic()


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` as outside of any job and any cluster, with this environment's commands first in PATH."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OF_A_JOB)}
    kept["PATH"] = f"{BIN}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return kept


# ── what a test can leave behind ──────────────────────────────────────────────────────────────────────────────


def processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - ten times faster


def marked(mark: str, pids: Iterable[int]) -> list[int]:
    """Those of `pids` that live and have `mark` in their environment (in a variable, or in a path)."""
    needle = mark.encode()
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return sorted(found)


def rests(pid: int, before: Collection[int]) -> bool:
    """It is a node's that was there before: its fork server's child, which holds nothing and waits for what comes next.

    What it held has the mark in its environment as well.  With its node it ends.
    """
    with contextlib.suppress(OSError):
        name, parent = Path(f"/proc/{pid}/cmdline").read_bytes(), parent_of(pid)
        is_forked = parent in before and Path(f"/proc/{parent}/cmdline").read_bytes() == name
        return is_forked and b"forkserver" in name and not Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}"
    return f"{pid}: gone"


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def bound_sockets(below: Path) -> list[str]:
    """Unix sockets of this machine that are bound below a directory."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sorted({path for line in lines if (path := line.rpartition(" ")[2]).startswith(f"{below}/")})


# ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RunAs:
    """Who runs a cluster, and where: `prefix` is put before every command and leads there."""

    uid: int
    prefix: tuple[str, ...] = ()
    host_pid: int = 0
    """A process in the namespaces that the prefix enters, where the command server can enter them instead."""
    user: str = ""
    """The user that the prefix changes to after that; empty: none."""

    def command(self, argv: tuple[str, ...], directory: Path) -> tuple[str, ...]:
        """`argv` as run in `directory`."""
        return (*self.prefix, "env", "-C", str(directory), *argv) if self.prefix else argv

    def own(self, directory: Path) -> Path:
        """A directory of this user, made if there is none."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(directory, self.uid, -1)
        return directory


@dataclass
class PrivateCluster:
    """One cluster directory and the commands that find it."""

    directory: Path
    environ: dict[str, str]
    up_options: tuple[str, ...]
    run_as: RunAs = RunAs(os.geteuid())
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(
        self,
        *argv: str,
        stdin: str | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
        closed: Sequence[int] = (),
        **environ: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; `environ` adds variables.  `closed`: standard streams that it does not have."""
        is_forked = argv[0] in commands.NAMES and (not self.run_as.prefix or self.run_as.host_pid)
        if is_forked and len(stdin or "") < commands.MAX_STDIN_BYTES // 4:
            server, host_pid, user = commands.server(MARK_VARIABLE), self.run_as.host_pid, self.run_as.user
            return server.run(
                argv, self.workdir, self.environ | environ, stdin, timeout_s, closed, host_pid=host_pid, user=user
            )
        if closed:
            argv = ("/bin/sh", "-c", f'exec "$@" {" ".join(f"{number}>&-" for number in closed)}', "sh", *argv)
        return subprocess.run(
            self.run_as.command(argv, self.workdir),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=self.workdir,
            env=self.environ | environ,
        )

    def ok(self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **environ: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*argv, stdin=stdin, timeout_s=timeout_s, **environ)
        assert done.returncode == 0, f"{argv} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own; it is killed with the cluster if it still runs then."""
        process = subprocess.Popen(
            self.run_as.command(argv, self.workdir),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.workdir,
            env=self.environ | environ,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    @property
    def location(self) -> Location:
        """Where a client in this process finds the controller."""
        return find_cluster(self.environ)

    @property
    def workdir(self) -> Path:
        """Where commands run, and so where jobs write their output."""
        return self.directory.parent / f"{self.directory.name}.work"

    def up(self) -> None:
        """Start what is not running; the first time, make the cluster."""
        self.run_as.own(self.workdir)
        self.ok("gq", "up", *self.up_options, timeout_s=UP_TIMEOUT_S)

    def pid(self, daemon: str) -> int:
        """Process id of ``gqd`` or ``gqnode-n1`` …"""
        return int((self.directory / f"{daemon}.pid").read_text())

    def kill(self, daemon: str) -> None:
        """As a crash: SIGKILL, and wait until it is gone."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not marked(self.directory.name, [pid]), what=f"{daemon} (pid {pid}) is gone")

    @contextlib.contextmanager
    def lent(self) -> Iterator[PrivateCluster]:
        """For one test of several: afterwards no job is left, and the working directory is empty.

        The test may kill no daemon and change no setting of the cluster.
        """
        yield self
        self._end_started()
        with Client(self.location) as client:
            client.ask(wire.CancelJobs(filter=wire.JobFilter()))
            wait_until(lambda: _is_idle(client), UP_TIMEOUT_S, "no job is left")
        for path in self.workdir.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def logs(self, lines: int = 40) -> str:
        """The end of every daemon's log."""
        parts = []
        for path in sorted(self.directory.glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"── {path.name} ──", *tail]))
        return "\n".join(parts)

    def _end_started(self) -> None:
        while self.started:
            process = self.started.pop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def end(self) -> None:
        """Stop everything and remove it; AssertionError if `gq down` did not do it by itself."""
        self._end_started()
        run_dir = (self.directory / "run").resolve()
        try:
            down = self.run("gq", "down", "--yes")
            _wait_for_none(lambda: marked(str(self.directory), processes()))
            left = [describe(pid) for pid in marked(str(self.directory), processes())]
            sockets = bound_sockets(run_dir)
        finally:
            kill_all(marked(str(self.directory), processes()))
            shutil.rmtree(self.directory, ignore_errors=True)
            shutil.rmtree(self.workdir, ignore_errors=True)
            shutil.rmtree(run_dir, ignore_errors=True)
        assert down.returncode == 0, f"gq down ended {down.returncode}\n{down.stdout}\n{down.stderr}"
        assert not left, f"gq down left processes: {left}"
        assert not sockets, f"gq down left sockets: {sockets}"


def _wait_for_none(find: Callable[[], list[int]], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while find() and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_idle(client: Client) -> bool:
    """Every node has all that it had."""
    return all(node.state == "IDLE" for node in expect(client.ask(wire.ListNodes()), wire.Nodes).nodes)


@dataclass
class ClusterYard:
    """Makes clusters below one directory and ends all that it made."""

    base: Path
    mark: str
    run_as: RunAs = RunAs(os.geteuid())
    clusters: list[PrivateCluster] = field(default_factory=list)

    def make(
        self, *, nodes: int = 1, fake_gpus: int = 0, cpus: int | None = None, mem: str = "", config: str = ""
    ) -> PrivateCluster:
        """A running cluster; all figures are per node, as for `gq up`.  With `config` that is its gq.toml instead."""
        options = [] if config else ["--nodes", str(nodes)]
        options += ["--fake-gpus", str(fake_gpus)] if fake_gpus else []
        options += ["--cpus-per-node", str(cpus)] if cpus is not None else []
        options += ["--mem-per-node", mem] if mem else []
        directory = self.base / f"c{secrets.token_hex(2)}"
        environ = clean_environment(os.environ) | {
            "GQ_DIR": str(directory),
            "XDG_RUNTIME_DIR": str(self.runtime),
            MARK_VARIABLE: self.mark,
        }
        cluster = PrivateCluster(directory, environ, tuple(options), self.run_as)
        self.clusters.append(cluster)
        if config:
            self.run_as.own(directory).joinpath("gq.toml").write_text(config)
        cluster.up()
        return cluster

    @property
    def runtime(self) -> Path:
        return self.run_as.own(self.base / "run")

    def end(self) -> None:
        failures = []
        while self.clusters:
            try:
                self.clusters.pop().end()
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                failures.append(str(failure))
        assert not failures, "\n".join(failures)


@contextlib.contextmanager
def cluster_yard(base: Path, mark: str, run_as: RunAs | None = None) -> Iterator[ClusterYard]:
    yard = ClusterYard(run_as.own(base) if run_as else base, mark, run_as or RunAs(os.geteuid()))
    try:
        yield yard
    finally:
        yard.end()
