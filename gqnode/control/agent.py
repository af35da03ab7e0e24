"""What this node does about each attempt: orders and happenings go in, effects come out.  Pure.

Owns the life of the attempts that are here.  It must never start anything twice: an order that was seen before only
repeats the report of where its attempt stands, and an attempt that was about to start when the daemon died is
reported lost if its shepherd cannot be found.

Invariants: a record is saved before anything is reported or started on its strength, but for what would be found out
once more after a crash; a record leaves only when the controller has acknowledged its last report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from gq.model.ids import AttemptId
from gq.model.state import Outcome
from gq.wire.node import (
    AttemptEnded,
    AttemptStatus,
    CellEmptied,
    Go,
    GoReceived,
    LaunchStep,
    Notify,
    OneOffOrder,
    Order,
    OrderConfirmed,
    Prepare,
    PrepareReceived,
    PrepareRefused,
    ResizeAttempt,
    SetSuspended,
    SetTimeLimit,
    SignalAttempt,
    StepEnded,
    Stop,
    StopStep,
    TimeLimitSet,
)
from gqnode.control import deadline, elastic, reports, steps, suspend
from gqnode.control.agent_state import Ledger, Settings
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import CheckCell, Effect, FindProcess, MakeCell, StartProcess, WriteLine
from gqnode.control.input import (
    Acknowledged,
    CellEmpty,
    CellFailed,
    CellFrozen,
    CellMade,
    CellQuiet,
    ClockLeapt,
    GpusTaken,
    Input,
    LinkUp,
    OrderReceived,
    ProcessEnded,
    ProcessStarted,
    Removed,
    StepAttached,
    StepTaskFailed,
    StepTasksEnded,
    Tick,
)

MAX_CONFIRMED = 64
"""Ids of orders that an attempt remembers."""
_ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
DEFAULT_SETTINGS = Settings()


class Agent:
    def __init__(self, node_name: str, records: Iterable[AttemptRecord], settings: Settings = DEFAULT_SETTINGS) -> None:
        self._ledger = Ledger(node_name, records, settings)

    # ── what the shell asks ───────────────────────────────────────────────────────────────────────────────────

    def record(self, attempt_id: AttemptId) -> AttemptRecord | None:
        return self._ledger.records.get(attempt_id)

    def records(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._ledger.records.values())

    def statuses(self) -> tuple[AttemptStatus, ...]:
        """What is here, for `Hello`."""
        return tuple(reports.status(record) for _, record in sorted(self._ledger.records.items()))

    @property
    def last_seq(self) -> int:
        """Number of the newest report, for `Hello`."""
        return self._ledger.outbox.last_seq

    @property
    def has_cells(self) -> bool:
        """Something of an attempt is here, or may be."""
        return any(record.phase is not Phase.ENDED for record in self._ledger.records.values())

    def next_wakeup(self) -> float | None:
        """When a `Tick` is wanted, at the latest."""
        ledger = self._ledger
        instants = [*ledger.deadlines.values(), *ledger.check_at.values(), *ledger.take_at.values()]
        if (resend_at := ledger.outbox.next_due()) is not None:
            instants.append(resend_at)
        return min(instants, default=None)

    # ── what the shell tells ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, input: Input, now: float) -> tuple[Effect, ...]:
        """Everything that follows from one happening."""
        ledger = self._ledger
        ledger.begin(now)
        match input:
            case OrderReceived():
                _order(ledger, input.order, input.blobs)
            case Acknowledged():
                _acknowledged(ledger, input.seqs)
            case LinkUp():
                ledger.do(*ledger.outbox.everything(now))
            case CellMade():
                _cell_made(ledger, input)
            case GpusTaken():
                elastic.taken(ledger, input)
            case CellFrozen():
                suspend.frozen(ledger, input)
            case CellFailed():
                _cell_failed(ledger, input)
            case ProcessStarted():
                _process_started(ledger, input)
            case ProcessEnded():
                _process_ended(ledger, input)
            case CellQuiet():
                _cell_quiet(ledger, input.attempt_id)
            case CellEmpty():
                _cell_empty(ledger, input)
            case StepAttached():
                steps.attached(ledger, input.step_id)
            case StepTaskFailed():
                steps.task_failed(ledger, input.step_id)
            case StepTasksEnded():
                _step_tasks_ended(ledger, input)
            case Removed():
                _end_all(ledger, input.grace_s)
            case ClockLeapt():
                _leap(ledger, input.by_s)
            case Tick():
                _tick(ledger)
            case _:
                assert_never(input)
        return tuple(ledger.turn)

    def resume(self, now: float) -> tuple[Effect, ...]:
        """After a restart, before anything else: meet what is left, and say again where each attempt stands."""
        self._ledger.begin(now)
        for _, record in sorted(self._ledger.records.items()):
            _resume(self._ledger, record)
        return tuple(self._ledger.turn)


# ── orders ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _order(ledger: Ledger, order: Order, blobs: dict[str, bytes]) -> None:
    match order:
        case Prepare():
            _prepare(ledger, order, blobs)
        case Go():
            _go(ledger, order)
        case Stop():
            _stop(ledger, order)
        case SignalAttempt() | Notify() | StopStep():
            _one_off(ledger, order)
        case SetTimeLimit():
            _set_time_limit(ledger, order)
        case SetSuspended():
            suspend.set_suspended(ledger, order)
        case ResizeAttempt():
            elastic.resize(ledger, order)
        case LaunchStep():
            steps.launch_step(ledger, order)
        case _:
            assert_never(order)


def _prepare(ledger: Ledger, order: Prepare, blobs: dict[str, bytes]) -> None:
    launch = order.launch
    attempt_id = launch.attempt_id
    wanted = {digest for digest in (launch.script_digest, launch.environment_digest) if digest}
    if (record := ledger.records.get(attempt_id)) is not None:
        if record.launch.join < launch.join and record.phase in (Phase.PREPARING, Phase.PREPARED):
            _begin_stop(ledger, record, Outcome.CANCELLED, ledger.now, ordered=True)  # its end was lost on its way
        else:
            ledger.stand(record)
    elif ledger.is_over(attempt_id, launch.join):
        ledger.report(CellEmptied(attempt_id=attempt_id, join=launch.join))
    elif len(ledger.records) >= ledger.settings.attempts:
        _refuse(ledger, attempt_id, launch.join, f"the node has {len(ledger.records)} attempts already, its limit")
    elif missing := wanted - blobs.keys():
        _refuse(ledger, attempt_id, launch.join, f"the order came without {len(missing)} of the blobs that it names")
    else:
        record = AttemptRecord(launch=launch, phase=Phase.PREPARING, time_limit_s=launch.time_limit_s)
        ledger.save(record, {digest: blobs[digest] for digest in sorted(wanted)})
        ledger.report(PrepareReceived(attempt_id=attempt_id))
        ledger.do(MakeCell(launch=launch))


def _refuse(ledger: Ledger, attempt_id: AttemptId, join: int, why: str, is_job_fault: bool = False) -> None:
    ledger.note_over(attempt_id, join)
    ledger.report(PrepareRefused(attempt_id=attempt_id, why=why, is_job_fault=is_job_fault))


def _go(ledger: Ledger, order: Go) -> None:
    record = ledger.records.get(order.attempt_id)
    if record is None:
        ledger.not_here(order.attempt_id, order.join)
    elif record.launch.join != order.join:
        return  # of another time: it is prepared anew, or stopped
    elif record.phase is Phase.PREPARED:
        record = ledger.save(replace(record, phase=Phase.STARTING, go=True, master_port=order.master_port))
        ledger.report(GoReceived(attempt_id=order.attempt_id))
        _start(ledger, record)
    elif record.phase is Phase.PREPARING:
        ledger.save(replace(record, go=True, master_port=order.master_port))
        ledger.report(GoReceived(attempt_id=order.attempt_id))
    elif record.phase is Phase.STARTING:
        ledger.report(GoReceived(attempt_id=order.attempt_id))
    else:
        ledger.stand(record)


def _start(ledger: Ledger, record: AttemptRecord) -> None:
    """The record says STARTING: from here on a crash means that nobody knows whether it ran."""
    elastic.tell(ledger, record)
    ledger.do(StartProcess(launch=record.launch, master_port=record.master_port))


def _stop(ledger: Ledger, order: Stop) -> None:
    record = ledger.records.get(order.attempt_id)
    if record is None:
        ledger.not_here(order.attempt_id, order.join)
        return
    if order.join < record.launch.join:
        return  # of the time before
    match record.phase:
        case Phase.PREPARING | Phase.PREPARED:
            _begin_stop(ledger, record, order.outcome, ledger.now, ordered=True)
        case Phase.STARTING | Phase.RUNNING:
            if order.text:
                _write_line(ledger, order.attempt_id, reports.farewell(record, ledger.node, order.text), ledger.now)
            kill_at = ledger.now + order.grace_s if _may_finish(record) else ledger.now
            _begin_stop(ledger, record, order.outcome, kill_at, ordered=True)
        case Phase.STOPPING:
            _hasten_stop(ledger, record, order.grace_s)
        case Phase.ENDED:
            ledger.stand(record)
        case _:
            assert_never(record.phase)


def _begin_stop(ledger: Ledger, record: AttemptRecord, outcome: Outcome, kill_at: float, ordered: bool) -> None:
    """TERM where there is a grace, KILL where there is none."""
    record = replace(record, phase=Phase.STOPPING, outcome=outcome, stop_ordered=ordered, kill_at=kill_at)
    ledger.save(record)
    if kill_at <= ledger.now:
        ledger.empty(record.launch.attempt_id)
    else:
        ledger.terminate(record.launch.attempt_id)


def _hasten_stop(ledger: Ledger, record: AttemptRecord, grace_s: int) -> None:
    """Ordered again, or ordered while the node ends it on its own: never later than was said before."""
    kill_at = min(ledger.now + grace_s, ledger.now if record.kill_at is None else record.kill_at)
    if not record.stop_ordered or kill_at != record.kill_at:
        record = ledger.save(replace(record, stop_ordered=True, kill_at=kill_at))
    if kill_at <= ledger.now or not _may_finish(record):
        ledger.empty(record.launch.attempt_id)


def _end_all(ledger: Ledger, grace_s: int) -> None:
    """As if the controller had ordered each to stop; what it did order keeps its outcome, and no longer grace."""
    for attempt_id in sorted(ledger.records):
        if ledger.records[attempt_id].phase is not Phase.ENDED:
            text = "CANCELLED AT {time} DUE TO NODE FAILURE"
            join = ledger.records[attempt_id].launch.join
            _stop(ledger, Stop(attempt_id=attempt_id, outcome=Outcome.NODE_FAIL, grace_s=grace_s, text=text, join=join))


def _one_off(ledger: Ledger, order: OneOffOrder) -> None:
    """Carry out an order with an id once, and confirm it.

    The id is saved afterwards: after a crash of the daemon the order is carried out twice rather than never.
    """
    attempt_id = order.step_id.attempt_id if isinstance(order, StopStep) else order.attempt_id
    record = ledger.records.get(attempt_id)
    is_early = record is not None and record.phase in (Phase.PREPARING, Phase.PREPARED)
    if order.order_id and (is_early or attempt_id in ledger.unmet):
        return  # nothing runs yet, or its shepherd has not been met since a restart: the controller says it again
    if record is None or not order.order_id or order.order_id not in record.confirmed:
        _carry_out(ledger, order)
        if order.order_id and (record := ledger.records.get(attempt_id)) is not None:
            ledger.save(replace(record, confirmed=(*record.confirmed, order.order_id)[-MAX_CONFIRMED:]))
    if order.order_id:
        ledger.report(OrderConfirmed(attempt_id=attempt_id, order_id=order.order_id))


def _carry_out(ledger: Ledger, order: OneOffOrder) -> None:
    match order:
        case SignalAttempt():
            _signal_attempt(ledger, order)
        case Notify():
            _write_line(ledger, order.attempt_id, order.text)
        case StopStep():
            steps.stop_step(ledger, order)
        case _:
            assert_never(order)


def _signal_attempt(ledger: Ledger, order: SignalAttempt) -> None:
    record = ledger.records.get(order.attempt_id)
    if record is None or record.phase not in _ALIVE or order.attempt_id in ledger.emptying:
        return
    if order.told_at is None:
        ledger.signal(order.attempt_id, order.signum, order.scope)
    else:
        _give_way(ledger, record, order, order.told_at)


def _give_way(ledger: Ledger, record: AttemptRecord, order: SignalAttempt, told_at: float) -> None:
    """Saved after the signal: after a crash it is sent twice rather than never."""
    if record.told_at == told_at:
        return
    if order.attempt_id in ledger.unmet:
        ledger.to_tell[order.attempt_id] = order
        return
    if order.text:
        _write_line(ledger, order.attempt_id, reports.farewell(record, ledger.node, order.text), order.ends_at)
    ledger.signal(order.attempt_id, order.signum, order.scope)
    ledger.save(replace(record, told_at=told_at))


def _set_time_limit(ledger: Ledger, order: SetTimeLimit) -> None:
    record = ledger.records.get(order.attempt_id)
    if record is None or record.phase in (Phase.STOPPING, Phase.ENDED):
        return
    if record.time_limit_s != order.time_limit_s:
        record = replace(record, time_limit_s=order.time_limit_s)
        warn_at = deadline.warn_at(record)
        if warn_at is None or warn_at > ledger.now:
            record = replace(record, signal_sent=False)
        ledger.save(record)
    ledger.report(TimeLimitSet(attempt_id=order.attempt_id, time_limit_s=order.time_limit_s))
    _meet_deadlines(ledger, record)


def _write_line(ledger: Ledger, attempt_id: AttemptId, text: str, at: float | None = None) -> None:
    """A line in the job's standard error, which only the node with the script has open."""
    record = ledger.records.get(attempt_id)
    if record is not None and record.phase in _ALIVE and reports.has_script(record):
        ledger.do(WriteLine(attempt_id=attempt_id, text=text, at=at))


