"""A pool of shepherds on its own event loop, with real shepherds and processes, driven step by step from a test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gq.model.ids import AttemptId, JobId, StepId
from gq.wire.step import Output, StreamPosition
from gqnode.daemon.shepherds import ShepherdEvent, ShepherdPool, TreeEmpty
from gqnode.daemon.spawn import Spawner
from gqnode.shepherd.processes import all_pids, strays
from gqnode.shepherd.specs import ShepherdSpec, TaskSpec

ENVIRONMENT = {"PATH": os.environ["PATH"]}
WAIT_S = 60.0
E = TypeVar("E")


class ShepherdHost:
    """One life of a node daemon, as far as processes go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loop = asyncio.new_event_loop()
        self.spawner = Spawner()
        self.events: list[ShepherdEvent] = []
        self.pool = ShepherdPool(self.spawner, str(root), self.events.append, time.time)

    def end(self) -> None:
        """As if the daemon was killed: links and forkserver go, shepherds stay."""
        self.loop.run_until_complete(self.pool.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.spawner.close()

    def do(self, call: Callable[..., None], *args: object, **kwargs: object) -> None:
        """Call the pool as the daemon does: on the loop."""

        async def on_loop() -> None:
            call(*args, **kwargs)

        self.loop.run_until_complete(on_loop())

    def start(self, job: int = 1, script: str = "", **fields: Any) -> AttemptId:
        attempt_id = AttemptId(JobId(job), 1)
        directory = self.root / str(attempt_id)
        directory.mkdir(mode=0o700, exist_ok=True)
        fields.setdefault("environment", ENVIRONMENT)
        spec = ShepherdSpec(is_batch=bool(script), **fields)
        self.do(self.pool.start, attempt_id, spec, script.encode())
        return attempt_id

    def start_tasks(self, attempt_id: AttemptId, *argvs: list[str], step: int = 0, **fields: Any) -> StepId:
        step_id = StepId(attempt_id.job_id, attempt_id.attempt, step)
        fields.setdefault("environment", ENVIRONMENT)
        tasks = [TaskSpec(rank=rank, argv=tuple(argv), **fields) for rank, argv in enumerate(argvs)]
        self.do(self.pool.steps.start, step_id, tasks)
        return step_id

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; there was {self.events}"
            self.loop.run_until_complete(asyncio.sleep(0.002))

    def settle(self) -> None:
        """Until no sweep over the processes is under way."""
        self.until(lambda: not asyncio.all_tasks(self.loop), "all sweeps to end")

    def await_event(self, kind: type[E], **fields: object) -> E:
        found: list[E] = []

        def is_there() -> bool:
            found.extend(
                event
                for event in self.events
                if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
            )
            return bool(found)

        self.until(is_there, f"{kind.__name__} {fields}")
        return found[0]

    def output(self, step_id: StepId, rank: int = 0, stream: str = "stdout") -> bytes:
        """What came of one stream, with whatever was repeated counted once; holes are an error."""
        text = b""
        for event in self.events:
            if isinstance(event, Output) and (event.step_id, event.rank, event.stream) == (step_id, rank, stream):
                assert event.offset <= len(text), "a hole in the output"
                text = text[: event.offset] + event.data + text[event.offset + len(event.data) :]
        return text

    def acknowledge(self, step_id: StepId, rank: int = 0, stream: str = "stdout") -> None:
        position = StreamPosition(rank, stream, len(self.output(step_id, rank, stream)))
        self.do(self.pool.steps.received, step_id, [position])

    def processes(self, attempt_id: AttemptId) -> list[int]:
        return strays(str(self.root / str(attempt_id)))


@contextmanager
def shepherd_host(root: Path) -> Iterator[ShepherdHost]:
    """A host that leaves no process of any attempt behind."""
    host = ShepherdHost(root)
    try:
        yield host
    finally:
        if not host.loop.is_closed():
            host.end()
        sweep(root)


def sweep(root: Path) -> None:
    """End all processes of all attempts, and then their shepherds, which nobody needs any more."""
    host = ShepherdHost(root)
    attempts = [directory.name.split(".") for directory in root.glob("[0-9]*.[0-9]*")]
    for job, attempt in attempts:
        host.do(host.pool.empty, AttemptId(JobId(int(job)), int(attempt)))
    host.until(lambda: sum(isinstance(event, TreeEmpty) for event in host.events) == len(attempts), "emptiness")
    host.loop.run_until_complete(host.pool.close())
    host.until(lambda: not shepherds(root), "the shepherds to end")
    host.end()


def shepherds(root: Path) -> list[int]:
    """By their working directories: they have no marker."""
    return [pid for pid in all_pids() if _working_directory(pid).startswith(f"{root}/") and _name(pid) == "gq-shepherd"]


def _working_directory(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
