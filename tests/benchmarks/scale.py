"""How much is measured: everything in under ten minutes, or enough to see a change in under two."""

from __future__ import annotations

from typing import NamedTuple


class Scale(NamedTuple):
    latencies: int
    """Jobs one after the other on an idle cluster."""
    gangs: int
    steps: int
    crashes: int
    """How often the controller is killed, each way."""
    herds: tuple[int, ...]
    """Jobs of `true`, submitted over one connection."""
    herd_rounds: int
    """How often the first of them; the median counts."""
    processes: int
    """Processes of a command, at each width."""
    submissions: int
    """Through the Python client, in all."""
    commands: int
    """Processes of each command, one after the other."""
    pending: tuple[int, ...]
    """Separate jobs that wait; the bars are for the last."""
    planned: tuple[int, ...]
    """Jobs of random shapes that a pass considers."""
    tasks: int
    """Of an array that waits."""
    running_tasks: int
    cancelled: int
    replays: tuple[str, ...]
    """Rows of the comparison of policies on recorded traces."""
    jitters: int
    """Seeds, from 0, over which each is averaged."""


FULL = Scale(
    latencies=40,
    gangs=20,
    steps=20,
    crashes=3,
    herds=(1000, 5000),
    herd_rounds=3,
    processes=300,
    submissions=16_000,
    commands=40,
    pending=(1000, 10_000, 100_000),
    planned=(10_000, 50_000),
    tasks=100_000,
    running_tasks=1000,
    cancelled=10_000,
    replays=("philly loose", "philly tight", "helios real_vc", "helios shared22", "openb tight", "kalos 0.8"),
    jitters=5,
)
QUICK = Scale(
    latencies=10,
    gangs=6,
    steps=6,
    crashes=1,
    herds=(1000,),
    herd_rounds=1,
    processes=80,
    submissions=4000,
    commands=10,
    pending=(1000, 10_000),
    planned=(10_000,),
    tasks=100_000,
    running_tasks=100,
    cancelled=10_000,
    replays=("helios real_vc",),
    jitters=1,
)
