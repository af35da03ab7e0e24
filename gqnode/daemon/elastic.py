"""The file that lists an elastic job's GPUs, and the search for processes that use given GPUs.

A job has one file, readable only by its owner: JSON, replaced atomically, written before its script starts and with
each change (`gq.elastic` reads it).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gq.model.ids import AttemptId
from gq.model.node import Gpu
from gq.wire.node import Launch
from gqnode.accel.protocol import GpuSample
from gqnode.control.attempt import AttemptRecord
from gqnode.control.environment import gpus_of
from gqnode.shepherd.processes import descendants, strays

DIRECTORY = "elastic"
VARIABLE = "GQ_ELASTIC_FILE"
_VISIBLE = b"\0CUDA_VISIBLE_DEVICES="


class Member(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    gpus: int
    tasks: int


class ElasticFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file's content; GPUs are named as in ``CUDA_VISIBLE_DEVICES``."""

    job_id: int
    generation: int
    current: tuple[str, ...]
    target: tuple[str, ...]
    """GPUs that remain after the deadline; equal to `current` if none is to be given up."""
    most: int
    """Maximum number of GPUs on this node."""
    deadline: float | None = None
    """Seconds since the epoch."""
    nodes: tuple[Member, ...] = ()
    """The nodes of a job that can gain and lose nodes, the node with its script first."""
    target_nodes: tuple[str, ...] = ()
    """The nodes that remain after the deadline."""
    most_nodes: int = 0
    joined: dict[str, int] = {}
    """Generation of the change by which a node joined, for nodes that the job did not begin with."""


def path_of(run_dir: str, node: str, attempt_id: AttemptId) -> str:
    return f"{run_dir}/{DIRECTORY}/{node}.{attempt_id}.json"


def elastic_file(record: AttemptRecord, inventory: tuple[Gpu, ...]) -> ElasticFile:
    launch, going = record.launch, set(record.going_gpus)
    held = gpus_of(launch.grant.gpus, inventory)
    leaving = () if record.resize is None else record.resize.leaving
    if launch.grant.node in leaving:
        going.update(launch.grant.gpus)
    return ElasticFile(
        job_id=launch.attempt_id.job_id,
        generation=0 if record.resize is None else record.resize.generation,
        current=tuple(map(visible_as, held)),
        target=tuple(visible_as(gpu) for gpu in held if gpu.index not in going),
        most=launch.most_gpus or len(held),
        deadline=record.resize.ends_at if (going or leaving) and record.resize is not None else None,
        **({} if launch.most_nodes is None else _nodes(launch, launch.most_nodes, leaving)),
    )


def _nodes(launch: Launch, max_nodes: int, leaving: tuple[str, ...]) -> dict[str, Any]:
    names = tuple(member.node for member in launch.members if member.node not in leaving)
    members = [
        Member(name=member.node, address=member.address, gpus=member.gpus, tasks=member.tasks)
        for member in launch.members
    ]
    joined = {member.node: member.joined for member in launch.members if member.joined}
    return {"nodes": tuple(members), "target_nodes": names, "most_nodes": max_nodes, "joined": joined}


def visible_as(gpu: Gpu) -> str:
    """Return the GPU's name in ``CUDA_VISIBLE_DEVICES``."""
    return str(gpu.index) if gpu.is_fake else gpu.uuid


def write(path: str, content: ElasticFile, owner: tuple[int, int] | None) -> None:
    """Replace the file; `OSError` if that fails.  `owner`: (uid, gid) if it is not the daemon's own."""
    os.makedirs(os.path.dirname(path), mode=0o711, exist_ok=True)  # noqa: PTH103, PTH120
    draft = f"{path}.new"
    remove(draft)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
    try:
        os.write(fd, msgspec.json.encode(content) + b"\n")
        if owner is not None:
            os.fchown(fd, *owner)
    finally:
        os.close(fd)
    os.replace(draft, path)  # noqa: PTH105


def remove(path: str) -> None:
    """Remove the file, if it exists."""
    try:
        os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        return


def gpu_users(
    gpus: Collection[int],
    inventory: Sequence[Gpu],
    samples: Iterable[GpuSample],
    shepherd: int,
    marker: str,
) -> list[int]:
    """Return the attempt's processes that use one of these GPUs, by the driver's lists.

    For fake GPUs, a process uses a GPU that its ``CUDA_VISIBLE_DEVICES`` names.
    """
    own = {*strays(marker), *(descendants(shepherd) if shepherd else ())} - {shepherd}
    said = {process.pid for sample in samples if sample.index in gpus for process in sample.processes}
    pretended = {visible_as(gpu) for gpu in inventory if gpu.is_fake and gpu.index in gpus}
    naming = {pid for pid in own if pretended and not pretended.isdisjoint(_visible_to(pid))}
    return sorted((own & said) | naming)


def _visible_to(pid: int) -> list[str]:
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return []
    _, found, rest = environment.partition(_VISIBLE)
    return os.fsdecode(rest.partition(b"\0")[0]).split(",") if found else []
