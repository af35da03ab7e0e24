"""Reservations by a controller with real sockets: zones and users of its host, what is past, a restart between."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from gq.config.config import Config
from gq.config.settings import PartitionSettings
from gq.errors import Refusal
from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import ResourceRequest
from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.store.memory import MemoryStore
from tests.builders import inventory
from tests.shell.rig import PATIENCE_S, Rig, hello, running

CONFIG = Config(path="gq.toml", partitions=(PartitionSettings(name="main", default=True, max_time_s=86400),))
NIGHTLY = Booking(
    name="nightly",
    resources=ResourceRequest(gpus=1),
    cron="0 20 * * *",
    zone="Europe/Berlin",
    duration_s=3600,
)


async def with_node(rig: Rig) -> None:
    link = rig.node_wire()
    await link.say(msgspec.structs.replace(hello("n1"), inventory=inventory(gpu_count=1)))
    assert isinstance(await link.hear(), node_wire.Welcome)


async def refused(rig: Rig, booking: Booking) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await rig.ask(wire.SetReservation(booking=booking))
    return caught.value


async def reserved(rig: Rig, booking: Booking) -> wire.Reserved:
    answer = await rig.ask(wire.SetReservation(booking=booking, replace=True))
    assert isinstance(answer, wire.Reserved)
    return answer


def changed(**fields: object) -> Booking:
    return msgspec.structs.replace(NIGHTLY, **fields)


def test_zones_and_users_are_those_of_the_controllers_host() -> None:
    async def scenario() -> None:
        async with running(CONFIG) as rig:
            await with_node(rig)
            assert (await refused(rig, changed(zone="Europe/Berlinn"))).code == "unknown_zone"
            stranger = await refused(rig, changed(users=("root", "nobody-of-that-name")))
            assert (stranger.code, "`nobody-of-that-name`" in stranger.message) == ("unknown_user", True)
            assert (await reserved(rig, changed(users=("root",)))).is_changed

    asyncio.run(scenario())


def test_a_series_goes_on_in_its_zone_after_a_restart() -> None:
    store = MemoryStore()

    async def before() -> None:
        async with running(CONFIG, store) as rig:
            await with_node(rig)
            first = await reserved(rig, NIGHTLY)
            assert len(first.reservation.occurrences) == 14
            await rig.ask(wire.SkipOccurrence(name="nightly", number=14))

    async def after() -> None:
        async with running(CONFIG, store) as rig:
            await with_node(rig)
            assert not (await reserved(rig, NIGHTLY)).is_changed
            longer = await reserved(rig, changed(duration_s=7200))
            assert [one.number for one in longer.reservation.occurrences] == list(range(1, 14))

    asyncio.run(before())
    asyncio.run(after())


def test_what_is_past_and_who_booked_it_is_answered_from_the_store() -> None:
    async def scenario() -> None:
        async with running(CONFIG) as rig:
            await with_node(rig)
            now = time.time()
            await reserved(rig, changed(name="short", cron="", begin_at=now, duration_s=1))
            [past] = (await until_past(rig, now - 60)).reservations
            assert [one.state for one in past.occurrences] == [OccurrenceState.OVER]
            usage = await rig.ask(wire.QueryBookings(since=now - 60))
            assert isinstance(usage, wire.Bookings)
            [mine] = usage.usage
            assert (mine.occurrences, mine.no_shows, mine.used_gpu_s) == (1, 0, 0.0)
            assert 0.5 <= mine.booked_gpu_s <= 1.0

    asyncio.run(scenario())


async def until_past(rig: Rig, since: float) -> wire.Reservations:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        answer = await rig.ask(wire.ListReservations(since=since))
        assert isinstance(answer, wire.Reservations)
        if all(one.state.is_past for shown in answer.reservations for one in shown.occurrences):
            return answer
        assert time.monotonic() < give_up_at, "it did not end"
        await asyncio.sleep(0.05)
