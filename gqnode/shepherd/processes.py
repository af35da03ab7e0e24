"""Reads process trees from /proc and sends signals.

A shepherd is a child subreaper: whatever its descendants do (setsid, double fork), they stay its descendants.  Only
when a shepherd itself was killed do they have to be found by the marker in their environment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gqnode.shepherd.reactor import Reactor

MARKER = "GQ_CELL"
"""Variable of every process of an attempt: the attempt's directory (for tasks followed by ``.<step>``)."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FREEZE_ROUNDS = 50
FIRST_SWEEP_S = 0.002
LONGEST_SWEEP_S = 0.5
SWEEPS_BEFORE_FREEZING = 4
STOP_ROUNDS = 200
"""Rounds of SIGSTOP after the first, for an attempt that forks all the time; with their delays 10 s in all."""
STOP_AGAIN_S = 0.002
LONGEST_STOP_AGAIN_S = 0.05


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    resident_bytes: int


def read_process(pid: int) -> Process | None:
    """Return the process's facts; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before may hold anything
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[21]) * PAGE_BYTES)


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Return all processes below `root`, parents first.

    A process forked during the walk may be missed: call again.
    """
    try:
        return _walk_down(root)
    except FileNotFoundError:  # a kernel without PROC_CHILDREN
        return _search_upward(root)


def _walk_down(root: int) -> list[int]:
    """Follow the kernel's lists of children; the cost depends on the size of the tree alone."""
    found = _children(root)
    for pid in found:  # grows while it is walked
        try:
            found += _children(pid)
        except FileNotFoundError:
            continue  # ended meanwhile
    return found


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            if thread == str(pid):
                raise FileNotFoundError from None
    return pids


def _search_upward(root: int) -> list[int]:
    """Find the descendants by the parents of all processes of the machine."""
    parents = {process.pid: process.parent for pid in all_pids() if (process := read_process(pid))}
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def marker_of(pid: int) -> str:
    """Return the process's value of `MARKER`; empty if it has none or its environment is not readable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return ""
    _, found, rest = (b"\0" + environment).partition(f"\0{MARKER}=".encode())
    value = rest.partition(b"\0")[0] if found else b""
    return os.fsdecode(value)


def strays(cell: str) -> list[int]:
    """Return every process on this machine whose marker names this cell or a step of it."""
    own = os.getpid()
    return [pid for pid in all_pids() if pid != own and belongs(marker_of(pid), cell)]


def belongs(marker: str, cell: str) -> bool:
    return marker == cell or marker.startswith(f"{cell}.")


def send_signal(pids: Iterable[int], signum: int) -> None:
    """Signal each process that still exists; one that gets TERM, HUP or INT is also continued."""
    for pid in pids:
        try:
            os.kill(pid, signum)
            if signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(pid, signal.SIGCONT)
        except (OSError, OverflowError):  # gone, no longer ours, or no signal: none of it may end who passes it on
            continue


def is_stopped(pid: int) -> bool:
    """The process is stopped by a signal, or is over.

    The parent of a vfork(2) sleeps in the kernel until its child executes a program or ends.  Where SIGSTOP reached
    both, the child before that, the parent runs no code until the child goes on, and counts as stopped.
    """
    state = _state(pid)
    return state in b"TtZX" or (state == b"D" and any(_state(child) in (b"T", b"t") for child in descendants(pid)))


def _state(pid: int) -> bytes:
    """Return the state letter of proc(5); ``X`` for a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return b"X"
    return text[text.rindex(b")") + 2 :][:1]


def stop_all(root: int) -> bool:
    """Send SIGSTOP to every process below `root` that is not stopped, parents first; True if there was none.

    A process that forks may have a new child that was not seen: call again until True.
    """
    running = [pid for pid in descendants(root) if not is_stopped(pid)]
    send_signal(running, signal.SIGSTOP)
    return not running


def ignores(pid: int, signum: int) -> bool:
    """Whether the process ignores this signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith(b"SigIgn:")), 0)
    return bool(mask >> (signum - 1) & 1)


def kill_all(find: Callable[[], list[int]], freeze: bool) -> bool:
    """KILL the processes that `find` returns; False if it returned none.

    ``freeze``: stop them all first, until no new ones appear, so that no fork bomb outruns the killing.
    """
    pids = find()
    seen: set[int] = set()
    for _ in range(FREEZE_ROUNDS if freeze else 0):
        fresh = set(pids) - seen
        if not fresh:
            break
        send_signal(fresh, signal.SIGSTOP)
        seen |= fresh
        pids = find()
    send_signal(pids, signal.SIGKILL)
    return bool(pids)


class Killing:
    """KILL or STOP to all descendants of this process, repeated on the reactor until it has reached each of them."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.rounds = 0
        """Rounds of KILL since `reset`."""

    def reset(self) -> None:
        self.rounds = 0

    def sweep(self) -> None:
        """KILL all processes repeatedly, since one in a system call may take time and one that forks has children."""
        self.rounds += 1
        kill_all(lambda: descendants(os.getpid()), freeze=self.rounds > SWEEPS_BEFORE_FREEZING)
        delay_s = min(FIRST_SWEEP_S * 2**self.rounds, LONGEST_SWEEP_S)
        self._reactor.after("sweep", delay_s, self.sweep)

    def stop(self, rounds: int = 0) -> None:
        """STOP all processes, again within milliseconds, until a round finds no process that is not stopped."""
        if stop_all(os.getpid()) or rounds >= STOP_ROUNDS or self.rounds:
            return
        delay_s = min(STOP_AGAIN_S * 2**rounds, LONGEST_STOP_AGAIN_S)
        self._reactor.after("stop", delay_s, lambda: self.stop(rounds + 1))

    def cancel_stop(self) -> None:
        self._reactor.cancel("stop")

    def cancel(self) -> None:
        """End both, when no process is left."""
        self._reactor.cancel("sweep")
        self.cancel_stop()
