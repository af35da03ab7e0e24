"""Locates a cluster: its configuration, its state and its sockets.

The module owns the search for the cluster that a command uses, the explanation of that choice, and the directory of its
sockets.  It reads no configuration, and imports nothing heavy: every command starts with it.

A private cluster is one directory; its sockets are elsewhere, because a path over 107 bytes cannot be bound.  ``run``
in the directory is a link to them, so that a command finds them whatever its own environment.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gq.errors import Refusal, Unreachable

SYSTEM_CONFIG = "/etc/gq/gq.toml"
SYSTEM_STATE_DIR = "/var/lib/gq"
SYSTEM_RUN_DIR = "/run/gq"
CONFIG_NAME = "gq.toml"
RUN_LINK = "run"
ROOT_UID = 0
ROOT_USER = "root"
CONTROLLER_DIR = "controller"
"""Subdirectory, for state and for sockets, that belongs to the user that gqd runs as."""
CLIENT_SOCKET = "gqd.sock"
NODE_SOCKET = "nodes.sock"
MAX_SOCKET_PATH = 107
"""Bytes, without the final NUL: ``sun_path`` of Linux."""
NOBODY_LISTENS = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})
"""Error numbers of connect(2) that mean that no controller listens."""
_ROOM_FOR_NAMES = 40
"""Bytes that a socket's name may add to its directory: ``/step-<node>.sock``."""


class Location(NamedTuple):
    """The paths of one cluster on this host.  All are absolute."""

    config_path: str
    state_dir: str
    run_dir: str
    is_private: bool
    is_remote: bool = False
    """Whether commands here reach the controller by tcp, with a key: the configuration has a ``[client]`` table."""
    is_of_controller: bool = False
    """Whether the directories belong to the user that the system's gqd runs as; see `controller_location`."""

    @property
    def client_socket(self) -> str:
        return f"{self.run_dir}/{CLIENT_SOCKET}"

    @property
    def client_endpoint(self) -> str:
        """Endpoint at which clients reach gqd (on a host that runs only gqnode: its relay)."""
        return f"ipc://{self.client_socket}"

    @property
    def node_endpoint(self) -> str:
        """Endpoint at which node daemons of this host reach gqd."""
        return f"ipc://{self.run_dir}/{NODE_SOCKET}"

    def step_endpoint(self, node: str) -> str:
        """Endpoint at which `gqrun` reaches a node daemon of this host."""
        path = f"{self.run_dir}/step-{node}.sock"
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise Refusal("path_too_long", f"`{path}` is too long for a socket", "use a shorter node name")
        return f"ipc://{path}"

    def member_path(self, node: str) -> str:
        """Path of a file with the daemon's process id, which exists while the node is a member of the cluster."""
        return f"{self.run_dir}/member-{node}"

    def lock_path(self, daemon: str) -> str:
        """Path of the lock that ``gqd``, or ``gqnode-n1``, holds while it runs, even if the state directory goes."""
        return f"{self.run_dir}/{daemon}.lock"

    @property
    def keys_dir(self) -> str:
        return f"{self.state_dir}/keys"

    def environment(self) -> dict[str, str]:
        """Return the variables with which commands in a job find this cluster."""
        return {"GQ_DIR": self.state_dir} if self.is_private else {"GQ_CONFIG": self.config_path}


def find_cluster(environ: Mapping[str, str]) -> Location:
    """Find the cluster of a command: ``GQ_DIR``, ``GQ_CONFIG``, the user's private cluster, then the system's.

    If the host has a system cluster, the user's private cluster counts only while its controller runs.  Raises
    `Unreachable` if no cluster is configured.
    """
    if directory := environ.get("GQ_DIR"):
        return private_location(directory, environ)
    if config := environ.get("GQ_CONFIG"):
        return _perhaps_remote(system_location(config))
    default = default_directory(environ)
    has_system = has_system_cluster()
    if _is_seen(Path(default, CONFIG_NAME)):
        private = private_location(default, environ)
        if not has_system or is_listening(private.client_socket):
            return private
    if has_system:
        return _perhaps_remote(system_location(SYSTEM_CONFIG))
    raise Unreachable(
        "no_cluster",
        f"no cluster is configured: neither {default} nor {SYSTEM_CONFIG} exists",
        "`gq up` starts a private cluster; as root, `gqd init --start` sets up a cluster for all users, and `gqnode "
        "join` joins this host to one",
    )


