"""The resource limits of jobs that gq writes into the gq.toml of a fresh host, in the format of ``rlimits`` there."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_CAP_SYS_RESOURCE = 24


def default_rlimits() -> str:
    """Return a table of TOML with limits that suit every job, none higher than this process could set.

    * ``core``: no core files, unless a job raises its soft limit: one core file of a training job fills a disk.
    * ``memlock``: locked memory (RDMA, pinned buffers) up to the memory of the host.
    * ``nproc``: processes and threads of one user in all jobs of the host together: half of the kernel's maximum.
    """
    process_limits = [int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max")]
    memory_kib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    memlock, nproc = _hard(resource.RLIMIT_MEMLOCK), _hard(resource.RLIMIT_NPROC)
    core = _hard(resource.RLIMIT_CORE)
    limits = {
        "core": f"0:{'unlimited' if core is None else core // 1024}",
        "memlock": str(memory_kib if memlock is None else min(memory_kib, memlock // 1024)),
        "nproc": str(min(process_limits) // 2 if nproc is None else min(min(process_limits) // 2, nproc)),
    }
    return "{" + ", ".join(f'{name} = "{value}"' for name, value in limits.items()) + "}"


def _hard(number: int) -> int | None:
    """Return the highest limit that this process could set for a job; None: no limit."""
    limit = resource.getrlimit(number)[1]
    return None if limit == resource.RLIM_INFINITY or _may_raise_limits() else limit


def _may_raise_limits() -> bool:
    """Whether this process has CAP_SYS_RESOURCE: root has it, but not in every container."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return bool(capabilities >> _CAP_SYS_RESOURCE & 1)
