"""Long lists come in pages, the next of which is asked for on another thread while one is shown."""

from __future__ import annotations

import time

import pytest

from gq.cli.framework.connection import job_pages
from gq.connection.client import Client
from gq.connection.locate import Location
from gq.wire import client as wire
from tests.cli.scripted import ScriptedController, a_job, jobs

PAGES = 3


def page(query: wire.ListJobs) -> wire.Jobs:
    time.sleep(0.05)  # long enough to be under way when the reader goes
    return jobs(a_job(query.after + 1), more=query.after + 1 < PAGES)


@pytest.fixture
def client(location: Location, controller: ScriptedController) -> Client:
    controller.on(wire.ListJobs, page)
    return Client(location, timeout_s=10)


def test_a_client_that_lists_often_keeps_nothing_of_the_lists(client: Client) -> None:
    for _ in range(3):
        assert [one.job_id for page in job_pages(client, wire.ListJobs()) for one in page] == [1, 2, 3]
    assert client._before_close == []
    client.close()


def test_a_reader_who_goes_away_leaves_a_client_that_closes(client: Client) -> None:
    pages = job_pages(client, wire.ListJobs())
    next(pages)
    began_at = time.monotonic()
    client.close()
    client.close()
    assert time.monotonic() - began_at < 5
