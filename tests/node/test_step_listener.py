"""The step door of a real gqnode: tasks with their output and input, log tickets, strangers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gq.connection.locate import Location
from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.model.step import StepLayout, StepPart
from gq.wire import node as node_wire
from gq.wire import step as wire
from tests.clusters import wait_until
from tests.node.controller import NodeProcess, ScriptedController, launch_of, private_cluster

ATTEMPT = AttemptId(JobId(7), 1)
STEP = StepId(JobId(7), 1, 0)
KEY = bytes(range(32))
ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Client:
    """A `gqrun` that says what a test wants."""

    def __init__(self, endpoint: str, step_id: StepId = STEP) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(endpoint)
        self.step_id = step_id
        self.heard: list[wire.FromDoor] = []
        self.is_patient = True
        """The controller's order may be overtaken: ask again until the step is known, as `gqrun` does."""
        self._attach: wire.Attach | None = None

    def say(self, message: wire.ToDoor) -> None:
        self.socket.send(wire.TO_DOOR.encode(message))

    def attach(self, argv: tuple[str, ...], key: bytes = KEY, received: tuple[wire.StreamPosition, ...] = ()) -> None:
        self._attach = wire.Attach(
            step_id=self.step_id, key=key, argv=argv, environment=ENVIRONMENT, chdir="/tmp", received=received
        )
        self.say(self._attach)

    def hear(self, is_enough: Callable[[], bool], within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not is_enough():
            assert time.monotonic() < deadline, f"not heard; so far {self.heard}"
            if self.socket.poll(100):
                self._take(wire.FROM_DOOR.decode(self.socket.recv()))

    def _take(self, message: wire.FromDoor) -> None:
        if self.is_patient and isinstance(message, wire.StepRefused) and message.code == "not_yet":
            assert self._attach is not None
            time.sleep(0.02)
            self.say(self._attach)
        else:
            self.heard.append(message)

    def output(self, rank: int, stream: str = "stdout") -> bytes:
        """All of it, in order, each byte once; AssertionError for a gap."""
        data = b""
        for one in self.heard:
            if isinstance(one, wire.Output) and (one.rank, one.stream) == (rank, stream):
                assert one.offset <= len(data), "a gap in the output"
                data += one.data[len(data) - one.offset :]
        return data

    def exits(self) -> dict[int, ExitStatus]:
        return {one.rank: one.exit for one in self.heard if isinstance(one, wire.TaskExited)}

    def refusal(self) -> str | None:
        return next((one.code for one in self.heard if isinstance(one, wire.StepRefused)), None)

    def close(self) -> None:
        self.socket.close()
        self._context.term()


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    with private_cluster(tmp_path / "cluster") as found:
        yield found


@pytest.fixture
def node(location: Location) -> Iterator[NodeProcess]:
    process = NodeProcess(location)
    yield process
    process.close()


@pytest.fixture
def controller(location: Location, node: NodeProcess) -> Iterator[ScriptedController]:
    """With an interactive job on the node, and gone with it."""
    controller = ScriptedController(location.node_endpoint)
    controller.bind()
    node.start()
    controller.hear(lambda: controller.hellos)
    launch, blobs = launch_of(b"", ENVIRONMENT, "", is_interactive=True)
    controller.launch(launch, blobs)
    controller.report(node_wire.Started)
    try:
        yield controller
        if not any(isinstance(one, node_wire.CellEmptied | node_wire.AttemptEnded) for one in controller.reports):
            controller.order(node_wire.Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0))
            controller.report(node_wire.CellEmptied)
    finally:
        controller.close()


@pytest.fixture
def client(location: Location, controller: ScriptedController) -> Iterator[Client]:
    client = Client(location.step_endpoint("n1"))
    yield client
    client.close()


def _launch_step(controller: ScriptedController, tasks: int = 2, step_id: StepId = STEP) -> None:
    layout = StepLayout(name="step", parts=(StepPart(node="n1", first_rank=0, tasks=tasks, cpus=(0,)),))
    controller.order(node_wire.LaunchStep(step_id=step_id, key=KEY, layout=layout))
    controller.hear(lambda: [one for one in controller.reports if one == node_wire.StepReceived(step_id=step_id)])


def test_tasks_run_with_their_ranks_and_their_ends_are_reported(controller: ScriptedController, client: Client) -> None:
    _launch_step(controller)

    client.attach(("sh", "-c", 'echo "$GQ_PROCID of $SLURM_NTASKS in step $SLURM_STEP_ID"'))
    client.hear(lambda: len(client.exits()) == 2)

    assert client.output(0) == b"0 of 2 in step 0\n"
    assert client.output(1) == b"1 of 2 in step 0\n"
    assert client.exits() == {0: ExitStatus(), 1: ExitStatus()}
    client.say(wire.Detach(step_id=STEP))
    ended = controller.report(node_wire.StepEnded)
    assert (ended.exit, ended.outcome, ended.was_attached) == (ExitStatus(), Outcome.COMPLETED, True)


