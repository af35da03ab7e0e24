"""Protocols for the parts of the scheduler that a site may replace or add to.  Pure.

A factor of the priority is a function over the whole queue at once.  A site adds its own through the entry point
group ``gq.priority_factors`` of a package that is installed beside gq, and gives it a weight in ``[priority.factors]``
under the name of the entry point; `gqd.shell.factors` loads and checks the function.
"""

from __future__ import annotations

from typing import Protocol

from gqd.state.index.queue import Columns, Floats


class PriorityFactor(Protocol):
    """A function that returns a number from 0 to 1 for each pending job, in the order of the columns.

    A factor depends on the columns alone, not on a clock, randomness, files or state: the same columns give the same
    numbers.  It runs in the controller's loop, so it computes with whole columns and takes well under a millisecond
    for ten thousand jobs.  The columns are read-only.
    """

    def __call__(self, jobs: Columns, /) -> Floats: ...
