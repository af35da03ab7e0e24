"""Commands of gq for tests, without the start of a Python for each: a server that has loaded them forks.

A command is a process of its own, with the arguments, directory, environment and standard streams that it is given, and
runs what its console script runs.  Only the start of the interpreter and the imports, nine tenths of what a command
costs, are done once.  The server has no mark of a test (`tests.clusters`) and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from gq.cli import _run

BIN = Path(sys.executable).parent
"""Where the console scripts of this environment are."""
ROOT = Path(__file__).resolve().parents[1]
NAMES = frozenset({"gq", *(f"gq{verb}" for verb in _run.JOB_VERBS)}) - set(_run.ELSEWHERE)
"""What the server can run."""
MAX_REQUEST_BYTES = 1 << 17
MAX_STDIN_BYTES = 1 << 16
"""What a pipe holds."""
MAX_FDS = 256


class _Request(NamedTuple):
    argv: list[str]
    directory: str
    environ: dict[str, str]
    closed: list[int]
    """Standard streams that it does not have."""


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
        directory: Path,
        environ: Mapping[str, str],
        stdin: str | None,
        timeout_s: float,
        closed: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run`; standard input comes from a pipe, and so must be short, and output goes to files."""
        request = _Request(list(argv), str(directory), dict(environ), list(closed))
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
                pid = os.fork()
                if pid == 0:
                    _become(_Request(*json.loads(data)), fds[1:])
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
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environ)
    time.tzset()
    random.seed()
    name = request.argv[0]
    sys.argv = [str(BIN / name), *request.argv[1:]]
    try:
        getattr(_run, name)()
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # a console script leaves by itself


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
