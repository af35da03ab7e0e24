"""Ending everything in a cell at once.

Killing processes one by one is a race against a process that forks; `cgroup.kill` (v2, Linux 5.14) has no such race,
and neither has killing what is frozen (the v1 freezer, or v2's before 5.14).
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from gqnode.isolation.protocol import IsolationError
from gqnode.isolation.tree import Tree, exists, process_ids, read, read_keyed, write

FREEZE_WAIT_S = 0.5
_GONE = (errno.ENOENT, errno.ENODEV)


@dataclass(frozen=True, slots=True)
class Killer2:
    tree: Tree

    def kill(self, directory: str) -> None:
        try:
            if exists(f"{directory}/cgroup.kill"):
                write(f"{directory}/cgroup.kill", "1")
            elif exists(directory):
                _kill_frozen(directory, self._freeze, self._thaw)
        except IsolationError as error:
            if error.errno not in _GONE:
                raise

    def is_empty(self, directory: str) -> bool:
        try:
            return not read_keyed(f"{directory}/cgroup.events").get("populated", 0)
        except IsolationError as error:
            if error.errno in _GONE:
                return True
            raise

    def freeze(self, directory: str, is_frozen: bool) -> bool:
        if not exists(f"{directory}/cgroup.freeze"):  # since Linux 5.2
            return False
        if not is_frozen:
            self._thaw(directory)
            return True
        _wait_for(lambda: self._freeze(directory))
        return True

    def is_frozen(self, directory: str) -> bool | None:
        return self._does_stand(directory) if exists(f"{directory}/cgroup.freeze") else None

    def _freeze(self, directory: str) -> bool:
        write(f"{directory}/cgroup.freeze", "1")
        return self._does_stand(directory)

    def _does_stand(self, directory: str) -> bool:
        return read_keyed(f"{directory}/cgroup.events").get("frozen", 0) == 1

    def _thaw(self, directory: str) -> None:
        write(f"{directory}/cgroup.freeze", "0")


@dataclass(frozen=True, slots=True)
class Killer1:
    tree: Tree

    def kill(self, directory: str) -> None:
        if not exists(directory):
            return
        try:
            _kill_frozen(directory, self._freeze, self._thaw)
        except IsolationError as error:
            if error.errno not in _GONE:
                raise

    def is_empty(self, directory: str) -> bool:
        return not process_ids(directory)

    def freeze(self, directory: str, is_frozen: bool) -> bool:
        if not exists(directory):
            return False
        if not is_frozen:
            self._thaw(directory)
            return True
        _wait_for(lambda: self._freeze(directory))
        return True

    def is_frozen(self, directory: str) -> bool | None:
        return self._does_stand(directory) if exists(directory) else None

    def _freeze(self, directory: str) -> bool:
        write(f"{directory}/freezer.state", "FROZEN")
        return self._does_stand(directory)

    def _does_stand(self, directory: str) -> bool:
        return read(f"{directory}/freezer.state").strip() == "FROZEN"

    def _thaw(self, directory: str) -> None:
        write(f"{directory}/freezer.state", "THAWED")


def kill_listed(directory: str) -> None:
    """SIGKILL to each process that is in the group now."""
    for pid in process_ids(directory):
        if pid == 0:  # of a pid namespace that we cannot see; kill(0) would be our own process group
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            number = error.errno or 0
            raise IsolationError(f"cannot kill process {pid} of {directory}", directory, number) from error


def _kill_frozen(directory: str, freeze: Callable[[str], bool], thaw: Callable[[str], None]) -> None:
    """A process in a long system call freezes late: after the wait it is killed all the same, and the caller looks."""
    try:
        _wait_for(lambda: freeze(directory))
        kill_listed(directory)
    finally:
        thaw(directory)


def _wait_for(is_so: Callable[[], bool]) -> None:
    """Wait for the state; a freeze that is late still completes by itself."""
    deadline = time.monotonic() + FREEZE_WAIT_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.001)
