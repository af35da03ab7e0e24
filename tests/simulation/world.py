"""gqd's and gqnode's control code together, on a simulated network and simulated machines, from a seed.

Nothing here is a daemon: the controller commits to a store in memory, agents keep their spool in a dict, and time is
a number.  Messages are delayed, dropped and repeated; daemons crash between any two steps and come back from what
they had made durable; machines lose power.  What the real machine would have running is kept apart from what the
daemons believe, and judged: see `World.judge`.
"""

from __future__ import annotations

import heapq
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gq.model.ids import AttemptId, RequestId
from gq.model.job import ExitStatus, Usage
from gq.model.node import Inventory
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sched.planner import plan_whole
from gqd.shell.zones import load_zones, zones_of
from gqd.state import effect as controller_effect
from gqd.state import input as controller_input
from gqd.state import invariants
from gqd.state.input import Peer
from gqd.state.policy import Policy
from gqd.store.memory import MemoryStore
from gqd.store.rows.rows import materialise
from gqnode.control import effect, input
from gqnode.control.agent import Agent
from gqnode.control.attempt import AttemptRecord, Phase
from tests.builders import OWNER, SHARED, client_request
from tests.simulation.elastic import Users
from tests.simulation.gqrun import Gqrun
from tests.simulation.membership import Membership

HEARTBEAT_S = 5.0


@dataclass(frozen=True)
class Faults:
    """Probabilities per message or per step, and how often per 1,000 simulated seconds daemons die."""

    drop: float = 0.0
    repeat: float = 0.0
    slow: float = 0.0
    """A message takes up to 4 s instead of a few ms."""
    refuse: float = 0.0
    """A cell cannot be made."""
    node_crashes: float = 0.0
    power_losses: float = 0.0
    controller_crashes: float = 0.0
    partitions: float = 0.0
    """A node is cut off for up to three minutes: longer than it takes to count as lost."""


NO_FAULTS = Faults()


@dataclass
class Machine:
    """What really is on a node: survives its daemon; a loss of power ends every process but not the spool."""

    spool: dict[AttemptId, AttemptRecord] = field(default_factory=dict)
    cells: dict[AttemptId, tuple[int, ...]] = field(default_factory=dict)
    """Cells that stand, with the GPUs that they may use."""
    processes: dict[AttemptId, float] = field(default_factory=dict)
    """User processes that are alive, and when they will end by themselves."""
    frozen: set[AttemptId] = field(default_factory=set)
    """Those whose processes stand still."""
    parked: set[AttemptId] = field(default_factory=set)
    """Those that ever did so that others have their GPUs."""
    shepherds: set[AttemptId] = field(default_factory=set)
    exits: dict[AttemptId, ExitStatus] = field(default_factory=dict)
    was_ready: set[AttemptId] = field(default_factory=set)
    """Attempts that ever had their cell here."""
    boots: int = 1


@dataclass
class Daemon:
    """One life of a node daemon."""

    agent: Agent
    incarnation: str
    is_welcome: bool = False