# ── cells and processes ───────────────────────────────────────────────────────────────────────────────────────────


def _cell_made(ledger: Ledger, made: CellMade) -> None:
    record = ledger.records.get(made.attempt_id)
    if record is None or record.phase is not Phase.PREPARING:
        return
    record = replace(record, master_port=made.master_port or record.master_port, account=made.account)
    if record.go:
        _start(ledger, ledger.save(replace(record, phase=Phase.STARTING)))
    else:
        ledger.stand(_prepared(ledger, replace(record, phase=Phase.PREPARED)))


def _prepared(ledger: Ledger, record: AttemptRecord) -> AttemptRecord:
    """Saved for a port that other nodes may have been told by then; all else is the same when it is prepared again."""
    return ledger.save(record) if len(record.launch.members) > 1 else ledger.keep(record)


def _cell_failed(ledger: Ledger, failed: CellFailed) -> None:
    record = ledger.records.get(failed.attempt_id)
    if record is not None and record.phase is Phase.PREPARING:
        ledger.drop(failed.attempt_id)
        _refuse(ledger, failed.attempt_id, record.launch.join, failed.why, failed.is_job_fault)


def _process_started(ledger: Ledger, started: ProcessStarted) -> None:
    record = ledger.records.get(started.attempt_id)
    if record is None:
        return
    ledger.sought.discard(started.attempt_id)
    ledger.unmet.discard(started.attempt_id)
    if record.phase is Phase.STARTING:
        # Not saved: after a crash the shepherd tells the same start again.
        record = ledger.keep(replace(record, phase=Phase.RUNNING, started_at=started.at))
        if (report := reports.started(record)) is not None:
            ledger.report(report)
        steps.expect_all(ledger, record)
    elif record.phase is Phase.STOPPING and started.attempt_id not in ledger.emptying:
        # Stopped before it was there, or before the daemon was: it has not had its TERM for certain.
        if record.started_at is None:
            ledger.save(replace(record, started_at=started.at))
        ledger.terminate(started.attempt_id)
    suspend.met_again(ledger, record)
    if (order := ledger.to_tell.pop(started.attempt_id, None)) is not None:
        _signal_attempt(ledger, order)


