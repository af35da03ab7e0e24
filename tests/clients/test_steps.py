"""gqrun's loop against scripted doors: what it shows, what it says, what it returns."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gq.cli.step.async_client import AsyncClient
from gq.cli.step.buffered_writer import BufferedWriter
from gq.cli.step.steps import Bring, StepRun
from gq.cli.step.task_output import TaskOutput
from gq.connection.locate import Location
from gq.wire import client as asked
from gq.wire import step as wire
from tests.clients.scripted import ATTACHED, STEP, ScriptedDoor, created, exited, output


class Bench:
    """Runs one step against scripted doors and keeps all that comes out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes: list[str] = []
        self.controller = ScriptedController(directory)

    def run(
        self,
        *doors: ScriptedDoor,
        tasks: int = 1,
        stdin: bytes | None = None,
        stdin_rank: int | None = None,
        label: bool = False,
        kill_on_bad_exit: bool = True,
        job_end: Callable[[float], str] = lambda now: "",
    ) -> int:
        stdin_fd = _pipe_with(stdin) if stdin is not None else None
        files = [os.open(self.directory / name, os.O_RDWR | os.O_CREAT) for name in ("out", "err")]
        step = created(*doors, tasks=tasks, kill_on_bad_exit=kill_on_bad_exit)
        out, err = ([BufferedWriter(fd, "file")] * step.layout.ntasks for fd in files)
        bring = Bring(argv=("true",), environment={}, chdir="/", umask=0o022, stdin_fd=stdin_fd, stdin_rank=stdin_rank)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        conversation = AsyncClient(context, Location("", str(self.directory), str(self.directory), True))
        try:
            shown = TaskOutput(out, err, is_labelled=label, is_unbuffered=False)
            run = StepRun(context, conversation, step, bring, shown, self.notes.append)
            return run.run(job_end)
        finally:
            conversation.close()
            context.term()
            for fd in files:
                os.close(fd)

    @property
    def out(self) -> str:
        return (self.directory / "out").read_text()


