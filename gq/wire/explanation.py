"""The answer to the question why a job waits or how it ended; part of `gq.wire.client`."""

from __future__ import annotations

import msgspec

from gq.errors import ProtocolError
from gq.model.explanation import Fact, JobName
from gq.wire.codec import Codec

FACTS: Codec[Fact] = Codec(Fact)


class HeldResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources that a running job or a reservation holds on the nodes that a waiting job may use."""

    job_id: int | None = None
    """None: a reservation holds the resources, and no job uses them."""
    user: str = ""
    reservation: str = ""
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0
    ends_at: float | None = None
    """None: no time limit bounds the end."""


class Shortage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resource that a waiting job lacks; amounts of memory are in MiB."""

    resource: str
    """``GPUs``, ``CPUs``, ``memory``, ``idle nodes``, or the name of a generic resource."""
    wanted: int
    free: int
    """Free amount on the nodes that the job may use, even if fragmented."""
    is_fragmented: bool = False
    selection: str = ""
    """The options that exclude nodes of the partition: ``--constraint=rack=r2``."""
    nodes: int = 0
    """Number of nodes that are up and match the selection; 0, as the next two, without a selection."""
    idle_nodes: int = 0
    free_elsewhere: int = 0
    holders: tuple[HeldResource, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The explanation of a job's state.

    ``details`` are the facts as data, which a client renders; ``why``, ``facts`` and ``hint`` are the same in words,
    for clients that do not know all kinds of facts.
    """

    job_id: int
    state: str
    reason: str
    why: str
    """All facts in one sentence."""
    hint: str = ""
    """A change that would help."""
    blockers: tuple[int, ...] = ()
    """Ids of the jobs that hold what is missing."""
    expected_start_at: float | None = None
    facts: tuple[str, ...] = ()
    """The facts of `why`, one at a time."""
    shortage: Shortage | None = None
    """The numbers of `why`, if a resource is short."""
    details: tuple[msgspec.Raw, ...] = ()
    """Facts, each encoded by `FACTS`, so that an unknown kind does not make the answer unreadable."""
    jobs: tuple[JobName, ...] = ()
    """The names of the explained job and of the jobs that `details` mention."""


def encoded_facts(facts: tuple[Fact, ...]) -> tuple[msgspec.Raw, ...]:
    return tuple(msgspec.Raw(FACTS.encode(fact)) for fact in facts)


def decoded_facts(explanation: Explanation) -> tuple[Fact, ...] | None:
    """The facts of an explanation; None: the controller sent none, or a kind that this version does not know."""
    try:
        return tuple(FACTS.decode(memoryview(raw)) for raw in explanation.details) or None
    except ProtocolError:
        return None
