"""Tables on a terminal: what gives way where it is narrow."""

from __future__ import annotations

import pytest

from gq.cli.framework import output
from gq.cli.framework.output import Column, write_table

ACCOUNTING = (
    Column("JobID", is_whole=True), Column("JobName", is_wide=True), Column("User"),
    Column("Elapsed", is_number=True), Column("State", is_whole=True),
)  # fmt: skip
ROW = ("2841_[1-5]", "fine-tune-the-large-one", "alexandra", "1-02:03:04", "CANCELLED by 1000")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "55")


@pytest.mark.usefixtures("narrow")
def test_what_is_wide_gives_way_first_and_what_should_be_whole_last(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(ACCOUNTING, [[ROW]])

    header, line = capsys.readouterr().out.splitlines()
    assert len(line.rstrip()) <= 55
    assert line.split()[0] == "2841_[1-5]" and line.rstrip().endswith("CANCELLED by 1000")
    assert "fine-t… alexan… " in line and "1-02:03:04" in line and header.split() == [one.header for one in ACCOUNTING]


def test_headers_are_cut_before_values_and_numbers_are_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "32")
    columns = (Column("JobName", is_wide=True), Column("Partition"), Column("AllocGPUS", is_number=True),
               Column("Elapsed", is_number=True))  # fmt: skip
    write_table(columns, [[("training-run", "main", "8", "1-02:03:04")]])

    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[1:] == ["Par…", "AllocG…", "Elapsed"] and len(header.rstrip()) <= 32
    assert line.split()[1:] == ["main", "8", "1-02:03:04"]


def test_in_a_pipe_one_very_long_value_widens_only_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("KEY"), Column("VALUE"), Column("FROM"))
    write_table(
        columns, [[("short", "1", "default"), ("long", "x" * 700, "gq.toml")] + [("other", "2", "default")] * 20]
    )

    header, *lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in (header, lines[0], *lines[2:])) < 80
    assert lines[1].split() == ["long", "x" * 700, "gq.toml"]


def test_in_a_pipe_nothing_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    write_table(ACCOUNTING, [[ROW]])
    assert " ".join(ROW) in capsys.readouterr().out