def _is_seen(path: Path) -> bool:
    """Whether the file exists and is visible to this user: under ``su`` and ``runuser`` HOME may be another user's."""
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises PermissionError


def has_system_cluster() -> bool:
    """Whether this host has a system cluster; then no message suggests a private one."""
    return _is_seen(Path(SYSTEM_CONFIG))


def describe_cluster(location: Location) -> str:
    """Return the cluster in words, for messages: ``the private cluster in /home/ada/.local/state/gq``."""
    if location.is_private:
        return f"the private cluster in {location.state_dir}"
    owner = "the system's cluster" if location.config_path == SYSTEM_CONFIG else "the cluster"
    return f"{owner} of {location.config_path}"


def explain_choice(location: Location, environ: Mapping[str, str]) -> str:
    """Return a hint: why a command uses this cluster, and what to do while its controller is unreachable."""
    if not location.is_private:
        way_out = "run `gq doctor` to find which daemon does not run and how to start it"
    elif not has_system_cluster():
        way_out = "`gq up` starts it"
    elif environ.get("GQ_DIR"):
        way_out = f"unset GQ_DIR to use the system's cluster, {SYSTEM_CONFIG}"
    else:
        way_out = f"`gq status --dir {location.state_dir}` shows which daemons do not run"
    return f"{why_chosen(location, environ)}; {way_out}"


def why_chosen(location: Location, environ: Mapping[str, str]) -> str:
    """Return why a command uses this cluster and no other, as a clause."""
    default = default_directory(environ)
    if location.is_private:
        if environ.get("GQ_DIR") and _is_directory(location, environ["GQ_DIR"]):
            return "GQ_DIR names this cluster"
        return "this is your own cluster" if _is_directory(location, default) else "this cluster was named"
    if environ.get("GQ_CONFIG"):
        return "GQ_CONFIG names this cluster"
    if _is_seen(Path(default, CONFIG_NAME)):
        return f"this cluster was chosen because your private one in {default} is down"
    return "this cluster was chosen because you have no private one"


def _is_directory(location: Location, directory: str) -> bool:
    return str(Path(directory).expanduser().resolve()) == location.state_dir


def crashed_private_cluster(location: Location, environ: Mapping[str, str]) -> str:
    """Return the directory of the user's private cluster that crashed (no `gq down`) and was passed over for
    `location`.

    Empty: no cluster was passed over, or it was stopped with `gq down`.
    """
    if location.is_private or environ.get("GQ_DIR") or environ.get("GQ_CONFIG"):
        return ""
    default = default_directory(environ)
    return default if _is_seen(Path(default, CONFIG_NAME)) and Path(default, RUN_LINK).is_symlink() else ""


def is_listening(socket_path: str) -> bool:
    """Whether a process listens at this socket."""
    return os.path.exists(socket_path) and probe_socket(socket_path) not in NOBODY_LISTENS  # noqa: PTH110 - cheap


def probe_socket(path: str) -> int:
    """Connect to a socket and disconnect: 0, or the error number of connect(2)."""
    import socket  # not needed while a controller listens

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as plain:
        return plain.connect_ex(path)


def _perhaps_remote(location: Location) -> Location:
    """Check for a ``[client]`` line without parsing the file, since every command starts here."""
    try:
        lines = Path(location.config_path).read_bytes().splitlines()
    except OSError:
        return location  # the reader of the file reports the error
    is_remote = any(line.partition(b"#")[0].strip() == b"[client]" for line in lines)
    return location._replace(is_remote=True) if is_remote else location


def default_directory(environ: Mapping[str, str]) -> str:
    """Return the directory of the user's private cluster if none is named."""
    state_home = environ.get("XDG_STATE_HOME", "")
    if not state_home.startswith("/"):
        home = environ.get("HOME") or str(Path.home())
        state_home = f"{home}/.local/state"
    return f"{state_home}/gq"


