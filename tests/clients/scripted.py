"""A scripted step door: a real socket that answers as a test says, in a thread beside the client under test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import zmq

from gq.model.ids import JobId, StepId
from gq.model.job import ExitStatus
from gq.model.step import StepLayout, StepNode, StepPart
from gq.wire import step as wire
from gq.wire.client import StepCreated

KEY = b"k" * 16
STEP = StepId(JobId(7), 1, 0)
Script = Callable[["ScriptedDoor", bytes, wire.ToDoor], None]


class ScriptedDoor:
    """Listens at ``<directory>/<name>.sock``; `script` is called with every message and may `send`."""

    def __init__(self, directory: Path, name: str, script: Script) -> None:
        self.endpoint = f"ipc://{directory}/{name}.sock"
        self.heard: list[wire.ToDoor] = []
        self.client = b""
        """Who spoke last."""
        self._script = script
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._later: SimpleQueue[wire.FromDoor] = SimpleQueue()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ScriptedDoor:
        self._thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self._is_stopped.set()
        self._thread.join(10)
        self._context.term()

    def _serve(self) -> None:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.bind(self.endpoint)
        while not self._is_stopped.is_set():
            while self.client and not self._later.empty():
                self.send(self.client, self._later.get())
            if not self._socket.poll(20):
                continue
            peer, frame = self._socket.recv_multipart()
            message = wire.TO_DOOR.decode(frame)
            self.heard.append(message)
            self.client = peer
            self._script(self, peer, message)
        self._socket.close()

    def restart(self) -> None:
        """Lose every client, as a daemon that is killed does.  To be called from the script."""
        self._socket.close(linger=100)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.bind(self.endpoint)

    def send_later(self, message: wire.FromDoor) -> None:
        """From any thread: to who spoke last, as soon as somebody has spoken."""
        self._later.put(message)

    def send(self, peer: bytes, *messages: wire.FromDoor) -> None:
        for message in messages:
            self._socket.send_multipart([peer, wire.FROM_DOOR.encode(message)])

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


def created(*doors: ScriptedDoor, tasks: int = 1, kill_on_bad_exit: bool = True) -> StepCreated:
    """A step with `tasks` tasks behind each door."""
    parts = tuple(StepPart(node=f"n{index + 1}", first_rank=index * tasks, tasks=tasks) for index in range(len(doors)))
    return StepCreated(
        job_id=STEP.job_id,
        attempt=STEP.attempt,
        step=STEP.step,
        key=KEY,
        layout=StepLayout(name="test", parts=parts, kill_on_bad_exit=kill_on_bad_exit),
        nodes=tuple(StepNode(part=part, endpoint=door.endpoint) for part, door in zip(parts, doors, strict=True)),
    )


ATTACHED = wire.Attached(step_id=STEP)


def output(rank: int, data: bytes, offset: int = 0, stream: str = "stdout", eof: bool = False) -> wire.Output:
    return wire.Output(step_id=STEP, rank=rank, stream=stream, offset=offset, data=data, eof=eof)


def exited(rank: int, code: int = 0, signal: int = 0, why: str = "") -> wire.TaskExited:
    return wire.TaskExited(step_id=STEP, rank=rank, exit=ExitStatus(code=code, signal=signal), why=why)
