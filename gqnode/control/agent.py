"""The node's agent: it turns orders from the controller and events on this node into effects.  Pure.

The agent owns the life of the attempts on this node.  It never starts anything twice: an order that was seen before
only repeats the report of the attempt's state, and an attempt that was about to start when the daemon died is reported
lost if its shepherd cannot be found.

Invariants: a record is saved before anything is reported or started on its strength, except for facts that the daemon
would find out again after a crash; a record is dropped only after the controller has acknowledged its last report.
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
from gqnode.control.agent_state import AgentState, Settings
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import AdoptProcess, CheckCell, Effect, MakeCell, StartProcess, WriteLine
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
"""How many ids of confirmed orders an attempt remembers."""
_ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
DEFAULT_SETTINGS = Settings()


class Agent:
    def __init__(self, node_name: str, records: Iterable[AttemptRecord], settings: Settings = DEFAULT_SETTINGS) -> None:
        self._state = AgentState(node_name, records, settings)

    # ── what the shell asks ───────────────────────────────────────────────────────────────────────────────────

    def record(self, attempt_id: AttemptId) -> AttemptRecord | None:
        return self._state.records.get(attempt_id)

    def records(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._state.records.values())

    def statuses(self) -> tuple[AttemptStatus, ...]:
        """Return the state of every attempt on this node, for `Hello`."""
        return tuple(reports.status(record) for _, record in sorted(self._state.records.items()))

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest report, for `Hello`."""
        return self._state.outbox.last_seq

    @property
    def has_cells(self) -> bool:
        """Whether an attempt may still have a cell on this node."""
        return any(record.phase is not Phase.ENDED for record in self._state.records.values())

    def next_wakeup(self) -> float | None:
        """Return the latest time at which the agent needs a `Tick`; None if it needs none."""
        state = self._state
        instants = [*state.deadlines.values(), *state.check_at.values(), *state.take_at.values()]
        if (resend_at := state.outbox.next_due()) is not None:
            instants.append(resend_at)
        return min(instants, default=None)

    # ── what the shell tells ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, input: Input, now: float) -> tuple[Effect, ...]:
        """Handle one event and return all effects that follow from it."""
        state = self._state
        state.begin(now)
        match input:
            case OrderReceived():
                _order(state, input.order, input.blobs)
            case Acknowledged():
                _acknowledged(state, input.seqs)
            case LinkUp():
                state.do(*state.outbox.everything(now))
            case CellMade():
                _cell_made(state, input)
            case GpusTaken():
                elastic.taken(state, input)
            case CellFrozen():
                suspend.frozen(state, input)
            case CellFailed():
                _cell_failed(state, input)
            case ProcessStarted():
                _process_started(state, input)
            case ProcessEnded():
                _process_ended(state, input)
            case CellQuiet():
                _cell_quiet(state, input.attempt_id)
            case CellEmpty():
                _cell_empty(state, input)
            case StepAttached():
                steps.attached(state, input.step_id)
            case StepTaskFailed():
                steps.task_failed(state, input.step_id)
            case StepTasksEnded():
                _step_tasks_ended(state, input)
            case Removed():
                _end_all(state, input.grace_s)
            case ClockLeapt():
                _leap(state, input.by_s)
            case Tick():
                _tick(state)
            case _:
                assert_never(input)
        return tuple(state.turn)

    def resume(self, now: float) -> tuple[Effect, ...]:
        """Recover after a restart, before any other input: find the attempts again and report the state of each."""
        self._state.begin(now)
        for _, record in sorted(self._state.records.items()):
            _resume(self._state, record)
        return tuple(self._state.turn)


# ── orders ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _order(state: AgentState, order: Order, blobs: dict[str, bytes]) -> None:
    match order:
        case Prepare():
            _prepare(state, order, blobs)
        case Go():
            _go(state, order)
        case Stop():
            _stop(state, order)
        case SignalAttempt() | Notify() | StopStep():
            _one_off(state, order)
        case SetTimeLimit():
            _set_time_limit(state, order)
        case SetSuspended():
            suspend.set_suspended(state, order)
        case ResizeAttempt():
            elastic.resize(state, order)
        case LaunchStep():
            steps.launch_step(state, order)
        case _:
            assert_never(order)


