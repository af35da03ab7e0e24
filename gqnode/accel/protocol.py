"""The accelerator library that the node daemon uses: the GPUs of the machine and their present state."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gq.model.node import Gpu


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that has a context on a GPU."""

    pid: int
    memory_mib: int | None = None
    """None: the driver does not tell (other namespaces, some virtual GPUs)."""


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a GPU at a moment."""

    index: int
    does_answer: bool = True
    """False: it fell off the bus or hangs; then nothing but Xids is known of it."""
    utilisation_percent: int | None = None
    """Share of the last sample period in which a kernel ran; None: not known."""
    memory_used_mib: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    xids: tuple[int, ...] = ()
    """Xid errors since the sample before."""


class Accelerators(Protocol):
    """All calls are idempotent; `close` may be followed by nothing else."""

    @property
    def notes(self) -> tuple[str, ...]:
        """For the log and `gq doctor`: why there are no GPUs, or what was left out.  Complete after `discover`."""
        ...

    @property
    def attributes(self) -> dict[str, str]:
        """Return attributes for ``--constraint``: ``driver`` and ``cuda``, the newest CUDA that it runs."""
        ...

    def discover(self) -> tuple[Gpu, ...]:
        """All whole GPUs by index.  No library, driver or GPU: empty, and a note says which."""
        ...

    def sample(self) -> tuple[GpuSample, ...]:
        """Return a sample of each discovered GPU, by index."""
        ...

    def close(self) -> None: ...
