"""A scripted controller where the commands look for theirs, and a way to call a command in this process."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gq.cli._run import load
from gq.cli.framework.invoke import invoke
from gq.connection.locate import Location, find_cluster, make_run_dir
from tests.cli.scripted import ScriptedController
from tests.clusters import clean_environment


class Result(NamedTuple):
    """What a command left: its exit status and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def set_zone() -> Iterator[Callable[[str], None]]:
    """Every test reads the clock in UTC, unless it says otherwise: ``set_zone("Asia/Kolkata")``."""
    patch = pytest.MonkeyPatch()

    def change(name: str) -> None:
        patch.setenv("TZ", name)
        time.tzset()

    change("UTC")
    yield change
    patch.undo()
    time.tzset()


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A private cluster of this test, with nobody behind its sockets.  Its path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory(prefix="gqt-", dir="/tmp") as directory:
        for name in set(os.environ) - set(clean_environment(os.environ)):
            monkeypatch.delenv(name)
        Path(directory, "run-base").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{directory}/run-base")
        monkeypatch.setenv("GQ_DIR", f"{directory}/c")
        Path(directory, "c").mkdir(mode=0o700)
        found = find_cluster(os.environ)
        make_run_dir(found)
        yield found


@pytest.fixture
def controller(location: Location) -> Iterator[ScriptedController]:
    with ScriptedController(location) as scripted:
        yield scripted


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("gqstat", "-j", "7")`` in this process, with stdout as in a pipe."""

    def call(name: str, *words: str) -> Result:
        capsys.readouterr()
        status = invoke(load(name), words)
        return Result(status, *capsys.readouterr())

    return call
