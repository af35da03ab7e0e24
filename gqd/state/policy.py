"""The settings that decisions depend on: partitions, limits, timers.  Immutable, made from gq.toml.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo

import msgspec

from gq.model.scheduling import Scheduling, Switch
from gqd.state.queue import Columns, Floats

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

    def has_node(self, node: str) -> bool:
        return self.nodes == ALL_NODES or node in self.nodes


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of the deciding code; each is a key of ``[limits]`` in gq.toml."""

    jobs: int = 1_000_000
    """Jobs that may be pending or running at once."""
    jobs_per_user: int = 200_000
    nodes: int = 10_000
    steps_per_job: int = 40_000
    running_steps_per_job: int = 512
    keys: int = 20_000
    """Keys of nodes and users, and tokens that are open."""
    waiting_requests: int = 10_000
    """Requests whose answer is held back (`WaitJobs`, `CreateStep`)."""
    page: int = 2000
    """Jobs in one answer."""
    ended_job_keep_s: int = 300
    """Ended jobs stay in memory (and in `gqstat -t all`) that long; history has them for ever."""
    request_memory_s: int = 600
    restarts: int = 20
    """A job that has started again so often is not queued again after one more failure of a node."""
    array_tasks: int = 100_000
    """Of one array."""
    accounts: int = 10_000
    """Accounts, QOS and limits together; members may be ten times as many."""
    launch_failures: int = 10
    """After so many failed launches in a row that are the job's fault it is held."""


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; keys of ``[timers]`` in gq.toml."""

    heartbeat_s: float = 5.0
    node_lost_s: float = 60.0
    """Silence after which a node counts as lost."""
    prepare_ack_s: float = 2.0
    """Silence after a PREPARE (or GO) that fails the launch."""
    prepare_s: float = 120.0
    """From PREPARE to ready on all nodes."""
    resend_s: float = 5.0
    """Between repeats of an order that was not acknowledged."""
    grace_s: int = 30
    """Between TERM and KILL."""
    backoff_min_s: float = 30.0
    backoff_max_s: float = 600.0
    interactive_lost_s: float = 60.0
    schedule_min_interval_s: float = 0.0
    tick_s: float = 0.5


class PriorityWeights(msgspec.Struct, frozen=True, kw_only=True):
    """``[priority]``: points of each factor where it is 1."""

    due: float = 10_000.0
    short: float = 3000.0
    age: float = 0.0
    fair_share: float = 100.0
    job_size: float = 0.0
    partition: float = 15_000.0
    qos: float = 30_000.0
    max_age_s: float = 7 * 86400.0
    """Older counts as 1."""
    favor_small: bool = False
    """The job size factor is 1 for the smallest job, not for the largest."""
    half_life_s: float | None = 7 * 86400.0
    """Of usage; None (``"never"``): nothing is forgotten."""
    factors: dict[str, float] = {}
    """Weights of the site's own factors, by the name of their entry point in ``gq.priority_factors``."""


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """``[billing]``: how much an hour of each costs, in hours of a GPU of weight 1."""

    gpu: float = 1.0
    gpu_types: dict[str, float] = {}
    """By type; those that are not here have the weight of ``gpu``."""
    cpu: float = 0.0
    memory_gib: float = 0.0


class Accounting(msgspec.Struct, frozen=True, kw_only=True):
    """``[accounts]``"""

    require: bool = False
    """Refuse jobs of users who are in no account; else they go to the default account."""
    kill_on_invalid_dep: bool = False
    """Jobs end when their dependency can never be met, unless they say otherwise."""


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
    weights: PriorityWeights = PriorityWeights()
    plugins: dict[str, Callable[[Columns], Floats]] = {}
    """The site's own factors of the priority (`gqd.sched.protocols.PriorityFactor`), checked, by name."""
    billing: Billing = Billing()
    accounting: Accounting = Accounting()
    scheduling: Scheduling = Scheduling()
    topology: tuple[Switch, ...] = ()
    licenses: dict[str, int] = {}
    """Of the whole cluster: name → how many."""
    zone: tzinfo = UTC
    """In which days, weeks and months of budgets begin; its rules are in memory."""

    def partition(self, name: str) -> Partition | None:
        return next((partition for partition in self.partitions if partition.name == name), None)

    @property
    def default_partition(self) -> Partition:
        return next((partition for partition in self.partitions if partition.is_default), self.partitions[0])
