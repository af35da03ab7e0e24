"""The step door alone: clients that vanish, that come back, and that are replaced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import zmq

from gq.model.ids import JobId, StepId
from gq.wire import step as wire
from gqnode.daemon.step_listener import StepListener, ToTasks
from gqnode.shepherd.file_reader import read_piece

STEP = StepId(JobId(7), 1, 0)
KEY = b"k" * 32
WAIT_S = 10.0
PROBE_S = 0.05


class Desk:
    """Knows one step, and remembers what it was asked."""

    def __init__(self) -> None:
        self.listener: StepListener | None = None
        self.lost: list[StepId] = []
        self.attached: list[bool] = []
        """Of each client: whether it was the first."""
        self.passed: list[ToTasks] = []

    def attach(self, attach: wire.Attach, is_first: bool) -> None:
        assert self.listener is not None
        self.attached.append(is_first)
        self.listener.confirm_attached(attach.step_id)

    def on_task_message(self, message: ToTasks) -> None:
        self.passed.append(message)

    def client_lost(self, step_id: StepId) -> None:
        self.lost.append(step_id)

    async def read_file(self, path: str, offset: int, max_bytes: int, uid: int) -> wire.LogData:
        data, is_end = read_piece(path, offset, max_bytes)
        return wire.LogData(offset=offset, data=data, eof=is_end)

    def cells(self, uid: int) -> tuple[wire.CellPlace, ...]:
        return ()


class House:
    """A door with its desk, and clients in the same loop."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, handler: Desk, listener: StepListener
    ) -> None:
        self.handler = handler
        self.listener = listener
        self._context = context
        self._endpoint = endpoint

    async def client(self) -> zmq.Socket[bytes]:
        """Attached."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(self._endpoint)
        attach = wire.Attach(step_id=STEP, key=KEY, argv=("true",), environment={}, chdir="/")
        socket.send(wire.TO_DOOR.encode(attach))
        assert await hear(socket) == wire.Attached(step_id=STEP)
        return socket


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def several_looks() -> None:
    """Long enough for the door to look after its clients a few times."""
    enough_at = asyncio.get_running_loop().time() + 6 * PROBE_S
    await until(lambda: asyncio.get_running_loop().time() > enough_at)


async def hear(socket: zmq.Socket[bytes]) -> wire.FromDoor:
    await until(lambda: socket.poll(0))
    return wire.FROM_DOOR.decode(socket.recv())


@asynccontextmanager
async def house(directory: Path, client_lost_s: float) -> AsyncIterator[House]:
    endpoint = f"ipc://{directory}/door.sock"
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    handler = Desk()
    listener = StepListener(
        context,
        endpoint,
        None,
        bytes(32),
        handler,
        lambda: 0.0,
        (os.geteuid(),),
        probe_s=PROBE_S,
        client_lost_s=client_lost_s,
    )
    handler.listener = listener
    listener.expect(STEP, KEY, os.geteuid(), is_begun=False)
    try:
        yield House(context, endpoint, handler, listener)
    finally:
        listener.close()
        context.destroy(linger=0)


def test_a_step_whose_client_vanished_is_given_up_after_a_while_and_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, client_lost_s=0.2) as one:
            client = await one.client()
            client.close()

            await until(lambda: one.handler.lost)
            await several_looks()

            assert one.handler.lost == [STEP]

    asyncio.run(run())


def test_a_client_that_comes_back_in_time_keeps_its_step(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, client_lost_s=30.0) as one:
            first = await one.client()
            first.close()

            await one.client()
            one.listener.forward_to_client(wire.TaskStarted(step_id=STEP, rank=0, pid=1))

            assert one.handler.attached == [True, False]
            assert one.handler.lost == []

    asyncio.run(run())


def test_a_client_that_says_goodbye_is_not_missed(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, client_lost_s=0.05) as one:
            client = await one.client()
            client.send(wire.TO_DOOR.encode(wire.Detach(step_id=STEP)))
            await until(lambda: one.handler.passed)
            client.close()
            await several_looks()

            assert one.handler.passed == [wire.Detach(step_id=STEP)]
            assert one.handler.lost == []

    asyncio.run(run())


def test_the_newest_client_with_the_key_leads_the_step_and_the_old_one_no_longer(tmp_path: Path) -> None:
    async def run() -> None:
        async with house(tmp_path, client_lost_s=30.0) as one:
            old = await one.client()
            new = await one.client()
            old.send(wire.TO_DOOR.encode(wire.SignalTasks(step_id=STEP, signum=9)))
            await until(lambda: one.listener.dropped)
            new.send(wire.TO_DOOR.encode(wire.SignalTasks(step_id=STEP, signum=10)))
            await until(lambda: one.handler.passed)

            assert one.handler.passed == [wire.SignalTasks(step_id=STEP, signum=10)]

    asyncio.run(run())
