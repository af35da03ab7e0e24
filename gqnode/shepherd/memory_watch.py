"""Measures the resident memory of a process tree, for nodes whose kernel cannot limit it.

RLIMIT_AS is no substitute: address space is not memory, and limiting it breaks CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gqnode.shepherd.processes import descendants, kill_all, read_process

if TYPE_CHECKING:
    from gqnode.shepherd.reactor import Reactor

MIB = 1024 * 1024
SAMPLE_S = 0.5


class Attempt(Protocol):
    """The part of the shepherd that the watch uses."""

    is_emptying: bool
    """Whether the attempt's processes are killed in any case."""

    def write_line(self, text: str) -> None: ...


class MemoryWatch:
    """Compares the memory of a process tree with a limit every `SAMPLE_S` and kills the tree when it is over."""

    def __init__(self, reactor: Reactor, root: int, limit_mib: int, attempt: Attempt) -> None:
        self._reactor = reactor
        self._attempt = attempt
        self._killed: set[int] = set()
        self._root = root
        self._limit_bytes = limit_mib * MIB
        self.peak_bytes = 0

    @property
    def peak_mib(self) -> int:
        return self.peak_bytes // MIB

    def sample(self) -> None:
        """Look now, and again at intervals until `cancel`."""
        if self._is_over() and not self._attempt.is_emptying:
            if not self._killed:
                self._attempt.write_line(self._verdict())
            self._killed.update(descendants(self._root))
            kill_all(lambda: descendants(self._root), freeze=True)
        self._reactor.after("memory", SAMPLE_S, self.sample)

    def cancel(self) -> None:
        self._reactor.cancel("memory")

    def take_killed(self, pid: int) -> bool:
        """Whether this process, which has ended, was killed for the memory of its tree."""
        was_killed = pid in self._killed
        self._killed.discard(pid)
        return was_killed

    def _is_over(self) -> bool:
        """Whether the tree is over its limit.

        Resident sizes are cheap but count shared pages once per process, so only the exact sum decides.
        """
        pids = descendants(self._root)
        held = sum(process.resident_bytes for pid in pids if (process := read_process(pid)))
        if held > self._limit_bytes:
            held = sum(_proportional_bytes(pid) for pid in pids)
        self.peak_bytes = max(self.peak_bytes, held)
        return held > self._limit_bytes

    def _verdict(self) -> str:
        limit_mib = self._limit_bytes // MIB
        return (
            f"gq: error: killed: the job's processes hold {self.peak_mib} MiB of memory, its limit is {limit_mib} MiB"
        )


def _proportional_bytes(pid: int) -> int:
    """Return resident memory with shared pages divided among their users (undivided if unknown)."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    process = read_process(pid)
    return process.resident_bytes if process else 0
