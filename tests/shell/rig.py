"""A controller's shell with real sockets in this process: the real core, a store that can be slow or broken."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq
import zmq.asyncio

from gq.config.config import Config
from gq.connection.client import Client
from gq.connection.locate import Location, make_own_directory, make_state_dir
from gq.model.ids import RequestId
from gq.model.job import JobSpec
from gq.model.node import Inventory
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import WIRE_VERSION
from gqd.shell.daemon import serve
from gqd.store.blobs import MemoryBlobStore
from gqd.store.memory import MemoryStore

T = TypeVar("T")
PATIENCE_S = 10.0


@contextmanager
def short_directory() -> Iterator[str]:
    """A directory with a path that is short enough for sockets."""
    path = tempfile.mkdtemp(prefix="gqt", dir="/tmp")
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Rig:
    """A running shell.  Blocking clients belong into threads: `await rig.ask(…)`."""

    def __init__(self, location: Location, store: MemoryStore, blobs: MemoryBlobStore) -> None:
        self.location = location
        self.store = store
        self.blobs = blobs
        self.serving: asyncio.Task[None] | None = None
        self._context = zmq.asyncio.Context()

    async def ask(self, body: wire.RequestBody) -> wire.ReplyBody:
        return await asyncio.to_thread(self._ask, body)

    def _ask(self, body: wire.RequestBody) -> wire.ReplyBody:
        with Client(self.location, timeout_s=PATIENCE_S) as client:
            return client.ask(body)

    async def counters(self) -> dict[str, int]:
        answer = await self.ask(wire.GetCluster())
        assert isinstance(answer, wire.Cluster)
        return answer.info.counters

    def dial(self, endpoint: str, prepare: Callable[[zmq.asyncio.Socket], None] = lambda socket: None) -> Wire:
        """A bare DEALER, for what no proper client would say."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        prepare(socket)
        socket.connect(endpoint)
        return Wire(socket)

    def client_wire(self) -> Wire:
        return self.dial(self.location.client_endpoint)

    def node_wire(self) -> Wire:
        return self.dial(self.location.node_endpoint)

    async def stop(self) -> None:
        assert self.serving is not None
        self.serving.cancel()
        await asyncio.wait([self.serving])
        self._context.destroy(linger=0)


class Wire:
    """One bare connection."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.socket = socket

    async def send(self, *frames: bytes) -> None:
        await self.socket.send_multipart(frames)

    async def request(self, body: wire.RequestBody, request_id: bytes | None = None) -> bytes:
        """Send a request; its id."""
        request_id = request_id or os.urandom(16)
        await self.send(wire.request(RequestId(request_id), body))
        return request_id

    async def receive(self, within_s: float = PATIENCE_S) -> bytes:
        return await asyncio.wait_for(self.socket.recv(), within_s)

    async def reply(self) -> wire.Reply:
        return wire.REPLIES.decode(await self.receive())

    async def say(self, message: node_wire.NodeMessage) -> None:
        await self.send(node_wire.NODE_MESSAGES.encode(message))

    async def hear(self) -> node_wire.ControllerMessage:
        return node_wire.CONTROLLER_MESSAGES.decode(await self.receive())

    async def is_silent(self, for_s: float = 0.2) -> bool:
        return not await self.socket.poll(int(for_s * 1000))


@asynccontextmanager
async def running(
    config: Config | None = None,
    store: MemoryStore | None = None,
    directory: str | None = None,
    is_shared: bool = False,
) -> AsyncIterator[Rig]:
    """A shell that serves until the block ends.  `is_shared`: as root, all users of this machine."""
    with short_directory() as path:
        base = directory or path
        location = Location(f"{base}/gq.toml", base, f"{base}/r", is_private=not is_shared)
        make_state_dir(location)
        make_own_directory(Path(location.run_dir), 0o755 if is_shared else 0o700)
        rig = Rig(location, store or MemoryStore(), MemoryBlobStore())
        rig.serving = asyncio.create_task(serve(location, config or Config(path="gq.toml"), rig.store, rig.blobs))
        try:
            await until(lambda: Path(location.client_socket).exists() or rig.serving.done())
            yield rig
        finally:
            await rig.stop()


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait for a condition, not for time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "this did not come true in time"
        await asyncio.sleep(0.005)


def job(name: str = "x", **fields: object) -> wire.Submit:
    return wire.Submit(spec=msgspec.structs.replace(JobSpec(name=name), **fields), script=b"#!/bin/sh\ntrue\n")


def hello(node: str = "n1", **fields: object) -> node_wire.Hello:
    greeting = node_wire.Hello(
        node=node,
        version=WIRE_VERSION,
        incarnation="first",
        boot_id="boot",
        address="127.0.0.1",
        inventory=Inventory(cpus=4, memory_mib=4096),
        step_endpoint="ipc:///nowhere",
    )
    return msgspec.structs.replace(greeting, **fields)