class World:
    def __init__(
        self,
        seed: int,
        nodes: dict[str, Inventory],
        faults: Faults = NO_FAULTS,
        policy: Policy | None = None,
        now: float = 1000.0,
    ):
        self.random = random.Random(seed)
        self.faults = faults
        self.policy = policy or msgspec.structs.replace(SHARED, owner_uid=OWNER.uid)
        self.inventories = nodes
        self.now = now
        self.machines = {name: Machine() for name in nodes}
        self.daemons: dict[str, Daemon | None] = dict.fromkeys(nodes)
        self.store = MemoryStore()
        self.controller: Controller | None = None
        self.gqrun = Gqrun(self)
        self.users = Users(self)
        self.members = Membership(self, list(nodes))
        self.cut_off: set[str] = set()
        """Nodes that the network does not reach."""
        self.routes: dict[tuple[str, bytes], str] = {}
        self.replied: client.ReplyBody | None = None
        """What was answered last; a crash may come before it."""
        self.crashed_at: list[float] = []
        """When the controller died."""
        self.runs: dict[AttemptId, int] = {}
        """How often the batch script of each attempt was started."""
        self.tasks: dict[tuple[int, int], int] = {}
        """By array and task: the job that ran it."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._lanes: dict[tuple[str, AttemptId], float] = {}
        self._count = 0
        self._lives = 0
        self._requests = 0
        self._start_controller()
        for name in nodes:
            self._start_daemon(name)
            self._plan_faults(name)
        self._every(0.5, self._tick_controller)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._count, action))

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Go on to an instant, or until `stop`; everything is judged after every step."""
        while self._queue and self._queue[0][0] <= until and not stop():
            self.now, _, action = heapq.heappop(self._queue)
            action()
            self.judge()

    def calm(self) -> None:
        """No faults from here on; who is down comes back."""
        self.faults = NO_FAULTS
        self.cut_off.clear()
        self._start_controller()
        for name in self.daemons:
            self._start_daemon(name)

    def _every(self, period_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.after(period_s, again)

        self.after(period_s, again)

    # ── the judge ─────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self) -> None:
        """What must hold at every instant, whatever the daemons believe."""
        for name, machine in self.machines.items():
            used: dict[int, AttemptId] = {}
            with_tasks = {
                one.attempt_id for (node, one), tasks in self.gqrun.tasks.items() if node == name and tasks.runs
            }
            for attempt_id in (machine.processes.keys() | with_tasks) - self.not_running(name):
                for gpu in {*machine.cells[attempt_id], *self.users.gpus(name, attempt_id)}:
                    assert gpu not in used, f"GPU {gpu} of {name} is used by {used.get(gpu)} and {attempt_id}"
                    used[gpu] = attempt_id
        self.gqrun.judge()
        for attempt_id, count in self.runs.items():
            assert count == 1, f"the script of {attempt_id} was started {count} times"

    def not_running(self, name: str) -> set[AttemptId]:
        """What stands still, or is killed in a moment, since it stood still and may not go on."""
        machine = self.machines[name]
        killed = {one for one in machine.parked if (record := machine.spool.get(one)) and is_killed(record, self.now)}
        return machine.frozen | killed

    def is_quiet(self) -> bool:
        """All jobs have ended, and nothing is left of them anywhere."""
        if self.controller is None:
            return False
        jobs = self.controller.cluster.jobs.values()
        machines = self.machines.values()
        nothing_left = not any(machine.spool or machine.processes or machine.cells for machine in machines)
        return nothing_left and all(job.state is JobState.ENDED for job in jobs)

    def _judge_start(self, name: str, launch: wire.Launch) -> None:
        """A script starts only when every node of its gang has been ready (it may have lost its power since); a task
        of an array is one job, whatever is forgotten."""
        if launch.array_job_id is not None and launch.array_task_id is not None:
            task, job_id = (launch.array_job_id, launch.array_task_id), launch.attempt_id.job_id
            assert self.tasks.setdefault(task, job_id) == job_id, f"task {task} is job {self.tasks[task]} and {job_id}"
        for member in launch.members:
            ready = self.machines[member.node].was_ready
            assert launch.attempt_id in ready, f"{launch.attempt_id} starts on {name} before {member.node} is ready"

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, name: str, arrive: Callable[[], None]) -> None:
        """To or from a node: late, twice, or never."""
        if name in self.cut_off:
            return
        copies = 0 if self.random.random() < self.faults.drop else 1 + (self.random.random() < self.faults.repeat)
        for _ in range(copies):
            is_slow = self.random.random() < self.faults.slow
            self.after(self.random.uniform(0.001, 4.0 if is_slow else 0.01), arrive)

    def _to_controller(self, name: str, life: str, message: wire.NodeMessage) -> None:
        route = ("nodes", f"{name}/{life}".encode())
        self.routes[route] = name

        key = self.members.keys[name]

        def arrive() -> None:
            if self.controller is None or not self.members.is_good(name, key):
                return
            match message:
                case wire.Hello():
                    self._handle(controller_input.NodeHello(route=route, hello=message, key=key))
                case wire.Heartbeat():
                    self._handle(controller_input.NodeHeartbeat(route=route, heartbeat=message))
                case wire.Report(node=node, incarnation=incarnation, seq=seq, body=body):
                    report = controller_input.NodeReport(
                        route=route, node=node, incarnation=incarnation, seq=seq, body=body
                    )
                    self._handle(report)

        self._deliver(name, arrive)

    def _to_node(self, route: tuple[str, bytes], message: wire.ControllerMessage) -> None:
        name, _, life = route[1].decode().partition("/")

        def arrive() -> None:
            daemon = self.daemons[name]
            if daemon is None or daemon.incarnation != life:
                return
            match message:
                case wire.Welcome():
                    daemon.is_welcome = True
                    self.tell_agent(name, input.LinkUp())
                case wire.WhoIsThere():
                    self._hello(name)
                case wire.Ack(seqs=seqs):
                    self.tell_agent(name, input.Acknowledged(seqs=seqs))
                case wire.Orders(orders=orders, blobs=blobs):
                    for order in orders:
                        self.tell_agent(name, input.OrderReceived(order=order, blobs=blobs))

        self._deliver(name, arrive)

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, body: client.RequestBody, peer: Peer = OWNER) -> None:
        """A client's request; it arrives for certain if the controller is there.  `OWNER` may do everything."""
        self._requests += 1
        self.replied = None
        self.tell_controller(client_request(body, self._requests, peer))

    def tell_controller(self, happened: controller_input.Input) -> None:
        if self.controller is not None:
            self._handle(happened)

    def restart_controller(self) -> None:
        """It dies between two requests, and comes back at once."""
        self.controller = None
        self.crashed_at.append(self.now)
        self._start_controller()

    def _start_controller(self) -> None:
        if self.controller is not None:
            return
        self.controller = Controller(self.store.load(), self.policy)
        self.controller.volatile.zones = load_zones(zones_of(self.controller.cluster))
        self._finish(self.controller.resume(self.now))

    def _handle(self, happened: controller_input.Input) -> None:
        assert self.controller is not None
        self._finish(self.controller.handle(happened, self.now))
        self._maybe_plan()

    def _maybe_plan(self) -> None:
        controller = self.controller
        if controller is not None and controller.wants_plan(self.now):
            plan = plan_whole(controller.snapshot(self.now))
            self._finish(controller.adopt(plan, self.now))

    def _tick_controller(self) -> None:
        if self.controller is not None:
            self._handle(controller_input.Tick())

    def _finish(self, turn: Turn) -> None:
        """Commit, then the effects; a crash may come before either."""
        assert self.controller is not None
        if self._crashes(0.25):
            return
        invariants.check(self.controller.cluster)
        self.store.write(materialise(self.controller.cluster, turn.events))
        if self._crashes(0.25):
            return
        for one in turn.effects:
            self._do(one)

    def _crashes(self, share: float) -> bool:
        """The controller dies here, now and then."""
        if self.random.random() >= self.faults.controller_crashes / 1000 * share:
            return False
        self.controller = None
        self.crashed_at.append(self.now)
        self.after(self.random.uniform(0.1, 8.0), self._start_controller)
        return True

    def _do(self, one: controller_effect.Effect) -> None:
        match one:
            case controller_effect.SendOrder(node=name, order=order):
                route = self.controller.volatile.links.get(name) if self.controller else None
                if route is not None:
                    self._to_node(route, wire.Orders(orders=(order,), blobs=blobs_of(order)))
            case controller_effect.AckReport(route=route, seq=seq):
                self._to_node(route, wire.Ack(seqs=(seq,)))
            case controller_effect.SendWelcome(route=route):
                welcome = wire.Welcome(cluster="sim", version=1, heartbeat_s=HEARTBEAT_S, owner_uid=OWNER.uid)
                self._to_node(route, welcome)
            case controller_effect.Reply(body=body):
                self.replied = body
                if isinstance(body, client.StepCreated):
                    self.gqrun.created(body)
            case controller_effect.AskWhoIsThere(route=route):
                self._to_node(route, wire.WhoIsThere())
            case controller_effect.SendJoined(route=route):
                self.members.joined(route)
            case controller_effect.FireCron():
                self._fire_cron(one)
            case controller_effect.RemoveKeyFile(node=name):
                self.members.unpin(name)
                self.after(0.01, lambda: self.tell_controller(controller_input.KeyFileDeleted(node=name)))
            case _:
                pass

    def _fire_cron(self, one: controller_effect.FireCron) -> None:
        """Past the submit hook, which may take a while; what is on its way dies with the controller."""
        life = self.controller
        request = controller_input.ClientRequest(
            peer=Peer(uid=one.uid, gid=one.uid, user=one.cron.user),
            route=("", b""),
            request_id=RequestId(b""),
            body=client.Submit(spec=one.spec),
            cron=one.cron,
        )

        def arrive() -> None:
            if self.controller is not None and self.controller is life:
                self._handle(request)

        self._deliver("", arrive)

    # ── node daemons ──────────────────────────────────────────────────────────────────────────────────────────

    def _plan_faults(self, name: str) -> None:
        def strike() -> None:
            total = self.faults.node_crashes + self.faults.power_losses
            if total and self.daemons[name] is not None and self.random.random() < total / 1000:
                self._kill_daemon(name, with_power=self.random.random() * total < self.faults.power_losses)
            if self.faults.partitions and self.random.random() < self.faults.partitions / 1000:
                self.cut_off.add(name)
                self.after(self.random.uniform(1.0, 180.0), lambda: self.cut_off.discard(name))

        self._every(1.0, strike)

    def _kill_daemon(self, name: str, with_power: bool) -> None:
        self.daemons[name] = None
        machine = self.machines[name]
        if with_power:
            machine.boots += 1
            machine.processes.clear()
            machine.shepherds.clear()
            machine.frozen.clear()
            machine.cells.clear()
            self.gqrun.cell_is_gone(name)
            self.users.end(name)
        self.after(self.random.uniform(0.2, 20.0), lambda: self._start_daemon(name))

    def _start_daemon(self, name: str) -> None:
        if self.daemons[name] is not None:
            return
        self._lives += 1
        machine = self.machines[name]
        daemon = Daemon(Agent(name, list(machine.spool.values())), str(self._lives))
        self.daemons[name] = daemon
        for stale in set(machine.cells) - machine.spool.keys():
            del machine.cells[stale]
        for one in daemon.agent.resume(self.now):
            self._obey(name, daemon, one)
        self._hello(name)

        def beat() -> None:
            if self.daemons[name] is not daemon:
                return
            alive = wire.Heartbeat(node=name, incarnation=daemon.incarnation, at=self.now)
            if daemon.is_welcome:
                self._to_controller(name, daemon.incarnation, alive)
            else:
                self._hello(name)
            self.after(HEARTBEAT_S, beat)

        def tick() -> None:
            if self.daemons[name] is daemon:
                self.tell_agent(name, input.Tick())
                self.after(0.25, tick)

        self.after(HEARTBEAT_S, beat)
        self.after(0.25, tick)

    def _hello(self, name: str) -> None:
        daemon = self.daemons[name]
        assert daemon is not None
        message = wire.Hello(
            node=name,
            version=1,
            incarnation=daemon.incarnation,
            boot_id=str(self.machines[name].boots),
            address="127.0.0.1",
            inventory=self.inventories[name],
            step_endpoint=f"ipc:///{name}",
            ticket_key=b"k" * 32,
            attempts=daemon.agent.statuses(),
            last_seq=daemon.agent.last_seq,
        )
        self._to_controller(name, daemon.incarnation, message)

    def tell_agent(self, name: str, happened: input.Input) -> None:
        daemon = self.daemons[name]
        if daemon is None:
            return
        for one in daemon.agent.handle(happened, self.now):
            self._obey(name, daemon, one)

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────

    def _obey(self, name: str, daemon: Daemon, one: effect.Effect) -> None:
        machine = self.machines[name]
        match one:
            case effect.SaveRecord(record=record):
                machine.spool[record.launch.attempt_id] = record
            case effect.DropRecord(attempt_id=attempt_id):
                machine.spool.pop(attempt_id, None)
                machine.exits.pop(attempt_id, None)
            case effect.SendReport(seq=seq, body=body):
                report = wire.Report(node=name, incarnation=daemon.incarnation, seq=seq, body=body)
                self._to_controller(name, daemon.incarnation, report)
            case effect.MakeCell(launch=launch):
                self._soon(name, daemon, launch.attempt_id, lambda: self._make_cell(name, launch))
            case effect.WidenCell(launch=launch):
                self._soon(name, daemon, launch.attempt_id, lambda: self._widen(name, launch))
            case effect.RevokeGpus():
                self._soon(name, daemon, one.launch.attempt_id, lambda: self.users.take(name, one))
            case effect.WriteElasticFile(record=record):
                self._soon(name, daemon, record.launch.attempt_id, lambda: self.users.told(name, record))
            case effect.StartProcess(launch=launch):
                self._start_process(name, daemon, launch)
            case effect.AdoptProcess(attempt_id=attempt_id):
                self._soon(name, daemon, attempt_id, lambda: self._find_process(name, attempt_id))
            case effect.SignalProcess(attempt_id=attempt_id, signum=signum):
                self._soon(name, daemon, attempt_id, lambda: self._signal(name, attempt_id, signum))
            case effect.CheckCell(attempt_id=attempt_id):
                if attempt_id not in machine.processes and attempt_id not in self.gqrun.attempts_with_tasks(name):
                    self._soon(
                        name, daemon, attempt_id, lambda: self.tell_agent(name, input.CellQuiet(attempt_id=attempt_id))
                    )
            case effect.ExpectStep(step_id=step_id):
                self._soon(
                    name, daemon, step_id.attempt_id, lambda: self.gqrun.expect(name, daemon.incarnation, step_id)
                )
            case effect.ForgetStep(step_id=step_id):
                self.gqrun.forget(name, daemon.incarnation, step_id)
            case effect.SignalStepTasks(step_id=step_id, signum=signum):
                self._soon(name, daemon, step_id.attempt_id, lambda: self.gqrun.signal(name, step_id, signum))
            case effect.FreezeCell(attempt_id=attempt_id):
                self._soon(name, daemon, attempt_id, lambda: self._freeze(name, one))
            case effect.EmptyCell(attempt_id=attempt_id):
                self._soon(name, daemon, attempt_id, lambda: self._empty_cell(name, attempt_id))
            case _:
                pass

    def _soon(self, name: str, daemon: Daemon, attempt_id: AttemptId, action: Callable[[], None]) -> None:
        """Done by this life of the daemon, if it lives long enough; in order for each attempt."""

        def act() -> None:
            if self.daemons[name] is daemon:
                action()

        lane = (daemon.incarnation, attempt_id)
        at = max(self.now + self.random.uniform(0.001, 0.05), self._lanes.get(lane, 0.0) + 0.0001)
        self._lanes[lane] = at
        self.after(at - self.now, act)

    def _make_cell(self, name: str, launch: wire.Launch) -> None:
        attempt_id = launch.attempt_id
        if self.random.random() < self.faults.refuse:
            self.machines[name].cells.pop(attempt_id, None)
            self.tell_agent(name, input.CellFailed(attempt_id=attempt_id, why="no luck"))
            return
        self.machines[name].cells[attempt_id] = launch.grant.gpus
        self.machines[name].was_ready.add(attempt_id)
        self.tell_agent(name, input.CellMade(attempt_id=attempt_id, master_port=20000))

    def _widen(self, name: str, launch: wire.Launch) -> None:
        if launch.attempt_id in self.machines[name].cells:
            self.machines[name].cells[launch.attempt_id] = launch.grant.gpus

    def _start_process(self, name: str, daemon: Daemon, launch: wire.Launch) -> None:
        """The fork happens whether or not the daemon lives to hear of it."""
        machine, attempt_id = self.machines[name], launch.attempt_id
        if attempt_id in machine.shepherds:
            raise AssertionError(f"a second shepherd for {attempt_id} on {name}")
        machine.shepherds.add(attempt_id)
        if launch.node_rank == 0:
            self._judge_start(name, launch)
            self.runs[attempt_id] = self.runs.get(attempt_id, 0) + 1
        if launch.node_rank == 0 and not launch.is_interactive:
            lasts_s = self.random.uniform(0.0, 30.0)
            machine.processes[attempt_id] = self.now + lasts_s
            self.users.begin(name, attempt_id, launch.grant.gpus)
            self.after(lasts_s, lambda: self._run_out(name, attempt_id))
        at = self.now
        self._soon(
            name, daemon, attempt_id, lambda: self.tell_agent(name, input.ProcessStarted(attempt_id=attempt_id, at=at))
        )

    def _signal(self, name: str, attempt_id: AttemptId, signum: int) -> None:
        """Most processes end of a TERM."""
        self.gqrun.signal_all(name, attempt_id, signum)
        if signum == signal.SIGTERM and self.random.random() < 0.7:
            self._end_process(name, attempt_id, ExitStatus(signal=15))

    def _run_out(self, name: str, attempt_id: AttemptId) -> None:
        """It ends by itself, unless it stands still."""
        if attempt_id in self.machines[name].frozen:
            self.after(1.0, lambda: self._run_out(name, attempt_id))
        else:
            self._end_process(name, attempt_id, ExitStatus())

    def _freeze(self, name: str, wanted: effect.FreezeCell) -> None:
        frozen, attempt_id = self.machines[name].frozen, wanted.attempt_id
        if not wanted.is_frozen or attempt_id not in self.machines[name].shepherds:
            frozen.discard(attempt_id)
            return
        frozen.add(attempt_id)
        if wanted.parked_at is not None:
            self.machines[name].parked.add(attempt_id)
            used = {gpu: self.gpu_memory(name, attempt_id, gpu) for gpu in self.machines[name].cells[attempt_id]}
            memory = tuple((gpu, mib) for gpu, mib in used.items() if mib is not None)
            told = input.CellFrozen(attempt_id=attempt_id, parked_at=wanted.parked_at, gpu_memory=memory)
            self.tell_agent(name, told)

    def gpu_memory(self, name: str, attempt_id: AttemptId, gpu: int) -> int | None:
        """What an attempt has in the memory of a GPU; None: that GPU does not tell."""
        return 0

    def _end_process(self, name: str, attempt_id: AttemptId, status: ExitStatus) -> None:
        machine = self.machines[name]
        if machine.processes.pop(attempt_id, None) is None:
            return
        machine.exits[attempt_id] = status
        self.users.end(name, attempt_id)
        self.tell_agent(name, self._ended(attempt_id, status))

    def _ended(self, attempt_id: AttemptId, status: ExitStatus, **fields: Any) -> input.ProcessEnded:
        return input.ProcessEnded(attempt_id=attempt_id, exit=status, usage=Usage(), ended_at=self.now, **fields)

    def _find_process(self, name: str, attempt_id: AttemptId) -> None:
        machine = self.machines[name]
        if attempt_id in machine.exits:
            self.tell_agent(name, self._ended(attempt_id, machine.exits[attempt_id]))
        elif attempt_id in machine.shepherds:
            self.tell_agent(name, input.ProcessStarted(attempt_id=attempt_id, at=self.now))
        else:
            self.tell_agent(name, self._ended(attempt_id, ExitStatus(signal=9), is_lost=True))

    def _empty_cell(self, name: str, attempt_id: AttemptId) -> None:
        machine = self.machines[name]
        machine.processes.pop(attempt_id, None)
        assert attempt_id not in machine.frozen, f"{attempt_id} stands still on {name} and is killed"
        machine.shepherds.discard(attempt_id)
        machine.cells.pop(attempt_id, None)
        self.users.end(name, attempt_id)
        self.gqrun.cell_is_gone(name, attempt_id)
        self.tell_agent(name, input.CellEmpty(attempt_id=attempt_id))


def is_killed(record: AttemptRecord, now: float) -> bool:
    """Without any grace that is left."""
    return record.phase is Phase.STOPPING and record.kill_at is not None and record.kill_at <= now


def blobs_of(order: wire.Order) -> dict[str, bytes]:
    if not isinstance(order, wire.Prepare):
        return {}
    return {digest: b"" for digest in (order.launch.script_digest, order.launch.environment_digest) if digest}
