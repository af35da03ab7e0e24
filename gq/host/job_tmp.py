"""A ``/tmp`` and a ``/dev/shm`` for one job: the mounts, and whether this host can have them.  Slim.

Owns the system calls, so that whoever writes ``private_tmp`` into a gq.toml can try beforehand what gqnode will do,
and `gq doctor` afterwards.  Nothing that is mounted here shows outside of the namespace that it is mounted in.
"""

from __future__ import annotations

import ctypes
import os
import sys

PLACES = ("/tmp", "/dev/shm")
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_MNT_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter_namespace() -> None:
    """For this process and all that it starts from now on.  `OSError`: this kernel, or not root.

    What is mounted outside later shows in it (so it is no private one): a home that the automounter brings.
    """
    _check(_LIBC.unshare(_CLONE_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)


def own_programs() -> tuple[str, ...]:
    """Where gq itself is, if that is below ``/tmp``: jobs have to find its commands there, too."""
    places = {sys.prefix, os.path.abspath(f"{__file__}/../../..")}
    below = sorted(place for place in places if place.startswith("/tmp/"))
    return tuple(place for place in below if not place.startswith(tuple(f"{other}/" for other in below)))


def mount_own(tmp: str, shm_mib: int, kept: tuple[str, ...] = ()) -> None:
    """`tmp` becomes ``/tmp``, and memory of at most so much (0: what the kernel allows) ``/dev/shm``.

    `kept`: directories below ``/tmp`` that show in it as they are.
    """
    mounted = [_made(tmp, place) for place in kept]
    for place, made in zip(kept, mounted, strict=True):
        _mount(place, made, "", _MS_BIND)
    _mount(tmp, "/tmp", "", _MS_BIND | _MS_REC)
    for made in mounted:  # whoever empties `tmp` must never come upon what is kept
        _check(_LIBC.umount2(os.fsencode(made), _MNT_DETACH))
    size = f",size={shm_mib}m" if shm_mib else ""
    _mount("gq-shm", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777{size}")


def _made(tmp: str, place: str) -> str:
    """The directory in `tmp` that will be `place`; everybody may pass, whatever the umask."""
    made = tmp
    for name in place.removeprefix("/tmp/").split("/"):
        made = f"{made}/{name}"
        os.makedirs(made, exist_ok=True)
        os.chmod(made, 0o755)
    return made


def leave() -> None:
    """Nothing of the job is left: let the memory go, however long this process stays."""
    for place in PLACES:
        _LIBC.umount2(place.encode(), _MNT_DETACH)


def why_not(state_dir: str) -> str:
    """Why jobs of this host cannot have them; empty: they can.  Where there are no threads yet: it forks."""
    if os.geteuid() != 0:
        return "only root can give jobs a /tmp of their own"
    for place in PLACES:
        if os.path.commonpath((os.path.realpath(state_dir), place)) == place:
            return f"{state_dir} is below {place}, where jobs would not see it"
    number = _try_out()
    return f"no mount namespace with a /tmp of its own can be made here: {os.strerror(number)}" if number else ""


def shared(state_dir: str) -> str:
    """What it means that they cannot, for the administrator."""
    return f"jobs of this node share /tmp and /dev/shm, where nothing is emptied between them: {why_not(state_dir)}"


def _try_out() -> int:
    """The error number of doing it all, in a child; 0: it can be done."""
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
