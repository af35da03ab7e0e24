"""Directories of sockets: what a cluster left goes when another starts, and nothing that anybody may still use."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.connection.socket_dirs import LEFT_ALONE_S, remove_left_over
from tests.shell.rig import short_directory


@pytest.fixture
def base() -> Iterator[Path]:
    with short_directory() as directory:
        yield Path(directory)


def left(base: Path, name: str, age_s: float = 2 * LEFT_ALONE_S) -> socket.socket:
    """With a socket that is listened to until it is closed."""
    (base / name).mkdir()
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(base / name / "gqd.sock"))
    door.listen()
    age(base / name, age_s)
    return door


def age(path: Path, by_s: float = 2 * LEFT_ALONE_S) -> None:
    at = path.stat().st_mtime - by_s
    os.utime(path, (at, at))


def test_what_nobody_listens_at_goes_and_everything_else_stays(base: Path) -> None:
    for name, age_s in (("own", 2 * LEFT_ALONE_S), ("gone", 2 * LEFT_ALONE_S), ("lately", 60)):
        left(base, name, age_s).close()
    with left(base, "alive"):
        assert remove_left_over(base / "own") == 1

    assert sorted(path.name for path in base.iterdir()) == ["alive", "lately", "own"]


def test_a_node_that_lives_or_a_file_that_is_not_ours_keeps_its_directory(base: Path) -> None:
    for name, file, text in (
        ("living", "member-n1", str(os.getpid())),
        ("dead", "member-n1", "999999999"),
        ("strange", "notes.txt", ""),
        ("empty", "", ""),
    ):
        (base / name).mkdir()
        if file:
            (base / name / file).write_text(text)
        age(base / name)
    (base / "link").symlink_to(base / "strange")

    remove_left_over(base / "own")

    assert sorted(path.name for path in base.iterdir()) == ["link", "living", "strange"]


def test_where_there_is_nothing_nothing_happens(base: Path) -> None:
    assert remove_left_over(base / "nowhere" / "own") == 0
