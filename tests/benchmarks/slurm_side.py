"""Slurm as it is measured, where it is installed: its daemons by hand, on loopback, below one directory.

Four `slurmd -N` with 64 CPUs and 8 GPUs each that are only said to be there, all settings that matter for speed as
Slurm ships them.  A munged of our own, with a key of our own, so that nothing of the machine's own Slurm is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.gq_side import CPUS, GPUS, NODES
from tests.benchmarks.side import Words, resident_mib, submit
from tests.clusters import clean_environment, wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "salloc", "squeue", "sinfo", "scancel")
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_COMMAND_S = 120
_READY_S = 60
_ENDED_S = 900
_POLL_S = 0.05
_SUBMITTERS = 4
_LOG_LINES = 5
_TERM_S = 10

_CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
MpiDefault=none
ReturnToService=2
MaxJobCount=200000
MaxArraySize=20001
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class NoSlurm(Exception):
    """Why there is none to measure."""


class _Daemon(NamedTuple):
    program: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """AssertionError with the end of its log if it is gone."""
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
            raise AssertionError(f"{self.program} ended {self.process.returncode}\n{tail}")


class SlurmSide:
    def __init__(self, directory: Path, programs: dict[str, str]) -> None:
        self._directory = directory
        self._programs = programs
        self.words = Words("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel")
        self.environ = clean_environment(os.environ) | {"SLURM_CONF": str(directory / "slurm.conf")}
        self.workdir = directory / "work"
        self._daemons: list[_Daemon] = []
        self._controller: _Daemon | None = None

    # ── what is measured ──────────────────────────────────────────────────────────────────────────────────────

    def ok(self, *argv: str) -> str:
        done = subprocess.run(
            argv,
            env=self.environ,
            cwd=self.workdir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == 0, f"{argv} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit_many(self, command: str, count: int) -> list[int]:
        """Through processes, a few at a time: there is no other client."""
        with ThreadPoolExecutor(_SUBMITTERS) as pool:
            return list(pool.map(lambda _: submit(self, "-o", "/dev/null", "--wrap", command), range(count)))

    def await_start(self, job_ids: Sequence[int]) -> None:
        wanted = set(job_ids)
        wait_until(lambda: wanted <= self.running(), _ENDED_S, "Slurm starts the jobs")

    def await_end(self, job_ids: Sequence[int]) -> None:
        wanted = set(job_ids)
        while wanted & self._listed("all"):
            time.sleep(_POLL_S)

    def running(self) -> set[int]:
        return self._listed("RUNNING")

    def _listed(self, states: str) -> set[int]:
        """What squeue shows in these states; ended jobs stay in its list for a while, but not in these."""
        wanted = states if states != "all" else "PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED"
        return {int(word) for word in self.ok("squeue", "-h", "-t", wanted, "-o", "%A").split()}

    def kill_controller(self) -> None:
        assert self._controller is not None
        self._controller.process.kill()

    def start_again(self) -> None:
        assert self._controller is not None
        self._controller.process.wait()
        self._start_controller()

    def controller_memory_mib(self) -> float:
        assert self._controller is not None
        return resident_mib(self._controller.process.pid)

    # ── its daemons ───────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._lay_out()
        files = {name: f"{self._directory}/munge.{name}" for name in ("key", "pid", "log", "seed", "sock")}
        munged = self._spawn(
            "munged", "--foreground", "--force", f"--key-file={files['key']}", f"--pid-file={files['pid']}",
            f"--log-file={files['log']}", f"--seed-file={files['seed']}", f"--socket={files['sock']}",
        )  # fmt: skip
        self._daemons.append(munged)
        _await(munged, Path(files["sock"]).exists, "munged opens its socket")
        self._start_controller()
        for place in range(NODES):
            self._daemons.append(self._spawn("slurmd", "-D", "-N", f"n{place + 1}"))
        _await(self._daemons[-1], self._are_nodes_idle, "all nodes of Slurm are idle")

    def _start_controller(self) -> None:
        self._controller = self._spawn("slurmctld", "-D")
        _await(self._controller, self._is_answering, "slurmctld answers")

    def _is_answering(self) -> bool:
        asked = subprocess.run(["squeue", "-h"], env=self.environ, capture_output=True, timeout=_COMMAND_S)
        return asked.returncode == 0

    def _are_nodes_idle(self) -> bool:
        return self.ok("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * NODES

    def _spawn(self, program: str, *arguments: str) -> _Daemon:
        path = self._directory / f"{program}.out"
        with path.open("ab") as log:
            process = subprocess.Popen(
                [self._programs[program], *arguments],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return _Daemon(program, process, path)

    def _lay_out(self) -> None:
        """Its directories, a munge key, GPUs that are there only by name, and the settings."""
        self.workdir.mkdir(parents=True)
        for name in ("state", *(f"spool-n{place + 1}" for place in range(NODES))):
            (self._directory / name).mkdir()
        key = self._directory / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        gpus = [self._directory / f"gpu{index}" for index in range(GPUS)]
        for gpu in gpus:
            os.mknod(gpu, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        host = socket.gethostname().partition(".")[0]
        controller_port, *node_ports = _free_ports(NODES + 1)
        nodes = [
            f"NodeName=n{place + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} Gres=gpu:{GPUS}"
            for place, port in enumerate(node_ports)
        ]
        (self._directory / "slurm.conf").write_text(
            _CONF.format(
                host=host, controller_port=controller_port, user="root", directory=self._directory,
                nodes="\n".join(nodes),
            )
        )  # fmt: skip
        lines = [f"NodeName=n{place + 1} Name=gpu File={gpu}" for place in range(NODES) for gpu in gpus]
        (self._directory / "gres.conf").write_text("\n".join(lines) + "\n")

    def end(self) -> None:
        """Jobs first, then the daemons, newest first."""
        if self._controller is not None and self._controller.process.poll() is None:
            subprocess.run(["scancel", "--user=root"], env=self.environ, capture_output=True, timeout=_COMMAND_S)
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                wait_until(lambda: not self._listed("all"), _READY_S, "Slurm's jobs are over")
        for daemon in reversed([*self._daemons, *([self._controller] if self._controller else [])]):
            _end(daemon.process)


def _await(daemon: _Daemon, condition: Callable[[], bool], what: str) -> None:
    """Until it holds; no longer than the daemon lives."""

    def holds() -> bool:
        daemon.check()
        return condition()

    wait_until(holds, _READY_S, what)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_TERM_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Free at this moment, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running_slurm(base: Path) -> Iterator[SlurmSide]:
    """Started and ended; `NoSlurm` where it is not installed, or does not start."""
    path = f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}"
    programs = {name: found for name in _PROGRAMS if (found := shutil.which(name, path=path))}
    missing = [name for name in _PROGRAMS if name not in programs]
    if missing:
        raise NoSlurm(f"{', '.join(missing)} not found")
    if os.geteuid() != 0:
        raise NoSlurm("slurmd has to be started by root")
    side = SlurmSide(base / "slurm", programs)
    try:
        try:
            side.start()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            raise NoSlurm(f"it does not start: {error}") from error
        yield side
    finally:
        side.end()
