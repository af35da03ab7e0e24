"""Estimates take their share of the loop's time, and no more."""

from __future__ import annotations

from gqd.control.turn import Turn
from gqd.shell.estimating import REST, REST_WHEN_ASKED, SLICE_S, Estimating
from gqd.state.effect import AskWhoIsThere


class Rehearsing:
    """So much work is left; a piece of it takes a millisecond of this clock."""

    def __init__(self, pieces: int, is_asked: bool = False) -> None:
        self.pieces = pieces
        self.is_asked = is_asked
        self.timer = 100.0

    def wants_estimates(self, now: float) -> bool:
        return self.pieces > 0

    def is_asked_for_estimates(self) -> bool:
        return self.is_asked

    def estimate(self, budget: int, now: float) -> Turn:
        self.pieces -= 1
        self.timer += 0.001
        return Turn(effects=(AskWhoIsThere(route=("clients", b"x")),)) if not self.pieces else Turn()


def test_a_slice_takes_milliseconds_and_then_rests_many_times_as_long() -> None:
    core = Rehearsing(pieces=100)
    estimating = Estimating(core, lambda: core.timer)
    assert estimating.is_due(0.0)

    estimating.slice(0.0)

    spent = core.timer - 100.0
    assert SLICE_S <= spent <= SLICE_S + 0.002
    assert not estimating.is_due(0.0)
    assert estimating.rest_s(0.0) is not None
    core.timer += REST * spent + 0.0001
    assert estimating.is_due(0.0)


def test_who_waits_for_an_answer_has_it_sooner_and_a_slice_ends_with_it() -> None:
    core = Rehearsing(pieces=2, is_asked=True)
    estimating = Estimating(core, lambda: core.timer)

    turn = estimating.slice(0.0)

    assert turn.effects
    assert core.pieces == 0
    assert estimating.rest_s(0.0) is None, "nothing is wanted any more"
    core.pieces = 10
    core.timer += REST_WHEN_ASKED * 0.002 + 0.0001
    assert estimating.is_due(0.0)
