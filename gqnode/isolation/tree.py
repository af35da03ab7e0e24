"""The cgroup directories of this node: ``<base>/gq/<cluster>/<node>/<job>.<attempt>[/<job>.<attempt>.<step>]``.

Owns directories and the reading and writing of their files; knows nothing of what a file means.  Every failure is an
`IsolationError` with the path and the kernel's error number.  Two node daemons may make and remove the common
directories at the same time.

A daemon holds a lock on its node's directory for as long as it uses it.  One that was killed leaves empty directories,
which the next daemon of whatever cluster removes: see `prune`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from gqnode.isolation.mounts import ROOT_NAME
from gqnode.isolation.protocol import IsolationError

_ATTEMPT = re.compile(r"\d+\.\d+")
_STEP = re.compile(r"(\d+\.\d+)\.\d+")
BUSY_WAIT_S = 0.2
"""A group stays busy for a moment after its last process is gone."""


class Tree:
    """`prepare_directory` is called for each directory made on the way down, the node's own included."""

    def __init__(self, base: str, cluster: str, node: str) -> None:
        self.base = base
        self._parents = (ROOT_NAME, f"{ROOT_NAME}/{cluster}", f"{ROOT_NAME}/{cluster}/{node}")
        self.directory = f"{base}/{self._parents[-1]}"
        self._lock: int | None = None

    def open(self, prepare_directory: Callable[[str], None]) -> None:
        """Make the node's directory, and hold it."""
        for attempt in range(10):
            try:
                for name in self._parents:
                    make_directory(f"{self.base}/{name}")
                    prepare_directory(f"{self.base}/{name}")
                self._hold()
                return
            except IsolationError as error:  # another daemon removed its empty `gq` just now
                if error.errno not in (errno.ENOENT, errno.ENODEV) or attempt == 9:
                    raise

    def _hold(self) -> None:
        """Against `prune`; other parts of this daemon hold it, too."""
        if self._lock is not None:
            return
        try:
            self._lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            if os.fstat(self._lock).st_ino != Path(self.directory).stat().st_ino:
                raise FileNotFoundError(errno.ENOENT, "it was removed meanwhile and created again")
        except OSError as error:
            self._let_go()
            raise refused("hold", self.directory, error) from error

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def path(self, name: str) -> str:
        """The directory of a cell; a step's is inside its attempt's."""
        if _ATTEMPT.fullmatch(name):
            return f"{self.directory}/{name}"
        step = _STEP.fullmatch(name)
        if step is None:
            raise IsolationError(f"`{name}` is not the name of a cell")
        return f"{self.directory}/{step[1]}/{name}"

    def has(self, name: str) -> bool:
        return os.path.isdir(self.path(name))  # noqa: PTH112  three times as fast, and called for every tree

    def names(self) -> tuple[str, ...]:
        """The attempts that have a directory here."""
        try:
            return tuple(name for name in os.listdir(self.directory) if _ATTEMPT.fullmatch(name))  # noqa: PTH208
        except FileNotFoundError:
            return ()

    def remove(self, name: str) -> None:
        """Remove a cell and its steps.  One that is not there is fine."""
        remove_directories(self.path(name))

    def close(self) -> None:
        """Remove the node's directory and those above it, as far as they are empty."""
        self._let_go()
        for name in reversed(self._parents):
            try:
                Path(self.base, name).rmdir()
            except OSError:  # somebody else's cells, or gone already: both are as it should be
                return


def prune(base: str) -> None:
    """Remove what daemons that were killed left behind below `base`, and nobody holds; cells are not touched."""
    try:
        for cluster in _children(f"{base}/{ROOT_NAME}"):
            for node in _children(cluster):
                _remove_if_free(node)
            _remove_if_empty(cluster)
    except PermissionError:  # those of another user
        return


def _remove_if_free(directory: str) -> None:
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # removed by another just now, or not ours to look into
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_if_empty(directory)
    except OSError:  # its daemon lives
        return
    finally:
        os.close(lock)


def _remove_if_empty(directory: str) -> None:
    try:
        Path(directory).rmdir()
    except OSError:  # there are cells in it, or it is gone already
        return


def make_directory(path: str) -> None:
    try:
        Path(path).mkdir(0o755)
    except FileExistsError:
        return
    except OSError as error:
        raise refused("make", path, error) from error


def remove_directories(path: str) -> None:
    """Remove the directory and those in it; a cgroup file system lets only directories be removed."""
    deadline = time.monotonic() + BUSY_WAIT_S
    while True:
        try:
            Path(path).rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY) or time.monotonic() > deadline:
                raise refused("remove", path, error) from error
        for child in _children(path):
            remove_directories(child)
        time.sleep(0.001)


def write(path: str, text: str) -> None:
    """Write a cgroup file in a single write(2): the kernel takes the whole value or refuses it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise refused(f"write `{text}` to", path, error) from error


def read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read_all(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise refused("read", path, error) from error


def read_keyed(path: str) -> dict[str, int]:
    """A file of ``name number`` lines; empty if there is no such file."""
    if not exists(path):
        return {}
    pairs = (line.split() for line in read(path).splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdecimal()}


def exists(path: str) -> bool:
    return os.access(path, os.F_OK)


def process_ids(path: str) -> tuple[int, ...]:
    """All processes of a directory and of those inside it; 0 stands for one of another pid namespace."""
    try:
        here = tuple(int(line) for line in read(f"{path}/cgroup.procs").split())
    except IsolationError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return ()
        raise
    return here + tuple(pid for child in _children(path) for pid in process_ids(child))


def _children(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _read_all(fd: int) -> str:
    chunks = []
    while chunk := os.read(fd, 65536):
        chunks.append(chunk)
    return b"".join(chunks).decode()


def refused(verb: str, path: str, error: OSError) -> IsolationError:
    number = error.errno or 0
    return IsolationError(f"cannot {verb} {path}: {os.strerror(number)}", path=path, errno=number)