def _process_ended(ledger: Ledger, ended: ProcessEnded) -> None:
    record = ledger.records.get(ended.attempt_id)
    if record is None or record.phase not in _ALIVE or record.exit is not None:
        return
    facts = replace(
        record,
        exit=ended.exit,
        usage=ended.usage,
        ended_at=ended.ended_at,
        why=ended.why,
        launch_failure=ended.launch_failure,
    )
    if record.phase is not Phase.STOPPING:
        # Not saved: after a crash the shepherd tells the same end again.
        # A start that an earlier life of the daemon may or may not have made is the node's failure, not the job's.
        is_lost = ended.is_lost or (bool(ended.why) and ended.attempt_id in ledger.sought)
        outcome = Outcome.NODE_FAIL if is_lost else reports.end_outcome(record, ended)
        ledger.keep(replace(facts, phase=Phase.STOPPING, outcome=outcome))
        ledger.empty(ended.attempt_id)
    elif ended.is_lost or ended.why:
        ledger.keep(facts)
        ledger.empty(ended.attempt_id)
    else:
        _look_for_quiet(ledger, ledger.keep(facts))


def _may_finish(record: AttemptRecord) -> bool:
    """Script or tasks run here, as far as is known, and may want to finish their work."""
    has_tasks = any(step.is_running for step in record.steps.values())
    return has_tasks or (reports.has_script(record) and record.exit is None)


