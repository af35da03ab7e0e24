"""Converts crontabs to rows and back.  Pure.  See `gqd.store.rows.rows`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.model.crontab import CronEntry, Missed, Overlap
from gq.model.job import JobSpec
from gqd.state.cluster import Cluster
from gqd.state.crontab import Crontab, Entry, EntryKey
from gqd.state.index.changes import Changes
from gqd.store.protocol import Row

_spec_of = msgspec.json.Decoder(JobSpec).decode


def crontab_row(crontab: Crontab) -> Row:
    return (crontab.user, crontab.uid, crontab.set_at, crontab.text)


def entry_row(key: EntryKey, entry: Entry) -> Row:
    cron = entry.cron
    return (
        key.user, key.number, cron.line, cron.schedule, cron.zone, cron.overlap.value, cron.missed.value,
        msgspec.json.encode(cron.spec).decode(), entry.followed_until, entry.last_due_at, entry.last_job_id,
        entry.last_state, entry.trouble, entry.trouble_at,
    )  # fmt: skip


def entry_of(row: Row) -> tuple[EntryKey, Entry]:
    (
        user, number, line, schedule, zone, overlap, missed, spec, followed_until, last_due_at, last_job_id,
        last_state, trouble, trouble_at,
    ) = row  # fmt: skip
    cron = CronEntry(
        line=line,
        schedule=schedule,
        zone=zone,
        overlap=Overlap(overlap),
        missed=Missed(missed),
        spec=_spec_of(spec),
    )
    entry = Entry(cron, followed_until, last_due_at, last_job_id, last_state, trouble, trouble_at)
    return EntryKey(user, number), entry


def crontabs_of(crontabs: Iterable[Row], entries: Iterable[Row]) -> dict[str, Crontab]:
    """The crontabs by user; `entries` are sorted by user and number."""
    found = {user: Crontab(user, uid, text, set_at) for user, uid, set_at, text in crontabs}
    for key, entry in map(entry_of, entries):
        found[key.user].entries[key.number] = entry
    return found


def _entry(cluster: Cluster, key: EntryKey) -> Entry | None:
    crontab = cluster.crontabs.get(key.user)
    return None if crontab is None else crontab.entries.get(key.number)


def crontab_upserts(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    entries = [(key, entry) for key in changes.cron_entries if (entry := _entry(cluster, key)) is not None]
    return {
        "crontabs": tuple(
            [crontab_row(cluster.crontabs[crontab]) for crontab in changes.crontabs if crontab in cluster.crontabs]
        ),
        "cron_entries": tuple([entry_row(key, entry) for key, entry in entries]),
    }


def crontab_deletes(cluster: Cluster, changes: Changes) -> dict[str, tuple[Row, ...]]:
    return {
        "crontabs": tuple([(user,) for user in changes.crontabs if user not in cluster.crontabs]),
        "cron_entries": tuple([tuple(key) for key in changes.cron_entries if _entry(cluster, key) is None]),
    }
