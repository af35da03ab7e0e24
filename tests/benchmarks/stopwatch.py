"""Running processes and taking the time they need."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATIENCE_S = 120


def wall_s(argv: Sequence[str], environ: Mapping[str, str], directory: Path) -> float:
    """Of one process that must succeed, its standard output a pipe."""
    began = time.perf_counter()
    done = subprocess.run(
        argv,
        env=environ,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    took_s = time.perf_counter() - began
    assert done.returncode == 0, f"{list(argv)} ended {done.returncode}: {done.stderr.decode(errors='replace')}"
    return took_s


def per_second(argv: Sequence[str], environ: Mapping[str, str], directory: Path, count: int, width: int) -> float:
    """How many processes of a command end in a second, `width` at a time."""
    began = time.perf_counter()
    with ThreadPoolExecutor(width) as pool:
        for ended in [pool.submit(wall_s, argv, environ, directory) for _ in range(count)]:
            ended.result()
    return count / (time.perf_counter() - began)


def spawn_s(path: str) -> float:
    """Of `posix_spawn` of one small program, to its end: what the kernel alone needs for a process."""
    began = time.perf_counter()
    pid = os.posix_spawn(path, [path], {})
    os.waitpid(pid, 0)
    return time.perf_counter() - began
