"""What this machine needs for the least that a queue must do: the values beside gq's where there is no Slurm.

They are taken anew for each family, since the machine's other work comes and goes.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.row import Beside, median
from tests.benchmarks.stopwatch import spawn_s, wall_s

_PYTHONS = 15
_SPAWNS = 100
_COMMITS = 100
BARE_PYTHON = (sys.executable, "-c", "pass")
"""The interpreter that the commands run on, doing nothing."""


class Baseline(NamedTuple):
    """Medians, in seconds."""

    python_s: float
    """``python3 -c pass``, a whole process."""
    spawn_s: float
    """`posix_spawn` of `true`, to its end."""
    commit_s: float
    """One row and one COMMIT in SQLite, WAL and ``synchronous=FULL``."""

    @property
    def python(self) -> Beside:
        return Beside("python", self.python_s)

    @property
    def spawn(self) -> Beside:
        return Beside("spawn", self.spawn_s)

    @property
    def commit(self) -> Beside:
        return Beside("commit", self.commit_s)

    @property
    def spawns(self) -> Beside:
        return Beside("spawn", 1 / self.spawn_s)

    @property
    def commits(self) -> Beside:
        return Beside("commit", 1 / self.commit_s)


def take_baseline(directory: Path) -> Baseline:
    true = shutil.which("true")
    assert true is not None, "this machine has no `true`"
    return Baseline(
        python_s=median([wall_s(BARE_PYTHON, {}, directory) for _ in range(_PYTHONS)]),
        spawn_s=median([spawn_s(true) for _ in range(_SPAWNS)]),
        commit_s=median(_commits(directory / "baseline.db")),
    )


def _commits(path: Path) -> list[float]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, spec TEXT)")
        return [_commit(connection) for _ in range(_COMMITS)]
    finally:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def _commit(connection: sqlite3.Connection) -> float:
    began = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO jobs (spec) VALUES (?)", ("x" * 1500,))
    connection.execute("COMMIT")
    return time.perf_counter() - began
