"""How many files and links a daemon may have open at once."""

from __future__ import annotations

import contextlib
import resource


def raise_descriptor_limit() -> int:
    """Let this process have as many descriptors as it may; how many that is (negative: any number).

    What strangers hold open at a tcp door counts, too, and there is nothing to be saved by a low limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
