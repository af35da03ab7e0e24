"""Log and audit trail say who was turned away, and do not fill with it."""

from __future__ import annotations

import pytest

from gqd.shell.inbox import Inbox
from gqd.shell.listeners.rejections import AGAIN_S, MAX_PER_MINUTE, MAX_WORDS, Rejections
from gqd.shell.metrics import Counters
from gqd.state.input import DoorIncident


class Gate:
    """Rejections with a clock that stands until it is turned, and what came of them."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.counters = Counters()
        self._inbox = Inbox(10_000, on_item=lambda: None, on_room=lambda: None)
        self.rejections = Rejections(self._inbox, self.counters, lambda: self.at)

    def told(self) -> list[DoorIncident]:
        """Since the last call."""
        found = [item.input for item in self._inbox.take(10_000)]
        assert all(isinstance(one, DoorIncident) for one in found)
        return found  # type: ignore[return-value]


def test_a_host_that_keeps_knocking_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    for _ in range(5):
        gate.rejections.record("HandshakeRefused", "10.0.0.9", "no key")
    assert caplog.messages == ["a host at 10.0.0.9 was rejected: no key"]
    assert gate.told() == [DoorIncident(action="HandshakeRefused", origin="10.0.0.9", detail="no key")]
    gate.at += AGAIN_S
    gate.rejections.record("HandshakeRefused", "10.0.0.9", "no key")
    assert len(gate.told()) == 1


def test_a_user_of_this_host_does_not_hide_behind_the_noise_of_another() -> None:
    gate = Gate()
    for uid in (1001, 1002, 1001):
        gate.rejections.record("Malformed", "local", "no request", uid=uid)

    assert [(one.origin, one.uid) for one in gate.told()] == [("local", 1001), ("local", 1002)]


def test_another_thing_and_another_place_are_news_and_other_words_are_not() -> None:
    gate = Gate()
    for action, origin, detail in (
        ("Impostor", "10.0.0.9", "says it is n2"),
        ("Impostor", "10.0.0.9", "says it is n3"),
        ("Malformed", "10.0.0.9", "noise"),
        ("Impostor", "10.0.0.8", "says it is n2"),
    ):
        gate.rejections.record(action, origin, detail)
    assert [(one.action, one.origin) for one in gate.told()] == [
        ("Impostor", "10.0.0.9"), ("Malformed", "10.0.0.9"), ("Impostor", "10.0.0.8")
    ]  # fmt: skip


def test_who_is_known_is_named_with_user_and_uid(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    gate.rejections.record("IdentityMismatch", "node n1", "two uids", "alice", 4321)
    gate.rejections.record("NotServed", "local", "not you", uid=5)
    assert [(one.user, one.uid) for one in gate.told()] == [("alice", 4321), ("", 5)]
    assert caplog.messages == ["node n1 was rejected: two uids", "a process on this host was rejected: not you"]


def test_what_a_stranger_calls_itself_makes_no_line_and_no_long_one(caplog: pytest.LogCaptureFixture) -> None:
    Gate().rejections.record("Impostor", "10.0.0.9", "not\ncritical all is \x1b[2Jlost" + "x" * 5000)
    [line] = caplog.messages
    assert "was rejected: not?critical all is ?[2Jlost" in line
    assert len(line) < MAX_WORDS + 60


def test_strangers_without_number_fill_neither_memory_nor_disk(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    for number in range(10_000):
        gate.rejections.record("HandshakeRefused", f"fd00::{number:x}", "no key")
    assert len(gate.told()) == MAX_PER_MINUTE
    assert len(caplog.messages) == MAX_PER_MINUTE + 1
    assert "incidents_untold" in caplog.messages[-1]
    assert gate.counters.incidents_untold == 10_000 - MAX_PER_MINUTE
    gate.at += AGAIN_S
    gate.rejections.record("HandshakeRefused", "fd00::1", "no key")
    assert len(gate.told()) == 1, "a minute later there is room"
