"""When an occurrence counts as used: a job has started in it; one whose launch failed has not come."""

from __future__ import annotations

from gq.model.reservation import OccurrenceState
from gq.wire import client, node
from gqd.state.events import event
from tests.builders import submit
from tests.control.test_reservations import booking, host_of, only, set_, tick
from tests.hosts import CoreHost

NO_SHOW_S = 1200


def host_with(**fields: int) -> CoreHost:
    host = host_of(1)
    set_(host, booking(at=0, **fields))
    tick(host, 1)
    return host


def launch(host: CoreHost, now: float) -> int:
    """It is STARTING: its node has not answered yet."""
    job = host.submit(submit(gpus=4, time_limit_s=600, reservation="talk"), now)
    host.schedule(now)
    assert list(only(host).inside) == [host.attempt(job).attempt_id]
    return job


def fail(host: CoreHost, job: int, now: float) -> None:
    host.orders = []
    refused = node.PrepareRefused(attempt_id=host.attempt(job).attempt_id, why="no scratch", is_job_fault=True)
    host.report("n1", refused, now=now)
    host.obey()


def ends(host: CoreHost) -> list[OccurrenceState]:
    return [one.state for one in host.log if isinstance(one, event.OccurrenceEnded)]


def test_a_launch_that_failed_is_no_use_and_nobody_has_come() -> None:
    host = host_with(no_show_s=NO_SHOW_S)
    job = launch(host, 2)
    assert only(host).used_at is None
    fail(host, job, 3)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job,))))
    host.obey()
    assert (only(host).used_at, dict(only(host).inside)) == (None, {})

    tick(host, NO_SHOW_S)

    assert ends(host) == [OccurrenceState.RELEASED]


def test_who_is_starting_when_time_is_up_keeps_it_and_has_come_when_it_started() -> None:
    host = host_with(no_show_s=NO_SHOW_S)
    job = launch(host, NO_SHOW_S - 1)

    tick(host, NO_SHOW_S)
    assert ends(host) == []
    host.obey()

    assert (host.job(job).start_at, only(host).used_at) == (NO_SHOW_S, NO_SHOW_S)
    tick(host, NO_SHOW_S + 300)
    assert ends(host) == []


def test_who_was_starting_when_time_was_up_and_failed_has_not_come_after_all() -> None:
    host = host_with(no_show_s=NO_SHOW_S)
    job = launch(host, NO_SHOW_S - 1)
    tick(host, NO_SHOW_S)

    fail(host, job, NO_SHOW_S + 20)
    assert host.controller.next_wakeup(host.now) == host.now
    tick(host, host.now)

    assert ends(host) == [OccurrenceState.RELEASED]


def test_a_launch_that_failed_does_not_make_it_empty_again() -> None:
    host = host_with(purge_s=300)
    job = launch(host, 2)
    fail(host, job, 3)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job,))))
    host.obey()

    tick(host, 1000)

    assert only(host).state is OccurrenceState.ACTIVE


def test_the_store_gives_back_when_it_was_used() -> None:
    host = host_with(no_show_s=NO_SHOW_S)
    launch(host, 2)
    host.restart(3)
    assert only(host).used_at is None
    host = host_with(no_show_s=NO_SHOW_S)
    host.start(submit(gpus=1, time_limit_s=600, reservation="talk"), 5)

    host.restart(10)

    assert only(host).used_at == 5
