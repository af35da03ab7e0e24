"""Apply the events of crontabs to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from collections.abc import Sequence

from gq.model.crontab import CronEntry
from gqd.state.cluster import Cluster
from gqd.state.crontab import Crontab, Entry, EntryKey
from gqd.state.events import event

ENDED_WELL = "COMPLETED"


def apply_set(cluster: Cluster, fact: event.CrontabSet) -> None:
    before = cluster.crontabs.get(fact.user)
    left = list(before.entries.values()) if before is not None else []
    known = _known(fact.entries, left)
    entries = {number: _entry(cron, known.get(number), fact.at) for number, cron in enumerate(fact.entries, 1)}
    cluster.crontabs[fact.user] = Crontab(fact.user, fact.uid, fact.text, fact.at, entries)
    _touch_all(cluster, fact.user, max(len(entries), 0 if before is None else len(before.entries)))


def _known(crons: Sequence[CronEntry], left: list[Entry]) -> dict[int, Entry]:
    """Number of a new entry → the old entry that it continues.

    An old entry with the same times and command is preferred to one with only the same command.
    """
    found: dict[int, Entry] = {}
    for is_same in (Entry.is_like, Entry.runs_like):
        for number, cron in enumerate(crons, 1):
            entry = None if number in found else next((entry for entry in left if is_same(entry, cron)), None)
            if entry is not None:
                found[number] = entry
                left[:] = [other for other in left if other is not entry]
    return found


def _entry(cron: CronEntry, before: Entry | None, at: float) -> Entry:
    """The new entry; one that continues an old entry keeps its history, so its last job still counts."""
    if before is None:
        return Entry(cron, followed_until=at)
    if not before.is_like(cron):
        before.followed_until = at
    before.cron = cron
    return before


def apply_removed(cluster: Cluster, fact: event.CrontabRemoved) -> None:
    gone = cluster.crontabs.pop(fact.user)
    _touch_all(cluster, fact.user, len(gone.entries))


def apply_fired(cluster: Cluster, fact: event.CronFired) -> None:
    entry = cluster.crontabs[fact.user].entries[fact.number]
    entry.followed_until = entry.last_due_at = fact.due_at
    if fact.job_id is not None:
        entry.last_job_id, entry.last_state = fact.job_id, ""
    if fact.why:
        entry.trouble, entry.trouble_at = fact.why, fact.at
    cluster.changes.cron_entries[EntryKey(fact.user, fact.number)] = None


def apply_run_ended(cluster: Cluster, fact: event.CronRunEnded) -> None:
    entry = cluster.crontabs[fact.user].entries[fact.number]
    entry.last_state = fact.state
    entry.trouble, entry.trouble_at = ("", None) if fact.state == ENDED_WELL else (fact.why, fact.at)
    cluster.changes.cron_entries[EntryKey(fact.user, fact.number)] = None


def _touch_all(cluster: Cluster, user: str, count: int) -> None:
    cluster.changes.crontabs[user] = None
    for number in range(1, count + 1):
        cluster.changes.cron_entries[EntryKey(user, number)] = None
