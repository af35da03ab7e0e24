"""A program that runs a command some times, one after the other, and prints their walls as JSON.

It stands inside an allocation, so that what is timed there is not timed through the command that made it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.side import Side
from tests.benchmarks.stopwatch import wall_s

_ROOT = Path(__file__).parents[2]


def repeated(side: Side, within: Sequence[str], count: int, command: Sequence[str]) -> list[float]:
    """Seconds of each of `count` runs of `command` below the command `within`."""
    program = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from tests.benchmarks.repeat import main; main()"
    return [float(one) for one in json.loads(side.ok(*within, sys.executable, "-c", program, str(count), *command))]


def main() -> None:
    count, *command = sys.argv[1:]
    print(json.dumps([wall_s(command, os.environ, Path.cwd()) for _ in range(int(count))]))
