"""Measures the resident memory of a process tree, for nodes whose kernel cannot limit it.

RLIMIT_AS is no substitute: address space is not memory, and limiting it breaks CUDA.
"""

from __future__ import annotations

from gqnode.shepherd.processes import descendants, read_process

MIB = 1024 * 1024


class MemoryWatch:
    """Compares the memory of a process tree with a limit on each call; remembers the peak."""

    def __init__(self, root: int, limit_mib: int) -> None:
        self._root = root
        self._limit_bytes = limit_mib * MIB
        self.peak_bytes = 0

    @property
    def peak_mib(self) -> int:
        return self.peak_bytes // MIB

    def is_over(self) -> bool:
        """Whether the tree is over its limit.

        Resident sizes are cheap but count shared pages once per process, so only the exact sum decides.
        """
        pids = descendants(self._root)
        held = sum(process.resident_bytes for pid in pids if (process := read_process(pid)))
        if held > self._limit_bytes:
            held = sum(_proportional_bytes(pid) for pid in pids)
        self.peak_bytes = max(self.peak_bytes, held)
        return held > self._limit_bytes

    def verdict(self) -> str:
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
