"""A ``/tmp`` and a ``/dev/shm`` for one attempt alone: a mount namespace that its shepherd enters first.  Slim.

What the job writes to ``/tmp`` is in a directory of the attempt that nobody else can reach; ``/dev/shm`` is memory, and
counts as the job's.  The namespace ends with its last process, so a shepherd that is killed leaves no mount behind.
"""

from __future__ import annotations

import os

from gq.host import job_tmp
from gqnode.shepherd.launch_failure import doing

DIRECTORY = "private"
"""In the attempt's directory; only root can look into it."""
_SHARED_MODE = 0o1777


def enter(attempt_directory: str, shm_mib: int, kept: tuple[str, ...] = ()) -> None:
    """For this process and all that it starts from now on.  `CannotLaunch`: this kernel, or not root."""
    inside = f"{attempt_directory}/{DIRECTORY}"
    tmp = f"{inside}/tmp"
    with doing("make the job's own /tmp"):
        os.makedirs(inside, 0o700, exist_ok=True)
        os.makedirs(tmp, exist_ok=True)
        os.chmod(tmp, _SHARED_MODE)
    with doing("make a mount namespace for the job's own /tmp"):
        job_tmp.enter_namespace()
        job_tmp.mount_own(tmp, shm_mib, kept)


def leave() -> None:
    """Nothing of the job is left."""
    job_tmp.leave()
