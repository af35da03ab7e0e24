"""What a program in an elastic job (``--gpus=1-8``, or ``--nodes=1-4 --elastic``) knows of its GPUs and nodes, and
what it says of them.

    import gq.elastic

    for gpus in gq.elastic.watch():             # at once, and whenever the set changes
        workers.restart_on(gpus.target)
        gq.elastic.accept()                     # nothing of ours uses what is to go

Where nodes come and go, `Gpus.nodes` are those that the job has, and `Gpus.target_nodes` those that it is to have.

The node writes a file (``GQ_ELASTIC_FILE``) whenever something changes; this reads it.  GPUs are named as in
``CUDA_VISIBLE_DEVICES``.  Only the standard library is needed to read; `accept` uses gq's own client.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "GQ_ELASTIC_FILE"
LOOK_S = 0.5


@dataclass(frozen=True)
class Node:
    """One that the job has."""

    name: str
    address: str
    """By which the others reach it."""
    gpus: int
    tasks: int
    joined: int = 0
    """Generation of the change by which the node joined the running job; 0: the job began with the node.  A node that
    left and joined again has another number than before."""


@dataclass(frozen=True)
class Gpus:
    """As the node said last."""

    generation: int
    """Grows with each change."""
    current: tuple[str, ...]
    """What the job may use now."""
    target: tuple[str, ...]
    """What it is to use by the deadline: the same as `current`, if nothing is to go."""
    deadline: float | None
    """When the rest is taken, with whatever still uses it; seconds since the epoch.  None: nothing is to go."""
    most: int
    """It never has more."""
    nodes: tuple[Node, ...] = ()
    """Of a job whose nodes come and go: those that it has, the one with its script first.  All that is said of GPUs is
    of the node where this is read: of one that goes they all do."""
    target_nodes: tuple[str, ...] = ()
    """Those that it is to have by the deadline; the same, if none is to go."""
    most_nodes: int = 0
    """It never has more of them; 0: they do not come and go."""


def gpus() -> Gpus | None:
    """All of it; None: this is no elastic job."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        said = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    return Gpus(
        generation=said["generation"],
        current=tuple(said["current"]),
        target=tuple(said["target"]),
        deadline=said.get("deadline"),
        most=said["most"],
        nodes=tuple(Node(**one, joined=said.get("joined", {}).get(one["name"], 0)) for one in said.get("nodes", ())),
        target_nodes=tuple(said.get("target_nodes", ())),
        most_nodes=said.get("most_nodes", 0),
    )


def current() -> tuple[str, ...]:
    """The GPUs that this job may use now; of one that is not elastic those of ``CUDA_VISIBLE_DEVICES``."""
    known = gpus()
    return _visible() if known is None else known.current


def target() -> tuple[str, ...]:
    """Those that it is to use by the deadline."""
    known = gpus()
    return _visible() if known is None else known.target


def deadline() -> float | None:
    """When the others are taken; None: none are."""
    known = gpus()
    return None if known is None else known.deadline


def nodes() -> tuple[Node, ...]:
    """Those that this job has now; empty, if they do not come and go."""
    known = gpus()
    return () if known is None else known.nodes


def target_nodes() -> tuple[str, ...]:
    """Those that it is to have by the deadline."""
    known = gpus()
    return () if known is None else known.target_nodes


def _visible() -> tuple[str, ...]:
    return tuple(one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one)


def watch(look_s: float = LOOK_S) -> Iterator[Gpus]:
    """What it has now, then each change of it as it comes.  Ends at once, if this is no elastic job."""
    seen: Gpus | None = None
    while (known := gpus()) is not None:
        if seen is None or (known.target, known.target_nodes) != (seen.target, seen.target_nodes):
            yield known
        seen = known
        time.sleep(look_s)


def accept(generation: int | None = None) -> bool:
    """Say that nothing of this job uses any more what is to go: it is taken at once, and not only at the deadline.

    `generation`: of the change that is meant; None: the one that the file tells of now.  False: nothing is to go, or
    nobody listens just now; the program goes on all the same, and the deadline holds.
    """
    known = gpus()
    if known is None or known.deadline is None:
        return False
    from gq.checkpoint import own_job_id
    from gq.connection.client import Client
    from gq.connection.locate import find_cluster
    from gq.errors import Refusal, Unreachable
    from gq.wire.client import Done, GiveUpGpus

    job_id = own_job_id()
    if job_id is None:
        return False
    wanted = known.generation if generation is None else generation
    try:
        with Client(find_cluster(os.environ), _TIMEOUT_S, _PATIENCE_S) as client:
            client.ask_for(GiveUpGpus(job_id=job_id, generation=wanted), Done)
    except (Refusal, Unreachable):
        return False
    return True


_PATIENCE_S = 2.0
_TIMEOUT_S = 5.0
