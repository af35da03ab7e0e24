"""Crontabs in every store: loaded as they are, and the scripts of their entries are kept."""

from __future__ import annotations

import asyncio

from gq.model.crontab import CronEntry
from gqd.control.apply.table import apply
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.store.protocol import Store
from gqd.store.rows.rows import materialise
from tests.builders import spec


def entry(line: int) -> CronEntry:
    made = spec(command=f"c{line}", script_digest=f"script{line}", environment_digest=f"env{line}")
    return CronEntry(line=line, schedule="0 * * * *", spec=made)


def do(store: Store, cluster: Cluster, *facts: event.Event) -> None:
    for fact in facts:
        apply(cluster, fact)
    asyncio.run(store.commit(materialise(cluster, facts)))
    assert store.load() == cluster


def test_an_entry_that_is_taken_out_is_gone_and_those_that_stay_are_as_they_were(store: Store) -> None:
    cluster = Cluster()
    entries = tuple(entry(line) for line in (1, 2, 3))
    do(store, cluster, event.CrontabSet(at=1.0, user="ann", uid=1000, text="abc", entries=entries))
    do(store, cluster, event.CronFired(at=3600.0, user="ann", number=3, due_at=3600.0, why="no"))
    do(store, cluster, event.CrontabSet(at=4000.0, user="ann", uid=1000, text="c", entries=entries[2:]))
    kept = store.load().crontabs["ann"]
    assert list(kept.entries) == [1]
    assert (kept.entries[1].followed_until, kept.entries[1].trouble) == (3600.0, "no")
    do(store, cluster, event.CrontabRemoved(at=5000.0, user="ann"))
    assert store.load().crontabs == {}


def test_scripts_and_environments_of_entries_are_named_until_the_crontab_is_gone(store: Store) -> None:
    cluster = Cluster()
    do(store, cluster, event.CrontabSet(at=1.0, user="ann", uid=1000, text="", entries=(entry(1), entry(2))))
    assert store.named_blobs(1e12) == {"script1", "env1", "script2", "env2"}
    do(store, cluster, event.CrontabSet(at=2.0, user="ann", uid=1000, text="", entries=(entry(2),)))
    assert store.named_blobs(1e12) == {"script2", "env2"}
    do(store, cluster, event.CrontabRemoved(at=3.0, user="ann"))
    assert store.named_blobs(1e12) == frozenset()
