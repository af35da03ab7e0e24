"""The policy: partitions, and the tables of gq.toml that decisions depend on.  Immutable.  Pure."""

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
    """A partition of gq.toml: a named set of nodes with limits and access rules."""

    name: str
    nodes: tuple[str, ...] = ALL_NODES
    """Names of the partition's nodes; ``("*",)``: every node of the cluster."""
    is_default: bool = False
    is_up: bool = True
    default_time_s: int | None = None
    """Time limit of jobs that request none; None: the maximum."""
    max_time_s: int | None = None
    """Maximum time limit; None: unlimited."""
    priority: int = 0
    """Priority; divided by the highest of all partitions it is the partition factor of a job's priority."""
    max_nodes: int | None = None
    """Maximum number of nodes of one job; None: unlimited."""
    default_cpus_per_gpu: int | None = None
    """CPUs for each GPU of jobs that request GPUs but no CPUs."""
    default_mem_per_gpu_mib: int | None = None
    """Memory for each GPU of jobs that request GPUs but no memory."""
    users: tuple[str, ...] = ()
    """Users who may use the partition; with users, groups and accounts empty every user may."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Accounts that may use the partition, with the accounts below them."""
    qos: tuple[str, ...] = ()
    """QOS whose jobs may use the partition; empty: all."""

    @property
    def implied_time_s(self) -> int | None:
        """Time limit of a job that requests none; None: no time limit."""
        return self.max_time_s if self.default_time_s is None else self.default_time_s

    def has_node(self, node: str) -> bool:
        return self.nodes == ALL_NODES or node in self.nodes

    def missing_nodes(self, known: Container[str]) -> tuple[str, ...]:
        """Names in `nodes` that are not in `known`."""
        return () if self.nodes == ALL_NODES else tuple([name for name in self.nodes if name not in known])


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """All settings that decisions depend on."""

    cluster: str = "gq"
    partitions: tuple[Partition, ...] = (Partition(name="main", is_default=True),)
    limits: Limits = Limits()
    timers: Timers = Timers()
    owner_uid: int = 0
    """Uid of the controller, which is always an administrator; in a private cluster only this user and root are
    served."""
    is_shared: bool = False
    """The cluster is a system's, run by root: it serves every user, and jobs run as their submitter."""
    administrators: tuple[str, ...] = ()
    """Users, and groups as ``%name``; root is always an administrator."""
    operators: tuple[str, ...] = ()
    root_jobs: bool = False
    """Root may submit jobs to a shared cluster."""
    login_nodes: tuple[str, ...] = ()
    """Nodes that gq.toml marks as login nodes, besides the nodes that joined as login nodes."""
    endpoint: str = ""
    """Endpoint for nodes on other hosts (``tcp://ADDRESS:PORT``); empty: none."""
    client_endpoint: str = ""
    """Endpoint for clients outside the cluster (``tcp://ADDRESS:PORT``); empty: none."""
    server_key: str = ""
    """Public key of the controller (Z85); empty: no tcp listener."""
    job_requeue: bool = True
    default_mem_per_cpu_mib: int | None = None
    use_interactive_step: bool = False
    weights: PriorityWeights = PriorityWeights()
    plugins: dict[str, Callable[[Columns], Floats]] = {}
    """The site's own priority factors (`gqd.sched.plugins.PriorityFactor`), checked, by name."""
    billing: Billing = Billing()
    accounting: Accounting = Accounting()
    booking: Booking = Booking()
    scheduling: Scheduling = Scheduling()
    topology: tuple[Switch, ...] = ()
    notify: NotifySettings = NotifySettings()
    licenses: dict[str, int] = {}
    """Licence → number in the whole cluster."""
    zone: tzinfo = UTC
    """Time zone of the days, weeks and months of budgets, with its rules loaded."""

    def partition(self, name: str) -> Partition | None:
        return next((partition for partition in self.partitions if partition.name == name), None)

    @property
    def clear_s(self) -> float:
        """Seconds before a reservation by which a job's time limit must have ended: an upper bound for the job's
        launch, for TERM to KILL, and for clearing its nodes."""
        return self.timers.prepare_s + self.timers.grace_s + self.booking.clear_time_s

    @property
    def default_partition(self) -> Partition:
        return next((partition for partition in self.partitions if partition.is_default), self.partitions[0])
