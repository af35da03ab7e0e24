"""Lines, labels and files of a step's output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gq.cli.step.buffered_writer import BufferedWriter
from gq.cli.step.task_output import LONGEST_LINE, OutputOptions, TaskOutput, open_output
from gq.errors import Refusal, UsageError


class Sheet:
    """A file to write to, and what is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = BufferedWriter(os.open(path, os.O_WRONLY | os.O_CREAT), str(path))

    @property
    def text(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def sheet(tmp_path: Path) -> Sheet:
    return Sheet(tmp_path / "sheet")


def task_output(sheet: Sheet, tasks: int, *, label: bool = False, unbuffered: bool = False) -> TaskOutput:
    both = [sheet.writer] * tasks
    return TaskOutput(both, both, is_labelled=label, is_unbuffered=unbuffered)


def test_one_task_passes_its_bytes_through_as_they_come(sheet: Sheet) -> None:
    task_output(sheet, 1).feed(0, "stdout", b"Password: ")
    assert sheet.text == b"Password: "


def test_lines_of_several_tasks_are_never_mixed(sheet: Sheet) -> None:
    shown = task_output(sheet, 2)
    shown.feed(0, "stdout", b"from ze")
    shown.feed(1, "stdout", b"from one\n")
    shown.feed(0, "stdout", b"ro\n")
    assert sheet.text == b"from one\nfrom zero\n"


def test_a_line_that_is_not_ended_comes_at_the_end_of_its_task(sheet: Sheet) -> None:
    shown = task_output(sheet, 2)
    shown.feed(1, "stdout", b"no newline")
    assert sheet.text == b""
    shown.finish(1)
    assert sheet.text == b"no newline"


def test_labels_are_as_wide_as_the_highest_rank_and_end_every_line(sheet: Sheet) -> None:
    shown = task_output(sheet, 11, label=True)
    shown.feed(2, "stdout", b"a\rb\n\nc")
    shown.finish(2)
    assert sheet.text == b" 2: a\rb\n 2: \n 2: c\n"


def test_unbuffered_labels_stand_only_at_the_beginning_of_lines(sheet: Sheet) -> None:
    shown = task_output(sheet, 2, label=True, unbuffered=True)
    shown.feed(0, "stdout", b"50 %")
    shown.feed(0, "stdout", b" done\nnext\n")
    assert sheet.text == b"0: 50 % done\n0: next\n"


def test_a_line_without_end_does_not_fill_memory(sheet: Sheet) -> None:
    shown = task_output(sheet, 2)
    shown.feed(0, "stdout", b"x" * (LONGEST_LINE + 1))
    assert len(sheet.text) == LONGEST_LINE + 1


def test_every_task_gets_the_file_that_its_pattern_names(tmp_path: Path) -> None:
    options = OutputOptions(output=str(tmp_path / "out-%t"))
    shown = open_output(options, 2, lambda pattern, rank: pattern.replace("%t", str(rank)))
    shown.feed(0, "stdout", b"zero\n")
    shown.feed(1, "stderr", b"one\n")
    assert [(tmp_path / f"out-{rank}").read_bytes() for rank in (0, 1)] == [b"zero\n", b"one\n"]


def test_a_file_that_cannot_be_opened_is_refused_with_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "out")
    with pytest.raises(Refusal, match=r"cannot open .*missing/out: No such file"):
        open_output(OutputOptions(output=path), 1, lambda pattern, rank: pattern)


def test_a_full_disk_is_refused_with_the_name_of_the_file() -> None:
    shown = open_output(OutputOptions(output="/dev/full"), 1, lambda pattern, rank: pattern)
    with pytest.raises(Refusal, match="cannot write /dev/full: No space left on device"):
        shown.feed(0, "stdout", b"lost\n")


def test_only_the_chosen_rank_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    shown = open_output(OutputOptions(output="1"), 2, lambda pattern, rank: pattern)
    shown.feed(0, "stdout", b"zero\n")
    shown.feed(1, "stdout", b"one\n")
    assert capfd.readouterr().out == "one\n"


def test_a_rank_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no task 2: the step has 2"):
        open_output(OutputOptions(output="2"), 2, lambda pattern, rank: pattern)


def test_a_reader_that_left_is_noticed_and_the_rest_dropped() -> None:
    read, write = os.pipe()
    os.close(read)
    writer = BufferedWriter(write, "pipe")
    writer.put(b"nobody reads this")
    assert writer.is_gone
    assert writer.backlog == 0


def test_a_slow_reader_leaves_a_backlog_and_never_blocks() -> None:
    read, write = os.pipe()
    writer = BufferedWriter(write, "pipe")
    data = os.urandom(300_000)
    writer.put(data)
    assert writer.backlog > 0
    seen = b""
    while len(seen) < len(data):
        seen += os.read(read, 65536)
        writer.push()
    assert seen == data
    assert writer.backlog == 0