def _look_for_quiet(ledger: Ledger, record: AttemptRecord) -> None:
    """Once script and tasks are over, what is left of them may go on to the end of the grace, but no longer.

    A node that ends its part on its own, without the script, waits: the script's node has the last word.
    """
    attempt_id = record.launch.attempt_id
    has_last_word = record.stop_ordered or reports.is_batch_node(record)
    if has_last_word and not _may_finish(record) and attempt_id not in ledger.emptying:
        ledger.check_at[attempt_id] = ledger.now + ledger.settings.quiet_check_s
        ledger.do(CheckCell(attempt_id=attempt_id))


def _cell_quiet(ledger: Ledger, attempt_id: AttemptId) -> None:
    if attempt_id in ledger.check_at:
        ledger.empty(attempt_id)


def _cell_empty(ledger: Ledger, empty: CellEmpty) -> None:
    ledger.emptying.discard(empty.attempt_id)
    ledger.sought.discard(empty.attempt_id)
    ledger.unmet.discard(empty.attempt_id)
    ledger.to_tell.pop(empty.attempt_id, None)
    ledger.check_at.pop(empty.attempt_id, None)
    record = ledger.records.get(empty.attempt_id)
    if record is None or record.phase is not Phase.STOPPING:
        return
    record = steps.gone_with_cell(ledger, record)
    last = reports.last_report(record, empty.usage, ledger.now)
    ledger.save(replace(record, phase=Phase.ENDED, last_report=last))
    ledger.report(last)


