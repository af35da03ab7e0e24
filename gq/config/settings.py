"""The tables of gq.toml as values: names and defaults of all settings of both daemons.

What the file says in other words (units, ranges) is here as what it means; `gq.config.config` reads it.
"""

from __future__ import annotations

import msgspec

from gq.model.policy_tables import Limits
from gq.wire.client import MAX_SCRIPT_BYTES
from gq.wire.codec import MAX_MESSAGE_BYTES


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[controller]``"""

    listen: str | None = None
    """``tcp://ADDRESS:PORT`` for nodes of other hosts (CURVE); None: only nodes of this host."""
    address: str | None = None
    """Host name or address by which other hosts reach ``listen``; None: this host's name."""
    listen_clients: str | None = None
    """``tcp://ADDRESS:PORT`` for clients outside the cluster, by enrolled keys (CURVE); None: none."""
    munge: bool = False
    """Clients outside the cluster may also come with a key that MUNGE vouches for."""
    munge_socket: str = ""
    """Of munged; empty: libmunge's own."""
    user: str = ""
    """System user that gqd of the system's cluster runs as; empty or ``root``: root."""
    log_level: str = "info"
    log_json: bool = False
    job_requeue: bool = True
    default_mem_per_cpu_mib: int | None = None
    """None: memory is neither counted nor limited unless asked for."""
    use_interactive_step: bool = False
    """`gqalloc` without a command opens its shell on the job's first node."""
    time_zone: str = ""
    """In which the days, weeks and months of budgets begin (``Europe/Berlin``); empty: the machine's."""
    submit_hook: str = ""
    """``FILE.py:FUNCTION`` that every job is shown to (gq-hook(7)); empty: none."""
    submit_hook_timeout_s: float = 2.0
    submit_hook_on_failure: str = "refuse"
    """Jobs that the hook could not be asked about; or ``accept``."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[access]``: who may do what, in a cluster that root runs for all users.  ``%name`` is a group."""

    administrators: tuple[str, ...] = ()
    """Besides root: may do everything."""
    operators: tuple[str, ...] = ()
    """May see and steer the jobs of all, and drain and resume nodes."""
    root_jobs: bool = False
    """Root may submit jobs."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[client]``: on a machine outside the cluster, how its commands reach the controller."""

    controller: str | None = None
    """``tcp://ADDRESS:PORT``: what the controller has as ``listen_clients``."""
    server_key: str = ""
    """The controller's public key, 40 characters of Z85."""
    key_file: str = "~/.config/gq/key"
    """The user's secret key, as `gq key new` makes it."""
    munge: bool = False
    """No key of the user's: MUNGE says who it is."""
    munge_socket: str = ""
    """As of the controller."""


class LimitSettings(Limits, frozen=True, kw_only=True):
    """``[limits]``: those of the deciding code, and these of the doors."""

    inbox: int = 10_000
    """Messages that wait to be handled; beyond, the doors are not read."""
    message_bytes: int = MAX_MESSAGE_BYTES
    script_bytes: int = MAX_SCRIPT_BYTES
    environment_bytes: int = 1024 * 1024


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[history]``: for how many days what is over is kept; 0: for ever."""

    keep_events_days: int = 30
    """The change log: what happened to jobs and nodes, fact by fact."""
    keep_jobs_days: int = 0
    """Jobs, with their attempts and steps, after their end."""
    keep_audit_days: int = 730
    keep_scripts_days: int = 30
    """Scripts and environments, after the end of the last job that had them."""
    keep_reservations_days: int = 730
    """Past occurrences of reservations: who booked how much, and used how much of it."""


class PartitionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[[partition]]``"""

    name: str
    default: bool = False
    nodes: tuple[str, ...] | None = None
    """None: every node of the cluster."""
    default_time_s: int | None = None
    max_time_s: int | None = None
    up: bool = True
    priority: int = 0
    max_nodes: int | None = None
    """Of one job."""
    default_cpus_per_gpu: int | None = None
    default_mem_per_gpu_mib: int | None = None
    users: tuple[str, ...] = ()
    """Who may use it; users, groups and accounts empty: everybody."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """And the accounts below them."""
    qos: tuple[str, ...] = ()
    """Only jobs of these; empty: of all."""


class FakeGpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[[node.fake_gpu]]``: a GPU that is pretended, for tests and for trying gq out."""

    type: str = "fake"
    memory_mib: int = 16384
    uuid: str = ""
    """Empty: made from the node's name and the index."""
    device: str = ""
    """Any character device, so that isolation can be tested."""
    numa: int | None = None
    nvlink: tuple[tuple[int, int], ...] = ()
    """(other GPU, number of links)"""
    pcie: tuple[tuple[int, int], ...] = ()
    """(other GPU, how near: 0 one board, 10 one switch, 20, 30 one host bridge, 40 one NUMA node, 50 one system)"""
    script: str = ""
    """Path of a file: utilisation, memory, processes and Xids over time."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[[node]]``: what its gqnode is to be; None: as found on the machine."""

    name: str
    address: str | None = None
    """How other nodes reach it."""
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs that are this node's; None (``"auto"``): all."""
    controller: str | None = None
    """``tcp://ADDRESS:PORT`` of gqd; None: the socket on this host."""
    step_listen: str | None = None
    """``tcp://ADDRESS:PORT`` of the step door; None: a socket on this host."""
    port_range: tuple[int, int] = (20000, 20999)
    """Both included: the ports that jobs get as ``MASTER_PORT``."""
    isolation: dict[str, str] = {}
    """Function → how; those that are not named are chosen by what the machine offers."""
    max_processes: int | None = None
    """Of one job on the node, threads included; None: 15 % of what the host has."""
    login: bool = False
    """Runs no jobs; relays the clients of its host, and vouches for all of its users."""
    private_tmp: bool = False
    """Each job gets a ``/tmp`` and a ``/dev/shm`` of its own (needs root)."""
    no_new_privs: bool = False
    """Jobs cannot gain rights: set-uid programs such as ``sudo`` and ``at`` do not work in them."""
    seccomp: bool = False
    """System calls that no training job needs, such as ``bpf`` and ``io_uring_setup``, are denied to jobs."""
    min_uid: int | None = None
    """Smallest uid that a process of a job may run as; None: ``UID_MIN`` of ``/etc/login.defs``, or 1000."""
    allowed_users: tuple[str, ...] = ()
    """Accounts with a smaller uid whose jobs run all the same; root's need ``[access] root_jobs``."""
    pam: str = ""
    """PAM service whose session limits (``/etc/security/limits.conf``) jobs get; empty: none."""
    rlimits: dict[str, str] = {}
    """Resource limits of jobs by the names of ``limits.conf``: ``nofile = "4096:65536"`` (soft:hard)."""
    features: tuple[str, ...] = ()
    """For ``--constraint``; likewise the next two."""
    attributes: dict[str, str] = {}
    attribute_script: str = ""
    """Program that says more of them; empty: none."""
    attribute_interval_s: int | None = 300
    """Between its runs; None (``"never"``): only at the start."""
    resources: dict[str, int] = {}
    """Generic ones by name; ``tmp`` in MiB."""
    data: tuple[str, ...] = ()
    """Data sets that the node holds."""
    fake_gpus: tuple[FakeGpuSettings, ...] = ()
