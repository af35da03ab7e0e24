"""The batch script of an attempt, from writing its file to recording its end.  Runs in the shepherd."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gqnode.shepherd.durable import write_all
from gqnode.shepherd.launch import Program, launch, open_files, read_status
from gqnode.shepherd.launch_failure import CannotLaunch, LaunchFailure, doing

if TYPE_CHECKING:
    from gqnode.shepherd.frames import Head
    from gqnode.shepherd.process_exit import ProcessExit
    from gqnode.shepherd.specs import Identity, ShepherdSpec

SCRIPT_FILE = "script"
SCRIPT_MODE = 0o700
GIVEN_SCRIPT_MODE = 0o500
DIRECTORY_MODE = 0o711
LINE_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""No reader is waited for, and no terminal becomes the shepherd's."""
_ACL = "system.posix_acl_access"
_ACL_VERSION = 2
_ACL_ENTRY = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF


class Batch:
    """The batch script's process; on a node that runs no script it counts as started at once and never ends."""

    def __init__(self, spec: ShepherdSpec, cell: str) -> None:
        self._spec = spec
        self._cell = cell
        self._failure: LaunchFailure | None = None
        self.started_at = time.time()
        self.pid = 0
        self.status_fd: int | None = None
        """Launch status pipe; None once it is known whether the script runs."""
        self.end: Head | None = None
        """The recorded end of the script, as it is sent to the daemon."""

    @property
    def has_started(self) -> bool:
        """The script runs or ran (one that cannot be executed counts, as in a shell); without a script: always."""
        return self.status_fd is None and (self._failure is None or self._failure.is_exec)

    @property
    def is_alive(self) -> bool:
        return self.pid > 0 and self.end is None

    def start(self, script: bytes) -> None:
        """Fork the script; if `pid` is still 0 afterwards, the launch failed and `record_end` says why."""
        spec = self._spec
        program = Program(
            argv=(f"{self._cell}/{SCRIPT_FILE}", *spec.args),
            environment=spec.environment,
            cell=self._cell,
            chdir=spec.chdir,
            umask=spec.umask,
            cgroup_procs=spec.cgroup_procs,
            identity=spec.identity,
            confinement=spec.confinement,
        )
        try:
            with doing("keep the script"):
                _write_script(script, spec.identity)
            with doing("start a process"):
                self.pid, self.status_fd = launch(program, self._open_streams)
        except CannotLaunch as error:
            self.fail(error.failure)

    def fail(self, failure: LaunchFailure) -> None:
        """Record that the script will not run, and why."""
        self._failure = failure

    def settle(self) -> None:
        """Read whether the script runs, once the status pipe is readable."""
        if self.status_fd is not None:
            self._failure = read_status(self.status_fd)
            self.status_fd = None

    def record_end(self, process_exit: ProcessExit, peak_mib: int) -> Head:
        """Record how the script ended and return it."""
        failure = self._failure
        code = failure.exit_code if failure and failure.is_exec else process_exit.code
        self.end = {
            "started_at": self.started_at,
            "ended_at": max(self.started_at, time.time()),
            "code": code,
            "signal": process_exit.signal,
            "user_cpu_s": process_exit.user_cpu_s,
            "system_cpu_s": process_exit.system_cpu_s,
            "max_rss_mib": peak_mib,
            "oom": process_exit.oom,
            "why": failure.why if failure and not failure.is_exec else "",
            "launch_failure": failure.cause if failure else "",
        }
        return self.end

    def write_line(self, text: str) -> None:
        """Append a line to the job's standard error as the user; it never waits for a reader and ignores errors."""
        path = self._spec.error_path or self._spec.output_path
        try:
            with _acting_as(self._spec.identity):
                fd = os.open(path, LINE_FLAGS, 0o644)
            try:
                os.write(fd, f"{text}\n".encode(errors="surrogateescape"))
            finally:
                os.close(fd)
        except OSError:
            return

    def _open_streams(self) -> tuple[int, int, int]:
        spec = self._spec
        return open_files(spec.input_path, spec.output_path, spec.error_path, spec.append)


def _write_script(script: bytes, identity: Identity | None) -> None:
    """Write the script's file; it is closed before the fork, as the kernel executes no file open for writing."""
    fd = os.open(SCRIPT_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, SCRIPT_MODE)
    try:
        write_all(fd, script)
        if identity is not None:
            _give(fd, identity)
            os.chmod(".", DIRECTORY_MODE)
    finally:
        os.close(fd)


def _give(fd: int, identity: Identity) -> None:
    """Let only this user read and execute the file.

    Root stays the owner where the file system has access control lists.  Elsewhere the user owns the file and could
    write it.
    """
    try:
        os.setxattr(fd, _ACL, _readable_for(identity.uid))
    except OSError:
        os.fchown(fd, identity.uid, identity.gid)
        os.fchmod(fd, GIVEN_SCRIPT_MODE)


def _readable_for(uid: int) -> bytes:
    """``u::rwx,u:<uid>:r-x,g::---,m::r-x,o::---`` as the kernel stores it, see <linux/posix_acl_xattr.h>."""
    entries = ((_OWNER, 7, _NOBODY), (_USER, 5, uid), (_GROUP, 0, _NOBODY), (_MASK, 5, _NOBODY), (_OTHER, 0, _NOBODY))
    return struct.pack("<I", _ACL_VERSION) + b"".join(_ACL_ENTRY.pack(*entry) for entry in entries)


@contextmanager
def _acting_as(identity: Identity | None) -> Iterator[None]:
    """Take the user's file permissions for a moment, so that a path of the user reaches only the user's files."""
    if identity is None:
        yield
        return
    uid, gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups(identity.groups)
    os.setegid(identity.gid)
    os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(uid)
        os.setegid(gid)
        os.setgroups(groups)
