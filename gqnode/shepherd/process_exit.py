"""The exit of a process as its reaper saw it."""

from __future__ import annotations

import os
import resource
import signal
from typing import NamedTuple


class ProcessExit(NamedTuple):
    """An exit status, and the resources used by the process and the descendants that it had waited for."""

    code: int = 0
    signal: int = 0
    user_cpu_s: float = 0.0
    system_cpu_s: float = 0.0
    max_rss_mib: int = 0
    """Peak memory of the largest single process."""
    oom: bool = False
    """Whether the process was killed for its memory use."""

    @property
    def shell_code(self) -> int:
        return 128 + self.signal if self.signal else self.code

    def plus_usage(self, other: ProcessExit) -> ProcessExit:
        """Return this exit with the sum of both usages."""
        return self._replace(
            user_cpu_s=self.user_cpu_s + other.user_cpu_s,
            system_cpu_s=self.system_cpu_s + other.system_cpu_s,
            max_rss_mib=max(self.max_rss_mib, other.max_rss_mib),
        )

    def usage(self) -> dict[str, float]:
        return {
            "user_cpu_s": self.user_cpu_s,
            "system_cpu_s": self.system_cpu_s,
            "max_rss_mib": self.max_rss_mib,
        }


def process_exit_of(status: int, used: resource.struct_rusage, was_over_memory: bool) -> ProcessExit:
    """Build the exit from the results of ``wait4``."""
    code = os.waitstatus_to_exitcode(status)
    return ProcessExit(
        code=max(code, 0),
        signal=max(-code, 0),
        user_cpu_s=used.ru_utime,
        system_cpu_s=used.ru_stime,
        max_rss_mib=used.ru_maxrss // 1024,
        oom=was_over_memory and code == -signal.SIGKILL,
    )
