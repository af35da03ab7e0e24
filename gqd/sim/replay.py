"""Runs `gqsim` by its options: reads the trace, changes it, and replays it under each policy.

Owns the meaning of the options' values, and the progress line.  Separate from the command, so that its help is shown
without loading the scheduler.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gq.calendar.times import past_instant
from gq.config.config import load_config
from gq.connection.client import Client
from gq.connection.locate import find_cluster
from gq.errors import UsageError
from gq.request.getopt import Arguments
from gq.units import parse_seconds
from gqd.sim.engine import Engine
from gqd.sim.past import read_history
from gqd.sim.policies import SimPolicy, changed, read_policies
from gqd.sim.report import Replay
from gqd.sim.trace import read_trace, with_jitter
from gqd.sim.workload import LeftOut, SimJob, Site, those_that_fit, with_limits, with_load

ALLOCATIONS = 200_000
"""Allocations between two garbage collections; a replay creates no cycles."""
SHOW_EVERY_S = 0.2
DEFAULT_SINCE = "30d"


def replay_trace(arguments: Arguments) -> list[Replay]:
    if arguments.has("since"):
        raise UsageError("contradiction", "`--since` needs --replay; a trace is always replayed completely")
    words = arguments.words("policy") or ("default",)
    policies = read_policies(words, [given.value for given in arguments.every("set")])
    cluster = arguments.text("cluster")
    read = read_trace(
        Path(arguments.text("trace")), Path(cluster) if cluster else None, arguments.text("variant") or None
    )
    jobs, dropped = those_that_fit(read.jobs, read.site)
    if not jobs:
        message = f"none of the {len(dropped)} jobs of {arguments.text('trace')} fits the cluster"
        raise UsageError("empty_trace", message, "see --variant and --cluster")
    jobs = _changed_jobs(arguments, jobs, read.site)
    return [_replay(arguments, read.site, policy, jobs, dropped) for policy in policies]


def replay_own(arguments: Arguments) -> list[Replay]:
    """The recorded history, and its jobs replayed under the present policy, a changed one, or others."""
    for name in ("cluster", "variant"):
        if arguments.has(name):
            raise UsageError(
                "contradiction", f"`--{name}` needs --trace; history is replayed on the cluster's own nodes"
            )
    changes = [given.value for given in arguments.every("set")]
    words = arguments.words("policy")
    location = find_cluster(os.environ)
    own = load_config(location)
    policies = read_policies(words, changes, own) if words else changed(own, location.config_path, changes)
    now = time.time()
    since = arguments.read("since", lambda text: past_instant(text, now))
    with Client(location) as controller:
        history = read_history(controller, past_instant(DEFAULT_SINCE, now) if since is None else since)
    nodes_gpus = history.site.gpus
    recorded = Replay("recorded", history.jobs, history.recorded, (), nodes_gpus, 0.0)
    kept, dropped = those_that_fit(history.jobs, history.site)
    jobs = _changed_jobs(arguments, kept, history.site) if kept else []
    return [recorded, *(_replay(arguments, history.site, policy, jobs, dropped) for policy in policies)]


def _changed_jobs(arguments: Arguments, jobs: list[SimJob], site: Site) -> list[SimJob]:
    load = arguments.read("load", _positive)
    if load is not None:
        jobs = with_load(jobs, site.gpus, load)
    return with_jitter(jobs, arguments.integer("jitter", at_least=0) or 0)


def _replay(arguments: Arguments, site: Site, policy: SimPolicy, jobs: list[SimJob], dropped: list[LeftOut]) -> Replay:
    factor = policy.limits_factor(arguments.read("limits", _positive))
    limited = jobs if factor is None else with_limits(jobs, factor)
    delay_s = arguments.read("start-delay", parse_seconds) or 0.0
    resume_s = arguments.read("resume-cost", parse_seconds) or 0.0
    engine = Engine(site, policy.policy, limited, delay_s, policy.knows, resume_s)
    progress = _Progress(policy.name, len(jobs))
    with _seldom_collected():
        began = time.perf_counter()
        done = engine.run(progress.show)
        wall_s = time.perf_counter() - began
    progress.clear()
    return Replay(policy.name, limited, done, dropped, site.gpus, wall_s)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Exclude existing objects from garbage collection, and collect new ones seldom."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


class _Progress:
    """A progress line on stderr, if that is a terminal."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._began = self._shown_at = time.perf_counter()
        self._is_shown = sys.stderr.isatty()

    def show(self, ended: int) -> None:
        now = time.perf_counter()
        if self._is_shown and now - self._shown_at >= SHOW_EVERY_S:
            self._shown_at = now
            share = 100 * ended / max(1, self._total)
            left_s = (now - self._began) * (self._total - ended) / max(1, ended)
            sys.stderr.write(
                f"\r{self._name}: {ended} of {self._total} jobs, {share:.0f} %, {left_s:.0f} s left \x1b[K"
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"`{text}` is not a number above 0")
    return value
