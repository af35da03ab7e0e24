"""Steps: one `gqrun` inside an allocation, its tasks spread over the nodes of the attempt."""

from __future__ import annotations

import msgspec


class StepRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The resources that `gqrun` requests of an allocation; None: all that the job holds (tasks: the job's number)."""

    name: str
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overlap: bool = False
    """Share CPUs and GPUs with other steps instead of waiting for free ones."""
    kill_on_bad_exit: bool | None = None
    """None: as the job."""
    roles: tuple[str, ...] = ()
    """For a het job: the roles, by name or number, that the step has tasks of; empty: all."""


class StepRole(msgspec.Struct, frozen=True, kw_only=True):
    """A role's share of a step part: consecutive ranks, among all ranks and within the role."""

    role: str
    first_rank: int
    first_role_rank: int
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    gpus_per_task: int | None = None
    """None: every task of the role sees all GPUs of the role on this node, or as `tasks_per_gpu` says."""
    tasks_per_gpu: int | None = None
    """Number of consecutive tasks that share a GPU and see no other."""
    cpus_per_task: int = 1


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """A node's share of a step.  Ranks of a node, or of each role on it, are consecutive (block distribution)."""

    node: str
    first_rank: int
    tasks: int
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    roles: tuple[StepRole, ...] = ()
    """The shares of the roles, for a step of a het job."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of the part's tasks, in the order of their local ranks."""
        spans = [(role.first_rank, role.tasks) for role in self.roles] or [(self.first_rank, self.tasks)]
        return tuple(rank for first, tasks in spans for rank in range(first, first + tasks))

    def role_of(self, rank: int) -> StepRole | None:
        """Return the role of the task with this rank, or None."""
        return next((role for role in self.roles if 0 <= rank - role.first_rank < role.tasks), None)


class StepNode(msgspec.Struct, frozen=True, kw_only=True):
    """How `gqrun` connects to one node of its step."""

    part: StepPart
    endpoint: str
    """ZeroMQ endpoint of the node's step listener (``ipc://…`` or ``tcp://…``)."""
    public_key: str = ""
    """Z85 CURVE key of that listener; empty on ipc."""


class StepLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of the whole step, which every node and `gqrun` know."""

    name: str
    parts: tuple[StepPart, ...]
    cpus_per_task: int = 1
    gpus_per_task: int | None = None
    """None: every task of a node sees all GPUs that the step has there, or as `tasks_per_gpu` says."""
    tasks_per_gpu: int | None = None
    """Number of consecutive tasks of a node that share a GPU and see no other."""
    kill_on_bad_exit: bool = True
    overlap: bool = False
    """The step shares its CPUs and GPUs, so that no other step waits for them."""
    roles: tuple[str, ...] = ()
    """All roles of the het job, in their order."""

    @property
    def ntasks(self) -> int:
        return sum(part.tasks for part in self.parts)