def _prepare(state: AgentState, order: Prepare, blobs: dict[str, bytes]) -> None:
    launch = order.launch
    attempt_id = launch.attempt_id
    wanted = {digest for digest in (launch.script_digest, launch.environment_digest) if digest}
    if (record := state.records.get(attempt_id)) is not None:
        if record.launch.join < launch.join and record.phase in (Phase.PREPARING, Phase.PREPARED):
            _begin_stop(state, record, Outcome.CANCELLED, state.now, ordered=True)  # its end was lost on its way
        else:
            state.repeat_report(record)
    elif state.is_over(attempt_id, launch.join):
        state.report(CellEmptied(attempt_id=attempt_id, join=launch.join))
    elif len(state.records) >= state.settings.attempts:
        _refuse(state, attempt_id, launch.join, f"the node has {len(state.records)} attempts, its maximum")
    elif missing := wanted - blobs.keys():
        _refuse(state, attempt_id, launch.join, f"the order lacks {len(missing)} of the blobs that it names")
    else:
        record = AttemptRecord(launch=launch, phase=Phase.PREPARING, time_limit_s=launch.time_limit_s)
        state.save(record, {digest: blobs[digest] for digest in sorted(wanted)})
        state.report(PrepareReceived(attempt_id=attempt_id))
        state.do(MakeCell(launch=launch))


def _refuse(state: AgentState, attempt_id: AttemptId, join: int, why: str, is_job_fault: bool = False) -> None:
    state.note_over(attempt_id, join)
    state.report(PrepareRefused(attempt_id=attempt_id, why=why, is_job_fault=is_job_fault))


def _go(state: AgentState, order: Go) -> None:
    record = state.records.get(order.attempt_id)
    if record is None:
        state.not_here(order.attempt_id, order.join)
    elif record.launch.join != order.join:
        return  # of another time: it is prepared anew, or stopped
    elif record.phase is Phase.PREPARED:
        record = state.save(replace(record, phase=Phase.STARTING, go=True, master_port=order.master_port))
        state.report(GoReceived(attempt_id=order.attempt_id))
        _start(state, record)
    elif record.phase is Phase.PREPARING:
        state.save(replace(record, go=True, master_port=order.master_port))
        state.report(GoReceived(attempt_id=order.attempt_id))
    elif record.phase is Phase.STARTING:
        state.report(GoReceived(attempt_id=order.attempt_id))
    else:
        state.repeat_report(record)


def _start(state: AgentState, record: AttemptRecord) -> None:
    """The record says STARTING: from here on a crash means that nobody knows whether it ran."""
    elastic.tell(state, record)
    state.do(StartProcess(launch=record.launch, master_port=record.master_port))


def _stop(state: AgentState, order: Stop) -> None:
    record = state.records.get(order.attempt_id)
    if record is None:
        state.not_here(order.attempt_id, order.join)
        return
    if order.join < record.launch.join:
        return  # of the time before
    match record.phase:
        case Phase.PREPARING | Phase.PREPARED:
            _begin_stop(state, record, order.outcome, state.now, ordered=True)
        case Phase.STARTING | Phase.RUNNING:
            if order.text:
                _write_line(state, order.attempt_id, reports.stop_message(record, state.node, order.text), state.now)
            kill_at = state.now + order.grace_s if _may_finish(record) else state.now
            _begin_stop(state, record, order.outcome, kill_at, ordered=True)
        case Phase.STOPPING:
            _hasten_stop(state, record, order.grace_s)
        case Phase.ENDED:
            state.repeat_report(record)
        case _:
            assert_never(record.phase)


def _begin_stop(state: AgentState, record: AttemptRecord, outcome: Outcome, kill_at: float, ordered: bool) -> None:
    """TERM where there is a grace, KILL where there is none."""
    record = replace(record, phase=Phase.STOPPING, outcome=outcome, stop_ordered=ordered, kill_at=kill_at)
    state.save(record)
    if kill_at <= state.now:
        state.empty(record.launch.attempt_id)
    else:
        state.terminate(record.launch.attempt_id)


def _hasten_stop(state: AgentState, record: AttemptRecord, grace_s: int) -> None:
    """Apply a stop order to an attempt that is stopping already; the KILL never moves to a later time."""
    kill_at = min(state.now + grace_s, state.now if record.kill_at is None else record.kill_at)
    if not record.stop_ordered or kill_at != record.kill_at:
        record = state.save(replace(record, stop_ordered=True, kill_at=kill_at))
    if kill_at <= state.now or not _may_finish(record):
        state.empty(record.launch.attempt_id)