class ScriptedController(ScriptedDoor):
    """A gqd that agrees to everything, and can be told what to say of jobs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "gqd", lambda door, peer, message: None)
        self.bodies: list[asked.RequestBody] = []
        self.jobs = asked.Jobs(jobs=())

    def _serve(self) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.bind(self.endpoint)
        while not self._is_stopped.is_set():
            if not socket.poll(20):
                continue
            peer, frame = socket.recv_multipart()
            request = asked.REQUESTS.decode(frame)
            self.bodies.append(request.body)
            answer = self.jobs if isinstance(request.body, asked.ListJobs) else asked.Done()
            socket.send_multipart([peer, asked.reply(request.request_id, answer)])
        socket.close(linger=0)


def _pipe_with(data: bytes) -> int:
    read, write = os.pipe()
    threading.Thread(target=lambda: (os.write(write, data), os.close(write)), daemon=True).start()
    return read


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    with bench.controller:
        yield bench


def door(bench: Bench, name: str, script: Callable[[ScriptedDoor, bytes, wire.ToDoor], None]) -> ScriptedDoor:
    return ScriptedDoor(bench.directory, name, script)


def on_attach(*messages: wire.FromDoor) -> Callable[[ScriptedDoor, bytes, wire.ToDoor], None]:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        if isinstance(message, wire.Attach):
            door.send(peer, ATTACHED, *messages)

    return script


def test_lines_of_two_nodes_are_whole_and_labelled(bench: Bench) -> None:
    one = door(bench, "n1", on_attach(output(0, b"left "), output(0, b"half\nnext", 5), exited(0)))
    two = door(bench, "n2", on_attach(output(1, b"right\n"), exited(1)))
    with one, two:
        code = bench.run(one, two, label=True)
    assert code == 0
    assert sorted(bench.out.splitlines()) == ["0: left half", "0: next", "1: right"]
    assert bench.notes == []


def test_the_highest_exit_code_is_returned_and_named(bench: Bench) -> None:
    only = door(bench, "n1", on_attach(exited(0), exited(1, code=3), exited(2, signal=signal.SIGSEGV)))
    with only:
        code = bench.run(only, tasks=3, kill_on_bad_exit=False)
    assert code == 128 + signal.SIGSEGV
    assert bench.notes == ["n1: task 1: exited with code 3", "n1: task 2: Segmentation fault"]


def test_a_failing_task_ends_the_step_and_only_its_code_counts(bench: Bench) -> None:
    failing = door(bench, "n1", on_attach(exited(0, code=5)))
    with failing, door(bench, "n2", on_attach()) as other:
        ended = threading.Thread(target=_exit_when_stopped, args=(bench, other), daemon=True)
        ended.start()
        code = bench.run(failing, other)
        ended.join(10)
    assert code == 5
    assert bench.notes == ["n1: task 0: exited with code 5"]
    assert asked.SignalStep(job_id=STEP.job_id, step=STEP.step) in bench.controller.bodies


def _exit_when_stopped(bench: Bench, other: ScriptedDoor) -> None:
    """The node of task 1 does what gqd orders."""
    while not any(isinstance(body, asked.SignalStep) for body in bench.controller.bodies):
        threading.Event().wait(0.01)
    other.send_later(exited(1, signal=signal.SIGTERM))


def test_a_door_that_restarts_goes_on_without_losing_or_repeating_output(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        if not isinstance(message, wire.Attach):
            return
        if not message.received:
            door.send(peer, ATTACHED, output(0, b"one\ntwo\n"))
            threading.Event().wait(0.2)  # let it arrive before the link is lost
            door.restart()
        else:  # a node repeats what it is not sure about
            door.send(peer, ATTACHED, output(0, b"two\nthree\n", 4), exited(0))

    with door(bench, "n1", script) as only:
        code = bench.run(only)
    assert code == 0
    assert bench.out == "one\ntwo\nthree\n"
    again = [message for message in only.heard if isinstance(message, wire.Attach)][-1]
    assert again.received == (wire.StreamPosition(0, "stdout", 8),)


def test_a_door_that_does_not_know_the_step_yet_is_asked_again(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        if door.kinds().count("Attach") < 3:
            door.send(peer, wire.StepRefused(code="not_yet", message="soon"))
        elif isinstance(message, wire.Attach):
            door.send(peer, ATTACHED, exited(0))

    with door(bench, "n1", script) as only:
        assert bench.run(only) == 0
    assert bench.notes == []


def test_standard_input_reaches_every_node_with_its_end(bench: Bench) -> None:
    data = os.urandom(40_000)

    def cat(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        match message:
            case wire.Attach():
                door.send(peer, ATTACHED)
            case wire.Stdin():
                end = message.offset + len(message.data)
                door.send(peer, wire.StdinTaken(step_id=STEP, offset=end))
                if message.eof:
                    rank = 0 if door.endpoint.endswith("n1.sock") else 1
                    door.send(peer, exited(rank))
            case _:
                pass

    with door(bench, "n1", cat) as one, door(bench, "n2", cat) as two:
        assert bench.run(one, two, stdin=data) == 0
    for each in (one, two):
        pieces = [message for message in each.heard if isinstance(message, wire.Stdin)]
        assert b"".join(piece.data for piece in pieces) == data
        assert [piece.eof for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_standard_input_for_one_rank_goes_to_its_node_only(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        is_reader = door.endpoint.endswith("n2.sock")
        if isinstance(message, wire.Attach):
            door.send(peer, ATTACHED)
            if not is_reader:
                door.send(peer, exited(0))
        elif isinstance(message, wire.Stdin) and message.eof:
            door.send(peer, exited(1))

    with door(bench, "n1", script) as one, door(bench, "n2", script) as two:
        assert bench.run(one, two, stdin=b"only for two", stdin_rank=1) == 0
    assert "Stdin" not in one.kinds()
    assert "Stdin" in two.kinds()


def test_ctrl_c_interrupts_the_tasks(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        match message:
            case wire.Attach():
                door.send(peer, ATTACHED)
                os.kill(os.getpid(), signal.SIGINT)
            case wire.SignalTasks():
                door.send(peer, exited(0, signal=message.signum))
            case _:
                pass

    with door(bench, "n1", script) as only:
        assert bench.run(only) == 128 + signal.SIGINT
    assert bench.notes[0] == "interrupt sent to the tasks; again within 1 s kills them"


def test_ctrl_c_twice_kills_the_tasks(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        match message:
            case wire.Attach():
                door.send(peer, ATTACHED)
                os.kill(os.getpid(), signal.SIGINT)
            case wire.SignalTasks(signum=signal.SIGINT):
                os.kill(os.getpid(), signal.SIGINT)
            case wire.SignalTasks(signum=signal.SIGKILL):
                door.send(peer, exited(0, signal=signal.SIGKILL))
            case _:
                pass

    with door(bench, "n1", script) as only:
        assert bench.run(only) == 128 + signal.SIGKILL
    assert "killing the tasks" in bench.notes


def test_a_term_is_passed_on(bench: Bench) -> None:
    def script(door: ScriptedDoor, peer: bytes, message: wire.ToDoor) -> None:
        match message:
            case wire.Attach():
                door.send(peer, ATTACHED)
                os.kill(os.getpid(), signal.SIGTERM)
            case wire.SignalTasks():
                door.send(peer, exited(0, code=9 if message.signum == signal.SIGTERM else 1))
            case _:
                pass

    with door(bench, "n1", script) as only:
        assert bench.run(only) == 9


def test_a_node_that_refuses_the_step_ends_it(bench: Bench) -> None:
    refusing = door(
        bench,
        "n1",
        lambda door, peer, message: door.send(peer, wire.StepRefused(code="over", message="step 7.0 is over")),
    )
    with refusing:
        assert bench.run(refusing) == 1
    assert bench.notes == ["n1: step 7.0 is over"]


def test_a_job_that_ends_underneath_is_told_and_its_silent_nodes_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.step.steps._GIVE_UP_S", 0.2)
    with door(bench, "n1", on_attach()) as silent:
        code = bench.run(silent, job_end=lambda now: "job 7 has ended: TIMEOUT")
    assert code == 1
    assert bench.notes == ["job 7 has ended: TIMEOUT; nothing more was heard of its tasks on n1"]


def test_a_node_that_is_gone_with_its_job_is_found_out_from_the_controller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_REPORT_DOWN_S", "_INQUIRY_S", "_GIVE_UP_S"):
        monkeypatch.setattr(f"gq.cli.step.steps.{name}", 0.2)
    nobody = door(bench, "n1", on_attach())  # never listens
    assert bench.run(nobody) == 1
    assert bench.notes == [
        "node n1 does not answer; waiting for it",
        "job 7 is gone; nothing more was heard of its tasks on n1",
    ]
