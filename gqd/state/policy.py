"""The settings that decisions depend on: partitions, and tables as gq.toml has them.  Immutable.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import UTC, tzinfo

import msgspec

from gq.model.notice import NotifySettings
from gq.model.policy_tables import Accounting, Billing, Booking, Limits, PriorityWeights, Timers
from gq.model.scheduling import Scheduling, Switch
from gqd.state.index.queue import Columns, Floats

ALL_NODES = ("*",)


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    nodes: tuple[str, ...] = ALL_NODES
    """Names of its nodes; ``("*",)``: every node of the cluster."""
    is_default: bool = False
    is_up: bool = True
    default_time_s: int | None = None
    """For jobs that name no time limit; None: the maximum."""
    max_time_s: int | None = None
    """None: unlimited."""
    priority: int = 0
    """The highest of all partitions counts as 1 in the priority's partition factor."""
    max_nodes: int | None = None
    """Of one job."""
    default_cpus_per_gpu: int | None = None
    """For jobs with GPUs that say no number of CPUs."""
    default_mem_per_gpu_mib: int | None = None
    """For jobs with GPUs that say nothing of memory."""
    users: tuple[str, ...] = ()
    """Who may use it; users, groups and accounts empty: everybody."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """And the accounts below them."""
    qos: tuple[str, ...] = ()
    """Only jobs of these; empty: of all."""

    @property
    def implied_time_s(self) -> int | None:
        """The time limit of a job that names none; None: it has no limit."""
        return self.max_time_s if self.default_time_s is None else self.default_time_s

    def has_node(self, node: str) -> bool:
        return self.nodes == ALL_NODES or node in self.nodes

    def missing_nodes(self, known: Container[str]) -> tuple[str, ...]:
        """Names of `nodes` for which no node is `known`."""
        return () if self.nodes == ALL_NODES else tuple([name for name in self.nodes if name not in known])


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str = "gq"
    partitions: tuple[Partition, ...] = (Partition(name="main", is_default=True),)
    limits: Limits = Limits()
    timers: Timers = Timers()
    owner_uid: int = 0
    """The controller's own uid: always an administrator, and in a private cluster the only user served besides root."""
    is_shared: bool = False
    """A system's cluster, run by root: every user is served, and jobs run as their submitter."""
    administrators: tuple[str, ...] = ()
    """Users, and groups as ``%name``; root is one always."""
    operators: tuple[str, ...] = ()
    root_jobs: bool = False
    """Root may submit jobs to a shared cluster."""
    login_nodes: tuple[str, ...] = ()
    """Nodes that this controller's gq.toml marks as login nodes, besides those that joined as such."""
    endpoint: str = ""
    """Where nodes of other hosts reach the controller (``tcp://ADDRESS:PORT``); empty: nowhere."""
    client_endpoint: str = ""
    """Where clients outside the cluster reach it, likewise."""
    server_key: str = ""
    """Its public key (Z85); empty without a tcp door."""
    job_requeue: bool = True
    default_mem_per_cpu_mib: int | None = None
    use_interactive_step: bool = False
    weights: PriorityWeights = PriorityWeights()
    plugins: dict[str, Callable[[Columns], Floats]] = {}
    """The site's own factors of the priority (`gqd.sched.plugins.PriorityFactor`), checked, by name."""
    billing: Billing = Billing()
    accounting: Accounting = Accounting()
    booking: Booking = Booking()
    scheduling: Scheduling = Scheduling()
    topology: tuple[Switch, ...] = ()
    notify: NotifySettings = NotifySettings()
    licenses: dict[str, int] = {}
    """Of the whole cluster: name → how many."""
    zone: tzinfo = UTC
    """In which days, weeks and months of budgets begin; its rules are in memory."""

    def partition(self, name: str) -> Partition | None:
        return next((partition for partition in self.partitions if partition.name == name), None)

    @property
    def clear_s(self) -> float:
        """A job that is allocated now may be gone only so long after its limit: until it starts, from then on the limit
        counts; and from TERM to KILL.  Then nodes are cleared."""
        return self.timers.prepare_s + self.timers.grace_s + self.booking.clear_time_s

    @property
    def default_partition(self) -> Partition:
        return next((partition for partition in self.partitions if partition.is_default), self.partitions[0])
