"""A ``/tmp`` and a ``/dev/shm`` for one attempt alone: a mount namespace that its shepherd enters first.  Slim.

What the job writes to ``/tmp`` is in a directory of the attempt that nobody else can reach; ``/dev/shm`` is memory, and
counts as the job's.  The namespace ends with its last process, so a shepherd that is killed leaves no mount behind.
"""

from __future__ import annotations

import ctypes
import os

from gqnode.shell.failure import doing

DIRECTORY = "private"
"""In the attempt's directory; only root can look into it."""
PLACES = ("/tmp", "/dev/shm")
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_MNT_DETACH = 2
_SHARED_MODE = 0o1777
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(attempt_directory: str, shm_mib: int) -> None:
    """For this process and all that it starts from now on.  `CannotLaunch`: this kernel, or not root."""
    inside = f"{attempt_directory}/{DIRECTORY}"
    own_tmp = f"{inside}/tmp"
    with doing("make the job's own /tmp"):
        os.makedirs(inside, 0o700, exist_ok=True)
        os.makedirs(own_tmp, exist_ok=True)
        os.chmod(own_tmp, _SHARED_MODE)
    with doing("make a mount namespace for the job's own /tmp"):
        _enter_namespace()
        _mount(own_tmp, "/tmp", "", _MS_BIND)
        size = f",size={shm_mib}m" if shm_mib else ""
        _mount("gq-shm", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777{size}")


def try_out() -> None:
    """`CannotLaunch` if this process could not `enter`; in a child, before there are threads."""
    pid = os.fork()
    if pid == 0:
        number = 1
        try:
            _enter_namespace()
            number = 0
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if number != 0:
        with doing("make a mount namespace"):
            raise OSError(abs(number), os.strerror(abs(number)))


def _enter_namespace() -> None:
    """Nothing that is mounted in it shows outside.

    What is mounted outside later shows in it (so it is no private one): a home that the automounter brings.
    """
    _check(_LIBC.unshare(_CLONE_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)


def leave() -> None:
    """Nothing of the job is left: let the memory go, however long this process stays."""
    for place in PLACES:
        _LIBC.umount2(place.encode(), _MNT_DETACH)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode())
    _check(_LIBC.mount(*words))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