def _step_tasks_ended(ledger: Ledger, ended: StepTasksEnded) -> None:
    record = steps.tasks_ended(ledger, ended)
    if record is not None and record.phase is Phase.STOPPING:
        _look_for_quiet(ledger, record)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tick(ledger: Ledger) -> None:
    for attempt_id in [attempt_id for attempt_id, at in ledger.deadlines.items() if at <= ledger.now]:
        _meet_deadlines(ledger, ledger.records[attempt_id])
    for attempt_id, check_at in tuple(ledger.check_at.items()):
        if check_at <= ledger.now:
            _look_for_quiet(ledger, ledger.records[attempt_id])
    for attempt_id in [attempt_id for attempt_id, at in ledger.take_at.items() if at <= ledger.now]:
        elastic.meet_deadline(ledger, ledger.records[attempt_id])
    ledger.do(*ledger.outbox.due(ledger.now))


def _leap(ledger: Ledger, by_s: float) -> None:
    for record in tuple(ledger.records.values()):
        if record.phase is not Phase.ENDED:
            ledger.save(deadline.postponed(record, by_s))


def _meet_deadlines(ledger: Ledger, record: AttemptRecord) -> None:
    """Do what is due for one attempt and its steps."""
    attempt_id = record.launch.attempt_id
    if attempt_id in ledger.emptying:
        return
    steps.meet_deadlines(ledger, record)
    while (due := deadline.due(ledger.records[attempt_id], ledger.now)) is not None:
        record = ledger.records[attempt_id]
        match due:
            case deadline.Due.WARNING:
                _warn(ledger, record)
            case deadline.Due.TIME_LIMIT:
                _time_out(ledger, record)
            case deadline.Due.KILL:
                ledger.empty(attempt_id)
                return
            case _:
                assert_never(due)


