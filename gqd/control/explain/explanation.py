"""The result type of explanations: the pending reason of a job, a sentence with numbers, and a hint.  Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from gq.wire import client


class Explanation(NamedTuple):
    """Why a job waits, runs or ended; `why` holds instants as ``@{seconds}``."""

    reason: str
    """The pending reason, named as in Slurm."""
    why: str
    hint: str = ""
    blockers: tuple[int, ...] = ()
    """Ids of the jobs that hold what the job waits for."""
    expected_start_at: float | None = None
    lead: str = ""
    """The first fact of `why` where it ends with a colon instead of a semicolon."""
    shortage: client.Shortage | None = None

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts of which `why` consists."""
        rest = self.why.removeprefix(f"{self.lead}: ") if self.lead else self.why
        return (self.lead, *_split_facts(rest)) if rest != self.why else tuple(_split_facts(rest))


def _split_facts(why: str) -> list[str]:
    """Split at semicolons, except within parentheses, where they belong to job names."""
    facts, depth = [""], 0
    for piece in re.split(r"([()]|; )", why):
        depth = max(0, depth + (piece == "(") - (piece == ")"))
        if piece == "; " and not depth:
            facts.append("")
        else:
            facts[-1] += piece
    return facts
