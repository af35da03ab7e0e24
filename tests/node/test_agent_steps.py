"""Steps in the node's agent: from the order to the acknowledged end."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace

from gq.model.job import ExitStatus, Usage
from gq.model.state import Outcome
from gq.wire.node import AttemptEnded, CellEmptied, StepEnded, StepReceived, Stop, StopStep
from gqnode.control.agent_state import Settings
from gqnode.control.attempt import Phase
from gqnode.control.effect import (
    AdoptProcess,
    CheckCell,
    EmptyCell,
    ExpectStep,
    ForgetStep,
    SendReport,
    SignalStepTasks,
)
from gqnode.control.input import (
    Acknowledged,
    CellEmpty,
    ProcessStarted,
    StepAttached,
    StepTaskFailed,
    StepTasksEnded,
    Tick,
)
from tests.node.agent_host import (
    ATTEMPT,
    STEP,
    AgentHost,
    at,
    launch,
    reports,
    script_end,
    step_order,
    without_saves,
)

TERM = SignalStepTasks(step_id=STEP, signum=signal.SIGTERM)
CONT = SignalStepTasks(step_id=STEP, signum=signal.SIGCONT)
KILL = SignalStepTasks(step_id=STEP, signum=signal.SIGKILL)
NEVER_WAS = StepEnded(step_id=STEP, outcome=Outcome.CANCELLED, was_attached=False)


def _running(phase: Phase = Phase.RUNNING) -> AgentHost:
    """With a step whose client has brought its tasks."""
    host = at(phase)
    host.order(step_order())
    host.handle(StepAttached(step_id=STEP))
    return host


def _tasks_end(code: int = 0, *, signum: int = 0, oom: bool = False) -> StepTasksEnded:
    return StepTasksEnded(step_id=STEP, exit=ExitStatus(code=code, signal=signum), oom=oom, usage=Usage(max_rss_mib=9))


def test_a_step_is_in_the_spool_before_it_is_acknowledged_and_its_client_may_come() -> None:
    host = at(Phase.RUNNING)

    turn = host.order(step_order(), now=100)

    assert without_saves(turn) == [
        SendReport(seq=5, body=StepReceived(step_id=STEP)),
        ExpectStep(step_id=STEP),
    ]
    assert host.record().steps[0].expires_at == 130


def test_a_step_that_comes_before_the_shepherd_waits_for_it() -> None:
    host = at(Phase.STARTING, launch(rank=1, nodes=2))

    ordered = host.order(step_order(node="n2"))
    started = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))

    assert reports(ordered) == [StepReceived(step_id=STEP)]
    assert ExpectStep(step_id=STEP) not in ordered
    assert ExpectStep(step_id=STEP) in started


def test_an_order_seen_before_repeats_where_the_step_stands() -> None:
    host = _running()

    assert host.order(step_order()) == (SendReport(seq=5, body=StepReceived(step_id=STEP)),)
    (ended,) = reports(host.handle(_tasks_end()))
    assert reports(host.order(step_order())) == [ended]
    host.handle(Acknowledged(seqs=(host.next_seq() - 1,)))
    assert host.record().steps == {}
    assert without_saves(host.order(step_order())) == [SendReport(seq=7, body=NEVER_WAS)]


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.ENDED, None])
def test_a_step_of_an_attempt_that_ends_or_is_not_here_never_was(phase: Phase | None) -> None:
    host = at(phase) if phase else AgentHost()

    turn = host.order(step_order())

    assert without_saves(turn) == [SendReport(seq=host.next_seq() - 1, body=NEVER_WAS)]


def test_more_steps_than_a_node_holds_are_refused() -> None:
    host = AgentHost(at(Phase.RUNNING).record(), settings=Settings(steps_per_attempt=1))
    host.order(step_order(0))

    turn = host.order(step_order(1))

    (refused,) = reports(turn)
    assert (refused.outcome, refused.was_attached) == (Outcome.FAILED, False)


def test_a_step_that_no_client_comes_for_is_over_after_its_time() -> None:
    host = at(Phase.RUNNING)
    host.handle(Acknowledged(seqs=(1, 2, 3, 4)))
    host.order(step_order(), now=100)
    host.handle(Acknowledged(seqs=(5,)))

    assert host.agent.next_wakeup() == 130
    assert host.handle(Tick(), now=129.9) == ()
    expired = host.handle(Tick(), now=130)

    assert without_saves(expired) == [ForgetStep(step_id=STEP), SendReport(seq=6, body=NEVER_WAS)]


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (_tasks_end(0), Outcome.COMPLETED),
        (_tasks_end(4), Outcome.FAILED),
        (_tasks_end(signum=9, oom=True), Outcome.OUT_OF_MEMORY),
    ],
)
def test_the_end_of_the_tasks_is_reported_with_the_worst_exit(end: StepTasksEnded, outcome: Outcome) -> None:
    host = _running()

    turn = host.handle(end, now=120)
    again = host.handle(end)

    report = StepEnded(step_id=STEP, exit=end.exit, outcome=outcome, usage=Usage(max_rss_mib=9), ended_at=120)
    assert without_saves(turn) == [SendReport(seq=6, body=report)]
    assert again == ()


def test_a_script_that_fails_after_its_step_ran_out_of_memory_failed_of_that() -> None:
    host = _running()
    host.handle(_tasks_end(signum=9, oom=True))
    host.handle(Acknowledged(seqs=(host.next_seq() - 1,)))

    host.handle(script_end(1))
    (report,) = reports(host.handle(CellEmpty(attempt_id=ATTEMPT)))

    assert report.outcome is Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize("kill_on_bad_exit", [True, False])
def test_when_a_task_fails_the_others_are_ended_if_the_step_wants_that(kill_on_bad_exit: bool) -> None:
    host = at(Phase.RUNNING)
    host.order(step_order(kill_on_bad_exit=kill_on_bad_exit))
    host.handle(StepAttached(step_id=STEP))

    first = host.handle(StepTaskFailed(step_id=STEP), now=150)
    second = host.handle(StepTaskFailed(step_id=STEP), now=151)
    later = without_saves(host.handle(Tick(), now=180))

    assert without_saves(first) == ([TERM, CONT] if kill_on_bad_exit else [])
    assert second == ()
    assert (KILL in later) is kill_on_bad_exit


def test_a_step_that_is_ended_by_order_gets_term_then_kill_and_counts_as_cancelled() -> None:
    host = _running()

    stopped = host.order(StopStep(step_id=STEP, grace_s=10), now=150)
    again = host.order(StopStep(step_id=STEP, grace_s=60), now=151)
    killed = without_saves(host.handle(Tick(), now=160))
    once = without_saves(host.handle(Tick(), now=161))
    (report,) = reports(host.handle(_tasks_end(signum=9), now=162))

    assert without_saves(stopped) == [TERM, CONT]
    assert again == ()
    assert KILL in killed
    assert KILL not in once
    assert report.outcome is Outcome.CANCELLED


def test_a_second_order_without_grace_kills_now() -> None:
    host = _running()
    host.order(StopStep(step_id=STEP, grace_s=10), now=150)

    turn = host.order(StopStep(step_id=STEP, grace_s=0), now=151)

    assert without_saves(turn) == [KILL]


def test_a_signal_for_a_step_reaches_its_tasks_while_they_run() -> None:
    order = StopStep(step_id=STEP, signum=10)
    waiting = at(Phase.RUNNING)
    waiting.order(step_order())
    over = _running()
    over.handle(_tasks_end())

    assert _running().order(order) == (SignalStepTasks(step_id=STEP, signum=10),)
    assert (waiting.order(order), over.order(order), AgentHost().order(order)) == ((), (), ())


def test_ending_a_step_that_has_no_client_or_is_not_here_or_is_over_says_so_at_once() -> None:
    waiting, over = at(Phase.RUNNING), _running()
    waiting.order(step_order())
    (end,) = reports(over.handle(_tasks_end()))
    order = StopStep(step_id=STEP)

    assert without_saves(waiting.order(order)) == [ForgetStep(step_id=STEP), SendReport(seq=6, body=NEVER_WAS)]
    assert reports(over.order(order)) == [end]
    assert reports(AgentHost().order(order)) == [NEVER_WAS]


def test_steps_that_go_with_the_cell_are_said_to_be_over_before_the_attempt_is() -> None:
    host = _running()
    host.handle(script_end(0))

    first, second = reports(host.handle(CellEmpty(attempt_id=ATTEMPT), now=120))

    assert first == StepEnded(step_id=STEP, exit=ExitStatus(signal=9), outcome=Outcome.CANCELLED, ended_at=120)
    assert isinstance(second, AttemptEnded)


def test_tasks_may_finish_within_the_grace_of_a_stop_on_a_node_without_the_script() -> None:
    host = at(Phase.RUNNING, launch(rank=1, nodes=2))
    host.order(step_order(node="n2"))
    host.handle(StepAttached(step_id=STEP))

    stopped = host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.TIMEOUT), now=150)
    over = host.handle(_tasks_end(signum=15), now=155)
    host.handle(CellEmpty(attempt_id=ATTEMPT))

    assert EmptyCell(attempt_id=ATTEMPT) not in stopped
    assert [report.outcome for report in reports(over)] == [Outcome.TIMEOUT]
    assert CheckCell(attempt_id=ATTEMPT) in over
    assert isinstance(host.record().last_report, CellEmptied)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.TIMEOUT])
def test_a_task_that_dies_of_the_end_of_its_job_has_not_failed(outcome: Outcome) -> None:
    host = _running()
    host.order(Stop(attempt_id=ATTEMPT, outcome=outcome, grace_s=30), now=150)

    first = host.handle(StepTaskFailed(step_id=STEP), now=151)
    (report,) = reports(host.handle(_tasks_end(signum=15), now=152))

    assert first == (), "its other tasks have had their TERM, and keep the grace of the job"
    assert report.outcome is outcome


def test_a_step_that_had_failed_before_its_job_was_cancelled_has_failed() -> None:
    host = _running()
    host.handle(StepTaskFailed(step_id=STEP), now=150)
    host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=30), now=151)

    (report,) = reports(host.handle(_tasks_end(code=1), now=152))

    assert report.outcome is Outcome.FAILED


def test_after_a_restart_steps_are_expected_again_and_given_their_time_anew() -> None:
    before = at(Phase.RUNNING)
    before.order(step_order(0), now=100)
    before.order(step_order(1), now=100)
    before.handle(StepTasksEnded(step_id=replace(STEP, step=1), exit=ExitStatus()), now=120)
    host = AgentHost(before.record())

    turn = host.agent.resume(500.0)

    ended = StepEnded(step_id=replace(STEP, step=1), ended_at=120)
    assert turn[0] == AdoptProcess(attempt_id=ATTEMPT)
    assert ExpectStep(step_id=STEP) in turn
    assert ExpectStep(step_id=replace(STEP, step=1)) in turn  # its client may not have fetched all
    assert ended in reports(turn)
    assert host.record().steps[0].expires_at == 530
