"""A clock that leaps forward: what the machine slept through is nobody's time limit, grace or patience."""

from __future__ import annotations

from gq.model.state import Outcome
from gq.wire.node import Stop
from gqnode.control.agent_state import Settings
from gqnode.control.attempt import Phase
from gqnode.control.effect import EmptyCell, SaveRecord
from gqnode.control.input import Acknowledged, ClockLeapt, Tick
from tests.node.agent_host import ATTEMPT, AgentHost, at, limited, step_order

NIGHT = ClockLeapt(by_s=36_000)


def test_a_job_has_the_rest_of_its_time_after_its_machine_has_slept_also_for_the_next_daemon() -> None:
    host = at(Phase.RUNNING, limited(60))
    host.handle(Acknowledged(seqs=(1, 2, 3, 4)))

    (saved,) = host.handle(NIGHT, now=36_150)

    assert isinstance(saved, SaveRecord) and saved.record.slept_s == 36_000
    assert host.handle(Tick(), now=36_159.9) == ()
    next_life = AgentHost(saved.record)
    assert (host.agent.next_wakeup(), next_life.agent.next_wakeup()) == (36_160, 36_160)
    host.handle(Tick(), now=36_160)
    assert host.record().outcome is Outcome.TIMEOUT


def test_the_grace_of_a_job_that_is_being_ended_is_as_long_as_it_was() -> None:
    host = at(Phase.RUNNING)
    host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=30), now=200)

    host.handle(NIGHT, now=36_210)

    assert EmptyCell(attempt_id=ATTEMPT) not in host.handle(Tick(), now=36_229)
    assert EmptyCell(attempt_id=ATTEMPT) in host.handle(Tick(), now=36_230)


def test_a_step_waits_for_its_client_as_long_as_before() -> None:
    host = at(Phase.RUNNING)
    host.order(step_order(), now=200)

    host.handle(NIGHT, now=36_210)

    waits_s = Settings().step_wait_s
    assert not host.record().steps[0].is_ended
    host.handle(Tick(), now=36_200 + waits_s - 1)
    assert not host.record().steps[0].is_ended
    host.handle(Tick(), now=36_200 + waits_s)
    assert host.record().steps[0].is_ended


def test_a_leap_changes_nothing_of_what_is_over() -> None:
    host = at(Phase.ENDED)

    assert host.handle(NIGHT, now=36_210) == ()
