"""The tables of gq.toml as values: names and defaults of all settings of both daemons.

Values are stored without the file's units and ranges; `gq.config.config` converts them.
"""

from __future__ import annotations

import msgspec

from gq.model.policy_tables import Limits
from gq.wire.client import MAX_SCRIPT_BYTES
from gq.wire.codec import MAX_MESSAGE_BYTES


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[controller]``."""

    listen: str | None = None
    """``tcp://ADDRESS:PORT`` for nodes of other hosts (CURVE); None: only nodes of this host."""
    address: str | None = None
    """Host name or address at which other hosts reach ``listen``; None: this host's name."""
    listen_clients: str | None = None
    """``tcp://ADDRESS:PORT`` for clients outside the cluster, with enrolled keys (CURVE); None: no such listener."""
    munge: bool = False
    """Whether clients outside the cluster may also authenticate with MUNGE."""
    munge_socket: str = ""
    """Socket of munged; empty: libmunge's default."""
    user: str = ""
    """System user that gqd of the system's cluster runs as; empty or ``root``: root."""
    log_level: str = "info"
    log_json: bool = False
    job_requeue: bool = True
    default_mem_per_cpu_mib: int | None = None
    """None: memory is neither reserved nor enforced for jobs that request none."""
    use_interactive_step: bool = False
    """Whether `gqalloc` without a command opens its shell on the job's first node."""
    time_zone: str = ""
    """Time zone of the days, weeks and months of budgets (``Europe/Berlin``); empty: the machine's."""
    submit_hook: str = ""
    """``FILE.py:FUNCTION`` that is called for every job (gq-hook(7)); empty: none."""
    submit_hook_timeout_s: float = 2.0
    submit_hook_on_failure: str = "refuse"
    """``refuse`` or ``accept`` jobs when the hook fails."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[access]``: privileges of users in a cluster that root runs for all.  ``%name`` is a group."""

    administrators: tuple[str, ...] = ()
    """Users who may do everything, besides root."""
    operators: tuple[str, ...] = ()
    """Users who may see and control all jobs, and drain and resume nodes."""
    root_jobs: bool = False
    """Whether root may submit jobs."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[client]``: how commands on a machine outside the cluster reach the controller."""

    controller: str | None = None
    """``tcp://ADDRESS:PORT``: the controller's ``listen_clients``."""
    server_key: str = ""
    """The controller's public key, 40 characters of Z85."""
    key_file: str = "~/.config/gq/key"
    """File of the user's secret key, which `gq key new` creates."""
    munge: bool = False
    """Whether MUNGE authenticates the user instead of a key."""
    munge_socket: str = ""
    """Socket of munged; empty: libmunge's default."""


class LimitSettings(Limits, frozen=True, kw_only=True):
    """The table ``[limits]``: the bounds of the deciding code, and the bounds of the listeners."""

    inbox: int = 10_000
    """Maximum number of messages that wait to be handled; beyond it the listeners are not read."""
    message_bytes: int = MAX_MESSAGE_BYTES
    script_bytes: int = MAX_SCRIPT_BYTES
    environment_bytes: int = 1024 * 1024


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[history]``: days that ended jobs and past events are kept; 0: for ever."""

    keep_events_days: int = 30
    """The change log: every event of jobs and nodes."""
    keep_jobs_days: int = 0
    """Jobs, with their attempts and steps, after their end."""
    keep_audit_days: int = 730
    keep_scripts_days: int = 30
    """Scripts and environments, after the end of the last job that used them."""
    keep_reservations_days: int = 730
    """Past occurrences of reservations, with reserved and used GPU time."""


class PartitionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A ``[[partition]]`` table."""

    name: str
    default: bool = False
    nodes: tuple[str, ...] | None = None
    """None: every node of the cluster."""
    default_time_s: int | None = None
    max_time_s: int | None = None
    up: bool = True
    priority: int = 0
    max_nodes: int | None = None
    """Maximum number of nodes of one job."""
    default_cpus_per_gpu: int | None = None
    default_mem_per_gpu_mib: int | None = None
    users: tuple[str, ...] = ()
    """Users who may use the partition; users, groups and accounts empty: everybody."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Accounts whose members may use the partition, accounts below them included."""
    qos: tuple[str, ...] = ()
    """The QOS whose jobs the partition accepts; empty: all."""


class FakeGpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A ``[[node.fake_gpu]]`` table: a simulated GPU, for tests and for trying gq out."""

    type: str = "fake"
    memory_mib: int = 16384
    uuid: str = ""
    """Empty: derived from the node's name and the index."""
    device: str = ""
    """Any character device, so that isolation can be tested."""
    numa: int | None = None
    nvlink: tuple[tuple[int, int], ...] = ()
    """(other GPU, number of links)"""
    pcie: tuple[tuple[int, int], ...] = ()
    """(other GPU, distance: 0 same board, 10 one switch, 20, 30 one host bridge, 40 one NUMA node, 50 one system)"""
    script: str = ""
    """Path of a file with utilisation, memory, processes and Xids over time."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A ``[[node]]`` table: the settings of its gqnode; None: as detected on the machine."""

    name: str
    address: str | None = None
    """Address at which other nodes reach the node."""
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs that belong to this node; None (``"auto"``): all."""
    controller: str | None = None
    """``tcp://ADDRESS:PORT`` of gqd; None: the socket on this host."""
    step_listen: str | None = None
    """``tcp://ADDRESS:PORT`` of the step listener; None: a socket on this host."""
    port_range: tuple[int, int] = (20000, 20999)
    """First and last port of the range from which jobs get ``MASTER_PORT``."""
    isolation: dict[str, str] = {}
    """Function → mechanism; other functions get the best mechanism that the machine offers."""
    max_processes: int | None = None
    """Maximum number of processes and threads of one job on the node; None: 15 % of the host's maximum."""
    login: bool = False
    """Whether the node is a login node, which runs no jobs, relays its host's clients and authenticates its users."""
    private_tmp: bool = False
    """Whether each job gets a ``/tmp`` and a ``/dev/shm`` of its own (needs root)."""
    no_new_privs: bool = False
    """Whether jobs cannot gain rights: set-uid programs such as ``sudo`` and ``at`` do not work in them."""
    seccomp: bool = False
    """Whether jobs are denied system calls that no training job needs, such as ``bpf`` and ``io_uring_setup``."""
    min_uid: int | None = None
    """Smallest uid that a process of a job may run as; None: ``UID_MIN`` of ``/etc/login.defs``, or 1000."""
    allowed_users: tuple[str, ...] = ()
    """Users with a smaller uid whose jobs may run nevertheless; root's jobs need ``[access] root_jobs``."""
    pam: str = ""
    """PAM service whose session limits (``/etc/security/limits.conf``) jobs get; empty: none."""
    rlimits: dict[str, str] = {}
    """Resource limits of jobs by the names of ``limits.conf``: ``nofile = "4096:65536"`` (soft:hard)."""
    features: tuple[str, ...] = ()
    """Features for ``--constraint``, as are `attributes` and the output of `attribute_script`."""
    attributes: dict[str, str] = {}
    attribute_script: str = ""
    """Program that prints more attributes; empty: none."""
    attribute_interval_s: int | None = 300
    """Seconds between runs of the program; None (``"never"``): only at the start."""
    resources: dict[str, int] = {}
    """Generic resources by name; ``tmp`` in MiB."""
    data: tuple[str, ...] = ()
    """Data sets that the node holds."""
    fake_gpus: tuple[FakeGpuSettings, ...] = ()
