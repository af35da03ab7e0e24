"""What is measured: a queue that is driven by the commands a user types.  gq is one, Slurm may be the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Words(NamedTuple):
    """What the commands are called; their options are the same."""

    sub: str
    run: str
    alloc: str
    stat: str
    info: str
    cancel: str


class Side(Protocol):
    """Four nodes of 64 CPUs and 8 GPUs, on this machine."""

    @property
    def words(self) -> Words: ...

    @property
    def workdir(self) -> Path:
        """Where commands run and write."""

    @property
    def environ(self) -> dict[str, str]:
        """For commands of this side."""

    def ok(self, *argv: str) -> str:
        """Standard output of a command that must succeed."""

    def submit_many(self, command: str, count: int) -> list[int]:
        """Separate jobs of one CPU without output, as fast as this side's clients can; their ids, as acknowledged."""

    def await_start(self, job_ids: Sequence[int]) -> None: ...

    def await_end(self, job_ids: Sequence[int]) -> None: ...

    def running(self) -> set[int]:
        """Ids of the jobs that it says are running."""

    def kill_controller(self) -> None:
        """``kill -9``, at once."""

    def start_again(self) -> None:
        """What was killed; returns when it answers."""

    def controller_memory_mib(self) -> float:
        """Resident."""


def submit(side: Side, *argv: str) -> int:
    """One process of the submitting command; the job's id."""
    return int(side.ok(side.words.sub, "--parsable", *argv).partition(";")[0])


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))
