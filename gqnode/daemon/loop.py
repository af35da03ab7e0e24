"""The node daemon: one asyncio loop that feeds the agent inputs and carries out its effects.

It owns the daemon's parts and the paths between them: orders, processes, clients and time become inputs of the agent;
its effects go into the attempt queues.  It reads the clock once per input.  It never decides anything about a job; a
broken invariant ends the daemon, and the jobs go on without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, assert_never

import msgspec
import zmq

from gq.config.config import Config, NodeSettings
from gq.connection.curve import KeyPair, node_key_path, read_keys, read_public, server_public_path
from gq.connection.locate import Location, is_run_for_all, make_run_dir
from gq.connection.memory_guard import MemoryGuard
from gq.errors import GqError, Refusal
from gq.host.clock import Clock
from gq.model.ids import StepId
from gq.model.node import Gpu, Inventory
from gq.wire import node as wire
from gq.wire import step as step_wire
from gq.wire.codec import WIRE_VERSION
from gqnode.accel.protocol import Accelerators
from gqnode.control import input as happening
from gqnode.control.account import UserRule
from gqnode.control.agent import Agent
from gqnode.control.agent_state import Settings
from gqnode.control.effect import Effect
from gqnode.daemon import machine
from gqnode.daemon.attempt_queues import AttemptQueues
from gqnode.daemon.attributes import AttributeScript
from gqnode.daemon.effects import Effects, attempt_of
from gqnode.daemon.gpu_cleanup import GpuCleanup
from gqnode.daemon.gpu_monitor import GpuMonitor
from gqnode.daemon.host_listener import HostListener
from gqnode.daemon.launch_specs import LaunchContext
from gqnode.daemon.link import ControllerAddress, Link
from gqnode.daemon.log import about
from gqnode.daemon.log_files import LogFiles
from gqnode.daemon.ports import PortLeases
from gqnode.daemon.relay import Asked, Relay
from gqnode.daemon.shepherds import ShepherdEvent, ShepherdPool, TreeEmpty
from gqnode.daemon.spawn import Spawner
from gqnode.daemon.spool import Spool
from gqnode.daemon.step_listener import StepListener, ToTasks
from gqnode.daemon.users import Users
from gqnode.isolation.protocol import Isolation
from gqnode.shepherd.specs import Confinement

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 60.0
CLOSE_S = 5.0
EMPTY_WITHIN_S = 20.0
"""How long after KILL a removed node waits for processes that are stuck in the kernel."""


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """The facts and parts gathered before the loop begins."""

    location: Location
    config: Config
    node: NodeSettings
    spool_root: str
    gpus: tuple[Gpu, ...]
    accelerators: Accelerators
    isolation: Isolation
    spawner: Spawner
    confinement: Confinement
    user_rule: UserRule

    @property
    def member_path(self) -> Path:
        """The file that exists while the node is part of its cluster."""
        return Path(self.location.member_path(self.node.name))

    @property
    def own_cpus(self) -> tuple[int, ...]:
        """The machine's CPUs to which tasks may be bound."""
        if self.node.isolation.get("cpuset") == "none":
            return ()
        return machine.cpus_to_pin(self.config, self.node) or ()

    @property
    def step_endpoint(self) -> str:
        return self.node.step_listen or self.location.step_endpoint(self.node.name)

    @property
    def may_be_shared(self) -> bool:
        """Whether the controller may let jobs run as their submitters."""
        return is_run_for_all(self.location)

    def read_keys(self) -> KeyPair | None:
        """Read the node's own key pair, if any of its sockets uses tcp."""
        if self.node.controller is None and self.node.step_listen is None:
            return None
        return read_keys(node_key_path(self.location.keys_dir, self.node.name))

    def controller(self, keys: KeyPair | None) -> ControllerAddress:
        if self.node.controller is None:
            return ControllerAddress(self.location.node_endpoint)
        return ControllerAddress(self.node.controller, keys, read_public(server_public_path(self.location.keys_dir)))


