"""Gives each attempt a session keyring, so that the kernel keeps the keys of one job apart from other jobs' keys.

A process inherits the session keyring of its parent and may search it whatever user it runs as.  Without a keyring of
their own, the jobs of all users would share the one that the node daemon was started with.  See keyrings(7).
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

from gqnode.shepherd.launch_failure import CannotLaunch, LaunchFailure

if TYPE_CHECKING:
    from gqnode.shepherd.specs import Identity

SYSCALL_NUMBERS = {
    "x86_64": 250, "i686": 288, "aarch64": 219, "armv7l": 311, "riscv64": 219, "ppc64le": 271, "s390x": 280
}  # fmt: skip
"""Number of keyctl(2) by machine: glibc has no wrapper for the call."""
_JOIN_SESSION_KEYRING, _CHOWN, _LINK = 1, 4, 8
_SESSION_KEYRING, _USER_KEYRING = -3, -4
_UNAVAILABLE = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP})
"""The kernel has no keys, or a container's seccomp filter refuses the call, for jobs as well as for the daemon."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def join_new(identity: Identity | None) -> None:
    """Give this process, and all that it starts from now on, an empty session keyring that belongs to `identity`.

    Raises `CannotLaunch` when the kernel has keys but refuses a new keyring: the job must not start with an old one.
    """
    keyring = _keyctl(_JOIN_SESSION_KEYRING, 0)
    if keyring is not None and identity is not None:
        _keyctl(_CHOWN, keyring, identity.uid, identity.gid)  # so that the user's quota, not root's, pays for its keys


def link_user_keyring() -> None:
    """Make the user's own keys (Kerberos, AFS, fscrypt) searchable, as a login does; to be called as the user.

    A user whose quota of keys is used up starts without them.
    """
    number = SYSCALL_NUMBERS.get(os.uname().machine)
    if number is not None:
        _LIBC.syscall(number, _LINK, _USER_KEYRING, _SESSION_KEYRING, 0, 0)


def _keyctl(*arguments: int) -> int | None:
    """The result of keyctl(2); None where the machine has no keys that a job could use."""
    number = SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        return None
    result: int = _LIBC.syscall(number, *map(ctypes.c_long, arguments))
    if result >= 0:
        return result
    code = ctypes.get_errno()
    if code in _UNAVAILABLE:
        return None
    raise CannotLaunch(LaunchFailure(f"cannot make a session keyring for the job: {os.strerror(code)}", code))
