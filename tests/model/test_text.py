"""Texts of other people: what a terminal obeys is found, and is escaped."""

from __future__ import annotations

import json
import logging

import pytest

from gq.cli.framework.output import json_text
from gq.host.log import set_up
from gq.model.text import escape_controls, has_controls

CONTROLS = ["\x1b[2J", "a\rb", "a\nb", "\x9b2J", "\x7f", "\u202egnp.exe", "\u2066x", "\u2028"]


@pytest.mark.parametrize("text", CONTROLS)
def test_a_text_with_a_control_character_is_found_and_escaped(text: str) -> None:
    assert has_controls(text)
    assert escape_controls(text).isprintable()


@pytest.mark.parametrize("text", ["", "résumé 学習　データ", "a b"])
def test_a_text_in_any_language_stays(text: str) -> None:
    assert not has_controls(text)
    assert escape_controls(text) == text


@pytest.mark.parametrize("text", CONTROLS)
@pytest.mark.parametrize("indent", [0, 2])
def test_json_holds_no_character_that_a_terminal_obeys(text: str, indent: int) -> None:
    written = json_text({"comment": text}, indent)

    assert not has_controls(written.replace("\n", "") if indent else written)
    assert json.loads(written) == {"comment": text}


@pytest.fixture
def log() -> logging.Logger:
    return logging.Logger("gq-test")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_message_or_traceback_cannot_forge_a_line_or_move_the_cursor(
    log: logging.Logger, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log, "info", as_json)
    log.warning("the webhook answered `%s`", "500 \x1b[2J\r\n2026-01-01 info    all is well")
    try:
        raise ValueError("no\x1b[2J\n2026-01-01 info    all is well")
    except ValueError:
        log.exception("it failed")
    lines = capsys.readouterr().err.splitlines()

    assert not any(map(has_controls, lines))
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert "all is well" in lines[0]
