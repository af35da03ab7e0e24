"""Build small values for tests: nodes, jobs, requests.  Every builder has defaults that make one line enough."""

from __future__ import annotations

from typing import Any

import msgspec

from gq.model.ids import AttemptId, JobId, RequestId
from gq.model.job import JobSpec
from gq.model.key import PUBLIC_KEY_CHARACTERS
from gq.model.node import Gpu, Inventory
from gq.model.policy_tables import Timers
from gq.model.resource import ResourceRequest
from gq.wire.client import RequestBody, Submit
from gq.wire.codec import WIRE_VERSION
from gq.wire.node import AttemptStatus, Hello, Join
from gqd.shell.zones import load_zones, zones_named_by
from gqd.state.input import ClientRequest, NamedUser, NodeHello, NodeJoin, NodeReport, PastJob, Peer
from gqd.state.policy import Policy

OWNER = Peer(uid=1000, gid=1000, user="ada")
STRANGER = Peer(uid=1001, gid=1001, user="mallory")

ROOT = Peer(uid=0, gid=0, user="root")
ALICE = Peer(uid=2001, gid=2001, user="alice")
BOB = Peer(uid=2002, gid=2002, user="bob")
OLGA = Peer(uid=2003, gid=2003, user="olga")
"""An operator of `SHARED`."""
ADAM = Peer(uid=2004, gid=2004, user="adam", groups=("adam", "wheel"))
"""An administrator of `SHARED`."""

CARL = Peer(uid=2005, gid=2005, user="carl")
"""A user who coordinates an account in some tests."""

PROMPT = Timers(prepare_s=20.0, grace_s=10)
"""Timers with which resources are clear a minute before their reservation begins (`Policy.clear_s`)."""
SHARED = Policy(
    owner_uid=0,
    is_shared=True,
    administrators=("%wheel",),
    operators=("olga",),
    endpoint="tcp://ctl:7321",
    server_key="S" * 40,
)
"""The policy of a cluster with many users."""


def gpus(count: int, gpu_type: str = "fake") -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index=index, uuid=f"GPU-{gpu_type}-{index}", type=gpu_type, memory_mib=16384, is_fake=True)
        for index in range(count)
    )


def inventory(cpus: int = 8, gpu_count: int = 4, memory_mib: int = 65536, gpu_type: str = "fake") -> Inventory:
    found = gpus(gpu_count, gpu_type)
    return Inventory(cpus=cpus, memory_mib=memory_mib, gpus=found, gq_version="0", can_suspend=True, can_park=True)


def hello(
    node: str, has: Inventory | None = None, *, incarnation: str = "1", attempts: tuple[AttemptStatus, ...] = ()
) -> NodeHello:
    message = Hello(
        node=node,
        version=1,
        incarnation=incarnation,
        boot_id="boot",
        address="127.0.0.1",
        inventory=has or inventory(),
        step_endpoint=f"ipc:///run/step-{node}.sock",
        ticket_key=b"k" * 32,
        attempts=attempts,
        last_seq=1 << 30,
    )
    return NodeHello(route=route_of(node, incarnation), hello=message)


def route_of(node: str, incarnation: str = "1") -> tuple[str, bytes]:
    return ("nodes", f"{node}/{incarnation}".encode())


def report(node: str, body: Any, *, incarnation: str = "1", seq: int = 1) -> NodeReport:
    return NodeReport(route=route_of(node, incarnation), node=node, incarnation=incarnation, seq=seq, body=body)


def spec(name: str = "job", **fields: Any) -> JobSpec:
    """A job spec; keyword arguments that are not its fields are fields of its resource request."""
    own = {key: fields.pop(key) for key in list(fields) if key in JobSpec.__struct_fields__}
    return JobSpec(name=name, resources=ResourceRequest(**fields), **own)


def submit(name: str = "job", **fields: Any) -> Submit:
    return Submit(spec=spec(name, **fields))


def via(node: str, peer: Peer) -> Peer:
    """The same user, for whom a node vouches."""
    return msgspec.structs.replace(peer, via_node=node)


def public_key(number: int) -> str:
    """A distinct key for each number, in the format of real ones (Z85), which differ in their first characters."""
    digits = f"{number:06d}"[::-1]
    return digits + "a" * (PUBLIC_KEY_CHARACTERS - len(digits))


def named(peer: Peer) -> NamedUser:
    return NamedUser(user=peer.user, uid=peer.uid, gid=peer.gid)


def join(node: str, token: str, key: str, *, address: str = "192.0.2.7") -> NodeJoin:
    message = Join(node=node, public_key=key, version=WIRE_VERSION)
    return NodeJoin(route=("tcp", f"joining/{node}".encode()), token=token, address=address, join=message)


def client_request(
    body: RequestBody,
    number: int,
    peer: Peer = OWNER,
    named_user: NamedUser | None = None,
    past: dict[int, PastJob] | None = None,
) -> ClientRequest:
    return ClientRequest(
        peer=peer,
        route=("clients", b"c"),
        request_id=RequestId(number.to_bytes(16, "big")),
        body=body,
        entropy=number.to_bytes(32, "little"),
        named_user=named_user,
        past=past or {},
        zones=load_zones(zones_named_by(body)),
    )


def attempt_id(job_id: int, attempt: int = 1) -> AttemptId:
    return AttemptId(JobId(job_id), attempt)
