"""Two small things that everything trusts: the clock and the key files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gq.connection.curve import fresh_keys, make_keys, pinned_nodes, read_keys, read_public
from gq.errors import Refusal
from gq.host.clock import Clock


class Machine:
    """A machine's two clocks."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1000.0, 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)


def test_the_clock_follows_the_machines() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.pass_time(5)
    assert clock.now() == 1005
    machine.wall += 3600
    assert clock.now() == machine.wall


def test_a_clock_that_is_set_back_never_runs_backwards_never_stops_and_is_caught_up() -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    machine.wall -= 60
    seen = [clock.now()]
    for _ in range(200):
        machine.pass_time(1)
        seen.append(clock.now())
    assert seen[0] == before
    assert all(earlier < later for earlier, later in itertools.pairwise(seen))
    assert seen[-1] == machine.wall


def test_the_clock_says_by_how_much_it_leapt_and_says_it_once() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.pass_time(100)
    clock.now()
    assert clock.take_leap_s() == 0

    machine.wall += 3600  # it slept, or its clock was set right
    machine.pass_time(1)
    clock.now()
    machine.wall += 60
    clock.now()

    assert clock.take_leap_s() == 3660
    assert clock.take_leap_s() == 0


def test_time_that_is_caught_up_is_no_leap() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall -= 60
    for _ in range(200):
        machine.pass_time(1)
        clock.now()
    machine.wall += 1  # as unsteady as clocks are
    clock.now()
    assert clock.take_leap_s() == 0


def test_a_pair_is_written_for_its_owner_and_read_back(tmp_path: Path) -> None:
    secret, public = tmp_path / "a.key", tmp_path / "nodes" / "a.pub"
    pair = make_keys(secret, public)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert read_keys(secret) == pair
    assert read_public(public) == pair.public


def test_a_secret_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "a.key"
    make_keys(secret, tmp_path / "a.pub")
    secret.chmod(0o604)
    with pytest.raises(Refusal) as caught:
        read_keys(secret)
    assert caught.value.code == "unsafe_key"
    assert f"chmod 600 {secret}" in caught.value.hint


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    secret, public = tmp_path / "a.key", tmp_path / "a.pub"
    pair = make_keys(secret, public)
    secret.unlink()
    with pytest.raises(Refusal) as caught:
        make_keys(secret, public)
    assert caught.value.code == "key_exists"
    assert not secret.exists()
    assert read_public(public) == pair.public


@pytest.mark.parametrize("content", [None, b"short"])
def test_a_lost_key_is_to_be_restored_and_not_made_anew(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "gqd.pub").write_bytes(content)

    with pytest.raises(Refusal) as caught:
        read_public(tmp_path / "gqd.pub")

    assert caught.value.hint.startswith("restore it from a backup")


def test_files_that_hold_no_key_pin_nobody(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    pair = fresh_keys()
    (nodes / "n1.pub").write_bytes(pair.public + b"\n")
    (nodes / "n2.pub").write_bytes(b"x" * 39)
    (nodes / "n3.pub").write_bytes(b'"' * 40)
    (nodes / "n4.pub").write_bytes(b"\xff" * 40)
    assert pinned_nodes(str(tmp_path)) == {pair.public: "n1"}
