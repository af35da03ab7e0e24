"""gq: a batch queue for teams that share GPUs.

    import gq

    job = gq.submit("train.sh", gpus=4)
    job.wait()

The names below are loaded when they are first used, so that a command which needs only a part of this package does not
pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.version import VERSION as __version__

if TYPE_CHECKING:
    from gq.api import Client, Job, connect, submit
    from gq.checkpoint import checkpoint_done, resume_done
    from gq.errors import GqError, Refusal, Unreachable, UsageError

__all__ = [
    "Client",
    "GqError",
    "Job",
    "Refusal",
    "Unreachable",
    "UsageError",
    "__version__",
    "checkpoint_done",
    "connect",
    "resume_done",
    "submit",
]

_HOMES = {
    "gq.api": ("Client", "Job", "connect", "submit"),
    "gq.checkpoint": ("checkpoint_done", "resume_done"),
    "gq.errors": ("GqError", "Refusal", "Unreachable", "UsageError"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module `gq` has no attribute `{name}`")


def __dir__() -> list[str]:
    return __all__