class _StepOptions(NamedTuple):
    equipment: Equipment
    keys: KeyPair | None
    ticket_key: bytes
    now: Callable[[], float]


class _Listeners:
    """The sockets on which the node serves the commands: for steps, for its host, and the relay to the controller."""

    def __init__(self, daemon: NodeDaemon, context: zmq.Context[zmq.Socket[bytes]], options: _StepOptions) -> None:
        self._equipment = equipment = options.equipment
        self.step = self._open_step(daemon, context, options)
        self.host = self._open_host(daemon, context)
        self.relay = self._open_relay(daemon, context)
        """The relay for clients of this host; None if gqd runs on this host."""
        location = equipment.location
        endpoints = {equipment.step_endpoint, location.step_endpoint(equipment.node.name), location.client_endpoint}
        self._memory_guard = MemoryGuard(endpoints, asyncio.get_running_loop().call_later, _say_greedy)

    def close(self) -> None:
        self._memory_guard.close()
        for listener in (self.step, self.host, self.relay):
            if listener is not None:
                listener.close()

    def _open_step(
        self, daemon: NodeDaemon, context: zmq.Context[zmq.Socket[bytes]], options: _StepOptions
    ) -> StepListener:
        node, endpoint = self._equipment.node, self._equipment.step_endpoint
        if node.step_listen is None and node.controller is not None and not node.login:
            log.warning("step_listen is not set: gqrun and gqlog reach jobs of this node only from this host")
        try:
            return StepListener(
                context=context,
                endpoint=endpoint,
                keys=options.keys,
                ticket_key=options.ticket_key,
                handler=daemon,
                wall=options.now,
                owner_uids=(os.geteuid(), 0),
                client_lost_s=self._equipment.config.timers.interactive_lost_s,
                may_be_shared=self._equipment.may_be_shared,
            )
        except zmq.ZMQError as error:
            raise _not_bound(endpoint, error) from error

    def _open_host(self, daemon: NodeDaemon, context: zmq.Context[zmq.Socket[bytes]]) -> HostListener | None:
        """Serve this host where the step socket is on the network: the kernel authenticates local clients."""
        if self._equipment.node.step_listen is None:
            return None
        endpoint = self._equipment.location.step_endpoint(self._equipment.node.name)
        try:
            return HostListener(context, endpoint, daemon, may_be_shared=self._equipment.may_be_shared)
        except zmq.ZMQError as error:
            raise _not_bound(endpoint, error) from error

    def _open_relay(self, daemon: NodeDaemon, context: zmq.Context[zmq.Socket[bytes]]) -> Relay | None:
        """Open the relay for clients of this host if gqd runs on another host."""
        if self._equipment.node.controller is None:
            return None
        endpoint = self._equipment.location.client_endpoint
        try:
            return Relay(context, endpoint, os.geteuid(), daemon.pass_on, may_be_shared=self._equipment.may_be_shared)
        except zmq.ZMQError as error:
            raise _not_bound(endpoint, error) from error


