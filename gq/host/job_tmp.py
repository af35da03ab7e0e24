"""A ``/tmp`` and a ``/dev/shm`` for one job: the mounts, and whether this host supports them.  Slim.

The module has the system calls, so that a program that writes ``private_tmp`` into a gq.toml can test beforehand what
gqnode will do, and `gq doctor` afterwards.  No mount made here is visible outside of its namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys

DIRECTORIES = ("/tmp", "/dev/shm")
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_MNT_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter_namespace() -> None:
    """Enter a mount namespace, for this process and all children from now on.  `OSError`: no support in the kernel, or
    not root.

    Later mounts outside are visible in it (it is a slave, not private): a home that the automounter mounts.
    """
    _check(_LIBC.unshare(_CLONE_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)


def own_programs() -> tuple[str, ...]:
    """Return the directories of gq itself that are below ``/tmp``, where jobs need its commands, too."""
    directories = {sys.prefix, os.path.abspath(f"{__file__}/../../..")}
    below = sorted(directory for directory in directories if directory.startswith("/tmp/"))
    return tuple(directory for directory in below if not directory.startswith(tuple(f"{other}/" for other in below)))


def mount_own(tmp: str, shm_mib: int, kept: tuple[str, ...] = ()) -> None:
    """Mount `tmp` as ``/tmp``, and a tmpfs of at most `shm_mib` (0: the kernel's default) as ``/dev/shm``.

    `kept`: directories below ``/tmp`` that stay visible in it.
    """
    mount_points = [_mount_point(tmp, directory) for directory in kept]
    for directory, mount_point in zip(kept, mount_points, strict=True):
        _mount(directory, mount_point, "", _MS_BIND)
    _mount(tmp, "/tmp", "", _MS_BIND | _MS_REC)
    for mount_point in mount_points:  # so that emptying `tmp` never reaches the kept directories
        _check(_LIBC.umount2(os.fsencode(mount_point), _MNT_DETACH))
    size = f",size={shm_mib}m" if shm_mib else ""
    _mount("gq-shm", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777{size}")


def _mount_point(tmp: str, directory: str) -> str:
    """Make the directory in `tmp` that will be `place`; everybody may enter it, whatever the umask."""
    mount_point = tmp
    for name in directory.removeprefix("/tmp/").split("/"):
        mount_point = f"{mount_point}/{name}"
        os.makedirs(mount_point, exist_ok=True)
        os.chmod(mount_point, 0o755)
    return mount_point


def leave() -> None:
    """Unmount the job's directories to free their memory, however long this process lives."""
    for directory in DIRECTORIES:
        _LIBC.umount2(directory.encode(), _MNT_DETACH)


def why_not(state_dir: str) -> str:
    """Return why jobs of this host cannot have private directories; empty: they can.  It forks: use no threads."""
    if os.geteuid() != 0:
        return "only root can give each job its own /tmp"
    for directory in DIRECTORIES:
        if os.path.commonpath((os.path.realpath(state_dir), directory)) == directory:
            return f"{state_dir} is below {directory}, where jobs would not see it"
    number = _try_out()
    return f"a mount namespace with its own /tmp cannot be created here: {os.strerror(number)}" if number else ""


def shared(state_dir: str) -> str:
    """Return the consequence of shared directories, for the administrator."""
    return f"jobs of this node share /tmp and /dev/shm, which are not emptied between jobs: {why_not(state_dir)}"


def _try_out() -> int:
    """Try all mounts in a child; return the error number, 0: success."""
    pid = os.fork()
    if pid == 0:
        number = 1
        try:
            enter_namespace()
            mount_own("/", 1)
            number = 0
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    return abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode())
    _check(_LIBC.mount(*words))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
