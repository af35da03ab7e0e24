"""Commands of gq for tests, without the start of a Python for each: a server that has loaded them forks.

A command is a process of its own, with the arguments, directory, environment and standard streams that it is given, and
runs what its console script runs.  Only the start of the interpreter and the imports, nine tenths of what a command
costs, are done once.  The server has no mark of a test (`tests.clusters`) and ends with the process that started it.

A command may run on a host of `tests.system.hosts`: its process enters the namespaces of that host, as nsenter(1)
does, and becomes a user of the host, as setpriv(1) does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import pwd
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, cast

from gq.cli import _run

BIN = Path(sys.executable).parent
"""Where the console scripts of this environment are."""
ROOT = Path(__file__).resolve().parents[1]
NAMES = frozenset({"gq", *(f"gq{verb}" for verb in _run.JOB_VERBS)})
"""What the server can run."""
MAX_REQUEST_BYTES = 1 << 17
MAX_STDIN_BYTES = 1 << 16
"""What a pipe holds."""
MAX_FDS = 256
DAEMONS = frozenset({"gqd", "gqnode"})
"""Programs whose subcommands the server can run, too: it loads them when the first is asked for."""
_NAMESPACES = 0x0002_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000
"""CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID and CLONE_NEWNET of setns(2)."""
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


class _Request(NamedTuple):
    argv: list[str]
    directory: str
    environ: dict[str, str]
    closed: list[int]
    """Standard streams that it does not have."""
    host_pid: int
    """A process in the namespaces that the command enters; 0: none."""
    user: str
    """The user that the command becomes, by the accounts of the host; empty: it keeps the user of the server."""


# ── the side of the test ──────────────────────────────────────────────────────────────────────────────────────


class CommandServer:
    """One process that forks commands; requests may come from several threads."""

    def __init__(self, mark_variable: str) -> None:
        self._line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {name: value for name, value in os.environ.items() if name != mark_variable}
        with far:
            command = [sys.executable, "-m", "tests.commands", str(far.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], cwd=ROOT, env=environ)

    def run(
        self,
        argv: Sequence[str],
        directory: Path | str,
        environ: Mapping[str, str],
        stdin: str | None,
        timeout_s: float,
        closed: Sequence[int] = (),
        host_pid: int = 0,
        user: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run`; standard input comes from a pipe, and so must be short, and output goes to files."""
        request = _Request(list(argv), str(directory), dict(environ), list(closed), host_pid, user)
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with near, far, _piped(stdin) as given, _memory("stdout") as out, _memory("stderr") as err:
            streams = [one.fileno() for one in (far, given, out, err)]
            socket.send_fds(self._line, [json.dumps(request).encode()], streams)
            far.close()
            pid = int(near.recv(64))
            near.settimeout(timeout_s)
            try:
                status = int(near.recv(64))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(argv), timeout_s) from None
            return subprocess.CompletedProcess(list(argv), status, _text(out), _text(err))


@cache
def server(mark_variable: str) -> CommandServer:
    """That of this process."""
    return CommandServer(mark_variable)


def _piped(text: str | None) -> BinaryIO:
    """The reading end of a pipe that has this text in it, and no writer; without a text /dev/null."""
    if text is None:
        return Path(os.devnull).open("rb")
    written = text.encode()
    assert len(written) <= MAX_STDIN_BYTES, "a pipe holds no more, and nobody would read it yet"
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(written)
    return os.fdopen(reader, "rb")


def _memory(name: str) -> BinaryIO:
    return os.fdopen(os.memfd_create(name), "w+b")


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────


def serve(line: socket.socket) -> None:
    """Fork a command for each request, until the other side has gone.  Returns in no command."""
    _load_all()
    children: dict[int, socket.socket] = {}
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == woken:
                    os.read(woken, 4096)
                    _reap(children)
                    continue
                data, fds, _, _ = socket.recv_fds(line, MAX_REQUEST_BYTES, 4)
                if not data:
                    return
                request = _Request(*json.loads(data))
                _load_late(request.argv[0])
                pid = os.fork()
                if pid == 0:
                    _become(request, fds[1:])
                children[pid] = socket.socket(fileno=fds[0])
                children[pid].send(str(pid).encode())
                for fd in fds[1:]:
                    os.close(fd)


def _reap(children: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with children.pop(ended[0]) as asker, contextlib.suppress(OSError):
                asker.send(str(os.waitstatus_to_exitcode(ended[1])).encode())


def _load_all() -> None:
    for name in ("gq", *_run.JOB_VERBS):
        if f"gq{name}" not in _run.ELSEWHERE:
            _run.load(_run.module_of(name) or name)
    for name in _run.CLUSTER_VERBS:
        _run.load(_run.module_of(name))
    gc.collect()
    gc.freeze()


def _load_late(name: str) -> None:
    """What only some runs of tests need, before the first process that needs it is forked."""
    if name in _run.ELSEWHERE:
        _run.load(name)
    elif name in DAEMONS:
        _main_of(name)


def _main_of(name: str) -> Callable[[], object]:
    """The function that the console script `name` calls."""
    if name in DAEMONS:
        return cast(Callable[[], object], import_module(f"{name}.__main__").main)
    return cast(Callable[[], object], getattr(_run, name))


def _become(request: _Request, streams: list[int]) -> NoReturn:
    """What the console script does, in this process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for number in request.closed:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as the interpreter has it then
    os.closerange(3, MAX_FDS)
    if request.host_pid:
        _enter(request.host_pid)
    os.chdir(request.directory)
    if request.user:
        _change_user(request.user)
    if request.host_pid:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of the user, which takes it back
    os.environ.clear()
    os.environ.update(request.environ)
    time.tzset()
    random.seed()
    name = request.argv[0]
    sys.argv = [str(BIN / name), *request.argv[1:]]
    try:
        _main_of(name)()
    except SystemExit as end:  # only a daemon's program: the others leave by themselves
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _enter(pid: int) -> None:
    """Continue in a child that is in the namespaces of process `pid`; this process ends as the child does."""
    process = os.pidfd_open(pid)
    if ctypes.CDLL(None, use_errno=True).setns(process, _NAMESPACES):
        raise OSError(ctypes.get_errno(), f"process {pid}: its namespaces cannot be entered")
    os.close(process)
    child = os.fork()  # a process stays in the PID namespace that it was born in
    if child == 0:
        return
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _change_user(name: str) -> None:
    """Become a user whom /etc/passwd has; the process may be looked at by that user, as after an exec."""
    account = pwd.getpwnam(name)
    os.initgroups(name, account.pw_gid)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    _prctl(_PR_SET_DUMPABLE, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