def _end_all(state: AgentState, grace_s: int) -> None:
    """Stop every attempt as if the controller had ordered it.

    An attempt that the controller has already ordered to stop keeps its outcome and gets no longer grace.
    """
    for attempt_id in sorted(state.records):
        if state.records[attempt_id].phase is not Phase.ENDED:
            text = "CANCELLED AT {time} DUE TO NODE FAILURE"
            join = state.records[attempt_id].launch.join
            _stop(state, Stop(attempt_id=attempt_id, outcome=Outcome.NODE_FAIL, grace_s=grace_s, text=text, join=join))


def _one_off(state: AgentState, order: OneOffOrder) -> None:
    """Carry out an order with an id once, and confirm it.

    The id is saved afterwards: after a crash of the daemon the order is carried out twice rather than never.
    """
    attempt_id = order.step_id.attempt_id if isinstance(order, StopStep) else order.attempt_id
    record = state.records.get(attempt_id)
    is_early = record is not None and record.phase in (Phase.PREPARING, Phase.PREPARED)
    if order.order_id and (is_early or attempt_id in state.unmet):
        return  # nothing runs yet, or its shepherd has not been met since a restart: the controller says it again
    if record is None or not order.order_id or order.order_id not in record.confirmed:
        _carry_out(state, order)
        if order.order_id and (record := state.records.get(attempt_id)) is not None:
            state.save(replace(record, confirmed=(*record.confirmed, order.order_id)[-MAX_CONFIRMED:]))
    if order.order_id:
        state.report(OrderConfirmed(attempt_id=attempt_id, order_id=order.order_id))


def _carry_out(state: AgentState, order: OneOffOrder) -> None:
    match order:
        case SignalAttempt():
            _signal_attempt(state, order)
        case Notify():
            _write_line(state, order.attempt_id, order.text)
        case StopStep():
            steps.stop_step(state, order)
        case _:
            assert_never(order)


def _signal_attempt(state: AgentState, order: SignalAttempt) -> None:
    record = state.records.get(order.attempt_id)
    if record is None or record.phase not in _ALIVE or order.attempt_id in state.emptying:
        return
    if order.told_at is None:
        state.signal(order.attempt_id, order.signum, order.scope)
    else:
        _give_way(state, record, order, order.told_at)


def _give_way(state: AgentState, record: AttemptRecord, order: SignalAttempt, told_at: float) -> None:
    """Notify the job that it is about to be preempted.

    The record is saved after the signal: after a crash the signal is sent twice rather than never.
    """
    if record.told_at == told_at:
        return
    if order.attempt_id in state.unmet:
        state.to_tell[order.attempt_id] = order
        return
    if order.text:
        _write_line(state, order.attempt_id, reports.stop_message(record, state.node, order.text), order.ends_at)
    state.signal(order.attempt_id, order.signum, order.scope)
    state.save(replace(record, told_at=told_at))


def _set_time_limit(state: AgentState, order: SetTimeLimit) -> None:
    record = state.records.get(order.attempt_id)
    if record is None or record.phase in (Phase.STOPPING, Phase.ENDED):
        return
    if record.time_limit_s != order.time_limit_s:
        record = replace(record, time_limit_s=order.time_limit_s)
        warn_at = deadline.warn_at(record)
        if warn_at is None or warn_at > state.now:
            record = replace(record, signal_sent=False)
        state.save(record)
    state.report(TimeLimitSet(attempt_id=order.attempt_id, time_limit_s=order.time_limit_s))
    _meet_deadlines(state, record)


def _write_line(state: AgentState, attempt_id: AttemptId, text: str, at: float | None = None) -> None:
    """Write a line to the job's standard error, which is open only on the node with the batch script."""
    record = state.records.get(attempt_id)
    if record is not None and record.phase in _ALIVE and reports.has_script(record):
        state.do(WriteLine(attempt_id=attempt_id, text=text, at=at))


# ── cells and processes ───────────────────────────────────────────────────────────────────────────────────────────


def _cell_made(state: AgentState, made: CellMade) -> None:
    record = state.records.get(made.attempt_id)
    if record is None or record.phase is not Phase.PREPARING:
        return
    record = replace(record, master_port=made.master_port or record.master_port, account=made.account)
    if record.go:
        _start(state, state.save(replace(record, phase=Phase.STARTING)))
    else:
        state.repeat_report(_prepared(state, replace(record, phase=Phase.PREPARED)))