def test_standard_input_reaches_every_task(controller: ScriptedController, client: Client) -> None:
    _launch_step(controller)
    client.attach(("cat",))
    client.hear(lambda: any(isinstance(one, wire.Attached) for one in client.heard))

    client.say(wire.Stdin(step_id=STEP, offset=0, data=b"to all\n"))
    client.say(wire.Stdin(step_id=STEP, offset=7, eof=True))
    client.hear(lambda: len(client.exits()) == 2)

    assert (client.output(0), client.output(1)) == (b"to all\n", b"to all\n")
    assert any(isinstance(one, wire.StdinTaken) and one.offset == 7 for one in client.heard)


def test_a_client_that_comes_back_goes_on_where_it_was(
    location: Location, controller: ScriptedController, client: Client, tmp_path: Path
) -> None:
    _launch_step(controller, tasks=1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client.attach(("sh", "-c", f"echo first; read line < {gate}; echo $line"))
    client.hear(lambda: client.output(0) == b"first\n")
    client.close()

    second = Client(location.step_endpoint("n1"))
    second.attach(("ignored",), received=(wire.StreamPosition(0, "stdout", 6),))
    second.hear(lambda: any(isinstance(one, wire.Attached) for one in second.heard))
    gate.write_text("second\n")
    second.hear(lambda: len(second.exits()) == 1)

    outputs = {(one.offset, one.data) for one in second.heard if isinstance(one, wire.Output) and one.data}
    assert outputs == {(6, b"second\n")}  # perhaps more than once: offsets tell
    second.close()


def test_tasks_and_their_client_outlive_a_killed_daemon(
    location: Location, controller: ScriptedController, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    _launch_step(controller, tasks=1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client.attach(("sh", "-c", f"echo first; read line < {gate}; echo $line; exit 4"))
    client.hear(lambda: client.output(0) == b"first\n")

    node.kill()
    node.start()
    controller.hear(lambda: len(controller.hellos) == 2)
    gate.write_text("second\n")
    second = Client(location.step_endpoint("n1"))
    second.attach(("ignored",))
    second.hear(lambda: len(second.exits()) == 1)

    assert second.output(0) == b"first\nsecond\n"
    assert second.exits() == {0: ExitStatus(code=4)}
    assert controller.report(node_wire.StepEnded).exit == ExitStatus(code=4)
    second.close()


def test_output_of_tasks_that_ended_while_no_daemon_ran_can_still_be_fetched(
    location: Location, controller: ScriptedController, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    _launch_step(controller, tasks=1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client.attach(("sh", "-c", f"echo first; read line < {gate}; echo $line; echo > {tmp_path}/over; exit 4"))
    client.hear(lambda: client.output(0) == b"first\n")
    node.kill()
    gate.write_text("second\n")
    wait_until(lambda: (tmp_path / "over").exists())

    node.start()
    assert controller.report(node_wire.StepEnded).exit == ExitStatus(code=4)
    controller.serve(for_s=0.5)  # it is acknowledged, and over for everybody but the client
    second = Client(location.step_endpoint("n1"))
    second.attach(("ignored",))
    second.hear(lambda: len(second.exits()) == 1)

    assert second.output(0) == b"first\nsecond\n"
    assert second.exits() == {0: ExitStatus(code=4)}
    second.close()


def test_a_task_that_fails_ends_the_others_of_its_step(controller: ScriptedController, client: Client) -> None:
    _launch_step(controller)

    client.attach(("sh", "-c", "[ $GQ_PROCID = 0 ] && exit 9; exec sleep 1000"))
    client.hear(lambda: len(client.exits()) == 2)

    assert client.exits() == {0: ExitStatus(code=9), 1: ExitStatus(signal=15)}
    assert controller.report(node_wire.StepEnded).outcome is Outcome.FAILED


def test_a_step_whose_program_does_not_exist_says_so(controller: ScriptedController, client: Client) -> None:
    _launch_step(controller, tasks=1)

    client.attach(("no-such-program",))
    client.hear(lambda: len(client.exits()) == 1)

    ended = next(one for one in client.heard if isinstance(one, wire.TaskExited))
    assert "no-such-program" in ended.why


def test_a_wrong_key_opens_nothing_and_an_unknown_step_is_not_there_yet(
    controller: ScriptedController, client: Client
) -> None:
    client.is_patient = False
    client.attach(("true",))
    client.hear(lambda: client.refusal() == "not_yet")
    client.heard.clear()
    client.is_patient = True
    _launch_step(controller)

    client.attach(("true",), key=bytes(32))
    client.hear(lambda: client.refusal() is not None)

    assert client.refusal() == "wrong_key"
    assert not client.exits()


def test_a_stranger_cannot_speak_for_the_client_of_a_step(
    location: Location, controller: ScriptedController, client: Client
) -> None:
    _launch_step(controller, tasks=1)
    client.attach(("cat",))
    client.hear(lambda: any(isinstance(one, wire.TaskStarted) for one in client.heard))
    stranger = Client(location.step_endpoint("n1"))
    stranger.say(wire.Stdin(step_id=STEP, offset=0, data=b"evil\n", eof=True))
    stranger.say(wire.SignalTasks(step_id=STEP, signum=9))
    stranger.socket.send(os.urandom(100))
    stranger.attach(("true",), key=b"")  # answered, so all before it has been taken
    stranger.hear(lambda: stranger.refusal() is not None)
    stranger.close()

    client.say(wire.Stdin(step_id=STEP, offset=0, data=b"good\n", eof=True))
    client.hear(lambda: len(client.exits()) == 1)

    assert client.output(0) == b"good\n"
    assert client.exits() == {0: ExitStatus()}


def test_a_file_is_read_with_a_ticket_of_this_life_of_the_daemon_and_with_no_other(
    controller: ScriptedController, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    key = controller.hellos[0].ticket_key
    ticket = wire.LogTicket(7, 1, str(path), os.geteuid(), time.time() + 60)

    client.say(wire.OpenLog(ticket=wire.seal(ticket, key), offset=3, max_bytes=4))
    client.say(wire.OpenLog(ticket=wire.seal(ticket, key), offset=7))
    client.hear(lambda: len(client.heard) == 2)
    assert sorted(one.offset for one in client.heard if isinstance(one, wire.LogData)) == [3, 7]
    assert wire.LogData(offset=3, data=b"3456") in client.heard
    assert wire.LogData(offset=7, data=b"789", eof=True) in client.heard

    client.heard.clear()
    client.say(wire.OpenLog(ticket=wire.seal(ticket, bytes(32))))
    client.hear(lambda: bool(client.heard))
    assert client.refusal() == "bad_ticket"

    client.heard.clear()
    old = wire.LogTicket(7, 1, str(path), os.geteuid(), time.time() - 1)
    client.say(wire.OpenLog(ticket=wire.seal(old, key)))
    client.hear(lambda: bool(client.heard))
    assert client.refusal() == "ticket_expired"


def test_a_file_that_is_not_there_is_said_to_be_missing(
    controller: ScriptedController, client: Client, tmp_path: Path
) -> None:
    ticket = wire.LogTicket(7, 1, str(tmp_path / "none"), os.geteuid(), time.time() + 60)

    client.say(wire.OpenLog(ticket=wire.seal(ticket, controller.hellos[0].ticket_key)))
    client.hear(lambda: bool(client.heard))

    assert client.heard == [wire.LogData(offset=0, eof=True, is_missing=True)]


def test_what_is_no_plain_file_is_not_waited_for_and_what_cannot_be_read_is_refused(
    controller: ScriptedController, client: Client, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    key = controller.hellos[0].ticket_key

    for name, offset in (("pipe", 0), ("pipe", 1), ("pipe", 2), ("pipe", 3), ("pipe", 4), ("loop", 0)):
        ticket = wire.LogTicket(7, 1, str(tmp_path / name), os.geteuid(), time.time() + 60)
        client.say(wire.OpenLog(ticket=wire.seal(ticket, key), offset=offset))
    client.hear(lambda: len(client.heard) == 6)

    assert client.refusal() == "unreadable"
    assert {one.offset for one in client.heard if isinstance(one, wire.LogData) and one.eof} == {0, 1, 2, 3, 4}


def test_signals_and_sizes_that_do_not_exist_harm_nobody(controller: ScriptedController, client: Client) -> None:
    _launch_step(controller, tasks=1)
    client.attach(("cat",))
    client.hear(lambda: any(isinstance(one, wire.TaskStarted) for one in client.heard))

    for signum in (-1, 0, 65, 2**63):
        client.say(wire.SignalTasks(step_id=STEP, signum=signum))
    client.say(wire.Resize(step_id=STEP, size=wire.WindowSize(2**16, -1)))
    client.say(wire.Stdin(step_id=STEP, offset=0, data=b"still here\n", eof=True))
    client.hear(lambda: len(client.exits()) == 1)

    assert client.output(0) == b"still here\n"
    assert client.exits() == {0: ExitStatus()}
