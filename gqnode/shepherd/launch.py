"""Forks and execs one process of a job: session, cell, limits, user, streams, directory, program.

The parent never waits: it gets a pid and a pipe that either ends when the program runs or carries a `LaunchFailure`.
Anything that can hang (a file system that is away, a FIFO as output file) hangs only the child, which can be killed.

A child pays for each page of the interpreter that it touches: its own copy, some 4 µs, which is most of the cost of a
start.  So the parent prepares everything it can before the fork (`Ready`), and the child uses no enumerations, no file
objects, and no exceptions on the normal path.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import termios
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gqnode.shepherd.confine import confine, drop_capabilities, forbid_new_privileges, is_protected
from gqnode.shepherd.durable import read_small
from gqnode.shepherd.keyring import link_user_keyring
from gqnode.shepherd.launch_failure import EXIT_NOT_EXECUTABLE, CannotLaunch, LaunchFailure, doing, printable
from gqnode.shepherd.processes import MARKER
from gqnode.shepherd.seccomp import install as install_seccomp_filter

if TYPE_CHECKING:
    from gqnode.shepherd.specs import Confinement, Identity

MAX_FAILURE_BYTES = 32 * 1024  # of one write, and a pipe takes as much at once
MAX_WHY = 4096  # characters, of which each is 6 bytes of JSON at most; a name in it may be as long as somebody likes
STREAM_MODE = 0o666  # less the umask
WORKDIR = "workdir"
_PR_SET_PDEATHSIG = 1
_KILL = int(signal.SIGKILL)
_SIGNALS = tuple(map(int, signal.valid_signals()))
_MASKS = (b"SigIgn:\t", b"SigCgt:\t")
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)


class Program(NamedTuple):
    """A program to run and the conditions it runs under."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    cell: str
    """Value of the marker in its environment."""
    chdir: str
    umask: int
    cgroup_procs: tuple[str, ...]
    identity: Identity | None
    confinement: Confinement
    has_terminal: bool = False
    """Whether standard input becomes the controlling terminal."""
    cpus: tuple[int, ...] = ()
    """CPUs of the machine to run on; empty: all CPUs of its cell."""
    is_task: bool = False
    """Whether it is a step's task: `gqrun` reports that it cannot be executed, so its standard error need not."""


class Launched(NamedTuple):
    pid: int
    status_fd: int
    """Readable when the program runs (end of file) or cannot run; see `read_status`."""


class Ready(NamedTuple):
    """Facts that the parent prepares before the fork, so that the child need not look them up."""

    program: Program
    environment: dict[str, str]
    closed: tuple[tuple[int, int], ...]
    """Ranges (first, last + 1) of file descriptors that the child must close."""
    signals: tuple[int, ...]
    """Signals that the parent ignores or handles."""
    is_protected: bool
    parent: int


OpenStreams = Callable[[], tuple[int, int, int]]
"""A function called in the child as the user; returns descriptors for standard input, output and error."""


def launch(program: Program, open_streams: OpenStreams, kept: tuple[int, ...] = ()) -> Launched:
    """Start a program; `kept` are descriptors that `open_streams` needs.  `OSError` if no process can be forked."""
    status_fd, child_status_fd = os.pipe()
    try:
        ready = _ready(program, {0, 1, 2, child_status_fd, *kept})
        pid = _fork_deaf_to(ready.signals)
    except OSError:
        os.close(status_fd)
        os.close(child_status_fd)
        raise
    if pid == 0:
        _be_child(ready, open_streams, child_status_fd)
    os.close(child_status_fd)
    return Launched(pid, status_fd)


def _fork_deaf_to(signals: tuple[int, ...]) -> int:
    """Fork; signals that the parent ignores or handles stay blocked in the child until it has reset them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _ready(program: Program, kept: set[int]) -> Ready:
    return Ready(
        program=program,
        environment={**program.environment, MARKER: program.cell},
        closed=tuple(_all_but(kept)),
        signals=_changed_signals(),
        is_protected=is_protected(),
        parent=os.getpid(),
    )


def _all_but(kept: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of open descriptors outside `kept`: a hanging child must not keep the parent's link open."""
    behind = max(map(int, os.listdir("/proc/self/fd"))) + 1
    first = 0
    for fd in (*sorted(kept), behind):
        if first < fd:
            yield first, fd
        first = fd + 1


def _changed_signals() -> tuple[int, ...]:
    """Return the signals that this process ignores or handles, from /proc."""
    with doing("read the signals' masks"):
        status = read_small("/proc/self/status")
    ignored, handled = (int(status.partition(name)[2][:16], 16) for name in _MASKS)
    changed = ignored | handled
    return tuple(number for number in _SIGNALS if changed >> (number - 1) & 1)


def read_status(status_fd: int) -> LaunchFailure | None:
    """Read the result of a launch and close the pipe; None if the program runs."""
    text = os.read(status_fd, MAX_FAILURE_BYTES)
    os.close(status_fd)
    return LaunchFailure(*json.loads(text)) if text else None


