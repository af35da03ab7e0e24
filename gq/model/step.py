"""A step: one `gqrun` inside an allocation, its tasks spread over the nodes of the attempt."""

from __future__ import annotations

import msgspec


class StepRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What `gqrun` asks of an allocation; None: all that the job holds (tasks: the job's)."""

    name: str
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overlap: bool = False
    """Share CPUs and GPUs with other steps instead of waiting for free ones."""
    kill_on_bad_exit: bool | None = None
    """None: the job's."""


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has on one node.  Ranks of a node are consecutive (block distribution)."""

    node: str
    first_rank: int
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


class StepNode(msgspec.Struct, frozen=True, kw_only=True):
    """Where `gqrun` finds one node of its step."""

    part: StepPart
    endpoint: str
    """ZeroMQ endpoint of the node's step door (``ipc://…`` or ``tcp://…``)."""
    public_key: str = ""
    """Z85 CURVE key of that door; empty on ipc."""


class StepLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The whole step, as every node and `gqrun` see it."""

    name: str
    parts: tuple[StepPart, ...]
    cpus_per_task: int = 1
    gpus_per_task: int | None = None
    """None: every task of a node sees all GPUs that the step has there."""
    kill_on_bad_exit: bool = True
    overlap: bool = False
    """It shares its CPUs and GPUs: nobody waits for them."""

    @property
    def ntasks(self) -> int:
        return sum(part.tasks for part in self.parts)