def _warn(ledger: Ledger, record: AttemptRecord) -> None:
    """``--signal``: some time before the limit."""
    wanted = record.launch.signal
    assert wanted is not None, "a warning is due only where one was asked for"
    ledger.save(replace(record, signal_sent=True))
    if not wanted.to_batch_shell:
        ledger.signal(record.launch.attempt_id, wanted.signum, "steps")
    elif reports.has_script(record):
        ledger.signal(record.launch.attempt_id, wanted.signum, "batch")


def _time_out(ledger: Ledger, record: AttemptRecord) -> None:
    """The script's node has the last word on a time-out: the others hold back a little, for when nobody hears it."""
    line = reports.farewell(record, ledger.node, "CANCELLED AT {time} DUE TO TIME LIMIT")
    _write_line(ledger, record.launch.attempt_id, line, ledger.now)
    if not reports.is_batch_node(record):
        kill_at = ledger.now + record.launch.grace_s + ledger.settings.resend_s
    else:
        kill_at = ledger.now + record.launch.grace_s if _may_finish(record) else ledger.now
    _begin_stop(ledger, record, Outcome.TIMEOUT, kill_at, ordered=False)


# ── acknowledgements, restart ─────────────────────────────────────────────────────────────────────────────────────


def _acknowledged(ledger: Ledger, seqs: tuple[int, ...]) -> None:
    for body in ledger.outbox.take(seqs):
        match body:
            case AttemptEnded() | CellEmptied():
                _last_word_heard(ledger, body)
            case StepEnded():
                steps.end_heard(ledger, body.step_id)
            case _:
                pass


def _last_word_heard(ledger: Ledger, body: AttemptEnded | CellEmptied) -> None:
    record = ledger.records.get(body.attempt_id)
    if record is not None and record.last_report == body:
        ledger.drop(body.attempt_id)
        ledger.note_over(body.attempt_id, record.launch.join)


def _resume(ledger: Ledger, record: AttemptRecord) -> None:
    """Cells are made again, which does nothing to those that stand; shepherds are looked for."""
    attempt_id = record.launch.attempt_id
    match record.phase:
        case Phase.PREPARING | Phase.PREPARED:
            ledger.keep(replace(record, phase=Phase.PREPARING))
            ledger.report(PrepareReceived(attempt_id=attempt_id))
            ledger.do(MakeCell(launch=record.launch, master_port=reports.own_port(record)))
        case Phase.STARTING:
            ledger.sought.add(attempt_id)
            ledger.unmet.add(attempt_id)
            ledger.do(FindProcess(attempt_id=attempt_id))
        case Phase.RUNNING:
            expires_at = ledger.now + ledger.settings.step_wait_s
            record = ledger.keep(steps.given_time_again(record, expires_at))
            ledger.unmet.add(attempt_id)
            ledger.do(FindProcess(attempt_id=attempt_id))
            ledger.stand(record)
            steps.expect_all(ledger, record)
        case Phase.STOPPING:
            ledger.do(FindProcess(attempt_id=attempt_id))
            _meet_deadlines(ledger, record)
        case Phase.ENDED:
            ledger.stand(record)
        case _:
            assert_never(record.phase)
    elastic.resume(ledger, ledger.records[attempt_id])
    for step in record.steps.values():
        if step.is_ended:
            ledger.report(reports.step_ended(step))
