"""A node: what it has (`Inventory`, said by the node itself), what it enforces, and how it is shown (`NodeInfo`)."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU of a node.  ``type`` is NVML's name normalised (``a100``, ``h100``), ``fake`` if pretended."""

    index: int
    uuid: str
    type: str
    memory_mib: int
    device: str = ""
    """Path of the character device, ``/dev/nvidia0``; empty where there is none to guard."""
    numa: int | None = None
    driver: str = ""
    is_fake: bool = False
    nvlink: tuple[tuple[int, int], ...] = ()
    """(index of another GPU, number of links to it); through a switch, each counts all links."""
    pcie: tuple[tuple[int, int], ...] = ()
    """(index of another GPU, how near on PCIe: NVML's ``nvmlGpuTopologyLevel_t``, smaller is nearer)."""


KERNEL_FUNCTIONS = ("cpu", "cpuset", "memory", "devices", "pids", "kill")
"""Those fields of `IsolationLevels` that control groups can enforce."""


class IsolationLevels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the node enforces, per function.

    The words: ``cgroup2``, ``cgroup1``, ``weight``, ``watched``, ``environment``, ``subreaper`` or ``none``; of ``tmp``
    ``shared`` or ``private``; of ``user`` ``daemon`` (jobs run as the daemon's user) or ``submitter``.
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
        """``cpu=cgroup1 memory=watched …`` for one line of a table."""
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__struct_fields__)


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of a node as found or configured."""

    cpus: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    isolation: IsolationLevels = IsolationLevels()
    features: tuple[str, ...] = ()
    gq_version: str = ""
    attributes: dict[str, str] = {}
    """Name → value, for ``--constraint``: as configured, as a script said, and what gqnode finds (``driver``, …)."""
    resources: dict[str, int] = {}
    """Generic resources: name → how many; ``tmp`` in MiB."""
    data: tuple[str, ...] = ()
    """Data sets that it holds."""
    cpu_numa: tuple[tuple[int, str], ...] = ()
    """(NUMA node, its CPUs as `gq.model.resource.format_ids` writes them); empty: not known."""
    can_suspend: bool = False
    """It knows `gq.wire.node.SetSuspended`; a gqnode from before that does not, nor what else came with it:
    `Launch.parameters`, and `SignalAttempt.told_at`."""
    can_resize: bool = False
    """Its daemon knows how to give a running job other GPUs."""
    can_join: bool = False
    """It can come to a running job, and knows what it is told of nodes that do (`ResizeAttempt.members`)."""
    can_park: bool = False
    """It says what a job that stands still holds of the memory of its GPUs (`gq.wire.node.SetSuspended.parked_at`)."""
    confirms_orders: bool = False
    """The node confirms signals, lines for jobs and ends of steps (`gq.wire.node.OrderConfirmed`)."""


class XidError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that the NVIDIA driver reported of a GPU, by the driver's number for it."""

    xid: int
    at: float
    """When gqnode read it."""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest sample of one GPU, as its node sends it with each heartbeat."""

    index: int
    does_answer: bool = True
    utilisation_percent: int | None = None
    """Share of the last sample period in which a kernel ran; None: not known."""
    memory_used_mib: int | None = None
    xids: tuple[XidError, ...] = ()
    """Since gqnode started, oldest first; only the newest."""


class GpuInfo(msgspec.Struct, kw_only=True):
    """A GPU as it is shown."""

    index: int
    uuid: str
    type: str
    memory_mib: int
    state: str
    """``IDLE``, ``ALLOCATED``, ``DRAINED``."""
    job_id: int | None = None
    does_answer: bool | None = None
    """False: it fell off the bus or hangs.  None, here and below: its node has not sent a sample."""
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    xids: tuple[XidError, ...] = ()


class NodeInfo(msgspec.Struct, kw_only=True):
    """A node as it is shown."""

    node: str
    state: str
    """``IDLE``, ``MIXED``, ``ALLOCATED``, ``DRAINED``, ``DRAINING``, ``DOWN`` or ``UNKNOWN`` (never heard of)."""
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
    """Left out of planning until then, after a launch it refused."""
    features: tuple[str, ...] = ()
    attributes: dict[str, str] = {}
    resources: dict[str, int] = {}
    resources_free: dict[str, int] = {}
    data: tuple[str, ...] = ()
    switch: str = ""
    """The leaf of the topology that it hangs on."""


class GpuSummary(msgspec.Struct, kw_only=True):
    """GPUs of one type over the cluster."""

    type: str
    total: int
    free: int


class PartitionInfo(msgspec.Struct, kw_only=True):
    """A partition as it is shown."""

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
    """A gang that could start now: `gpus` GPUs over `nodes` nodes."""

    gpus: int
    nodes: int


class ClusterInfo(msgspec.Struct, kw_only=True):
    """What `gqinfo` begins with, and the controller's own state for `gq status`."""

    cluster: str
    gq_version: str
    started_at: float
    gpus: tuple[GpuSummary, ...] = ()
    largest_gangs: tuple[GangSize, ...] = ()
    """The largest on one node, then (where larger) the largest over several."""
    partitions: tuple[PartitionInfo, ...] = ()
    jobs_pending: int = 0
    jobs_running: int = 0
    counters: dict[str, int] = {}
    """Messages handled, refused, dropped as malformed …; for `gq status` and tests."""