def _prepared(state: AgentState, record: AttemptRecord) -> AttemptRecord:
    """Store that the attempt is prepared; only a multi-node job's record goes to disk.

    Other nodes may already know the job's port; everything else is the same when the cell is prepared again.
    """
    return state.save(record) if len(record.launch.members) > 1 else state.keep(record)


def _cell_failed(state: AgentState, failed: CellFailed) -> None:
    record = state.records.get(failed.attempt_id)
    if record is not None and record.phase is Phase.PREPARING:
        state.drop(failed.attempt_id)
        _refuse(state, failed.attempt_id, record.launch.join, failed.why, failed.is_job_fault)


def _process_started(state: AgentState, started: ProcessStarted) -> None:
    record = state.records.get(started.attempt_id)
    if record is None:
        return
    state.sought.discard(started.attempt_id)
    state.unmet.discard(started.attempt_id)
    if record.phase is Phase.STARTING:
        # Not saved: after a crash the shepherd tells the same start again.
        record = state.keep(replace(record, phase=Phase.RUNNING, started_at=started.at))
        if (report := reports.started(record)) is not None:
            state.report(report)
        steps.expect_all(state, record)
    elif record.phase is Phase.STOPPING and started.attempt_id not in state.emptying:
        # Stopped before it was there, or before the daemon was: it has not had its TERM for certain.
        if record.started_at is None:
            state.save(replace(record, started_at=started.at))
        state.terminate(started.attempt_id)
    suspend.met_again(state, record)
    if (order := state.to_tell.pop(started.attempt_id, None)) is not None:
        _signal_attempt(state, order)


def _process_ended(state: AgentState, ended: ProcessEnded) -> None:
    record = state.records.get(ended.attempt_id)
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
        is_lost = ended.is_lost or (bool(ended.why) and ended.attempt_id in state.sought)
        outcome = Outcome.NODE_FAIL if is_lost else reports.end_outcome(record, ended)
        state.keep(replace(facts, phase=Phase.STOPPING, outcome=outcome))
        state.empty(ended.attempt_id)
    elif ended.is_lost or ended.why:
        state.keep(facts)
        state.empty(ended.attempt_id)
    else:
        _look_for_quiet(state, state.keep(facts))


def _may_finish(record: AttemptRecord) -> bool:
    """Whether the script or a task still runs here, as far as is known, and may want to finish its work."""
    has_tasks = any(step.is_running for step in record.steps.values())
    return has_tasks or (reports.has_script(record) and record.exit is None)


def _look_for_quiet(state: AgentState, record: AttemptRecord) -> None:
    """Check whether processes are left once the script and tasks have ended; they may run to the end of the grace.

    A node without the script that ends its part on its own waits, because the script's node reports the outcome.
    """
    attempt_id = record.launch.attempt_id
    has_last_word = record.stop_ordered or reports.is_batch_node(record)
    if has_last_word and not _may_finish(record) and attempt_id not in state.emptying:
        state.check_at[attempt_id] = state.now + state.settings.quiet_check_s
        state.do(CheckCell(attempt_id=attempt_id))


def _cell_quiet(state: AgentState, attempt_id: AttemptId) -> None:
    if attempt_id in state.check_at:
        state.empty(attempt_id)


def _cell_empty(state: AgentState, empty: CellEmpty) -> None:
    state.emptying.discard(empty.attempt_id)
    state.sought.discard(empty.attempt_id)
    state.unmet.discard(empty.attempt_id)
    state.to_tell.pop(empty.attempt_id, None)
    state.check_at.pop(empty.attempt_id, None)
    record = state.records.get(empty.attempt_id)
    if record is None or record.phase is not Phase.STOPPING:
        return
    record = steps.gone_with_cell(state, record)
    last = reports.last_report(record, empty.usage, state.now)
    state.save(replace(record, phase=Phase.ENDED, last_report=last))
    state.report(last)


def _step_tasks_ended(state: AgentState, ended: StepTasksEnded) -> None:
    record = steps.tasks_ended(state, ended)
    if record is not None and record.phase is Phase.STOPPING:
        _look_for_quiet(state, record)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tick(state: AgentState) -> None:
    for attempt_id in [attempt_id for attempt_id, at in state.deadlines.items() if at <= state.now]:
        _meet_deadlines(state, state.records[attempt_id])
    for attempt_id, check_at in tuple(state.check_at.items()):
        if check_at <= state.now:
            _look_for_quiet(state, state.records[attempt_id])
    for attempt_id in [attempt_id for attempt_id, at in state.take_at.items() if at <= state.now]:
        elastic.meet_deadline(state, state.records[attempt_id])
    state.do(*state.outbox.due(state.now))