def private_location(directory: str, environ: Mapping[str, str]) -> Location:
    """Return the location of the private cluster in `directory`, which need not exist yet."""
    state_dir = str(Path(directory).expanduser().resolve())
    link = Path(state_dir, RUN_LINK)
    try:
        has_sockets = link.is_dir()
    except OSError as error:  # the path is too long, or another user's
        raise Refusal(
            "no_directory",
            f"cannot look into {state_dir}: {error.strerror}",
            "use GQ_DIR or --dir for another directory",
        ) from error
    run_dir = str(link.resolve()) if has_sockets else _socket_dir(state_dir, environ)
    _check_owner(run_dir, state_dir)
    return Location(f"{state_dir}/{CONFIG_NAME}", state_dir, run_dir, is_private=True)


def system_location(config_path: str) -> Location:
    """Return the location of the system's cluster with its configuration in `config_path`."""
    path = str(Path(config_path).expanduser().absolute())
    return Location(path, SYSTEM_STATE_DIR, SYSTEM_RUN_DIR, is_private=False)


def controller_location(location: Location, user: str) -> Location:
    """Return the location at which gqd has its state and its sockets; `user`: ``[controller] user`` of gq.toml.

    Commands and node daemons still use `location`, whose links lead to the sockets.
    """
    if location.is_private or user in ("", ROOT_USER):
        return location
    return location._replace(
        state_dir=f"{location.state_dir}/{CONTROLLER_DIR}",
        run_dir=f"{location.run_dir}/{CONTROLLER_DIR}",
        is_of_controller=True,
    )


def _check_owner(run_dir: str, state_dir: str) -> None:
    """Refuse sockets of another user, who could collect scripts and environments by imitating the controller."""
    socket_uid = _owner_of(run_dir)
    state_uid = _owner_of(state_dir)
    owner_uid = os.geteuid() if state_uid is None else state_uid
    if socket_uid not in (None, ROOT_UID, owner_uid):
        raise Refusal(
            "unsafe_directory",
            f"{run_dir} belongs to uid {socket_uid}, and the cluster in {state_dir} to uid {owner_uid}",
            "another user may be impersonating its controller: remove that directory, or set XDG_RUNTIME_DIR",
        )


def _owner_of(path: str) -> int | None:
    try:
        return os.stat(path).st_uid  # noqa: PTH116 - a Path costs more than the check, for every command
    except OSError:
        return None


def _socket_dir(state_dir: str, environ: Mapping[str, str]) -> str:
    import hashlib  # loads OpenSSL: only for a cluster that is not up

    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    base = f"{runtime}/gq"
    fits = len(os.fsencode(f"{base}/{name}")) + _ROOM_FOR_NAMES <= MAX_SOCKET_PATH
    if not (runtime.startswith("/") and fits and _is_own_directory(runtime)):
        base = f"/tmp/gq-{os.geteuid()}"
    return f"{base}/{name}"


def _is_own_directory(path: str) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links on purpose, like every user of this variable
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def is_run_for_all(location: Location) -> bool:
    """Whether this process is a daemon of the system's cluster, which serves every user.

    Its daemons run as root, except gqd if gq.toml gives it a user.
    """
    return not location.is_private and (location.is_of_controller or os.geteuid() == 0)


def make_state_dir(location: Location) -> None:
    """Make the state directory; in a shared cluster others may pass through root's to their files, but not list it."""
    is_passage = is_run_for_all(location) and not location.is_of_controller
    make_own_directory(Path(location.state_dir), 0o711 if is_passage else 0o700)


def make_run_dir(location: Location) -> None:
    """Make the directory of the sockets, and the link that leads to it.

    Only this user may enter it, except in a shared cluster.  Raises `Refusal` if another user could change it.
    """
    run_dir = Path(location.run_dir)
    if location.is_private:
        make_own_directory(run_dir.parent)
    make_own_directory(run_dir, 0o755 if is_run_for_all(location) else 0o700)
    if location.is_private:
        point_link(Path(location.state_dir, RUN_LINK), location.run_dir)


def make_own_directory(path: Path, mode: int = 0o700) -> None:
    """Make a directory of this user, with this mode; an existing one must be this user's."""
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Refusal(
            "unsafe_directory", f"`{path}` is not a directory that you own", "remove it, or set XDG_RUNTIME_DIR"
        )
    if found.st_mode & 0o077 != mode & 0o077:
        path.chmod(mode)


def point_link(link: Path, target: str) -> None:
    """Point `link` at `target` in one step, so that a command never finds it missing."""
    if link.is_symlink() and str(link.readlink()) == target:
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
