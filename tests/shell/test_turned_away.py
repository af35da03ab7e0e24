"""The log says who was turned away, and does not fill with it."""

from __future__ import annotations

import pytest

from gqd.shell.turned_away import MAX_KNOWN, MAX_WORDS, SAY_AGAIN_S, TurnedAway


class Dial:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


def test_a_host_that_keeps_knocking_is_named_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    dial = Dial()
    turned_away = TurnedAway(dial.now)
    for _ in range(5):
        turned_away.say("a host at 10.0.0.9", "no key")
    assert caplog.messages == ["a host at 10.0.0.9 was turned away: no key"]

    dial.at += SAY_AGAIN_S
    turned_away.say("a host at 10.0.0.9", "no key")
    assert len(caplog.messages) == 2


def test_other_hosts_and_other_reasons_are_news(caplog: pytest.LogCaptureFixture) -> None:
    turned_away = TurnedAway(Dial().now)
    for who, why in (("n1", "no key"), ("n2", "no key"), ("n2", "old version")):
        turned_away.say(who, why)
    assert len(caplog.messages) == 3


def test_what_a_stranger_calls_itself_makes_no_line_and_no_long_one(caplog: pytest.LogCaptureFixture) -> None:
    TurnedAway(Dial().now).say("n1", "not\ncritical all is lost" + "x" * 5000)
    [line] = caplog.messages
    assert line.startswith("n1 was turned away: not?critical")
    assert len(line) < MAX_WORDS + 50


def test_many_strangers_are_not_remembered_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    turned_away = TurnedAway(Dial().now)
    for number in range(MAX_KNOWN + 1):
        turned_away.say(f"n{number}", "no key")
    turned_away.say("n0", "no key")
    assert caplog.messages.count("n0 was turned away: no key") == 2, "the oldest were forgotten"
