"""What a process of a job is bound by before it is its user's: limits, PAM's session, the kernel's out-of-memory score.

Slim; runs in the child between fork and exec, as root where the daemon is root's.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import TYPE_CHECKING

from gqnode.shepherd.durable import read_small
from gqnode.shepherd.launch_failure import CannotLaunch, LaunchFailure, doing

if TYPE_CHECKING:
    from gqnode.shepherd.specs import Confinement

OOM_SCORE = "/proc/self/oom_score_adj"
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


def is_protected() -> bool:
    """Whether what is started from here would be killed last when memory is short: see `_drop_protection`."""
    with doing(f"read {OOM_SCORE}"):
        return int(read_small(OOM_SCORE)) < 0


def confine(wanted: Confinement, is_protected: bool) -> None:
    """To be called before the user's identity is taken; what the settings say has the last word over PAM."""
    if is_protected:
        _drop_protection()
    if wanted.pam_service:
        _open_pam_session(wanted)
    for number, soft, hard in wanted.rlimits:
        with doing(f"set the resource limit {number} to {soft}:{hard}"):
            _set_limit(number, soft, hard)


def forbid_new_privileges() -> None:
    """For this process and all that come of it: no set-uid program gives rights.  After the identity is taken."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise CannotLaunch(
            LaunchFailure(f"cannot set no_new_privs: {os.strerror(ctypes.get_errno())}", ctypes.get_errno())
        )


def drop_capabilities() -> None:
    """No program that this process becomes or starts has a capability, whatever its file grants.

    To be called as root, before the identity is taken; a process that is not root has no right to it, nor needs it.
    """
    with doing("drop the capability bounding set"):
        last = int(read_small("/proc/sys/kernel/cap_last_cap"))
        for capability in range(last + 1):
            if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _drop_protection() -> None:
    """A service manager may protect the daemon; a job that inherited that would be killed last, after all others."""
    with doing(f"write {OOM_SCORE}"), open(OOM_SCORE, "wb") as file:
        file.write(b"0")


def _set_limit(number: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except ValueError as error:  # how Python says that a hard limit may not be raised
        raise OSError(1, str(error)) from error


def _open_pam_session(wanted: Confinement) -> None:
    from gqnode.shepherd.pam import PamError, open_session  # few nodes use it

    try:
        open_session(wanted.pam_service, wanted.pam_user)
    except PamError as error:
        raise CannotLaunch(LaunchFailure(str(error))) from error
