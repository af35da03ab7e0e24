"""The table of measurements: what it says of values, and that it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.row import Beside, Row, at_least, at_most, none_at_all, percentile, quantity
from tests.benchmarks.slurm_side import NoSlurm, running_slurm
from tests.benchmarks.table import render, verdict
from tests.requires import needs_root

SLOW = Row("family", "gqsub → all 4 tasks run, p50", 0.7, "s", 9, Beside("python", 0.0165), at_most(0.6, "s"))
FAST = Row("family", "16 connections", 10_976, "/s", 9, Beside("commit", 4559), at_least(3000, "/s"))
SAFE = Row("another", "acknowledged jobs lost", 0, "of 600", 600, None, none_at_all())
WATCHED = Row("another", "gqd memory, 100,000 pending", 225.4, "MiB", 1, Beside("empty", 54))


def test_the_table_has_a_line_for_each_row_and_fits_80_columns() -> None:
    assert render([SLOW, FAST, SAFE, WATCHED]).splitlines() == [
        "                                       gq      beside it    ratio        bar",
        "family",
        "  gqsub → all 4 tasks run, p50     700 ms 16.5 ms python   42.4 ×   ≤ 600 ms NO",
        "  16 connections                10,976 /s 4,559 /s commit   2.41 × ≥ 3,000 /s yes",
        "another",
        "  acknowledged jobs lost         0 of 600                                  0 yes",
        "  gqd memory, 100,000 pending     225 MiB   54 MiB empty   4.17 ×",
    ]


def test_the_verdict_names_what_misses_its_bar_and_what_was_not_measured() -> None:
    assert verdict([FAST, SAFE, WATCHED]) == "2 of 2 bars hold"
    assert verdict([WATCHED]) == "nothing here has a bar"
    assert verdict([SLOW, FAST], failed=["crash"]).splitlines() == [
        "1 of 2 bars hold; not: gqsub → all 4 tasks run, p50",
        "not measured, see above: crash",
    ]


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.0000585, "s", "58.5 µs"), (0.0116, "s", "11.6 ms"), (2.668, "s", "2.67 s"), (2048.0, "MiB", "2 GiB"),
     (12_345.6, "/s", "12,346 /s"), (5.104, "/s", "5.1 /s"), (0.0, "of 32", "0 of 32")],
)  # fmt: skip
def test_a_quantity_has_three_digits_that_count(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_percentiles_are_values_that_were_seen() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.01, 0.5, 0.95)] == [1.0, 3.0, 5.0]


@needs_root
def test_a_slurm_that_does_not_start_is_not_measured_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "salloc", "squeue", "sinfo", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\necho no key >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(NoSlurm, match=r"munged ended 3\nno key"), running_slurm(tmp_path / "base"):
        pass