class NodeDaemon:
    """The daemon; `run` returns its exit status."""

    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self._node = equipment.node
        self._clock = Clock()
        self._incarnation = secrets.token_hex(8)
        self._ticket_key = secrets.token_bytes(32)
        self._boot_id = machine.boot_id()
        self._inventory: Inventory = machine.find_inventory(
            equipment.node,
            equipment.gpus,
            equipment.isolation.levels,
            self._equipment.may_be_shared,
            machine.cpus_to_pin(equipment.config, equipment.node),
            equipment.accelerators.attributes,
        )
        self._script = AttributeScript(
            equipment.node.attribute_script, equipment.node.attribute_interval_s, equipment.node.name
        )
        self._keys = equipment.read_keys()
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[int] | None = None
        self._is_leaving = False
        """Whether the node was removed from the cluster and ends when its cells are empty."""
        self._leaving_status = 1

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> int:
        self._over = asyncio.get_running_loop().create_future()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        await self._script.read()
        self._open(context)
        watching = [asyncio.ensure_future(self._script.watch(self._link.hello_again))]
        if self._equipment.gpus:
            interval_s = self._equipment.config.timers.heartbeat_s
            watching.append(asyncio.ensure_future(self._gpus.watch(interval_s)))
        try:
            return await self._over
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
            await self._close(context)

    def end(self, status: int = 0) -> None:
        """End the daemon; the jobs go on."""
        if self._over is not None and not self._over.done():
            self._over.set_result(status)

    def _open(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Doors first, threads after (`bind_ipc`); the agent last, since it wants things at once."""
        equipment = self._equipment
        self._spool = Spool(equipment.spool_root)
        self._agent = Agent(self._node.name, self._spool.load(), Settings(resend_s=equipment.config.timers.resend_s))
        make_run_dir(equipment.location)
        self._equipment.member_path.unlink(missing_ok=True)
        options = _StepOptions(equipment, self._keys, self._ticket_key, self._clock.now)
        self._listeners = _Listeners(self, context, options)
        self._queues = AttemptQueues(self._fail)
        self._users = Users(self._node.name, chooses=self._equipment.may_be_shared, rule=equipment.user_rule)
        if self._listeners.relay is not None:
            self._listeners.relay.users = self._users
        self._gpus = GpuMonitor(equipment.accelerators, self._clock.now)
        self._log_files = LogFiles(self._queues, equipment.spawner)
        self._shepherds = ShepherdPool(
            equipment.spawner, equipment.spool_root, self._on_shepherd_event, self._clock.now
        )
        self._effects = self._make_effects()
        self._effects.listener = self._listeners.step
        _clear_leftovers(self._spool, self._agent, self._shepherds, equipment.isolation)
        self._link = Link(context, equipment.controller(self._keys), self)
        self._do(self._agent.resume(self._clock.now()))

    def _make_effects(self) -> Effects:
        equipment = self._equipment
        return Effects(
            queues=self._queues,
            spool=self._spool,
            isolation=equipment.isolation,
            ports=PortLeases(*self._node.port_range),
            shepherds=self._shepherds,
            users=self._users,
            gpu_cleanup=GpuCleanup(self._gpus),
            context=LaunchContext(
                location_env=equipment.location.environment(),
                login_env=machine.login_environment(os.geteuid()),
                gpus=equipment.gpus,
                confinement=equipment.confinement,
                private_tmp=self._node.private_tmp,
                cpu_ids=equipment.own_cpus,
                node=self._node.name,
                run_dir=equipment.location.run_dir,
            ),
            notify_agent=self._handle,
            report=self._report,
            find=self._agent.record,
            now=self._clock.now,
        )

    async def _close(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._users.close()
        await self._queues.close(CLOSE_S)
        self._gpus.close()
        await self._shepherds.close()
        self._link.close()
        self._equipment.member_path.unlink(missing_ok=True)
        self._listeners.close()
        self._equipment.isolation.close()
        await asyncio.get_running_loop().run_in_executor(None, context.term)

    def _fail(self, error: BaseException) -> None:
        log.critical("the daemon stops: its jobs continue", exc_info=error)
        self.end(1)

    # ── to and from the agent ─────────────────────────────────────────────────────────────────────────────────

    def _handle(self, input: happening.Input) -> None:
        now = self._clock.now()
        leapt_s = self._clock.take_leap_s()
        if leapt_s:
            log.warning("the clock jumped forward by %.0f s", leapt_s)
            self._do(self._agent.handle(happening.ClockLeapt(by_s=leapt_s), now))
        self._do(self._agent.handle(input, now))

    def _do(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s", type(effect).__name__, extra=about(attempt_of(effect)))
            self._effects.do(effect)
        self._set_timer()
        if self._is_leaving and not self._agent.has_cells:
            log.info("all jobs of this node have ended")
            self.end(self._leaving_status)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakeup = self._agent.next_wakeup()
        if wakeup is not None:
            delay_s = min(max(0.0, wakeup - self._clock.now()), LONGEST_SLEEP_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self._handle(happening.Tick())
        except Exception as error:
            self._fail(error)

    def _report(self, seq: int, body: wire.ReportBody) -> None:
        """Send a report; it is lost if the controller is away, and the agent repeats it."""
        self._link.send(wire.Report(node=self._node.name, incarnation=self._incarnation, seq=seq, body=body))

    # ── what the link tells (`link.Home`) ─────────────────────────────────────────────────────────────────────

    def hello(self) -> wire.Hello:
        address = machine.address_of(self._equipment.config, self._node)
        listen = self._node.step_listen
        return wire.Hello(
            node=self._node.name,
            version=WIRE_VERSION,
            incarnation=self._incarnation,
            boot_id=self._boot_id,
            address=address,
            inventory=self._script.said.added_to(self._inventory),
            step_endpoint=machine.reached_at(listen, address) if listen else self._equipment.step_endpoint,
            step_public_key=self._keys.public.decode() if self._keys and listen else "",
            ticket_key=self._ticket_key,
            attempts=self._agent.statuses(),
            last_seq=self._agent.last_seq,
            is_relay=self._node.login,
        )

    def heartbeat(self) -> wire.Heartbeat:
        return wire.Heartbeat(
            node=self._node.name,
            incarnation=self._incarnation,
            at=self._clock.now(),
            load=machine.load(),
            memory_available_mib=machine.memory_available_mib(),
            gpus=self._gpus.readings,
        )

    def on_welcome(self, welcome: wire.Welcome) -> None:
        log.info("node %s is part of cluster %s", self._node.name, welcome.cluster)
        self._users.hear(welcome.is_shared)
        self._listeners.step.share(self._users.is_shared)
        if self._listeners.relay is not None:
            self._listeners.relay.link_is_up(welcome.owner_uid)
        with contextlib.suppress(OSError):  # only those who wait for it look: nothing ends with a full disk
            self._equipment.member_path.write_text(f"{os.getpid()}\n")
        self._handle_guarded(happening.LinkUp())

    def on_parted(self) -> None:
        with contextlib.suppress(OSError):
            self._equipment.member_path.unlink(missing_ok=True)

    def on_unwelcome(self, why: str, is_removed: bool) -> None:
        log.error("the controller does not let this node in: %s", why)
        if is_removed and self._agent.has_cells:
            self.leave(status=1)
        else:
            self.end(1)

    def leave(self, status: int = 0) -> None:
        """Stop all attempts within their grace, and end the daemon with this exit status when its cells are empty.

        Root of this host may ask for it; the controller does by removing the node.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        self._leaving_status = status
        log.warning("ending the jobs of this node")
        self._link.close()
        grace_s = self._equipment.config.timers.grace_s
        asyncio.get_running_loop().call_later(grace_s + EMPTY_WITHIN_S, self._end_with_cells)
        self._handle_guarded(happening.Removed(grace_s=grace_s))

    def _end_with_cells(self) -> None:
        for status in self._agent.statuses():
            log.critical("processes of an attempt could not be ended", extra=about(status.attempt_id))
        self.end(1)  # also after `leave`: it is not as it was wanted

    def on_ack(self, seqs: tuple[int, ...]) -> None:
        self._handle_guarded(happening.Acknowledged(seqs=seqs))

    def on_orders(self, orders: wire.Orders) -> None:
        for order in orders.orders:
            self._handle_guarded(happening.OrderReceived(order=order, blobs=orders.blobs))

    def on_relay_reply(self, reply: wire.RelayReply) -> None:
        if self._listeners.relay is not None:
            self._listeners.relay.answer(reply)

    def pass_on(self, asked: Asked) -> bool:
        return self._link.send(
            wire.Relay(
                node=self._node.name,
                incarnation=self._incarnation,
                relay_id=asked.relay_id,
                uid=asked.uid,
                gid=asked.gid,
                user=asked.user,
                payload=asked.payload,
            )
        )

    def _handle_guarded(self, input: happening.Input) -> None:
        """Handle an input from a callback of the loop, which would only log an exception."""
        try:
            self._handle(input)
        except Exception as error:
            self._fail(error)

    # ── what the shepherds tell ───────────────────────────────────────────────────────────────────────────────

    def _on_shepherd_event(self, event: ShepherdEvent) -> None:
        match event:
            case happening.ProcessEnded():
                self._effects.process_ended(event)
            case happening.StepTasksEnded():
                self._effects.step_tasks_ended(event)
            case TreeEmpty():
                self._effects.tree_empty(event)
                if self._agent.record(event.attempt_id) is None:
                    self._effects.drop(event.attempt_id)
            case step_wire.TaskStarted() | step_wire.Output() | step_wire.StdinTaken() | step_wire.TaskExited():
                self._listeners.step.forward_to_client(event)
            case happening.ProcessStarted() | happening.CellQuiet():
                self._queues.put(event.attempt_id, lambda: self._handle(event))
            case happening.StepTaskFailed():
                self._queues.put(event.step_id.attempt_id, lambda: self._handle(event))
            case _:
                assert_never(event)

    # ── what the step door asks (`door.StepHandler`) ─────────────────────────────────────────────────────────────

    def attach(self, attach: step_wire.Attach, is_first: bool) -> None:
        self._effects.attach(attach, is_first)

    def on_task_message(self, message: ToTasks) -> None:
        step_id = message.step_id
        match message:
            case step_wire.Stdin():
                self._shepherds.steps.stdin(step_id, message.offset, message.data, message.eof)
            case step_wire.Resize():
                self._shepherds.steps.resize(step_id, message.size.rows, message.size.columns)
            case step_wire.SignalTasks():
                self._shepherds.steps.signal(step_id, message.signum)
            case step_wire.Received():
                self._shepherds.steps.received(step_id, message.positions)
            case step_wire.Detach():
                self._shepherds.steps.detach(step_id)
            case _:
                assert_never(message)

    def client_lost(self, step_id: StepId) -> None:
        """Discard the output of a step whose client does not come back, and stop the step if it still runs."""
        self._shepherds.steps.detach(step_id)
        record = self._agent.record(step_id.attempt_id)
        step = record.steps.get(step_id.step) if record is not None else None
        if step is None or step.is_ended:
            return
        log.warning("the client of step %s disconnected: ending the step", step_id, extra=about(step_id.attempt_id))
        grace_s = self._equipment.config.timers.grace_s
        self._handle_guarded(happening.OrderReceived(order=wire.StopStep(step_id=step_id, grace_s=grace_s)))

    def cells(self, uid: int) -> tuple[step_wire.CellPlace, ...]:
        records = (record for record in self._agent.records() if record.launch.uid == uid)
        return self._effects.cells(sorted(records, key=lambda record: record.launch.attempt_id))

    async def read_file(self, path: str, offset: int, max_bytes: int, uid: int) -> step_wire.LogData:
        account = await self._users.reader_account(uid)
        return await self._log_files.read(path, offset, max_bytes, account)


def _clear_leftovers(spool: Spool, agent: Agent, shepherds: ShepherdPool, isolation: Isolation) -> None:
    """End processes and remove cells of attempts without a record, as nothing else would."""
    for attempt_id in spool.orphans():
        log.warning("ending an attempt that has no record", extra=about(attempt_id))
        shepherds.empty(attempt_id)
    known = {str(record.launch.attempt_id) for record in agent.records()}
    for name in isolation.clear(known):
        log.warning("removed the cell %s, which belongs to no known attempt", name)


def _say_greedy(peer: str, size: int) -> None:
    log.warning("%s sent %d MiB of an unfinished message and was disconnected", peer, size >> 20)


def _not_bound(endpoint: str, error: zmq.ZMQError) -> GqError:
    return Refusal("not_bound", f"{endpoint} cannot be bound: {error.strerror}", "check whether another daemon uses it")
