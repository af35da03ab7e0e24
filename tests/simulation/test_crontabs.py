"""Crontabs under faults of every kind: each due time is seen to once, and every job that was made ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gq.model.crontab import CronEntry, Missed, Overlap
from gq.wire import client
from gqd.state.events import event
from tests.builders import ALICE, BOB, inventory, spec
from tests.simulation.conftest import played_again_by, seeds_of
from tests.simulation.world import Faults, World

ROUNDS = 8
FAULTS = Faults(
    drop=0.1, repeat=0.1, slow=0.1, refuse=0.03, node_crashes=5.0, power_losses=1.0, controller_crashes=30.0
)
MINUTE = 60.0
LASTS_S = 20 * MINUTE


def entry(line: int, schedule: str, overlap: Overlap, missed: Missed) -> client.CronJob:
    job = spec(f"line{line}", gpus=1, time_limit_s=20, command=f"line{line}")
    return client.CronJob(entry=CronEntry(line=line, schedule=schedule, overlap=overlap, missed=missed, spec=job))


ENTRIES = (
    entry(1, "* * * * *", Overlap.ALLOW, Missed.SKIP),
    entry(2, "*/2 * * * *", Overlap.SKIP, Missed.SKIP),
    entry(3, "*/5 * * * *", Overlap.SKIP, Missed.ONCE),
)
PERIODS = {1: MINUTE, 2: 2 * MINUTE, 3: 5 * MINUTE}


def play(seed: int) -> tuple[World, float, float]:
    """Returns from when until when the entries were there."""
    world = World(seed, {f"n{number}": inventory() for number in range(1, 3)})
    for peer in (ALICE, BOB):
        world.ask(client.SetCrontab(text="", jobs=ENTRIES), peer)
    began_at = world.now
    world.run(world.now + 1.0)
    world.faults = FAULTS
    world.run(world.now + LASTS_S)
    world.calm()
    world.run(world.now + 5 * MINUTE)
    ended_at = world.now
    for peer in (ALICE, BOB):
        world.ask(client.RemoveCrontab(), peer)
    world.run(world.now + 7200.0, stop=world.is_quiet)
    return world, began_at, ended_at


def judge_jobs(world: World) -> None:
    """Jobs and firings go together."""
    events = world.store.events()
    submitted = [one.job_id for one in events if isinstance(one, event.JobSubmitted) and one.spec.cron]
    fired = [one.job_id for one in events if isinstance(one, event.CronFired) and one.job_id is not None]
    assert fired == submitted


def wrongly_seen_to(world: World, began_at: float, ended_at: float) -> Iterator[str]:
    """Entries that went back, or that did not see to each of their due times once."""
    fired = [one for one in world.store.events() if isinstance(one, event.CronFired)]
    for user in (ALICE.user, BOB.user):
        for number, period in PERIODS.items():
            own = [one for one in fired if (one.user, one.number) == (user, number)]
            name = f"entry {number} of {user}"
            if any(one.due_at >= other.due_at for one, other in pairwise(own)):
                yield f"{name} went back"
            due = {at * period for at in range(int(began_at // period) + 1, int(ended_at // period) + 1)}
            seen = sum(1 + one.missed - (one.job_id is None and "missed" in one.why) for one in own)
            if seen != len(due) or not {one.due_at for one in own} <= due:
                yield f"{name}: {seen} of {len(due)} are seen to"


def test_each_due_time_is_seen_to_once(shard: int) -> None:
    for seed in seeds_of(shard, ROUNDS):
        with played_again_by(seed):
            world, began_at, ended_at = play(seed)
            assert world.is_quiet(), "something is left"
            judge_jobs(world)
            assert list(wrongly_seen_to(world, began_at, ended_at)) == []
