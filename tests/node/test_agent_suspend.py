"""The node's agent: attempts that stand still, whole turns asserted."""

from __future__ import annotations

import signal

import pytest

from gq.model.state import Outcome
from gq.wire.node import AttemptStatus, SetSuspended, Stop, SuspendedSet
from gqnode.control import deadline
from gqnode.control.attempt import AttemptRecord, Phase, StepRecord
from gqnode.control.effect import AdoptProcess, EmptyCell, FreezeCell, SaveRecord, SendReport, SignalProcess
from gqnode.control.input import CellFrozen, ClockLeapt, ProcessStarted, Tick
from tests.node.agent_host import ATTEMPT, AgentHost, at, launch, script_end, step_order

SUSPEND = SetSuspended(attempt_id=ATTEMPT, is_suspended=True)
RESUME = SetSuspended(attempt_id=ATTEMPT, is_suspended=False)
FREEZE = FreezeCell(attempt_id=ATTEMPT, is_frozen=True)
THAW = FreezeCell(attempt_id=ATTEMPT, is_frozen=False)


def said(seq: int, is_suspended: bool) -> SendReport:
    return SendReport(seq=seq, body=SuspendedSet(attempt_id=ATTEMPT, is_suspended=is_suspended))


def record(**facts: object) -> AttemptRecord:
    """Running since 100, with a limit of 60 s."""
    whole = {"launch": launch(), "phase": Phase.RUNNING, "go": True, "time_limit_s": 60, "started_at": 100.0, **facts}
    return AttemptRecord(**whole)  # type: ignore[arg-type]


def test_what_is_to_stand_still_is_saved_first_then_frozen_then_reported() -> None:
    host = AgentHost(record())

    assert host.order(SUSPEND, 110.0) == (
        SaveRecord(record=record(suspended_at=110.0)), FREEZE, said(1, True)
    )  # fmt: skip
    assert host.order(SUSPEND, 111.0) == (said(1, True),), "again: it is so already"


def test_what_goes_on_does_so_first_and_is_saved_then() -> None:
    """Else a crash between the two would leave it standing still for ever."""
    host = AgentHost(record(suspended_at=110.0))

    assert host.order(RESUME, 150.0) == (THAW, SaveRecord(record=record(slept_s=40.0)), said(1, False))
    assert host.order(RESUME, 151.0) == (said(1, False),)


def test_the_time_limit_stands_still() -> None:
    host = AgentHost(record())
    host.order(SUSPEND, 110.0)
    assert host.agent.next_wakeup() is None or host.handle(Tick(), 10_000.0)
    assert host.record().phase is Phase.RUNNING

    host.order(RESUME, 10_000.0)

    assert deadline.limit_at(host.record()) == 10_050.0
    host.handle(Tick(), 10_050.0)
    assert (host.record().phase, host.record().outcome) == (Phase.STOPPING, Outcome.TIMEOUT)


def test_a_leap_of_the_clock_while_it_stands_still_counts_once() -> None:
    host = AgentHost(record(suspended_at=110.0))

    host.handle(ClockLeapt(by_s=1000.0), 1120.0)
    host.order(RESUME, 1130.0)

    assert host.record().slept_s == 1020.0
    assert deadline.limit_at(host.record()) == 1180.0, "of 60 s it has had 10"


def test_a_step_whose_client_may_stand_still_waits_for_it() -> None:
    step = StepRecord(order=step_order(), expires_at=130.0)
    host = AgentHost(record(suspended_at=110.0, steps={0: step}, time_limit_s=None))

    assert host.handle(Tick(), 500.0) == ()
    host.order(RESUME, 510.0)

    assert host.record().steps[0].expires_at == 530.0


def test_what_is_stopped_gets_its_term_and_goes_on_to_see_it() -> None:
    host = AgentHost(record(suspended_at=110.0))

    done = host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=30), 120.0)

    both = (signal.SIGTERM, signal.SIGCONT)
    signals = [SignalProcess(attempt_id=ATTEMPT, signum=int(one), scope="all") for one in both]
    assert [one for one in done if not isinstance(one, SaveRecord)] == [*signals, THAW]
    assert (host.record().suspended_at, host.record().kill_at) == (None, 150.0)


def test_what_is_killed_goes_on_before() -> None:
    host = AgentHost(record(suspended_at=110.0))

    done = host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0), 120.0)

    assert [one for one in done if not isinstance(one, SaveRecord)] == [THAW, EmptyCell(attempt_id=ATTEMPT)]


def test_a_script_that_is_gone_while_it_stood_still_leaves_an_empty_cell() -> None:
    host = AgentHost(record(suspended_at=110.0))

    done = host.handle(script_end(), 120.0)

    assert [one for one in done if isinstance(one, FreezeCell | EmptyCell)] == [THAW, EmptyCell(attempt_id=ATTEMPT)]


def test_after_a_restart_what_stands_still_is_frozen_again_once_its_shepherd_is_met() -> None:
    host = AgentHost(record(suspended_at=110.0))

    assert AdoptProcess(attempt_id=ATTEMPT) in host.agent.resume(120.0)
    assert host.order(RESUME, 121.0) == (), "it could not be carried out, and is said again"
    assert FREEZE in host.handle(ProcessStarted(attempt_id=ATTEMPT, at=100.0), 122.0)
    assert host.agent.statuses() == (
        AttemptStatus(attempt_id=ATTEMPT, phase="running", time_limit_s=60, is_suspended=True),
    )
    assert THAW in host.order(RESUME, 123.0)


@pytest.mark.parametrize("phase", [one for one in Phase if one is not Phase.RUNNING])
def test_what_does_not_run_is_passed_over_in_silence(phase: Phase) -> None:
    host = at(phase)

    assert host.order(SUSPEND) == ()


def test_what_is_not_here_is_passed_over_in_silence() -> None:
    assert AgentHost().order(SUSPEND) == ()


# ── for another job ───────────────────────────────────────────────────────────────────────────────────────────

PARK = SetSuspended(attempt_id=ATTEMPT, is_suspended=True, parked_at=7.5)
MEASURE = FreezeCell(attempt_id=ATTEMPT, is_frozen=True, parked_at=7.5)


def test_what_is_parked_is_reported_when_it_does_stand_still_with_what_it_holds() -> None:
    host = AgentHost(record())

    assert host.order(PARK, 110.0) == (SaveRecord(record=record(suspended_at=110.0)), MEASURE)
    assert host.order(PARK, 111.0) == (MEASURE,), "again: the report may have been lost"

    [told] = host.handle(CellFrozen(attempt_id=ATTEMPT, parked_at=7.5, gpu_memory=((0, 4000),)), 112.0)

    body = SuspendedSet(attempt_id=ATTEMPT, is_suspended=True, parked_at=7.5, gpu_memory=((0, 4000),))
    assert told == SendReport(seq=1, body=body)


@pytest.mark.parametrize("order", [RESUME, Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0)])
def test_nothing_is_said_of_one_that_goes_on_or_ends_meanwhile(order: SetSuspended | Stop) -> None:
    host = AgentHost(record())
    host.order(PARK, 110.0)
    host.order(order, 111.0)
    assert host.handle(CellFrozen(attempt_id=ATTEMPT, parked_at=7.5, gpu_memory=()), 112.0) == ()
