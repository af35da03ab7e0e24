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
    roles: tuple[str, ...] = ()
    """Of a gang: those that it has tasks of, by name or number; empty: all."""


class StepRole(msgspec.Struct, frozen=True, kw_only=True):
    """What of a part is one role's: consecutive ranks, among all and within the role."""

    role: str
    first_rank: int
    first_role_rank: int
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    gpus_per_task: int | None = None
    """None: every task of the role sees all GPUs that it has on this node."""
    cpus_per_task: int = 1


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has on one node.  Ranks of a node are consecutive (block distribution), or those of each role."""

    node: str
    first_rank: int
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    roles: tuple[StepRole, ...] = ()
    """Of a step that has tasks of roles."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Of its tasks, in the order of their local ranks."""
        spans = [(one.first_rank, one.tasks) for one in self.roles] or [(self.first_rank, self.tasks)]
        return tuple(rank for first, tasks in spans for rank in range(first, first + tasks))

    def role_of(self, rank: int) -> StepRole | None:
        """The role that the task of this rank has; None: none."""
        return next((one for one in self.roles if 0 <= rank - one.first_rank < one.tasks), None)


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
    roles: tuple[str, ...] = ()
    """Of a gang's step: all roles of its job, in their order."""

    @property
    def ntasks(self) -> int:
        return sum(part.tasks for part in self.parts)
