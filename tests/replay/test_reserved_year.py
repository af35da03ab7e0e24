"""A year of nights: a cron line keeps four GPUs from 20:00 on, over both changes of the clocks, among other jobs.

The controller and the planner of the daemon under the simulator's clock; everything that they say is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sim.engine import EPOCH, Engine
from gqd.sim.policies import read_policies
from gqd.sim.workload import Pool, SimJob, site_of
from gqd.state import invariants
from gqd.state.events import event
from gqd.state.policy import Partition
from tests.replay.traces import ALL, job

pytestmark = [
    pytest.mark.xdist_group("reserved_year"),  # so that the year is lived once
    pytest.mark.slow,
]

HOUR, DAY = 3600, 86400
BERLIN = ZoneInfo("Europe/Berlin")
CLEAR_S = 180
NO_SHOW_S = 1200
DAYS = 366
CROWD = 7
NIGHTLY = Booking(
    name="nightly",
    resources=ResourceRequest(gpus=4),
    cron="0 20 * * *",
    zone="Europe/Berlin",
    duration_s=10 * HOUR,
    until_at=EPOCH + DAYS * DAY,
    no_show_s=NO_SHOW_S,
    users=("nina",),
)


class Watch:
    """Keeps what happens, and looks at every start as it does."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.open: dict[int, event.OccurrencePlanned] = {}
        self.planned: list[event.OccurrencePlanned] = []
        self.ended: dict[int, event.OccurrenceEnded] = {}
        self.began: dict[int, float] = {}
        self.inside: dict[int, list[event.JobAllocated]] = {}
        self.outside: list[event.JobAllocated] = []
        for name in ("handle", "adopt"):
            setattr(controller, name, self._watched(getattr(controller, name)))

    def _watched(self, method: Any) -> Any:
        def call(one: object, now: float) -> Turn:
            turn: Turn = method(one, now)
            for fact in turn.events:
                self._see(fact)
            return turn

        return call

    def _see(self, fact: event.Event) -> None:
        match fact:
            case event.OccurrencePlanned():
                self.planned.append(fact)
                self.open[fact.number] = fact
                invariants.check(self.controller.cluster)
            case event.OccurrenceBegan():
                self.began[fact.number] = fact.at
            case event.OccurrenceEnded():
                self.ended[fact.number] = fact
                del self.open[fact.number]
            case event.JobAllocated() if fact.occurrence:
                self.inside.setdefault(fact.occurrence, []).append(fact)
            case event.JobAllocated():
                self.outside.append(fact)
                self._check_outside(fact)

    def _check_outside(self, fact: event.JobAllocated) -> None:
        limit_s = self.controller.cluster.jobs[fact.attempt_id.job_id].time_limit_s
        assert limit_s is not None
        for one in self.open.values():
            if both(fact.grants, one.grants):
                is_before = fact.at + limit_s <= one.begin_at - CLEAR_S
                assert is_before or fact.at >= one.end_at, f"{fact} meets {one}"


def both(some: tuple[Grant, ...], others: tuple[Grant, ...]) -> bool:
    gpus = {(one.node, gpu) for one in some for gpu in one.gpus}
    return any((one.node, gpu) in gpus for one in others for gpu in one.gpus)


def jobs_of_a_year() -> Iterator[SimJob]:
    """Every evening a crowd comes that has work until the next; two nights of three somebody uses what is kept."""
    for day in range(DAYS - 1):
        for number in range(CROWD):
            begin_s = day * DAY + 15 * HOUR + number * 600
            gpus = 1 + (day + number) % 4
            limit_s = float((2 + (day * 7 + number) % 7) * HOUR)
            runs_s = limit_s if number % 3 else limit_s / 2
            yield job(f"out{day}.{number}", begin_s, runs_s, gpus, limit_s=limit_s)
        if day % 3:
            come_s = day * DAY + 15.5 * HOUR
            yield job(f"in{day}", come_s, 7.0 * HOUR, 4, limit_s=9.0 * HOUR, reservation="nightly", user="nina")


@pytest.fixture(scope="module")
def year() -> Watch:
    jobs = sorted(jobs_of_a_year(), key=lambda one: one.submit_s)
    site = site_of([Pool(pool=ALL, nodes=2, gpus_per_node=4)])
    bounded = Partition(name=ALL, is_default=True, max_time_s=DAY)
    setup = (client.SetReservation(booking=NIGHTLY),)
    site = msgspec.structs.replace(site, partitions=(bounded,), setup=setup)
    jobs = [msgspec.structs.replace(one, account="") for one in jobs]
    engine = Engine(site, read_policies(["default"], [])[0].policy, jobs)
    engine.controller.volatile.zones["Europe/Berlin"] = BERLIN
    watch = Watch(engine.controller)
    engine.run()
    return watch


def test_there_is_one_for_each_night_of_the_year_at_eight_in_the_evening(year: Watch) -> None:
    first = datetime.fromtimestamp(EPOCH, BERLIN).date()
    nights = [datetime.combine(first + timedelta(days=one), datetime.min.time(), BERLIN) for one in range(DAYS + 2)]
    evenings = [one.replace(hour=20).timestamp() for one in nights]

    assert [one.begin_at for one in year.planned] == [at for at in evenings if EPOCH < at < EPOCH + DAYS * DAY]
    assert {one.end_at - one.begin_at for one in year.planned} == {10 * HOUR}
    gaps = {after.begin_at - before.begin_at for before, after in zip(year.planned, year.planned[1:], strict=False)}
    assert gaps == {23 * HOUR, 24 * HOUR, 25 * HOUR}
    assert all(year.began[one.number] == one.begin_at for one in year.planned)


def test_each_of_them_has_its_four_gpus(year: Watch) -> None:
    assert {sum(len(grant.gpus) for grant in one.grants) for one in year.planned} == {4}
    assert {one.missing_gpus for one in year.planned} == {0}


def test_who_came_had_it_and_who_did_not_left_it_to_others_in_the_same_pass(year: Watch) -> None:
    starts = {(fact.at, grant.node, gpu) for fact in year.outside for grant in fact.grants for gpu in grant.gpus}
    refilled = 0
    for one in year.planned:
        ended = year.ended[one.number]
        if one.number in year.inside:
            assert ended.state is OccurrenceState.OVER
            assert ended.at == one.end_at
            assert all(fact.at == one.begin_at for fact in year.inside[one.number])
        else:
            assert (ended.state, ended.at) == (OccurrenceState.RELEASED, one.begin_at + NO_SHOW_S)
            mine = {(ended.at, grant.node, gpu) for grant in one.grants for gpu in grant.gpus}
            refilled += len(mine & starts)
    released = sum(one.state is OccurrenceState.RELEASED for one in year.ended.values())
    assert released == pytest.approx(DAYS / 3, abs=2)
    assert refilled >= 3 * released  # four each, but for the few evenings at which nobody else waits


def test_nobody_from_outside_ran_where_and_when_it_was_kept(year: Watch) -> None:
    """Each start was looked at as it happened; here, that there were many."""
    assert len(year.outside) == CROWD * (DAYS - 1)
