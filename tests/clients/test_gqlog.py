"""gqlog: which job and which lines are meant, and where the bytes come from."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gq.cli.gqlog import Printer, Target, parse_target
from gq.cli.views.log_source import LogSource
from gq.connection.client import Client
from gq.connection.locate import Location
from gq.errors import Refusal, UsageError
from gq.wire import step as wire
from gq.wire.client import LogAccess
from tests.clients.scripted import ScriptedDoor


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("12", Target(12)),
        ("12.3", Target(12, rank=3)),
        ("12_4", Target(12, 4)),
        ("12_4.3", Target(12, 4, 3)),
        ("last", Target(None)),
        ("last.0", Target(None, rank=0)),
    ],
)
def test_a_job_is_named_by_number_task_rank_or_last(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "abc", "12.", "12.x", "0", "-1"])
def test_what_is_not_a_job_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a job"):
        parse_target(text)


def test_a_rank_shows_only_its_labelled_lines_without_their_labels(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = Printer(rank=1)
    printer.feed(b" 0: a\n 1: b: c\nno label\n 1")
    printer.feed(b": d\n")
    printer.finish()
    assert capfdbinary.readouterr().out == b"b: c\nd\n"


def test_a_rank_of_output_without_labels_is_refused(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = Printer(rank=0)
    printer.feed(b"plain\n")
    with pytest.raises(Refusal, match="have no rank") as error:
        printer.finish()
    assert error.value.hint == "run the command with `gqrun --label`"


@pytest.mark.parametrize(
    ("lines", "rank", "shown"),
    [(2, None, b" 0: three\n 1: four\n"), (0, None, b""), (9, None, b" 1: one\n 1: two\n 0: three\n 1: four\n"),
     (2, 1, b"two\nfour\n")],
)  # fmt: skip
def test_only_the_last_lines_of_what_is_there_are_shown_and_all_that_follows(
    lines: int, rank: int | None, shown: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    printer = Printer(rank, lines)
    for chunk in (b" 1: one\n 1: t", b"wo\n 0: three\n", b" 1: four\n"):
        printer.feed(chunk)
    printer.show_tail()
    assert capfdbinary.readouterr().out == shown

    printer.feed(b" 1: five\n")
    printer.finish()
    assert capfdbinary.readouterr().out == (b"five\n" if rank else b" 1: five\n")


def test_a_last_line_without_an_end_counts_as_a_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = Printer(None, 2)
    printer.feed(b"one\ntwo\nthr")
    printer.feed(b"ee")
    printer.finish()
    assert capfdbinary.readouterr().out == b"two\nthree"


def source(access: LogAccess, directory: Path) -> LogSource:
    return LogSource(Client(Location("", str(directory), str(directory), True)), access, "output")


def test_a_visible_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "out"
    log = source(LogAccess(job_id=1, attempt=1, state="RUNNING", path=str(path)), tmp_path)
    assert log.read() == b""
    path.write_bytes(b"one\n")
    assert log.read() == b"one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    assert log.read() == b"two\n"
    assert log.read() == b""


def test_a_file_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"a long first try\n")
    log = source(LogAccess(job_id=1, attempt=1, state="RUNNING", path=str(path)), tmp_path)
    log.read()
    path.write_bytes(b"again\n")
    assert log.read() == b"again\n"


def test_a_file_of_another_host_is_read_by_its_door(tmp_path: Path) -> None:
    content = b"x" * 1000

    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        assert isinstance(message, wire.OpenLog)
        assert message.ticket == b"ticket"
        data = content[message.offset : message.offset + 600]
        door.send(peer, wire.LogData(offset=message.offset, data=data, eof=message.offset + 600 >= len(content)))

    with ScriptedDoor(tmp_path, "n1", script) as door:
        access = LogAccess(
            job_id=1,
            attempt=1,
            state="RUNNING",
            node="n1",
            path="/nowhere/out",
            endpoint=door.endpoint,
            ticket=b"ticket",
        )
        log = source(access, tmp_path)
        pieces = [log.read() for _ in range(3)]
        log.close()
    assert pieces == [content[:600], content[600:], b""]


def test_a_door_that_is_busy_is_asked_later(tmp_path: Path) -> None:
    answers: list[wire.FromDoor] = [wire.StepRefused(code="busy", message="later"), wire.LogData(offset=0, data=b"now")]
    with ScriptedDoor(tmp_path, "n1", lambda door, peer, message: door.send(peer, answers.pop(0))) as door:
        access = LogAccess(job_id=1, attempt=1, state="RUNNING", path="/nowhere/out", endpoint=door.endpoint)
        log = source(access, tmp_path)
        deadline = time.monotonic() + 10
        data = log.read()
        while not data and time.monotonic() < deadline:
            data = log.read()
        log.close()
    assert data == b"now"
