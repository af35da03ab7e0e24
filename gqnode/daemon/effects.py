"""Carries out the agent's effects, in order for each attempt, and reports the results to the agent.

It owns the cells and ports in use, and the order of work: a record is on disk before any later effect of the same
attempt.  It decides nothing; an effect that fails is reported or retried, never skipped.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import assert_never

import msgspec

from gq.errors import GqError
from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, Usage
from gq.wire.node import Launch, ReportBody, StepEnded, StepReceived
from gq.wire.step import Attach, CellPlace
from gqnode.control import effect
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.input import (
    CellEmpty,
    CellFailed,
    CellFrozen,
    CellMade,
    GpusTaken,
    Input,
    ProcessEnded,
    StepAttached,
    StepTasksEnded,
)
from gqnode.control.reports import has_script, larger
from gqnode.daemon import elastic, launch_specs
from gqnode.daemon.attempt_queues import AttemptQueues
from gqnode.daemon.blob_cache import BlobCache
from gqnode.daemon.gpu_cleanup import GpuCleanup
from gqnode.daemon.gpu_memory import gpu_memory, is_stopped_within_wait, unshared_gpus
from gqnode.daemon.log import about
from gqnode.daemon.ports import PortLeases
from gqnode.daemon.shepherds import ShepherdPool, TreeEmpty
from gqnode.daemon.spool import Spool
from gqnode.daemon.step_listener import StepListener
from gqnode.daemon.users import UserError, Users
from gqnode.isolation.cell import Cell
from gqnode.isolation.protocol import Isolation, IsolationError
from gqnode.shepherd.processes import send_signal

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Delay before an operation that the disk or the kernel refused is retried."""
END_POLL_S = 0.005
END_TIMEOUT_S = 1.0
"""How long a killed process that joined the cell from outside may take to end."""
KILLED_CODE = 128 + 9
_ENVIRONMENTS = msgspec.msgpack.Decoder(dict[str, str])


