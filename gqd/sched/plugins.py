"""What may be exchanged in the scheduler, as protocols.  Pure.

A factor of the priority is a function over the whole queue at once.  A site adds its own through the entry point
group ``gq.priority_factors`` of a package that is installed beside gq, and gives it a weight in ``[priority.factors]``
under the name of the entry point; `gqd.shell.factors` loads it and checks it.
"""

from __future__ import annotations

from typing import Protocol

from gqd.state.index.queue import Columns, Floats


class PriorityFactor(Protocol):
    """0…1 for each pending job, in the order of the columns.

    It decides by the columns alone: no clock, no chance, no files, nothing remembered; the same columns give the same
    numbers.  It runs in the controller's loop, so it computes with whole columns and takes well under a millisecond
    for ten thousand jobs.  The columns are read-only.
    """

    def __call__(self, jobs: Columns, /) -> Floats: ...
