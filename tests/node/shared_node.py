"""A real gqnode of root on a host of its own, with users, in a cluster that a scripted controller calls shared."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.state import Outcome
from gq.model.step import StepLayout, StepPart
from gq.wire import node as wire
from gq.wire import step as step_wire
from tests.node.controller import ScriptedController, launch_of
from tests.system.accounts import Account
from tests.system.hosts import CONFIG_PATH, Daemon, Host, Network, User

T = TypeVar("T")
KEY = bytes(range(32))
SPOOL = "/var/lib/gq/nodes/n1"
NODES_SOCKET = "/run/gq/nodes.sock"
STEP_SOCKET = "/run/gq/step-n1.sock"
_CONFIG = """cluster = "{cluster}"
[timers]
heartbeat_s = 0.5
resend_s = 1.0
[[node]]
name = "n1"
cpus = 4
memory = "4G"
gpus = []
{settings}
"""
BLANK_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


_SAY = """
import sys, time, zmq
endpoint, said, until = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3].encode()
socket = zmq.Context().socket(zmq.DEALER)
socket.linger = 0
socket.connect(endpoint)
socket.send(said)
while socket.poll(20_000 if until else 1_500):
    heard = socket.recv()
    if b"not_yet" in heard:
        time.sleep(0.02)
        socket.send(said)
        continue
    print(heard.hex())
    if not until or until in heard:
        break
"""


class SharedNode:
    """`settings` are lines of the node in gq.toml."""

    def __init__(self, net: Network, host: Host, settings: str = "", is_shared: bool = True) -> None:
        self.host = host
        self._config = _CONFIG.format(cluster=net.run_name, settings=settings)
        host.path("/etc/gq").mkdir(exist_ok=True)
        host.path(CONFIG_PATH).write_text(self._config)
        host.path("/run/gq").mkdir(exist_ok=True)
        self.controller = ScriptedController(f"ipc://{host.path(NODES_SOCKET)}", is_shared=is_shared)
        self.daemon: Daemon | None = None
        self._next_job = 1

    def start(self, *before: str) -> None:
        """`before`: what runs gqnode."""
        heard = len(self.controller.hellos)
        self.start_alone(*before)
        self.controller.hear(lambda: len(self.controller.hellos) > heard)

    def start_alone(self, *before: str) -> Daemon:
        """Without waiting until the controller has heard of it."""
        self.daemon = self.host.daemon(*before, "gqnode", "--config", CONFIG_PATH, "--name", "n1")
        return self.daemon

    def user(self, account: Account) -> User:
        return self.host.user(account)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, account: Account, script: str, environment: dict[str, str] | None = None, **fields: object
    ) -> AttemptId:
        """The attempt's id; its output is ``out`` in the home directory unless `fields` of the launch say more."""
        user = self.user(account)
        launch, blobs = launch_of(
            f"#!/bin/sh\n{script}\n".encode(), environment or BLANK_ENVIRONMENT, f"{user.home}/out", grace_s=2
        )
        attempt_id = AttemptId(JobId(self._next_job), 1)
        self._next_job += 1
        facts = {"attempt_id": attempt_id, "user": account.name, "uid": account.uid, "gid": account.uid}
        launch = msgspec.structs.replace(launch, **{**facts, "chdir": user.home, **fields})  # type: ignore[arg-type]
        if launch.is_interactive:
            launch = msgspec.structs.replace(launch, script_digest="")
        self.controller.launch(launch, blobs)
        return attempt_id

    def run(self, account: Account, script: str, **fields: object) -> wire.AttemptEnded:
        """A job from its submission to its end."""
        return self.end_of(self.submit(account, script, **fields))  # type: ignore[arg-type]

    def end_of(self, attempt_id: AttemptId) -> wire.AttemptEnded:
        return self._heard(attempt_id, wire.AttemptEnded)

    def started(self, attempt_id: AttemptId) -> wire.Started:
        return self._heard(attempt_id, wire.Started)

    def refusal_of(self, attempt_id: AttemptId) -> wire.PrepareRefused:
        return self._heard(attempt_id, wire.PrepareRefused)

    def stop(self, attempt_id: AttemptId) -> None:
        self.controller.order(wire.Stop(attempt_id=attempt_id, outcome=Outcome.CANCELLED, grace_s=0))

    def _heard(self, attempt_id: AttemptId, kind: type[T]) -> T:
        def found() -> T | None:
            reports = (one for one in self.controller.reports if isinstance(one, kind))
            return next((one for one in reports if getattr(one, "attempt_id", None) == attempt_id), None)

        return self.controller.hear(found)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def expect_step(self, attempt_id: AttemptId) -> StepId:
        """The node knows a step of one task now."""
        step_id = StepId(attempt_id.job_id, attempt_id.attempt, 0)
        layout = StepLayout(name="step", parts=(StepPart(node="n1", first_rank=0, tasks=1, cpus=(0,)),))
        self.controller.order(wire.LaunchStep(step_id=step_id, key=KEY, layout=layout))
        self.controller.hear(lambda: wire.StepReceived(step_id=step_id) in self.controller.reports)
        return step_id

    def attach(self, step_id: StepId, *argv: str) -> step_wire.Attach:
        return step_wire.Attach(step_id=step_id, key=KEY, argv=argv, environment=BLANK_ENVIRONMENT, chdir="/")

    def say(
        self, message: step_wire.ToDoor, account: Account | None = None, until: str = ""
    ) -> tuple[step_wire.FromDoor, ...]:
        """What the step door answers this user (None: root) up to the first message called `until`, or at all.

        Asked again while the step is not known yet; empty: no answer within a second or two.
        """
        argv = (sys.executable, "-c", _SAY, f"ipc://{STEP_SOCKET}", step_wire.TO_DOOR.encode(message).hex(), until)
        done = self.user(account).run(*argv) if account else self.host.run(*argv)
        assert done.returncode == 0, done.stderr
        return tuple(step_wire.FROM_DOOR.decode(bytes.fromhex(line)) for line in done.stdout.split())

    def task_output(self, attempt_id: AttemptId, account: Account, *argv: str) -> str:
        """Standard output of a step of one task."""
        heard = self.say(self.attach(self.expect_step(attempt_id), *argv), account, until="TaskExited")
        return output_of(heard)

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
        self.controller.close()


def output_of(heard: Iterable[step_wire.FromDoor]) -> str:
    """Standard output of the one task, each byte once: who asks again is told again."""
    text = bytearray()
    for one in heard:
        if isinstance(one, step_wire.Output) and one.stream == "stdout":
            text[one.offset : one.offset + len(one.data)] = one.data
    return text.decode()


@contextlib.contextmanager
def shared_node(net: Network, settings: str = "", is_shared: bool = True, starts: bool = True) -> Iterator[SharedNode]:
    """It runs, and the controller has heard it; at the end nothing of it is left on the host."""
    (host,) = net.hosts.values()
    node = SharedNode(net, host, settings, is_shared)
    node.controller.bind()
    try:
        if starts:
            node.start()
        yield node
    except BaseException:
        print(host.logs())
        raise
    finally:
        node.close()
        host.run("sh", "-c", "kill -9 -1")
        host.ok("sh", "-c", "rm -rf /var/lib/gq /run/gq /run/home/*/*")
