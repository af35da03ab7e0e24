"""Loads time zones from this host's files for the deciding code, which reads no files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from zoneinfo import ZoneInfo

from gq.wire import client
from gqd.state.cluster import Cluster


def load_zones(names: Iterable[str]) -> dict[str, tzinfo]:
    """The time zones by name; unknown ones are left out."""
    found = {name: _load(name) for name in dict.fromkeys(names) if name}
    return {name: zone for name, zone in found.items() if zone is not None}


def _load(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        return None


def zones_named_by(body: client.RequestBody) -> Iterable[str]:
    """Names of the time zones in a request."""
    match body:
        case client.SetReservation():
            return (body.booking.zone,)
        case client.SetCrontab():
            return [job.entry.zone for job in body.jobs]
        case _:
            return ()


def zones_of(cluster: Cluster) -> Iterable[str]:
    """Names of the time zones in stored crontabs and reservations."""
    of_entries = [entry.cron.zone for crontab in cluster.crontabs.values() for entry in crontab.entries.values()]
    return [*[reservation.booking.zone for reservation in cluster.reservations.values()], *of_entries]
