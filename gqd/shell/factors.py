"""The site's own priority factors: found among the installed packages, checked, and guarded against failures.

A package declares a factor in its entry points::

    [project.entry-points."gq.priority_factors"]
    deadline_near = "our_gq.factors:deadline_near"

and gq.toml gives it a weight: ``[priority.factors] deadline_near = 2000``.  A factor is a
`gqd.sched.plugins.PriorityFactor`.  Only factors with a weight are loaded, when gqd starts and when gq.toml is
reloaded; a reload finds packages installed since, while a changed package needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

import numpy as np

from gq.errors import UsageError
from gq.near_miss import nearest
from gqd.sched.plugins import PriorityFactor
from gqd.sched.priority.factor_check import violation
from gqd.shell.log import LOG
from gqd.state.index.queue import Columns, Floats

GROUP = "gq.priority_factors"


def load_factors(weights: Mapping[str, float]) -> dict[str, PriorityFactor]:
    """The factors with a weight in gq.toml; `UsageError` if one is missing or violates the contract of factors."""
    return find_factors(weights, entry_points(group=GROUP)) if weights else {}


def find_factors(weights: Mapping[str, float], installed: Iterable[EntryPoint]) -> dict[str, PriorityFactor]:
    known = {one.name: one for one in installed}
    return {name: GuardedFactor(name, _load(name, known)) for name in weights}


def _load(name: str, known: Mapping[str, EntryPoint]) -> PriorityFactor:
    if name not in known:
        close = nearest(name, list(known))
        listed = f"installed factors: {', '.join(sorted(known))}" if known else "no factor is installed"
        hint = f"did you mean `{close}`?" if close else f"{listed}; gq-scheduling(7) says how to add one"
        raise UsageError(
            "unknown_factor", f"[priority.factors] {name}: no installed package provides this factor", hint
        )
    try:
        factor: PriorityFactor = known[name].load()
    except Exception as error:
        message = f"[priority.factors] {name}: {known[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise UsageError("bad_factor", message, "fix the package, or remove the line from gq.toml") from error
    wrong = violation(name, factor)
    if wrong:
        message = f"[priority.factors] {name}: {known[name].value}: {wrong}"
        raise UsageError("bad_factor", message, "gq-scheduling(7) lists the rules of a factor")
    return factor


class GuardedFactor:
    """A factor that counts as 0 for all jobs when it fails, and logs its first failure."""

    def __init__(self, name: str, factor: PriorityFactor) -> None:
        self._name = name
        self._factor = factor
        self._has_failed = False

    def __call__(self, jobs: Columns, /) -> Floats:
        count = len(jobs.job_id)
        try:
            return np.asarray(self._factor(jobs), np.float64).reshape(count)
        except Exception as error:
            if not self._has_failed:
                LOG.error("the priority factor %s failed and counts as 0: %s", self._name, error)
            self._has_failed = True
            return np.zeros(count)