class Effects:
    """Carries out effects; `notify_agent` takes an input, `report` a report, `find` returns an attempt's record."""

    def __init__(
        self,
        *,
        queues: AttemptQueues,
        spool: Spool,
        isolation: Isolation,
        ports: PortLeases,
        shepherds: ShepherdPool,
        users: Users,
        gpu_cleanup: GpuCleanup,
        context: launch_specs.LaunchContext,
        notify_agent: Callable[[Input], None],
        report: Callable[[int, ReportBody], None],
        find: Callable[[AttemptId], AttemptRecord | None],
        now: Callable[[], float],
    ) -> None:
        self._queues = queues
        self._spool = spool
        self._isolation = isolation
        self._ports = ports
        self._shepherds = shepherds
        self._users = users
        self._gpu_cleanup = gpu_cleanup
        self._context = context
        self._notify_agent = notify_agent
        self._report = report
        self._find = find
        self._now = now
        self._cells: dict[AttemptId, Cell] = {}
        self._blobs = BlobCache()
        self.listener: StepListener | None = None
        """The step listener, set once it is open."""

    def do(self, action: effect.Effect) -> None:
        self._queues.put(attempt_of(action), lambda: self._do(action))

    def _do(self, action: effect.Effect) -> Awaitable[None] | None:
        match action:
            case effect.SaveRecord():
                return self._save(action)
            case effect.DropRecord():
                return self._drop(action.attempt_id)
            case effect.SendReport():
                self._report(action.seq, action.body)
            case effect.MakeCell():
                return self._make_cell(action)
            case effect.WidenCell():
                return self._widen(action)
            case effect.RevokeGpus():
                return self._revoke_gpus(action)
            case effect.WriteElasticFile():
                return self._write_elastic_file(action.record)
            case effect.StartProcess():
                return self._start(action.launch.attempt_id)
            case effect.AdoptProcess():
                return self._adopt_process(action.attempt_id)
            case effect.SignalProcess():
                self._shepherds.signal(action.attempt_id, action.signum, action.scope)
            case effect.CheckCell():
                self._shepherds.check(action.attempt_id)
            case effect.FreezeCell():
                return self._freeze(action)
            case effect.EmptyCell():
                self._shepherds.empty(action.attempt_id)
            case effect.WriteLine():
                self._shepherds.write_line(action.attempt_id, with_time(action.text, action.at))
            case effect.ExpectStep():
                self._expect(action.step_id)
            case effect.ForgetStep():
                self._listener.forget(action.step_id)
            case effect.SignalStepTasks():
                self._shepherds.steps.signal(action.step_id, action.signum)
            case _:
                assert_never(action)
        return None

    @property
    def _listener(self) -> StepListener:
        assert self.listener is not None, "the door is open before the agent wants anything"
        return self.listener

    # ── the spool ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _save(self, action: effect.SaveRecord) -> None:
        """Save the record; the attempt's later effects wait until it is on disk.  Only a new attempt can be refused."""
        attempt_id = action.record.launch.attempt_id
        while True:
            try:
                await self._queues.in_thread(self._spool.save, action.record, action.blobs)
                self._blobs.put(action.blobs)
                return
            except OSError as error:
                why = f"the spool cannot be written: {error.strerror or error}"
                log.error("%s", why, extra=about(attempt_id))
                if action.record.phase is Phase.PREPARING:
                    self._notify_agent(CellFailed(attempt_id=attempt_id, why=why))
                    return
            await asyncio.sleep(RETRY_S)

    def drop(self, attempt_id: AttemptId) -> None:
        """Remove the spool directory of an attempt that had no record, once its processes are gone."""
        self._queues.put(attempt_id, lambda: self._drop(attempt_id))

    async def _drop(self, attempt_id: AttemptId) -> None:
        self._cells.pop(attempt_id, None)
        self._ports.release(attempt_id)
        elastic.remove(self._elastic_path(attempt_id))
        await self._queues.in_thread(self._spool.drop, attempt_id)

    # ── cells and processes ───────────────────────────────────────────────────────────────────────────────────

    async def _make_cell(self, action: effect.MakeCell) -> None:
        launch = action.launch
        attempt_id = launch.attempt_id
        record = self._find(attempt_id)
        if record is None or record.phase is not Phase.PREPARING:
            return
        try:
            account = await self._users.account_of(launch)
        except UserError as error:
            log.error("%s", error.message, extra=about(attempt_id))
            self._notify_agent(CellFailed(attempt_id=attempt_id, why=error.message))
            return
        try:
            port = self._ports.lease(attempt_id, action.master_port) if launch.node_rank == 0 else 0
            limits = launch_specs.limits_of(launch.grant, self._context.gpus)
            self._cells[attempt_id] = await self._queues.in_thread(self._isolation.make, str(attempt_id), limits)
        except GqError as error:
            self._ports.release(attempt_id)
            log.error("the cell cannot be created: %s", error.message, extra=about(attempt_id))
            self._notify_agent(CellFailed(attempt_id=attempt_id, why=error.message))
        else:
            await self._gpu_cleanup.begin(attempt_id, launch.grant.gpus)
            self._notify_agent(CellMade(attempt_id=attempt_id, master_port=port, account=account))

    def _start(self, attempt_id: AttemptId) -> Awaitable[None] | None:
        record = self._find(attempt_id)
        assert record is not None, f"attempt {attempt_id} is started and not known"
        script, environment = self._cached_script(record)
        if script is None or environment is None:
            return self._start_from_spool(record)
        self._run(record, script, environment)
        return None

    def _cached_script(self, record: AttemptRecord) -> tuple[bytes | None, bytes | None]:
        """Return the script and the submitted environment; None for either one that is only in the spool."""
        launch = record.launch
        if not has_script(record):
            return b"", b""
        return (
            self._blobs.get(launch.script_digest) if launch.script_digest else b"",
            self._blobs.get(launch.environment_digest) if launch.environment_digest else b"",
        )

    async def _start_from_spool(self, record: AttemptRecord) -> None:
        launch = record.launch
        blob = partial(self._spool.blob, launch.attempt_id)
        try:
            script, environment = await self._queues.in_thread(_script_and_environment, launch, blob)
        except OSError as error:
            self._cannot_run(launch.attempt_id, error)
        else:
            self._run(record, script, environment)

    def _run(self, record: AttemptRecord, script: bytes, environment: bytes) -> None:
        attempt_id = record.launch.attempt_id
        try:
            submitted = _ENVIRONMENTS.decode(environment) if environment else {}
        except msgspec.MsgspecError as error:
            self._cannot_run(attempt_id, error)
            return
        cell = self._cells.get(attempt_id) or Cell(str(attempt_id))
        self._shepherds.start(
            attempt_id, launch_specs.shepherd_spec(record, cell, self._context, submitted, self._now()), script
        )

    def _cannot_run(self, attempt_id: AttemptId, error: Exception) -> None:
        self._notify_agent(
            ProcessEnded(
                attempt_id=attempt_id,
                exit=ExitStatus(),
                usage=Usage(),
                ended_at=self._now(),
                why=f"the script or its environment cannot be read: {error}",
            )
        )

    def cells(self, records: Iterable[AttemptRecord]) -> tuple[CellPlace, ...]:
        """Return the cells of those attempts whose processes run."""
        return tuple(self._cell_place(record) for record in records if record.phase in (Phase.RUNNING, Phase.STOPPING))

    def _cell_place(self, record: AttemptRecord) -> CellPlace:
        attempt_id = record.launch.attempt_id
        cell = self._cells.get(attempt_id)
        return CellPlace(
            attempt_id=attempt_id,
            procs_files=cell.procs_files if cell else (),
            namespace_pid=self._shepherds.shepherd_pid(attempt_id) if self._context.private_tmp else 0,
            marker=self._shepherds.marker(attempt_id),
        )

    async def _adopt_process(self, attempt_id: AttemptId) -> None:
        """Find port, cell and shepherd of an attempt again after a restart."""
        record = self._find(attempt_id)
        if record is not None and record.launch.node_rank == 0 and record.master_port:
            self._ports.keep(attempt_id, record.master_port)
        cell = await self._queues.in_thread(self._isolation.find, str(attempt_id))
        if cell is not None:
            self._cells[attempt_id] = cell
        self._shepherds.adopt(attempt_id)

    async def _freeze(self, action: effect.FreezeCell) -> None:
        attempt_id, is_frozen = action.attempt_id, action.is_frozen
        cell = self._cells.get(attempt_id) or Cell(str(attempt_id))
        try:
            is_done = await self._queues.in_thread(self._isolation.freeze, cell, is_frozen)
        except IsolationError as error:
            log.error("the cell cannot be frozen: %s", error.message, extra=about(attempt_id))
            is_done = False
        if not is_done:
            self._stop_or_continue(attempt_id, is_frozen)
        if action.parked_at is not None:
            await self._measure_gpu_memory(attempt_id, cell, action.parked_at)

    async def _measure_gpu_memory(self, attempt_id: AttemptId, cell: Cell, parked_at: float) -> None:
        """Report the GPU memory of a suspended attempt; nothing is reported while a process still runs."""
        record, shepherd = self._find(attempt_id), self._shepherds.shepherd_pid(attempt_id)
        is_still = partial(is_stopped_within_wait, self._isolation, cell, shepherd)
        if record is None or not await self._queues.in_thread(is_still):
            log.warning("the suspended attempt still has running processes", extra=about(attempt_id))
            return
        samples = await self._gpu_cleanup.sample(record.launch.grant.gpus)
        self._notify_agent(CellFrozen(attempt_id=attempt_id, parked_at=parked_at, gpu_memory=gpu_memory(samples)))

    def _stop_or_continue(self, attempt_id: AttemptId, is_frozen: bool) -> None:
        """Stop the processes by signals, where there is no freezer.

        The shepherd repeats SIGSTOP until every process is stopped.  It is told twice because a shepherd that an older
        gqnode started sends each signal once.
        """
        for _ in range(2):
            self._shepherds.signal(attempt_id, signal.SIGSTOP if is_frozen else signal.SIGCONT, "all")

    def process_ended(self, ended: ProcessEnded) -> None:
        """Handle the script's end; the cell knows whether the kernel killed a process for its memory.

        As in Slurm, and as the memory watch without cgroups does, the kill counts even if the script hides the child's
        death.
        """
        self._queues.put(ended.attempt_id, lambda: self._report_end(ended))

    async def _report_end(self, ended: ProcessEnded) -> None:
        is_oom = ended.oom or await self._was_oom_killed(ended.attempt_id)
        self._notify_agent(msgspec.structs.replace(ended, oom=is_oom))

    async def _was_oom_killed(self, attempt_id: AttemptId) -> bool:
        record, cell = self._find(attempt_id), self._cells.get(attempt_id)
        if record is None or cell is None or not record.launch.grant.memory_mib:
            return False
        return await self._queues.in_thread(self._isolation.oom_killed, cell)

    def tree_empty(self, empty: TreeEmpty) -> None:
        """Remove the cell once no process is left, then notify the agent."""
        self._queues.put(empty.attempt_id, lambda: self._remove_cell(empty))

    async def _remove_cell(self, empty: TreeEmpty) -> None:
        attempt_id = empty.attempt_id
        cell = self._cells.get(attempt_id) or Cell(str(attempt_id))
        counted = None
        while True:
            try:
                counted = await self._queues.in_thread(self._count_and_remove, cell) or counted
                break
            except IsolationError as error:
                log.error("the cell cannot be removed: %s", error.message, extra=about(attempt_id))
                await self._queues.in_thread(self._isolation.kill, cell)
            await asyncio.sleep(RETRY_S)
        if self._spool.has_private(attempt_id):
            await self._clear_private(attempt_id)
        await self._await_gpu_cleanup(attempt_id)
        self._cells.pop(attempt_id, None)
        self._ports.release(attempt_id)
        self._listener.forget_attempt(attempt_id)
        self._notify_agent(CellEmpty(attempt_id=attempt_id, usage=larger(empty.usage, counted or Usage())))

    async def _clear_private(self, attempt_id: AttemptId) -> None:
        """Remove the private ``/tmp`` once no process is left that could write to it."""
        try:
            await self._queues.in_thread(self._spool.clear_private, attempt_id)
        except OSError as error:
            log.error("the job's own /tmp cannot be removed: %s", error.strerror, extra=about(attempt_id))

    async def _await_gpu_cleanup(self, attempt_id: AttemptId) -> None:
        record = self._find(attempt_id)
        others = (self._find(cell) for cell in self._cells)
        gpus = () if record is None else unshared_gpus(record, (one for one in others if one is not None))
        left = await self._gpu_cleanup.end(attempt_id, gpus)
        if left:
            log.warning("%s", left, extra=about(attempt_id))

    def _count_and_remove(self, cell: Cell) -> Usage | None:
        """Read the usage, kill processes that joined the cell from outside, remove it.  Blocks: run it in a thread."""
        usage = self._isolation.usage(cell)
        for _ in range(int(END_TIMEOUT_S / END_POLL_S)):
            if self._isolation.end(cell):
                break
            time.sleep(END_POLL_S)
        self._isolation.remove(cell)
        return usage

    # ── GPUs that become more and fewer ───────────────────────────────────────────────────────────────────────

    async def _widen(self, action: effect.WidenCell) -> None:
        await self._limit(action.launch)
        await self._gpu_cleanup.begin(action.launch.attempt_id, action.launch.grant.gpus)

    async def _limit(self, launch: Launch) -> None:
        """Set the cell's limits, retrying until it succeeds: a denied GPU of the grant would go unnoticed."""
        attempt_id = launch.attempt_id
        limits = launch_specs.limits_of(launch.grant, self._context.gpus)
        cell = self._cells.get(attempt_id) or Cell(str(attempt_id))
        while (record := self._find(attempt_id)) is not None and record.phase in (Phase.STARTING, Phase.RUNNING):
            try:
                await self._queues.in_thread(self._isolation.set_limits, cell, limits)
                return
            except IsolationError as error:
                log.error("the cell cannot be changed: %s", error.message, extra=about(attempt_id))
            await asyncio.sleep(RETRY_S)

    async def _revoke_gpus(self, action: effect.RevokeGpus) -> None:
        """Deny the GPUs first, so that no process starts using them, then kill the processes that use one."""
        attempt_id = action.launch.attempt_id
        await self._limit(action.launch)
        samples = await self._gpu_cleanup.sample(action.gpus)
        shepherd, marker = self._shepherds.shepherd_pid(attempt_id), self._shepherds.marker(attempt_id)
        find = partial(elastic.gpu_users, action.gpus, self._context.gpus, samples, shepherd, marker)
        pids = await self._queues.in_thread(find)
        if pids:
            log.info("killed %d processes that still used GPUs to be released", len(pids), extra=about(attempt_id))
            send_signal(pids, signal.SIGKILL)
        self._notify_agent(GpusTaken(attempt_id=attempt_id, generation=action.generation, is_done=not pids))

    async def _write_elastic_file(self, record: AttemptRecord) -> None:
        """Write the job's file of GPUs; an error is only logged, as the deadline applies all the same."""
        attempt_id, account = record.launch.attempt_id, record.account
        content = elastic.elastic_file(record, self._context.gpus)
        owner = None if account is None else (account.uid, account.gid)
        try:
            await self._queues.in_thread(elastic.write, self._elastic_path(attempt_id), content, owner)
        except OSError as error:
            log.error("the job's file `gq.elastic` cannot be written: %s", error, extra=about(attempt_id))

    def _elastic_path(self, attempt_id: AttemptId) -> str:
        return elastic.path_of(self._context.run_dir, self._context.node, attempt_id)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _expect(self, step_id: StepId) -> None:
        record = self._find(step_id.attempt_id)
        step = record.steps.get(step_id.step) if record is not None else None
        if record is not None and step is not None:
            self._listener.expect(step_id, step.order.key, record.launch.uid, is_begun=step.is_attached)

    def attach(self, attach: Attach, is_first: bool) -> None:
        """Attach a client that has the step's key."""
        self._queues.put(attach.step_id.attempt_id, lambda: self._attach(attach, is_first))

    async def _attach(self, attach: Attach, is_first: bool) -> None:
        """Start the tasks for the first client; a later client only gets the output that it lacks."""
        step_id = attach.step_id
        if is_first and not await self._start_tasks(attach):
            self._listener.forget(step_id)
            return
        self._listener.confirm_attached(step_id)
        self._shepherds.steps.replay(step_id, attach.received)

    async def _start_tasks(self, attach: Attach) -> bool:
        step_id = attach.step_id
        record = self._find(step_id.attempt_id)
        if record is None or step_id.step not in record.steps:
            self._listener.refuse_client(step_id, "over", f"step {step_id} has ended")
            return False
        try:
            cell = await self._step_cell(step_id)
        except IsolationError as error:
            log.error(
                "the cell of step %s cannot be created: %s", step_id, error.message, extra=about(step_id.attempt_id)
            )
            self._listener.refuse_client(step_id, "no_cell", error.message)
            self._notify_agent(StepTasksEnded(step_id=step_id, exit=ExitStatus(code=1)))
            return False
        self._shepherds.steps.start(step_id, launch_specs.task_specs(record, attach, cell, self._context, self._now()))
        self._notify_agent(StepAttached(step_id=step_id))
        return True

    async def _step_cell(self, step_id: StepId) -> Cell:
        cell = self._cells.get(step_id.attempt_id) or Cell(str(step_id.attempt_id))
        return await self._queues.in_thread(self._isolation.make_step, cell, step_id.step)

    def step_tasks_ended(self, ended: StepTasksEnded) -> None:
        self._queues.put(ended.step_id.attempt_id, lambda: self._report_step_end(ended))

    async def _report_step_end(self, ended: StepTasksEnded) -> None:
        attempt_id = ended.step_id.attempt_id
        # The cell counts for the whole attempt: only a task that was killed can have been killed for memory.
        is_oom = ended.oom or (ended.exit.shell_code == KILLED_CODE and await self._was_oom_killed(attempt_id))
        try:
            await self._queues.in_thread(self._isolation.remove, Cell(f"{attempt_id}.{ended.step_id.step}"))
        except IsolationError as error:  # it goes with the attempt's cell
            log.warning("the cell of a step cannot be removed: %s", error.message, extra=about(attempt_id))
        self._notify_agent(msgspec.structs.replace(ended, oom=is_oom))


def _script_and_environment(launch: Launch, blob: Callable[[str], bytes]) -> tuple[bytes, bytes]:
    script = blob(launch.script_digest) if launch.script_digest else b""
    return script, blob(launch.environment_digest) if launch.environment_digest else b""


def attempt_of(action: effect.Effect) -> AttemptId:
    """Return the attempt in whose queue the effect goes."""
    match action:
        case effect.SaveRecord():
            return action.record.launch.attempt_id
        case effect.WriteElasticFile():
            return action.record.launch.attempt_id
        case effect.MakeCell() | effect.StartProcess() | effect.WidenCell() | effect.RevokeGpus():
            return action.launch.attempt_id
        case effect.SendReport():
            return attempt_of_report(action.body)
        case effect.ExpectStep() | effect.ForgetStep() | effect.SignalStepTasks():
            return action.step_id.attempt_id
        case _:
            return action.attempt_id


def attempt_of_report(body: ReportBody) -> AttemptId:
    match body:
        case StepReceived() | StepEnded():
            return body.step_id.attempt_id
        case _:
            return body.attempt_id


def with_time(text: str, at: float | None) -> str:
    """Replace ``{time}`` by local time in Slurm's format."""
    if at is None:
        return text
    return text.replace("{time}", datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S"))
