"""The GPUs and nodes of an elastic job (``--gpus=1-8``, or ``--nodes=1-4 --elastic``), for programs in it.

    import gq.elastic

    for gpus in gq.elastic.watch():             # at once, and whenever the set changes
        workers.restart_on(gpus.target)
        gq.elastic.accept()                     # the program has stopped using the GPUs that leave

For a job whose nodes change, `Gpus.nodes` are its current nodes, and `Gpus.target_nodes` its nodes after the change.

The node writes a file (``GQ_ELASTIC_FILE``) at each change, which this module reads.  GPUs are named as in
``CUDA_VISIBLE_DEVICES``.  Reading needs only the standard library; `accept` uses gq's own client.
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
    """A node of the job."""

    name: str
    address: str
    """Address at which the job's other nodes reach the node."""
    gpus: int
    tasks: int
    joined: int = 0
    """Generation of the change by which the node joined the running job; 0: the job began with the node.  A node that
    left and joined again has a new generation."""


@dataclass(frozen=True)
class Gpus:
    """The state that the node wrote last."""

    generation: int
    """Number that grows with each change."""
    current: tuple[str, ...]
    """GPUs that the job may use now."""
    target: tuple[str, ...]
    """GPUs that the job may use after the deadline; equal to `current` if none is to be released."""
    deadline: float | None
    """When the other GPUs are taken and processes on them are ended; seconds since the epoch.  None: no release."""
    most: int
    """Maximum number of the job's GPUs."""
    nodes: tuple[Node, ...] = ()
    """For a job whose nodes change: its current nodes, the node of its script first.  The fields about GPUs describe
    only the node where the file is read; a node that leaves releases all of its GPUs."""
    target_nodes: tuple[str, ...] = ()
    """Names of the job's nodes after the deadline; equal to `nodes` if none leaves."""
    most_nodes: int = 0
    """Maximum number of the job's nodes; 0: the nodes do not change."""


def gpus() -> Gpus | None:
    """Read the current state; None: this process is in no elastic job."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        state = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    return Gpus(
        generation=state["generation"],
        current=tuple(state["current"]),
        target=tuple(state["target"]),
        deadline=state.get("deadline"),
        most=state["most"],
        nodes=tuple(Node(**one, joined=state.get("joined", {}).get(one["name"], 0)) for one in state.get("nodes", ())),
        target_nodes=tuple(state.get("target_nodes", ())),
        most_nodes=state.get("most_nodes", 0),
    )


def current() -> tuple[str, ...]:
    """Return the GPUs that this job may use now; if it is not elastic, those of ``CUDA_VISIBLE_DEVICES``."""
    known = gpus()
    return _visible() if known is None else known.current


def target() -> tuple[str, ...]:
    """Return the GPUs that this job may use after the deadline."""
    known = gpus()
    return _visible() if known is None else known.target


def deadline() -> float | None:
    """Return when the other GPUs are taken, or None."""
    known = gpus()
    return None if known is None else known.deadline


def nodes() -> tuple[Node, ...]:
    """Return this job's current nodes; empty if they do not change."""
    known = gpus()
    return () if known is None else known.nodes


def target_nodes() -> tuple[str, ...]:
    """Return the names of this job's nodes after the deadline."""
    known = gpus()
    return () if known is None else known.target_nodes


def _visible() -> tuple[str, ...]:
    return tuple(gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu)


def watch(look_s: float = LOOK_S) -> Iterator[Gpus]:
    """Yield the current state, then each change of the target.  Ends at once if this is no elastic job."""
    seen: Gpus | None = None
    while (known := gpus()) is not None:
        if seen is None or (known.target, known.target_nodes) != (seen.target, seen.target_nodes):
            yield known
        seen = known
        time.sleep(look_s)


def accept(generation: int | None = None) -> bool:
    """Report that this job has stopped using the GPUs or nodes to be released: they are taken at once, before the
    deadline.

    `generation`: of the change that is meant; None: the change that the file describes now.  Returns False if nothing
    is to be released or the controller is unreachable; the program continues, and the deadline stays.
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
    accepted = known.generation if generation is None else generation
    try:
        with Client(find_cluster(os.environ), _TIMEOUT_S, _PATIENCE_S) as client:
            client.ask_for(GiveUpGpus(job_id=job_id, generation=accepted), Done)
    except (Refusal, Unreachable):
        return False
    return True


_PATIENCE_S = 2.0
_TIMEOUT_S = 5.0
