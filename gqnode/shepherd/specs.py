"""What a shepherd is asked to start.  Slim: named tuples and JSON, because a shepherd must not load msgspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gqnode.shepherd.frames import Head


class Identity(NamedTuple):
    """Whom the processes run as; only a daemon of root can choose."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Confinement(NamedTuple):
    """What the node's settings want of every process of a job."""

    rlimits: tuple[tuple[int, int, int], ...] = ()
    """(number of the kernel's, soft, hard); -1: unlimited."""
    pam_service: str = ""
    """Open a session of this service for `pam_user` first, which sets the limits of limits.conf."""
    pam_user: str = ""
    no_new_privs: bool = False
    seccomp: bool = False
    """Deny the system calls of `seccomp.DENIED`; requires `no_new_privs`."""


class ShepherdSpec(NamedTuple):
    """One attempt on one node.  All paths are absolute and fully expanded."""

    environment: dict[str, str]
    """Exactly this, and ``GQ_CELL``: the attempt's directory in the spool, by which its processes are known."""
    is_batch: bool = False
    """Run the script; else only hold the attempt's processes together."""
    args: tuple[str, ...] = ()
    """Arguments of the script."""
    chdir: str = "/"
    umask: int = 0o022
    output_path: str = "/dev/null"
    error_path: str = ""
    """Empty: with the output."""
    input_path: str = "/dev/null"
    append: bool = False
    """Append to the output files instead of truncating them."""
    cgroup_procs: tuple[str, ...] = ()
    """``cgroup.procs`` files that the script's process writes itself into before it is anything else."""
    watch_memory_mib: int | None = None
    """Kill the attempt when the resident memory of all its processes is over this; for want of a memory cgroup."""
    identity: Identity | None = None
    """None: as the daemon."""
    confinement: Confinement = Confinement()
    private_tmp: bool = False
    """All processes of the attempt get a ``/tmp`` and a ``/dev/shm`` of their own."""
    shm_mib: int = 0
    """Size of that ``/dev/shm``; 0: the kernel's usual."""
    kept_in_tmp: tuple[str, ...] = ()
    """Directories below the host's ``/tmp`` that show in it: where gq's own commands are."""


class TaskSpec(NamedTuple):
    """One task of a step on this node."""

    rank: int
    argv: tuple[str, ...]
    environment: dict[str, str]
    """Exactly this, and ``GQ_CELL`` (the attempt's, with ``.<step>`` behind); ``PATH`` in it finds ``argv[0]``."""
    chdir: str = "/"
    umask: int = 0o022
    stdin: str = "pipe"
    """``pipe``: gets the step's standard input; ``null``: ``/dev/null``; ``pty``: a terminal for all three streams."""
    rows: int = 24
    columns: int = 80
    """Of the terminal, where there is one."""
    cgroup_procs: tuple[str, ...] = ()
    identity: Identity | None = None
    confinement: Confinement = Confinement()
    cpus: tuple[int, ...] = ()
    """The machine's CPUs that it runs on; empty: all that its cell may."""


def shepherd_spec(fields: Head) -> ShepherdSpec:
    """From a frame's head; what a newer daemon may have added is left out."""
    return ShepherdSpec(**_typed(fields, ShepherdSpec._fields))


def task_spec(fields: Head) -> TaskSpec:
    return TaskSpec(**_typed(fields, TaskSpec._fields))


def _typed(fields: Head, known: tuple[str, ...]) -> Head:
    """JSON has neither tuples nor names for the parts of an `Identity` or a `Confinement`."""
    typed = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name in known
    }
    if typed.get("identity"):
        uid, gid, groups = typed["identity"]
        typed["identity"] = Identity(uid, gid, tuple(groups))
    if typed.get("confinement"):
        rlimits, *others = typed["confinement"]
        typed["confinement"] = Confinement(tuple(tuple(one) for one in rlimits), *others)
    return typed