def _leap(state: AgentState, by_s: float) -> None:
    for record in tuple(state.records.values()):
        if record.phase is not Phase.ENDED:
            state.save(deadline.postponed(record, by_s))


def _meet_deadlines(state: AgentState, record: AttemptRecord) -> None:
    """Do what is due for one attempt and for its steps."""
    attempt_id = record.launch.attempt_id
    if attempt_id in state.emptying:
        return
    steps.meet_deadlines(state, record)
    while (due := deadline.due(state.records[attempt_id], state.now)) is not None:
        record = state.records[attempt_id]
        match due:
            case deadline.Due.WARNING:
                _warn(state, record)
            case deadline.Due.TIME_LIMIT:
                _time_out(state, record)
            case deadline.Due.KILL:
                state.empty(attempt_id)
                return
            case _:
                assert_never(due)


def _warn(state: AgentState, record: AttemptRecord) -> None:
    """Send the signal that ``--signal`` asked for, some time before the time limit."""
    wanted = record.launch.signal
    assert wanted is not None, "a warning is due only where one was asked for"
    state.save(replace(record, signal_sent=True))
    if not wanted.to_batch_shell:
        state.signal(record.launch.attempt_id, wanted.signum, "steps")
    elif reports.has_script(record):
        state.signal(record.launch.attempt_id, wanted.signum, "batch")


def _time_out(state: AgentState, record: AttemptRecord) -> None:
    """Begin to stop an attempt that has reached its time limit.

    The script's node reports the time-out; the other nodes wait a little longer, in case that node cannot be heard.
    """
    line = reports.stop_message(record, state.node, "CANCELLED AT {time} DUE TO TIME LIMIT")
    _write_line(state, record.launch.attempt_id, line, state.now)
    if not reports.is_batch_node(record):
        kill_at = state.now + record.launch.grace_s + state.settings.resend_s
    else:
        kill_at = state.now + record.launch.grace_s if _may_finish(record) else state.now
    _begin_stop(state, record, Outcome.TIMEOUT, kill_at, ordered=False)


# ── acknowledgements, restart ─────────────────────────────────────────────────────────────────────────────────────


def _acknowledged(state: AgentState, seqs: tuple[int, ...]) -> None:
    for body in state.outbox.take(seqs):
        match body:
            case AttemptEnded() | CellEmptied():
                _last_word_heard(state, body)
            case StepEnded():
                steps.end_heard(state, body.step_id)
            case _:
                pass


def _last_word_heard(state: AgentState, body: AttemptEnded | CellEmptied) -> None:
    record = state.records.get(body.attempt_id)
    if record is not None and record.last_report == body:
        state.drop(body.attempt_id)
        state.note_over(body.attempt_id, record.launch.join)


def _resume(state: AgentState, record: AttemptRecord) -> None:
    """Recover one attempt: make its cell again, which leaves an existing cell as it is, and look for its shepherd."""
    attempt_id = record.launch.attempt_id
    match record.phase:
        case Phase.PREPARING | Phase.PREPARED:
            state.keep(replace(record, phase=Phase.PREPARING))
            state.report(PrepareReceived(attempt_id=attempt_id))
            state.do(MakeCell(launch=record.launch, master_port=reports.own_port(record)))
        case Phase.STARTING:
            state.sought.add(attempt_id)
            state.unmet.add(attempt_id)
            state.do(AdoptProcess(attempt_id=attempt_id))
        case Phase.RUNNING:
            expires_at = state.now + state.settings.step_wait_s
            record = state.keep(steps.given_time_again(record, expires_at))
            state.unmet.add(attempt_id)
            state.do(AdoptProcess(attempt_id=attempt_id))
            state.repeat_report(record)
            steps.expect_all(state, record)
        case Phase.STOPPING:
            state.do(AdoptProcess(attempt_id=attempt_id))
            _meet_deadlines(state, record)
        case Phase.ENDED:
            state.repeat_report(record)
        case _:
            assert_never(record.phase)
    elastic.resume(state, state.records[attempt_id])
    for step in record.steps.values():
        if step.is_ended:
            state.report(reports.step_ended(step))
