"""Gives an attempt its own ``/tmp`` and ``/dev/shm`` in a mount namespace that its shepherd enters first.

The job's ``/tmp`` is a directory of the attempt that no other user can reach; ``/dev/shm`` is memory, and counts as the
job's.  The namespace ends with its last process, so a shepherd that is killed leaves no mount behind.
"""

from __future__ import annotations

import os

from gq.host import job_tmp
from gqnode.shepherd.launch_failure import doing

DIRECTORY = "private"
"""Directory in the attempt's directory that only root can enter."""
_SHARED_MODE = 0o1777


def enter(attempt_directory: str, shm_mib: int, kept: tuple[str, ...] = ()) -> None:
    """Enter the namespace, with all later children; `CannotLaunch` without root or kernel support."""
    inside = f"{attempt_directory}/{DIRECTORY}"
    tmp = f"{inside}/tmp"
    with doing("create the job's own /tmp"):
        os.makedirs(inside, 0o700, exist_ok=True)
        os.makedirs(tmp, exist_ok=True)
        os.chmod(tmp, _SHARED_MODE)
    with doing("create a mount namespace for the job's own /tmp"):
        job_tmp.enter_namespace()
        job_tmp.mount_own(tmp, shm_mib, kept)


def leave() -> None:
    """Leave the namespace once no process of the job is left."""
    job_tmp.leave()
