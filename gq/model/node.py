"""Nodes: hardware as reported (`Inventory`), what the node enforces, and how commands show it (`NodeInfo`)."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU of a node.  ``type`` is NVML's name normalised (``a100``, ``h100``), or ``fake`` for a simulated GPU."""

    index: int
    uuid: str
    type: str
    memory_mib: int
    device: str = ""
    """Path of the character device, ``/dev/nvidia0``; empty: there is no device to guard."""
    numa: int | None = None
    driver: str = ""
    is_fake: bool = False
    nvlink: tuple[tuple[int, int], ...] = ()
    """(index of another GPU, number of links to it); a GPU behind a switch counts all its links."""
    pcie: tuple[tuple[int, int], ...] = ()
    """(index of another GPU, distance on PCIe: NVML's ``nvmlGpuTopologyLevel_t``, smaller is nearer)."""


KERNEL_FUNCTIONS = ("cpu", "cpuset", "memory", "devices", "pids", "kill")
"""The fields of `IsolationLevels` that control groups can enforce."""


class IsolationLevels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the node enforces each kind of isolation.

    Values: ``cgroup2``, ``cgroup1``, ``weight``, ``watched``, ``environment``, ``subreaper`` or ``none``; for ``tmp``
    ``shared`` or ``private``; for ``user`` ``daemon`` (jobs run as the daemon's user) or ``submitter``.
    """

    cpu: str = "none"
    cpuset: str = "none"
    memory: str = "none"
    devices: str = "none"
    pids: str = "none"
    kill: str = "none"
    tmp: str = "shared"
    user: str = "daemon"

    def summary(self) -> str:
        """Return ``cpu=cgroup1 memory=watched …`` for one line of a table."""
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__struct_fields__)


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of a node as detected or configured."""

    cpus: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    isolation: IsolationLevels = IsolationLevels()
    features: tuple[str, ...] = ()
    gq_version: str = ""
    attributes: dict[str, str] = {}
    """Name → value, for ``--constraint``: configured, from the attribute script, and detected (``driver``, …)."""
    resources: dict[str, int] = {}
    """Generic resources: name → count; ``tmp`` in MiB."""
    data: tuple[str, ...] = ()
    """Data sets that the node holds."""
    cpu_numa: tuple[tuple[int, str], ...] = ()
    """(NUMA node, its CPUs in the format of `gq.model.resource.format_ids`); empty: unknown."""
    can_suspend: bool = False
    """The node implements `gq.wire.node.SetSuspended`, `Launch.parameters` and `SignalAttempt.told_at`, which older
    versions of gqnode do not."""
    can_resize: bool = False
    """The node implements changes of a running job's GPUs (`gq.wire.node.ResizeAttempt`)."""
    can_join: bool = False
    """The node can join a running job, and understands changes of a job's nodes (`ResizeAttempt.members`)."""
    can_park: bool = False
    """The node reports the GPU memory that a suspended job uses (`gq.wire.node.SetSuspended.parked_at`)."""
    confirms_orders: bool = False
    """The node confirms signals, lines for jobs and ends of steps (`gq.wire.node.OrderConfirmed`)."""


class XidError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that the NVIDIA driver reported for a GPU, with the driver's number for it."""

    xid: int
    at: float
    """When gqnode read the error."""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest sample of one GPU, as its node sends it with each heartbeat."""

    index: int
    does_answer: bool = True
    utilisation_percent: int | None = None
    """Fraction of the last sample period in which a kernel ran; None: unknown."""
    memory_used_mib: int | None = None
    xids: tuple[XidError, ...] = ()
    """The newest errors since gqnode started, oldest first."""


class GpuInfo(msgspec.Struct, kw_only=True):
    """A GPU as commands show it."""

    index: int
    uuid: str
    type: str
    memory_mib: int
    state: str
    """``IDLE``, ``ALLOCATED`` or ``DRAINED``."""
    job_id: int | None = None
    does_answer: bool | None = None
    """False: the GPU fell off the bus or hangs.  None, here and below: the node has not sent a sample."""
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    xids: tuple[XidError, ...] = ()


class NodeInfo(msgspec.Struct, kw_only=True):
    """A node as commands show it."""

    node: str
    state: str
    """``IDLE``, ``MIXED``, ``ALLOCATED``, ``DRAINED``, ``DRAINING``, ``DOWN`` or ``UNKNOWN`` (never connected)."""
    reason: str = ""
    address: str = ""
    partitions: tuple[str, ...] = ()
    cpus: int
    cpus_free: int
    memory_mib: int
    memory_free_mib: int
    gpus: tuple[GpuInfo, ...] = ()
    isolation: IsolationLevels = IsolationLevels()
    job_ids: tuple[int, ...] = ()
    gq_version: str = ""
    last_heard_at: float | None = None
    backed_off_until: float | None = None
    """The node is left out of planning until then, since it refused a launch."""
    features: tuple[str, ...] = ()
    attributes: dict[str, str] = {}
    resources: dict[str, int] = {}
    resources_free: dict[str, int] = {}
    data: tuple[str, ...] = ()
    switch: str = ""
    """The leaf switch of the topology that the node is connected to."""


class GpuSummary(msgspec.Struct, kw_only=True):
    """GPUs of one type in the cluster."""

    type: str
    total: int
    free: int


class PartitionInfo(msgspec.Struct, kw_only=True):
    """A partition as commands show it."""

    partition: str
    is_default: bool
    state: str
    """``UP`` or ``DOWN``."""
    nodes: tuple[str, ...]
    default_time_s: int | None
    max_time_s: int | None
    cpus: int = 0
    cpus_free: int = 0
    gpus: tuple[GpuSummary, ...] = ()


class GangSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a job that could start now: `gpus` GPUs over `nodes` nodes."""

    gpus: int
    nodes: int


class ClusterInfo(msgspec.Struct, kw_only=True):
    """Summary of the cluster for `gqinfo`, and the controller's state for `gq status`."""

    cluster: str
    gq_version: str
    started_at: float
    gpus: tuple[GpuSummary, ...] = ()
    largest_gangs: tuple[GangSize, ...] = ()
    """The largest size on one node, then the largest over several nodes if that has more GPUs."""
    partitions: tuple[PartitionInfo, ...] = ()
    jobs_pending: int = 0
    jobs_running: int = 0
    counters: dict[str, int] = {}
    """Messages handled, refused, dropped as malformed …; for `gq status` and tests."""
