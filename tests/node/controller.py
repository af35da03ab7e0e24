"""A controller that does what a test says, and a real `gqnode` beside it, over ipc or CURVE."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from gq.connection.locate import Location, make_run_dir, private_location
from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gq.wire import node as wire
from gq.wire.codec import WIRE_VERSION

WAIT_S = 60.0
SOURCE = Path(__file__).resolve().parents[2]
T = TypeVar("T")

CONFIG = """
[timers]
heartbeat_s = 0.5
resend_s = 1.0
[[node]]
name = "n1"
cpus = 4
memory = "4G"
gpus = []
"""


class ScriptedController:
    """Binds the nodes' door, acknowledges what it is told to, remembers all that it heard."""

    def __init__(
        self, endpoint: str, acknowledges: bool = True, owner_uid: int | None = None, is_shared: bool = False
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self._endpoint = endpoint
        self.acknowledges = acknowledges
        self.owner_uid = os.geteuid() if owner_uid is None else owner_uid
        self.is_shared = is_shared
        self.hellos: list[wire.Hello] = []
        self.heartbeats = 0
        self.reports: list[wire.ReportBody] = []
        """In order, each once (by incarnation and number)."""
        self.relays: list[wire.Relay] = []
        self._seen: set[tuple[str, int]] = set()
        self._peer = b""

    def bind(self) -> None:
        self.socket.bind(self._endpoint)

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    # ── saying ────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, message: wire.ControllerMessage) -> None:
        self.socket.send_multipart([self._peer, wire.CONTROLLER_MESSAGES.encode(message)])

    def order(self, order: wire.Order, blobs: dict[str, bytes] | None = None) -> None:
        self.say(wire.Orders(orders=(order,), blobs=blobs or {}))

    def launch(self, launch: wire.Launch, blobs: dict[str, bytes]) -> None:
        """PREPARE, and GO as soon as the node is prepared (not if it refuses)."""
        self.order(wire.Prepare(launch=launch), blobs)
        answers = (wire.Prepared, wire.PrepareRefused)
        answer = self.hear(lambda: next((one for one in self.reports if _is_of(one, launch, answers)), None))
        if isinstance(answer, wire.Prepared):
            self.order(wire.Go(attempt_id=launch.attempt_id, master_port=answer.master_port))

    # ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, what: Callable[[], T | None], within_s: float = WAIT_S) -> T:
        """Serve until `what` has something."""
        deadline = time.monotonic() + within_s
        while True:
            found = what()
            if found:
                return found
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"not heard within {within_s} s; reports so far: {self.reports}"
            if self.socket.poll(int(min(left_s, 0.2) * 1000)):
                self._take(*self.socket.recv_multipart())

    def report(self, kind: type[T], within_s: float = WAIT_S) -> T:
        """The first report of this kind, heard already or now."""
        return self.hear(lambda: next((one for one in self.reports if isinstance(one, kind)), None), within_s)

    def serve(self, for_s: float) -> None:
        with contextlib.suppress(AssertionError):
            self.hear(lambda: None, for_s)

    def _take(self, peer: bytes, data: bytes) -> None:
        message = wire.NODE_MESSAGES.decode(data)
        match message:
            case wire.Hello():
                self._peer = peer
                self.hellos.append(message)
                self.say(self._welcome())
            case wire.Heartbeat() if peer != self._peer:
                self.socket.send_multipart([peer, wire.CONTROLLER_MESSAGES.encode(wire.WhoIsThere())])
            case wire.Heartbeat():
                self.heartbeats += 1
                self.say(wire.HeartbeatSeen(at=message.at))
            case wire.Report():
                self._take_report(message)
            case wire.Relay():
                self.relays.append(message)

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(
            cluster="gq", version=WIRE_VERSION, heartbeat_s=0.5, owner_uid=self.owner_uid, is_shared=self.is_shared
        )

    def _take_report(self, message: wire.Report) -> None:
        key = (message.incarnation, message.seq)
        if key not in self._seen:
            self._seen.add(key)
            self.reports.append(message.body)
        if self.acknowledges:
            self.say(wire.Ack(seqs=(message.seq,)))


def _is_of(report: wire.ReportBody, launch: wire.Launch, kinds: tuple[type, ...]) -> bool:
    return isinstance(report, kinds) and getattr(report, "attempt_id", None) == launch.attempt_id


class NodeProcess:
    """A real gqnode, started and killed as often as a test likes."""

    def __init__(self, location: Location, name: str = "n1") -> None:
        self.location = location
        self.name = name
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = Path(location.state_dir, f"gqnode-{name}.log")

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gqnode", "--name", self.name, "--dir", self.location.state_dir],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            )

    def kill(self, signum: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(signum)
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(WAIT_S)

    def log(self) -> str:
        return self.log_path.read_text()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def private_cluster(directory: Path, config: str = CONFIG) -> Iterator[Location]:
    """The directory of a private cluster, with its sockets; no process yet."""
    directory.mkdir(exist_ok=True)
    Path(directory, "gq.toml").write_text(config)
    location = private_location(str(directory), {})
    make_run_dir(location)
    yield location


def launch_of(
    script: bytes,
    environment: dict[str, str],
    output_path: str,
    *,
    job_id: int = 7,
    is_interactive: bool = False,
    time_limit_s: int | None = None,
    grace_s: int = 30,
) -> tuple[wire.Launch, dict[str, bytes]]:
    """A job of one node, and the blobs that its order names."""
    encoded = msgspec.msgpack.encode(environment)
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (script, encoded)}
    script_digest, environment_digest = (hashlib.sha256(data).hexdigest() for data in (script, encoded))
    launch = wire.Launch(
        attempt_id=AttemptId(JobId(job_id), 1),
        job_name="job",
        cluster="gq",
        user="tester",
        uid=os.geteuid(),
        gid=os.getegid(),
        partition="main",
        node_rank=0,
        members=(wire.GangMember(node="n1", address="127.0.0.1", tasks=1, cpus=1, gpus=0),),
        grant=Grant(node="n1", tasks=1, cpus=(0,)),
        is_interactive=is_interactive,
        time_limit_s=time_limit_s,
        grace_s=grace_s,
        script_digest="" if is_interactive else script_digest,
        environment_digest=environment_digest,
        output_path=output_path,
    )
    return launch, blobs
