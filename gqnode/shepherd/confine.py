"""Applies limits, the PAM session and the out-of-memory score to a job's process before it becomes the user's.

Runs in the child between fork and exec, as root where the daemon runs as root.
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
    """Whether the kernel would kill processes started from here last when memory is short (`_drop_protection`)."""
    with doing(f"read {OOM_SCORE}"):
        return int(read_small(OOM_SCORE)) < 0


def confine(wanted: Confinement, is_protected: bool) -> None:
    """Apply the confinement, before the process takes the user's identity; the node's rlimits override PAM's."""
    if is_protected:
        _drop_protection()
    if wanted.pam_service:
        _open_pam_session(wanted)
    for number, soft, hard in wanted.rlimits:
        with doing(f"set the resource limit {number} to {soft}:{hard}"):
            _set_limit(number, soft, hard)


def forbid_new_privileges() -> None:
    """Deny rights from set-uid programs to this process and its children; call it after `take_identity`."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise CannotLaunch(
            LaunchFailure(f"cannot set no_new_privs: {os.strerror(ctypes.get_errno())}", ctypes.get_errno())
        )


def drop_capabilities() -> None:
    """Empty the capability bounding set, so that no program started from here gets a capability from its file.

    Call it as root, before the identity is taken; a process that is not root has no right to it, nor needs it.
    """
    with doing("drop the capability bounding set"):
        last = int(read_small("/proc/sys/kernel/cap_last_cap"))
        for capability in range(last + 1):
            if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _drop_protection() -> None:
    """Reset the out-of-memory score: a job that inherited the daemon's protection would be killed last."""
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
