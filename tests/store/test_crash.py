"""What was acknowledged survives: a killed process, a full disk."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from sqlite_utils import Database

from gqd.state import invariants
from gqd.store.sqlite import SqliteStore
from tests.requires import needs_root
from tests.store.endless_writer import ON_THE_WAY
from tests.store.lives import Lives

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 1_600_000


def start_writer(path: Path, seed: int, prepare: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.endless_writer", str(path), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=prepare,  # the tests run no threads when they start it
    )


def check_survived(path: Path, seed: int, acknowledged: int) -> None:
    """The database holds whole turns, all up to `acknowledged` among them.  Some turns have no events."""
    store = SqliteStore(str(path))
    loaded = store.load()
    store.close()
    database = Database(str(path))
    count = database["events"].count + database["audit"].count
    lives = Lives(Random(seed))
    turns = events = 0
    while events < count or turns < acknowledged:
        turns += 1
        events += len(lives.turn())

    assert events == count, "a turn was written in part, or is missing"
    assert turns <= acknowledged + ON_THE_WAY + 2
    assert loaded == lives.cluster
    invariants.check(loaded)


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, seed: int, rounds: int) -> None:
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        writer = start_writer(path, seed + number)
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(Random(seed + number).randint(1, 1000))]
        writer.kill()
        said += writer.stdout.readlines()
        assert writer.wait() == -signal.SIGKILL

        check_survived(path, seed + number, int(said[-1]))


def check_full_disk(path: Path, seed: int, prepare: Callable[[], None] | None = None) -> int:
    """Let the writer run until it fails; returns how many turns it acknowledged."""
    said = start_writer(path, seed, prepare).communicate(timeout=60)[0].splitlines()
    assert said[-1] == "failed alike: True"
    assert said[-2].startswith("failed: could not write to the database: OperationalError: ")
    acknowledged = [int(line) for line in said[:-2]]
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    return len(acknowledged)


def test_a_file_that_may_not_grow_fails_the_commit_and_keeps_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

    acknowledged = check_full_disk(tmp_path / "gq.db", seed, limit_file_size)

    assert acknowledged > 10
    check_survived(tmp_path / "gq.db", seed, acknowledged)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@needs_root
def test_a_full_disk_fails_the_commit_and_keeps_what_was_acknowledged(
    tmp_path: Path, small_disk: Path, seed: int
) -> None:
    acknowledged = check_full_disk(small_disk / "gq.db", seed)
    for file in small_disk.iterdir():  # there is no room to recover in
        shutil.copy(file, tmp_path / file.name)

    assert acknowledged > 10
    check_survived(tmp_path / "gq.db", seed, acknowledged)
