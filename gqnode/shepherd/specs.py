"""The requests to a shepherd, as named tuples and JSON, because a shepherd must not load msgspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gqnode.shepherd.frames import Head


class Identity(NamedTuple):
    """The user that the processes run as; only a daemon that runs as root can choose it."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Confinement(NamedTuple):
    """The node's settings that apply to every process of a job."""

    rlimits: tuple[tuple[int, int, int], ...] = ()
    """Resource limits as (the kernel's number, soft, hard); -1: unlimited."""
    pam_service: str = ""
    """Open a session of this service for `pam_user` first, which sets the limits of limits.conf."""
    pam_user: str = ""
    no_new_privs: bool = False
    seccomp: bool = False
    """Deny the system calls of `seccomp.DENIED`; requires `no_new_privs`."""


class ShepherdSpec(NamedTuple):
    """An attempt's part on one node; all paths are absolute and fully expanded."""

    environment: dict[str, str]
    """The complete environment except ``GQ_CELL``: the attempt's directory, which marks its processes."""
    is_batch: bool = False
    """Whether to run the script; otherwise the shepherd only holds the attempt's processes."""
    args: tuple[str, ...] = ()
    """Arguments of the script."""
    chdir: str = "/"
    umask: int = 0o022
    output_path: str = "/dev/null"
    error_path: str = ""
    """Path of standard error; empty: the same as standard output."""
    input_path: str = "/dev/null"
    append: bool = False
    """Append to the output files instead of truncating them."""
    cgroup_procs: tuple[str, ...] = ()
    """``cgroup.procs`` files that the script's process writes itself into first."""
    watch_memory_mib: int | None = None
    """Memory limit that the shepherd enforces on all processes together; None with a memory cgroup."""
    identity: Identity | None = None
    """The user to run as; None: the daemon's user."""
    confinement: Confinement = Confinement()
    private_tmp: bool = False
    """Whether the attempt's processes get their own ``/tmp`` and ``/dev/shm``."""
    shm_mib: int = 0
    """Size of the private ``/dev/shm`` in MiB; 0: the kernel's default."""
    kept_in_tmp: tuple[str, ...] = ()
    """Directories below the host's ``/tmp`` that stay visible in it: the location of gq's commands."""


class TaskSpec(NamedTuple):
    """A task of a step on this node."""

    rank: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    """The complete environment except ``GQ_CELL``; its ``PATH`` finds ``argv[0]``."""
    chdir: str = "/"
    umask: int = 0o022
    stdin: str = "pipe"
    """``pipe``: gets the step's standard input; ``null``: ``/dev/null``; ``pty``: a terminal for all three streams."""
    rows: int = 24
    columns: int = 80
    """Columns of the terminal, if the task has a terminal."""
    cgroup_procs: tuple[str, ...] = ()
    identity: Identity | None = None
    confinement: Confinement = Confinement()
    cpus: tuple[int, ...] = ()
    """CPUs of the machine to run on; empty: all CPUs of its cell."""


def shepherd_spec(fields: Head) -> ShepherdSpec:
    """Read the spec from a frame's head, without fields that only a newer daemon knows."""
    return ShepherdSpec(**_typed(fields, ShepherdSpec._fields))


def task_spec(fields: Head) -> TaskSpec:
    return TaskSpec(**_typed(fields, TaskSpec._fields))


def _typed(fields: Head, known: tuple[str, ...]) -> Head:
    """Convert JSON lists into tuples, `Identity` and `Confinement`."""
    typed = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name in known
    }
    if typed.get("identity"):
        uid, gid, groups = typed["identity"]
        typed["identity"] = Identity(uid, gid, tuple(groups))
    if typed.get("confinement"):
        rlimits, *others = typed["confinement"]
        typed["confinement"] = Confinement(tuple(tuple(rlimit) for rlimit in rlimits), *others)
    return typed
