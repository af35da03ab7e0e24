"""A scripted controller: a real socket that answers requests as a test says, in a thread beside the command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import zmq

from gq.connection.locate import Location
from gq.model.account import QosInfo
from gq.model.job import JobInfo
from gq.model.node import ClusterInfo, PartitionInfo
from gq.near_miss import nearest
from gq.wire import client as wire
from gq.wire.codec import WIRE_VERSION

B = TypeVar("B", bound=wire.RequestBody)
Answer = wire.ReplyBody | Callable[..., wire.ReplyBody]
SUBMITTED_AT = 1_800_000_000.0


class ScriptedController:
    """Listens where the location says.  What a test has not scripted is refused with code ``unscripted``."""

    def __init__(self, location: Location) -> None:
        self.heard: list[wire.RequestBody] = []
        self._endpoint = location.client_endpoint
        self._answers: dict[type, Answer] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._is_bound = threading.Event()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ScriptedController:
        self._thread.start()
        assert self._is_bound.wait(30), "the scripted controller did not get its socket"
        return self

    def __exit__(self, *what: object) -> None:
        self._is_stopped.set()
        self._thread.join(10)
        self._context.term()

    def on(self, kind: type[B], answer: wire.ReplyBody | Callable[[B], wire.ReplyBody]) -> None:
        """Answer every request of this kind so."""
        self._answers[kind] = answer

    def the(self, kind: type[B]) -> B:
        """The one request of this kind that came."""
        found = self.all(kind)
        assert len(found) == 1, f"{len(found)} requests of kind {kind.__name__} came: {self.heard}"
        return found[0]

    def all(self, kind: type[B]) -> list[B]:
        return [body for body in self.heard if isinstance(body, kind)]

    def _serve(self) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 1000)
        socket.bind(self._endpoint)
        self._is_bound.set()
        while not self._is_stopped.is_set():
            if not socket.poll(20):
                continue
            peer, frame = socket.recv_multipart()
            request = wire.REQUESTS.decode(frame)
            self.heard.append(request.body)
            socket.send_multipart([peer, wire.REPLIES.encode(self._reply(request))])
        socket.close()

    def _reply(self, request: wire.Request) -> wire.Reply:
        answer = self._answers.get(type(request.body), wire.Refused(code="unscripted", message=str(request.body)))
        return wire.Reply(WIRE_VERSION, request.request_id, answer(request.body) if callable(answer) else answer)


def a_job(job_id: int = 7, **fields: object) -> JobInfo:
    """A pending job of ada's; any field can be given."""
    shown: dict[str, object] = {
        "name": "train",
        "user": "ada",
        "uid": 1000,
        "partition": "main",
        "state": "PENDING",
        "reason": "Resources",
        "submit_at": SUBMITTED_AT,
        "cpus": 4,
    }
    return JobInfo(job_id=job_id, **(shown | fields))  # type: ignore[arg-type]


def jobs(*shown: JobInfo, more: bool = False) -> wire.Jobs:
    return wire.Jobs(jobs=shown, more=more)


def know_names(controller: ScriptedController) -> None:
    """Let it know partition `main`, nodes `n1` and `n2`, users, an account and a QOS, and refuse others as gqd does."""
    main = PartitionInfo(
        partition="main", is_default=True, state="UP", nodes=("n1", "n2"), default_time_s=None, max_time_s=None
    )
    info = ClusterInfo(cluster="lab", gq_version="1", started_at=0.0, partitions=(main,))
    normal = QosInfo(name="normal")
    controller.on(wire.GetCluster, wire.Cluster(info=info))
    controller.on(wire.ListNodes, lambda body: _unknown("node", body.names, ["n1", "n2"]) or wire.Nodes(nodes=()))
    controller.on(
        wire.ListShares,
        lambda body: (
            _unknown("user", body.users, ["ada", "bob"], "is in no account")
            or _unknown("account", body.accounts, ["nlp", "default"])
            or wire.Shares(lines=())
        ),
    )
    controller.on(
        wire.ListAccounts,
        lambda body: wire.Accounts(accounts=(), qos=(normal,) if body.qos in ((), ("normal",)) else ()),
    )


def _unknown(kind: str, names: Iterable[str], known: list[str], what: str = "does not exist") -> wire.Refused | None:
    for name in names:
        if name not in known:
            hint = f"did you mean `{nearest(name, known)}`?"
            return wire.Refused(code=f"unknown_{kind}", message=f"{kind} `{name}` {what}", hint=hint)
    return None
