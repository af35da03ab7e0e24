"""What each command costs as a process, beside an interpreter that does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.baseline import BARE_PYTHON
from tests.benchmarks.bench import Bench, beside
from tests.benchmarks.row import Beside, Row, at_most_times, median
from tests.benchmarks.side import Side
from tests.benchmarks.stopwatch import wall_s

_FACTOR = 10


def commands(bench: Bench) -> Iterator[Row]:
    """Commands and bare interpreter in turns, so that both see the same machine."""
    with bench.gq() as gq:
        ours = _walls(gq, bench.scale.commands)
    slurms = _walls(bench.slurm, bench.scale.commands) if bench.slurm is not None else {}
    bare = Beside("python", median(ours["python"]))
    for name, word in (("gqstat", "stat"), ("gqinfo", "info"), ("gqsub", "sub")):
        by = beside(slurms.get(word, []), median, bare)
        bar = at_most_times(_FACTOR, bare)
        yield Row(bench.family, name, median(ours[word]), "s", bench.scale.commands, by, bar)


def _walls(side: Side, count: int) -> dict[str, list[float]]:
    words = side.words
    lines = {
        "stat": (words.stat,),
        "info": (words.info,),
        "sub": (words.sub, "--hold", "-o", "/dev/null", "--wrap", "true"),
        "python": BARE_PYTHON,
    }
    walls: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(count):
        for name, argv in lines.items():
            walls[name].append(wall_s(argv, side.environ, side.workdir))
    return walls