def open_files(input_path: str, output_path: str, error_path: str, append: bool) -> tuple[int, int, int]:
    """Open the files of a batch script; output is always appended, so that sharers never overwrite each other."""
    with doing(f"open the input file `{input_path}`"):
        stdin = os.open(input_path, os.O_RDONLY)
    stdout = _open_output("output", output_path, append)
    if error_path in ("", output_path):
        return stdin, stdout, stdout
    return stdin, stdout, _open_output("error", error_path, append)


def _open_output(name: str, path: str, append: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
    with doing(f"open the {name} file `{path}`"):
        return os.open(path, flags, STREAM_MODE)


def _be_child(ready: Ready, open_streams: OpenStreams, status_fd: int) -> NoReturn:
    """Become the program or report the failure; it never returns into the parent's code."""
    code = EXIT_NOT_EXECUTABLE
    try:
        for first, behind in ready.closed:
            os.closerange(first, behind)
        _end_with(ready.parent)
        _prepare(ready, open_streams)
        if ready.program.confinement.pam_service:  # PAM's modules may have left some open
            for first, behind in _all_but({0, 1, 2, status_fd}):
                os.closerange(first, behind)
        _prctl(_PR_SET_PDEATHSIG, 0)
        _execute(ready.program.argv, ready.environment)
    except CannotLaunch as error:
        code = error.failure.exit_code
        if error.failure.is_exec and not ready.program.is_task:
            os.write(2, f"gq: error: {error.failure.why}\n".encode(errors="surrogateescape"))
        _tell_failure(status_fd, error.failure)
    except BaseException as error:
        _tell_failure(status_fd, LaunchFailure(f"cannot start the process: {error!r}"))
    finally:
        os._exit(code)


def _end_with(parent: int) -> None:
    """Ask for KILL when the parent ends: before exec the process has no marker by which it could be found."""
    _prctl(_PR_SET_PDEATHSIG, _KILL)
    if os.getppid() != parent:  # too late
        os._exit(EXIT_NOT_EXECUTABLE)


def _tell_failure(status_fd: int, failure: LaunchFailure) -> None:
    """Report the failure in one write that never waits, since the parent reads once."""
    os.write(status_fd, json.dumps(failure._replace(why=printable(failure.why[:MAX_WHY])[:MAX_WHY])).encode())


def _prepare(ready: Ready, open_streams: OpenStreams) -> None:
    program = ready.program
    os.setsid()
    for path in program.cgroup_procs:
        with doing(f"join the cell by `{path}`"):
            _write_once(path, b"0")
    if program.cpus:
        with doing("run on its own CPUs"):
            os.sched_setaffinity(0, program.cpus)
    for number in ready.signals:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    confine(program.confinement, ready.is_protected)
    if program.identity is not None:
        if program.confinement.no_new_privs:
            drop_capabilities()
        take_identity(program.identity)
        _end_with(ready.parent)  # the kernel forgot it with the change
    link_user_keyring()
    if program.confinement.no_new_privs:
        forbid_new_privileges()
    if program.confinement.seccomp:
        install_seccomp_filter()
    os.umask(program.umask)
    with doing(f"change to the directory `{program.chdir}`", WORKDIR):
        os.chdir(program.chdir)
    stdin, stdout, stderr = open_streams()
    if program.has_terminal:
        with doing("make the terminal the controlling one"):
            fcntl.ioctl(stdin, termios.TIOCSCTTY, 0)
    for fd, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, number)


def _execute(argv: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    name = argv[0]
    try:
        if "/" in name:
            os.execve(name, argv, environment)
        os.execvpe(name, argv, environment)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or 0
        path = _find_program(name, environment)
        if path is None:
            number = errno.ENOENT
        is_missing = number == errno.ENOENT
        reason = _missing_interpreter(path) if is_missing else getattr(error, "strerror", None) or str(error)
        raise CannotLaunch(LaunchFailure(f"cannot execute `{name}`: {reason}", number, is_exec=True)) from error


def _find_program(name: str, environment: dict[str, str]) -> str | None:
    """The file that `name` stands for, as a shell searches it: a directory of PATH that is closed holds none.

    None: no directory of PATH holds the file.
    """
    if "/" in name:
        return name
    paths = (os.path.join(directory, name) for directory in os.get_exec_path(environment))
    return next(filter(os.path.exists, paths), None)


def _missing_interpreter(path: str | None) -> str:
    """Why the kernel says that a file does not exist: often it is the program named in its first line."""
    if path is None:
        return "No such file or directory"
    try:
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return "No such file or directory"
    interpreter = os.fsdecode(first[2:].strip()) if first.startswith(b"#!") else "its loader"
    return f"its interpreter `{interpreter}` does not exist"


def _write_once(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def take_identity(identity: Identity) -> None:
    """Take the user's identity for good; uid last, because that step gives up the right to the others."""
    with doing(f"become uid {identity.uid}"):
        os.setgroups(identity.groups)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
