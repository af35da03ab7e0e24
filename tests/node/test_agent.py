"""The node's agent: every order and happening at every point of an attempt's life, whole turns asserted."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from msgspec.structs import replace

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus, SignalSpec, Usage
from gq.model.state import Outcome
from gq.wire.node import (
    AttemptEnded,
    AttemptStatus,
    CellEmptied,
    Go,
    GoReceived,
    Notify,
    OrderConfirmed,
    Prepare,
    Prepared,
    PrepareReceived,
    PrepareRefused,
    ReportBody,
    SetTimeLimit,
    SignalAttempt,
    Started,
    Stop,
    TimeLimitSet,
)
from gqnode.control.account import Account
from gqnode.control.agent_state import Settings
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import (
    AdoptProcess,
    CheckCell,
    DropRecord,
    EmptyCell,
    MakeCell,
    SaveRecord,
    SendReport,
    SignalProcess,
    StartProcess,
    WriteLine,
)
from gqnode.control.input import (
    Acknowledged,
    CellEmpty,
    CellFailed,
    CellMade,
    CellQuiet,
    LinkUp,
    ProcessStarted,
    Removed,
    Tick,
)
from tests.node.agent_host import (
    ATTEMPT,
    BLOBS,
    PORT,
    AgentHost,
    at,
    launch,
    limited,
    reports,
    script_end,
    without_saves,
)

TERM = SignalProcess(attempt_id=ATTEMPT, signum=signal.SIGTERM, scope="all")
CONT = SignalProcess(attempt_id=ATTEMPT, signum=signal.SIGCONT, scope="all")
STOP = Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=30)
ENDED_WELL = AttemptEnded(
    attempt_id=ATTEMPT,
    outcome=Outcome.COMPLETED,
    exit=ExitStatus(),
    usage=Usage(user_cpu_s=1.0),
    started_at=100.0,
    ended_at=100.0,
    cell_emptied=True,
)


# ── the launch ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prepare_is_in_the_spool_before_it_is_acknowledged_and_a_cell_is_made() -> None:
    host = AgentHost()

    turn = host.order(Prepare(launch=launch()))

    record = AttemptRecord(launch=launch(), phase=Phase.PREPARING)
    assert turn == (
        SaveRecord(record=record, blobs=BLOBS),
        SendReport(seq=1, body=PrepareReceived(attempt_id=ATTEMPT)),
        MakeCell(launch=launch()),
    )


def test_a_made_cell_is_reported_with_the_port_that_the_batch_node_leased_which_is_kept_for_the_other_nodes() -> None:
    wanted = launch(nodes=2)
    host = at(Phase.PREPARING, wanted)

    turn = host.handle(CellMade(attempt_id=ATTEMPT, master_port=PORT))

    record = AttemptRecord(launch=wanted, phase=Phase.PREPARED, master_port=PORT)
    assert turn == (
        SaveRecord(record=record),
        SendReport(seq=2, body=Prepared(attempt_id=ATTEMPT, master_port=PORT)),
    )


def test_of_a_job_on_one_node_nothing_is_written_before_its_start() -> None:
    host = at(Phase.PREPARING)

    turn = host.handle(CellMade(attempt_id=ATTEMPT, master_port=PORT))

    assert turn == (SendReport(seq=2, body=Prepared(attempt_id=ATTEMPT, master_port=PORT)),)
    assert host.record().phase is Phase.PREPARED


def test_whom_the_processes_run_as_is_kept_with_the_attempt() -> None:
    host = AgentHost()
    host.order(Prepare(launch=launch()))
    account = Account(user="ada", uid=1000, gid=1000, groups=(1000, 3000), home="/home/ada")

    host.handle(CellMade(attempt_id=ATTEMPT, master_port=PORT, account=account))
    turn = host.order(Go(attempt_id=ATTEMPT, master_port=PORT))

    started = AttemptRecord(launch=launch(), phase=Phase.STARTING, go=True, master_port=PORT, account=account)
    assert turn[0] == SaveRecord(record=started)


def test_a_go_is_saved_as_a_start_before_it_is_acknowledged_and_before_anything_starts() -> None:
    host = at(Phase.PREPARED)

    turn = host.order(Go(attempt_id=ATTEMPT, master_port=PORT))

    record = AttemptRecord(launch=launch(), phase=Phase.STARTING, go=True, master_port=PORT)
    assert turn == (
        SaveRecord(record=record),
        SendReport(seq=3, body=GoReceived(attempt_id=ATTEMPT)),
        StartProcess(launch=launch(), master_port=PORT),
    )


def test_a_go_that_overtakes_the_cell_starts_when_the_cell_is_made_with_the_batch_nodes_port() -> None:
    other = launch(rank=1, nodes=2)
    host = at(Phase.PREPARING, other)

    received = host.order(Go(attempt_id=ATTEMPT, master_port=PORT))
    made = host.handle(CellMade(attempt_id=ATTEMPT))

    assert reports(received) == [GoReceived(attempt_id=ATTEMPT)]
    assert without_saves(made) == [StartProcess(launch=other, master_port=PORT)]


def test_only_the_batch_node_reports_that_the_job_has_started() -> None:
    batch, other = at(Phase.STARTING, launch(nodes=2)), at(Phase.STARTING, launch(rank=1, nodes=2))

    first = batch.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))
    second = other.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))

    assert reports(first) == [Started(attempt_id=ATTEMPT, at=101.0, master_port=PORT)]
    assert reports(second) == []
    assert batch.record().phase is other.record().phase is Phase.RUNNING


def test_a_start_is_not_saved_since_the_shepherd_tells_it_again_after_a_crash() -> None:
    host = at(Phase.STARTING)
    saved = host.record()

    turn = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))
    again = AgentHost(saved)
    again.agent.resume(300.0)
    told = again.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0), now=301)

    assert turn == (SendReport(seq=4, body=Started(attempt_id=ATTEMPT, at=101.0, master_port=PORT)),)
    assert reports(told) == [Started(attempt_id=ATTEMPT, at=101.0, master_port=PORT)]
    assert again.record() == host.record()


def test_a_cell_that_cannot_be_made_refuses_the_attempt_and_leaves_nothing() -> None:
    host = at(Phase.PREPARING)

    turn = host.handle(CellFailed(attempt_id=ATTEMPT, why="no memory cgroup"))

    assert turn == (
        DropRecord(attempt_id=ATTEMPT),
        SendReport(seq=2, body=PrepareRefused(attempt_id=ATTEMPT, why="no memory cgroup")),
    )
    assert host.agent.record(ATTEMPT) is None


def test_a_prepare_without_its_blobs_is_refused() -> None:
    host = AgentHost()

    turn = host.order(Prepare(launch=launch()), blobs={"5c": b""})

    why = "the order lacks 1 of the blobs that it names"
    assert turn == (SendReport(seq=1, body=PrepareRefused(attempt_id=ATTEMPT, why=why)),)


def test_a_full_node_refuses_another_attempt() -> None:
    host = AgentHost(settings=Settings(attempts=1))
    host.order(Prepare(launch=launch(job_id=1)))

    turn = host.order(Prepare(launch=launch(job_id=2)))

    assert [type(body) for body in reports(turn)] == [PrepareRefused]


# ── orders that were seen before ──────────────────────────────────────────────────────────────────────────────

STARTED = Started(attempt_id=ATTEMPT, at=100.0, master_port=PORT)


@pytest.mark.parametrize(
    ("phase", "prepare_again", "go_again"),
    [
        (Phase.PREPARING, PrepareReceived(attempt_id=ATTEMPT), GoReceived(attempt_id=ATTEMPT)),
        (Phase.STARTING, GoReceived(attempt_id=ATTEMPT), GoReceived(attempt_id=ATTEMPT)),
        (Phase.RUNNING, STARTED, STARTED),
        (Phase.STOPPING, STARTED, STARTED),
        (Phase.ENDED, ENDED_WELL, ENDED_WELL),
    ],
)
def test_an_order_seen_before_repeats_where_the_attempt_stands_and_starts_nothing(
    phase: Phase, prepare_again: ReportBody, go_again: ReportBody
) -> None:
    for order, expected in (
        (Prepare(launch=launch()), prepare_again),
        (Go(attempt_id=ATTEMPT, master_port=PORT), go_again),
    ):
        host = at(phase)

        turn = host.order(order)

        assert [type(effect) for effect in without_saves(turn)] == [SendReport]
        assert reports(turn) == [expected]
        assert host.record().phase is phase


def test_a_prepare_seen_before_on_a_ready_node_says_ready_again_under_the_same_number() -> None:
    host = at(Phase.PREPARED)

    turn = host.order(Prepare(launch=launch()))

    assert turn == (SendReport(seq=2, body=Prepared(attempt_id=ATTEMPT, master_port=PORT)),)


def test_an_order_for_what_was_refused_or_is_over_says_that_nothing_is_left_and_starts_nothing() -> None:
    host = at(Phase.PREPARING)
    host.handle(CellFailed(attempt_id=ATTEMPT, why="no"))
    emptied = SendReport(seq=3, body=CellEmptied(attempt_id=ATTEMPT))

    assert host.order(Prepare(launch=launch())) == (emptied,)
    assert host.order(Go(attempt_id=ATTEMPT, master_port=PORT)) == (emptied,)


def test_a_prepare_that_comes_after_its_own_stop_starts_nothing() -> None:
    host = AgentHost()
    emptied = SendReport(seq=1, body=CellEmptied(attempt_id=ATTEMPT))

    assert host.order(STOP) == (emptied,)
    assert host.order(Prepare(launch=launch())) == (emptied,)
    assert host.agent.records() == ()


def test_an_attempt_before_the_one_that_is_here_is_stale() -> None:
    host = AgentHost()
    host.order(Prepare(launch=launch(attempt=2)))

    turn = host.order(Prepare(launch=launch(attempt=1)))

    assert turn == (SendReport(seq=2, body=CellEmptied(attempt_id=ATTEMPT)),)


def test_a_job_may_come_again_as_its_next_attempt() -> None:
    host = at(Phase.ENDED)
    host.handle(Acknowledged(seqs=(1, 2, 3, 4, 5)))

    turn = host.order(Prepare(launch=launch(attempt=2)))

    assert reports(turn) == [PrepareReceived(attempt_id=AttemptId(JobId(7), 2))]


# ── the end by itself ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (script_end(0), Outcome.COMPLETED),
        (script_end(3), Outcome.FAILED),
        (script_end(signal=11), Outcome.FAILED),
        (script_end(signal=9, oom=True), Outcome.OUT_OF_MEMORY),
        (script_end(why="no such directory"), Outcome.BOOT_FAIL),
        (script_end(why="the shepherd has ended", is_lost=True), Outcome.NODE_FAIL),
    ],
)
@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_when_the_script_is_over_the_cell_is_emptied_and_one_report_says_all(
    phase: Phase, end: Any, outcome: Outcome
) -> None:
    host = at(phase)

    over = host.handle(end, now=200)
    empty = host.handle(CellEmpty(attempt_id=ATTEMPT, usage=Usage(user_cpu_s=0.5, max_rss_mib=70)), now=201)

    report = AttemptEnded(
        attempt_id=ATTEMPT,
        outcome=outcome,
        exit=end.exit,
        usage=Usage(user_cpu_s=1.0, max_rss_mib=70),
        started_at=100.0 if phase is Phase.RUNNING else None,
        ended_at=200.0,
        why=end.why,
        cell_emptied=True,
    )
    assert over == (EmptyCell(attempt_id=ATTEMPT),)
    assert empty[1:] == (SendReport(seq=host.next_seq() - 1, body=report),)
    assert isinstance(empty[0], SaveRecord)
    assert (empty[0].record.phase, empty[0].record.last_report) == (Phase.ENDED, report)


def test_a_record_goes_when_the_controller_has_the_last_report_and_not_before() -> None:
    host = at(Phase.ENDED)

    others = host.handle(Acknowledged(seqs=(1, 2, 3, 4)))
    last = host.handle(Acknowledged(seqs=(5,)))
    again = host.handle(Acknowledged(seqs=(5, 99)))

    assert (others, last, again) == ((), (DropRecord(attempt_id=ATTEMPT),), ())
    assert host.agent.next_wakeup() is None


def test_an_interactive_job_runs_no_script_and_lives_until_it_is_stopped() -> None:
    host = at(Phase.STARTING, launch(is_interactive=True))

    started = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))
    stopped = host.order(STOP)
    empty = host.handle(CellEmpty(attempt_id=ATTEMPT))

    assert reports(started) == [Started(attempt_id=ATTEMPT, at=101.0, master_port=PORT)]
    assert without_saves(stopped) == [EmptyCell(attempt_id=ATTEMPT)]
    assert reports(empty) == [CellEmptied(attempt_id=ATTEMPT)]


# ── the end by order ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.PREPARED])
def test_a_stop_undoes_a_preparation_at_once(phase: Phase) -> None:
    host = at(phase)

    turn = host.order(replace(STOP, text="CANCELLED AT {time}"))
    made = host.handle(CellMade(attempt_id=ATTEMPT, master_port=PORT))
    empty = host.handle(CellEmpty(attempt_id=ATTEMPT))

    assert without_saves(turn) == [EmptyCell(attempt_id=ATTEMPT)]
    assert made == ()
    assert reports(empty) == [CellEmptied(attempt_id=ATTEMPT)]


def test_a_stop_says_farewell_ends_the_script_gently_and_reports_how_it_took_it() -> None:
    host = at(Phase.RUNNING)

    turn = host.order(replace(STOP, text="CANCELLED AT {time}"), now=110)
    over = host.handle(script_end(signal=15, at=111.0), now=111)
    quiet = host.handle(CellQuiet(attempt_id=ATTEMPT), now=111)
    empty = host.handle(CellEmpty(attempt_id=ATTEMPT), now=112)

    assert turn[0] == WriteLine(attempt_id=ATTEMPT, text="*** JOB 7 ON n1 CANCELLED AT {time} ***", at=110)
    assert isinstance(turn[1], SaveRecord)
    assert (turn[1].record.phase, turn[1].record.kill_at) == (Phase.STOPPING, 140)
    assert turn[2:] == (TERM, CONT)
    assert over == (CheckCell(attempt_id=ATTEMPT),)
    assert quiet == (EmptyCell(attempt_id=ATTEMPT),)
    (report,) = reports(empty)
    assert (report.outcome, report.exit, report.cell_emptied) == (Outcome.CANCELLED, ExitStatus(signal=15), True)


def test_what_the_script_left_behind_may_finish_within_the_grace_but_not_after_it() -> None:
    host = at(Phase.RUNNING)
    host.order(STOP, now=110)
    host.handle(script_end(signal=15), now=111)

    looks = [host.handle(Tick(), now=now) for now in (111.1, 111.3, 139.9)]
    killed = host.handle(Tick(), now=140)

    check = CheckCell(attempt_id=ATTEMPT)
    assert [check in look for look in looks] == [False, True, True]
    assert EmptyCell(attempt_id=ATTEMPT) in killed


def test_a_script_that_ignores_term_is_killed_when_the_grace_is_over() -> None:
    host = at(Phase.RUNNING)
    host.handle(Acknowledged(seqs=(1, 2, 3, 4)))
    host.order(STOP, now=110)

    assert host.agent.next_wakeup() == 140
    assert host.handle(Tick(), now=139) == ()
    assert host.handle(Tick(), now=140) == (EmptyCell(attempt_id=ATTEMPT),)
    assert host.handle(Tick(), now=141) == ()


def test_a_stop_without_grace_kills_at_once() -> None:
    host = at(Phase.RUNNING)

    turn = host.order(replace(STOP, grace_s=0))

    assert without_saves(turn) == [EmptyCell(attempt_id=ATTEMPT)]


def test_a_node_without_script_and_tasks_has_nothing_to_be_gentle_with() -> None:
    for phase in (Phase.STARTING, Phase.RUNNING):
        host = at(phase, launch(rank=1, nodes=2))

        turn = host.order(replace(STOP, text="CANCELLED"))

        assert without_saves(turn) == [EmptyCell(attempt_id=ATTEMPT)]


def test_a_stop_that_overtakes_the_start_is_said_again_to_the_process_when_it_is_there() -> None:
    host = at(Phase.STARTING)
    host.order(STOP)

    turn = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=101.0))

    assert without_saves(turn) == [TERM, CONT]
    assert host.record().started_at == 101.0


def test_a_second_stop_can_only_shorten_the_grace() -> None:
    host = at(Phase.RUNNING)
    host.order(STOP, now=110)

    longer = host.order(replace(STOP, grace_s=300), now=111)
    shorter = host.order(replace(STOP, grace_s=5), now=112)
    at_once = host.order(replace(STOP, grace_s=0), now=113)

    assert longer == ()
    assert [type(effect) for effect in shorter] == [SaveRecord]
    assert host.record().kill_at == 113
    assert without_saves(at_once) == [EmptyCell(attempt_id=ATTEMPT)]


def test_a_stop_for_an_attempt_that_has_ended_repeats_its_last_report() -> None:
    host = at(Phase.ENDED)

    assert host.order(STOP) == (SendReport(seq=5, body=ENDED_WELL),)


@pytest.mark.parametrize(
    ("end", "wanted"),
    [(script_end(is_lost=True, why="gone"), True), (script_end(why="no shell"), True), (script_end(), False)],
)
def test_an_attempt_that_is_being_stopped_and_has_no_shepherd_is_emptied_at_once(end: Any, wanted: bool) -> None:
    host = at(Phase.RUNNING)
    host.order(STOP)

    turn = host.handle(end)

    assert (EmptyCell(attempt_id=ATTEMPT) in turn) is wanted


# ── signals, lines, limits ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("phase", "reaches"),
    [
        (Phase.PREPARING, False),
        (Phase.PREPARED, False),
        (Phase.STARTING, True),
        (Phase.RUNNING, True),
        (Phase.STOPPING, False),
        (Phase.ENDED, False),
    ],
)
def test_signals_and_lines_reach_an_attempt_while_it_is_alive(phase: Phase, reaches: bool) -> None:
    sent = at(phase).order(SignalAttempt(attempt_id=ATTEMPT, signum=10, scope="steps"))
    written = at(phase).order(Notify(attempt_id=ATTEMPT, text="look {time}"))

    assert sent == ((SignalProcess(attempt_id=ATTEMPT, signum=10, scope="steps"),) if reaches else ())
    if phase is not Phase.STOPPING:  # its standard error may still be open
        assert written == ((WriteLine(attempt_id=ATTEMPT, text="look {time}"),) if reaches else ())


def test_signals_and_lines_for_an_unknown_attempt_do_nothing() -> None:
    host = AgentHost()

    assert host.order(SignalAttempt(attempt_id=ATTEMPT, signum=10)) == ()
    assert host.order(Notify(attempt_id=ATTEMPT, text="look")) == ()
    assert host.order(SetTimeLimit(attempt_id=ATTEMPT, time_limit_s=1)) == ()


ORDER_ID = bytes(range(16))
CONFIRMED = OrderConfirmed(attempt_id=ATTEMPT, order_id=ORDER_ID)


def test_an_order_with_an_id_is_carried_out_once_and_confirmed_however_often_it_comes() -> None:
    host = at(Phase.RUNNING)
    order = SignalAttempt(attempt_id=ATTEMPT, signum=10, scope="steps", order_id=ORDER_ID)

    first, again = host.order(order), host.order(order)

    assert host.record().confirmed == (ORDER_ID,)
    assert without_saves(first)[0] == SignalProcess(attempt_id=ATTEMPT, signum=10, scope="steps")
    assert [one.body for one in without_saves(first)[1:] if isinstance(one, SendReport)] == [CONFIRMED]
    assert [one.body for one in again if isinstance(one, SendReport)] == [CONFIRMED]
    assert len(again) == 1, "nothing else happens"


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.PREPARED])
def test_an_order_that_comes_before_anything_runs_is_not_confirmed(phase: Phase) -> None:
    assert at(phase).order(SignalAttempt(attempt_id=ATTEMPT, signum=10, order_id=ORDER_ID)) == ()


def test_an_order_for_an_attempt_that_is_not_here_any_more_is_confirmed() -> None:
    for order in (
        SignalAttempt(attempt_id=ATTEMPT, signum=10, order_id=ORDER_ID),
        Notify(attempt_id=ATTEMPT, text="look", order_id=ORDER_ID),
    ):
        assert [one.body for one in AgentHost().order(order) if isinstance(one, SendReport)] == [CONFIRMED]


def test_at_the_time_limit_the_job_is_told_gets_term_and_after_the_grace_kill() -> None:
    host = at(Phase.RUNNING, limited(60, grace_s=10))
    host.handle(Acknowledged(seqs=(1, 2, 3, 4)))

    assert host.agent.next_wakeup() == 160
    before = host.handle(Tick(), now=159.9)
    limit = host.handle(Tick(), now=160)
    kill = host.handle(Tick(), now=170)
    host.handle(script_end(signal=9, at=170.0), now=170)
    (report,) = reports(host.handle(CellEmpty(attempt_id=ATTEMPT), now=171))

    line = "*** JOB 7 ON n1 CANCELLED AT {time} DUE TO TIME LIMIT ***"
    assert before == ()
    assert without_saves(limit) == [WriteLine(attempt_id=ATTEMPT, text=line, at=160), TERM, CONT]
    assert kill == (EmptyCell(attempt_id=ATTEMPT),)
    assert (report.outcome, report.exit, report.ended_at) == (Outcome.TIMEOUT, ExitStatus(signal=9), 170.0)


@pytest.mark.parametrize(
    ("to_batch_shell", "rank", "expected"),
    [(False, 0, "steps"), (True, 0, "batch"), (False, 1, "steps"), (True, 1, None)],
)
def test_the_warning_goes_to_the_steps_of_every_node_or_to_the_batch_shell(
    to_batch_shell: bool, rank: int, expected: str | None
) -> None:
    wanted = SignalSpec(signum=10, before_s=20, to_batch_shell=to_batch_shell)
    host = at(Phase.RUNNING, limited(60, signal=wanted, rank=rank, nodes=2))

    warned = without_saves(host.handle(Tick(), now=140))
    again = without_saves(host.handle(Tick(), now=141))

    warnings = [one for one in warned if isinstance(one, SignalProcess)]
    assert warnings == ([SignalProcess(attempt_id=ATTEMPT, signum=10, scope=expected)] if expected else [])
    assert not [one for one in again if isinstance(one, SignalProcess)]


def test_a_node_without_the_script_leaves_the_last_word_on_a_time_out_to_the_batch_node() -> None:
    host = at(Phase.RUNNING, limited(60, grace_s=10, rank=1, nodes=2))

    limit = host.handle(Tick(), now=160)
    held_back = host.handle(Tick(), now=170)
    alone = host.handle(Tick(), now=175)

    assert [one for one in without_saves(limit) if not isinstance(one, SendReport)] == [TERM, CONT]
    assert EmptyCell(attempt_id=ATTEMPT) not in held_back
    assert EmptyCell(attempt_id=ATTEMPT) in alone


def test_a_stop_that_follows_a_time_out_ends_the_other_nodes_at_once() -> None:
    host = at(Phase.RUNNING, limited(60, rank=1, nodes=2))
    host.handle(Tick(), now=160)

    turn = host.order(replace(STOP, outcome=Outcome.TIMEOUT), now=161)

    assert without_saves(turn) == [EmptyCell(attempt_id=ATTEMPT)]
    assert reports(host.handle(CellEmpty(attempt_id=ATTEMPT))) == [CellEmptied(attempt_id=ATTEMPT)]


def test_a_longer_limit_is_kept_and_brings_its_own_warning() -> None:
    host = at(Phase.RUNNING, limited(60, signal=SignalSpec(signum=10, before_s=20)))
    host.handle(Tick(), now=140)

    before = host.record()
    turn = host.order(SetTimeLimit(attempt_id=ATTEMPT, time_limit_s=100), now=150)
    warned = host.handle(Tick(), now=180)

    assert turn[0] == SaveRecord(record=replace(before, time_limit_s=100, signal_sent=False))
    assert reports(turn) == [TimeLimitSet(attempt_id=ATTEMPT, time_limit_s=100)], "until then the order comes again"
    assert reports(host.order(SetTimeLimit(attempt_id=ATTEMPT, time_limit_s=100))) == reports(turn)
    assert host.agent.statuses()[0].time_limit_s == 100
    assert SignalProcess(attempt_id=ATTEMPT, signum=10, scope="steps") in warned


def test_a_limit_that_has_passed_already_ends_the_job_now_and_no_limit_ends_it_never() -> None:
    shorter, unlimited = at(Phase.RUNNING, limited(600)), at(Phase.RUNNING, limited(600))
    unlimited.handle(Acknowledged(seqs=(1, 2, 3, 4)))

    turn = shorter.order(SetTimeLimit(attempt_id=ATTEMPT, time_limit_s=10), now=200)
    unlimited.order(SetTimeLimit(attempt_id=ATTEMPT, time_limit_s=None), now=200)

    assert without_saves(turn)[2:] == [TERM, CONT]
    unlimited.handle(Acknowledged(seqs=(5,)))
    assert unlimited.handle(Tick(), now=10_000) == ()
    assert unlimited.agent.next_wakeup() is None


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_acknowledged_is_said_again_after_a_while_and_when_the_link_is_back() -> None:
    host = at(Phase.PREPARED, now=100.0)
    received = SendReport(seq=1, body=PrepareReceived(attempt_id=ATTEMPT))
    prepared = SendReport(seq=2, body=Prepared(attempt_id=ATTEMPT, master_port=PORT))

    assert host.agent.next_wakeup() == 105
    assert host.handle(Tick(), now=104.9) == ()
    assert host.handle(Tick(), now=105) == (received, prepared)
    assert host.handle(LinkUp(), now=106) == (received, prepared)
    assert host.handle(Acknowledged(seqs=(1,)), now=107) == ()
    assert host.handle(LinkUp(), now=108) == (prepared,)


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────


def _restarted(host: AgentHost) -> AgentHost:
    return AgentHost(host.record())


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.PREPARED])
def test_after_a_restart_a_preparation_is_made_again_with_the_port_that_was_told(phase: Phase) -> None:
    host = _restarted(at(phase))

    turn = host.agent.resume(300.0)
    made = host.handle(CellMade(attempt_id=ATTEMPT, master_port=PORT), now=301)

    port = PORT if phase is Phase.PREPARED else 0
    assert turn == (
        SendReport(seq=1, body=PrepareReceived(attempt_id=ATTEMPT)),
        MakeCell(launch=launch(), master_port=port),
    )
    assert reports(made) == [Prepared(attempt_id=ATTEMPT, master_port=PORT)]


def test_after_a_restart_a_start_of_which_nothing_is_found_is_lost_and_never_made_again() -> None:
    for end in (script_end(is_lost=True, why="the shepherd has ended"), script_end(why="it could not be started")):
        host = _restarted(at(Phase.STARTING))

        resumed = host.agent.resume(300.0)
        ended = host.handle(end, now=301)
        (report,) = reports(host.handle(CellEmpty(attempt_id=ATTEMPT), now=302))

        assert resumed == (AdoptProcess(attempt_id=ATTEMPT),)
        assert without_saves(ended) == [EmptyCell(attempt_id=ATTEMPT)]
        assert report.outcome is Outcome.NODE_FAIL


@pytest.mark.parametrize("phase", list(Phase))
def test_a_node_that_is_removed_ends_whatever_it_has(phase: Phase) -> None:
    host = at(phase)

    host.handle(Removed(grace_s=10), now=150)
    host.handle(Tick(), now=160)
    host.handle(CellEmpty(attempt_id=ATTEMPT), now=161)

    assert host.record().phase is Phase.ENDED
    assert not host.agent.has_cells


def test_a_node_that_is_removed_gives_its_jobs_their_grace() -> None:
    host = at(Phase.RUNNING)

    told = host.handle(Removed(grace_s=10), now=150)
    killed = host.handle(Tick(), now=160)

    text = "*** JOB 7 ON n1 CANCELLED AT {time} DUE TO NODE FAILURE ***"
    assert [one for one in told if not isinstance(one, SaveRecord)] == [
        WriteLine(attempt_id=ATTEMPT, text=text, at=150),
        SignalProcess(attempt_id=ATTEMPT, signum=signal.SIGTERM, scope="all"),
        SignalProcess(attempt_id=ATTEMPT, signum=signal.SIGCONT, scope="all"),
    ]
    assert EmptyCell(attempt_id=ATTEMPT) in killed
    assert host.agent.has_cells
    assert host.record().outcome is Outcome.NODE_FAIL


def test_a_node_that_is_removed_does_not_prolong_a_stop_that_was_ordered() -> None:
    host = at(Phase.RUNNING)
    host.order(Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=5), now=150)

    host.handle(Removed(grace_s=30), now=151)

    assert (host.record().outcome, host.record().kill_at) == (Outcome.CANCELLED, 155)


def test_after_a_restart_a_start_that_is_found_running_is_running() -> None:
    host = _restarted(at(Phase.STARTING))
    host.agent.resume(300.0)

    turn = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=120.0), now=301)

    assert reports(turn) == [Started(attempt_id=ATTEMPT, at=120.0, master_port=PORT)]


def test_after_a_restart_a_running_job_is_met_again_and_said_to_run() -> None:
    host = _restarted(at(Phase.RUNNING))

    turn = host.agent.resume(300.0)
    found = host.handle(ProcessStarted(attempt_id=ATTEMPT, at=100.0), now=301)

    assert turn == (AdoptProcess(attempt_id=ATTEMPT), SendReport(seq=1, body=STARTED))
    assert found == ()


def test_after_a_restart_an_end_by_order_goes_on_and_keeps_its_deadline() -> None:
    stopping = at(Phase.RUNNING)
    stopping.order(STOP, now=110)
    soon, late = _restarted(stopping), _restarted(stopping)

    assert soon.agent.resume(120.0) == (AdoptProcess(attempt_id=ATTEMPT),)
    assert without_saves(soon.handle(ProcessStarted(attempt_id=ATTEMPT, at=100.0), now=121)) == [TERM, CONT]
    assert late.agent.resume(150.0) == (AdoptProcess(attempt_id=ATTEMPT), EmptyCell(attempt_id=ATTEMPT))


def test_after_a_restart_what_has_ended_says_its_last_report_until_it_is_heard() -> None:
    host = _restarted(at(Phase.ENDED))

    assert host.agent.resume(300.0) == (SendReport(seq=1, body=ENDED_WELL),)
    assert host.handle(Acknowledged(seqs=(1,))) == (DropRecord(attempt_id=ATTEMPT),)


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (Phase.PREPARING, "preparing"),
        (Phase.PREPARED, "prepared"),
        (Phase.STARTING, "running"),
        (Phase.RUNNING, "running"),
        (Phase.STOPPING, "stopping"),
        (Phase.ENDED, "ended"),
    ],
)
def test_a_hello_says_how_far_each_attempt_is(phase: Phase, word: str) -> None:
    assert at(phase).agent.statuses() == (AttemptStatus(attempt_id=ATTEMPT, phase=word),)


def test_who_was_let_go_while_its_cell_is_made_again_is_said_to_run() -> None:
    """It may at any moment."""
    host = AgentHost(at(Phase.PREPARED).record())
    host.agent.resume(100.0)
    assert [one.phase for one in host.agent.statuses()] == ["preparing"]
    host.order(Go(attempt_id=ATTEMPT, master_port=1))
    assert [one.phase for one in host.agent.statuses()] == ["running"]


# ── giving way ────────────────────────────────────────────────────────────────────────────────────────────────

GIVE_WAY = SignalAttempt(
    attempt_id=ATTEMPT, signum=10, scope="steps", told_at=90.0, ends_at=150.0, text="GIVES WAY, ENDS AT {time}"
)
TOLD = [
    WriteLine(attempt_id=ATTEMPT, text="*** JOB 7 ON n1 GIVES WAY, ENDS AT {time} ***", at=150.0),
    SignalProcess(attempt_id=ATTEMPT, signum=10, scope="steps"),
]


def test_a_job_is_told_to_give_way_once_however_often_it_is_ordered_and_again_when_it_is_decided_anew() -> None:
    host = at(Phase.RUNNING)

    first = host.order(GIVE_WAY)
    again = host.order(GIVE_WAY)
    anew = host.order(replace(GIVE_WAY, told_at=120.0))

    assert [*first] == [*TOLD, SaveRecord(record=replace(host.record(), told_at=90.0))]
    assert again == ()
    assert without_saves(anew) == TOLD


def test_only_the_node_with_the_script_writes_that_it_gives_way() -> None:
    host = at(Phase.RUNNING, launch(rank=1, nodes=2))
    assert without_saves(host.order(GIVE_WAY)) == TOLD[1:]


def test_after_a_restart_a_job_is_told_as_soon_as_it_is_met_again_and_not_twice() -> None:
    host = _restarted(at(Phase.RUNNING))
    host.agent.resume(300.0)

    assert host.order(GIVE_WAY, now=301) == (), "nobody would hear it"
    assert without_saves(host.handle(ProcessStarted(attempt_id=ATTEMPT, at=100.0), now=302)) == TOLD

    known = _restarted(host)
    known.agent.resume(310.0)
    known.handle(ProcessStarted(attempt_id=ATTEMPT, at=100.0), now=311)
    assert known.order(GIVE_WAY, now=312) == ()


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.PREPARED, Phase.ENDED])
def test_what_does_not_run_is_not_told_to_give_way(phase: Phase) -> None:
    assert at(phase).order(GIVE_WAY) == ()
