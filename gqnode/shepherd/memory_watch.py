"""Resident memory of a process tree, for nodes whose kernel will not limit it.  Slim.

Never RLIMIT_AS: address space is not memory, and limiting it breaks CUDA.
"""

from __future__ import annotations

from gqnode.shepherd.processes import descendants, read_process

MIB = 1024 * 1024


class MemoryWatch:
    """Compares what a tree holds with a limit, when asked; remembers the peak."""

    def __init__(self, root: int, limit_mib: int) -> None:
        self._root = root
        self._limit_bytes = limit_mib * MIB
        self.peak_bytes = 0

    @property
    def peak_mib(self) -> int:
        return self.peak_bytes // MIB

    def is_over(self) -> bool:
        """Resident sizes are cheap but count shared pages once per process, so a verdict waits for the exact sum."""
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
    """Resident memory with shared pages divided among those who share them; undivided where that is not told."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    process = read_process(pid)
    return process.resident_bytes if process else 0
