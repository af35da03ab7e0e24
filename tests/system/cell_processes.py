"""Real processes in real cells: started, watched with a deadline, and ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gqnode.isolation.cell import Cell, join
from gqnode.isolation.cells import Cells

DEADLINE_S = 20.0


def start(cell: Cell, *argv: str) -> subprocess.Popen[str]:
    """A process that is in the cell before it is the program."""
    return subprocess.Popen(argv, preexec_fn=lambda: join(cell), stdout=subprocess.PIPE, text=True)


def python(cell: Cell, code: str, *arguments: str) -> subprocess.Popen[str]:
    return start(cell, sys.executable, "-S", "-E", "-c", code, *arguments)


def run(cell: Cell, *argv: str) -> tuple[int, str]:
    """(exit code, output) of a program in the cell."""
    process = start(cell, *argv)
    output, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, output


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.005)


def process_is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@contextmanager
def ended(isolation: Cells) -> Iterator[Cells]:
    """Nothing stays behind, whether or not the test passed."""
    try:
        yield isolation
    finally:
        isolation.clear(keep=())
        isolation.close()


def left_behind(directories: list[str]) -> list[str]:
    return [path for path in directories if os.path.isdir(path)]  # noqa: PTH112
