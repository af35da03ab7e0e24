"""The desk that answers from the store: history without what is private of others, and the audit trail."""

from __future__ import annotations

import asyncio

import pytest

from gq.model.ids import RequestId
from gq.wire import client
from gqd.shell.requests.history import HistoryQueries
from gqd.state.effect import Reply, ReplyAudit, ReplyHistory
from gqd.state.input import Peer
from tests.builders import ALICE, BOB, SHARED, inventory, submit
from tests.hosts import CoreHost

SECRET = "s3cret"
ROUTE, ASKED = ("clients", b"c"), RequestId(b"r" * 16)


def answer_to(host: CoreHost, effect: ReplyHistory | ReplyAudit) -> client.ReplyBody:
    async def ask() -> Reply:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk = HistoryQueries(host.store, 100, answered.set_result)
        desk.ask(effect)
        reply = await asyncio.wait_for(answered, 10)
        desk.close()
        return reply

    return asyncio.run(ask()).body


@pytest.fixture
def host() -> CoreHost:
    host = CoreHost(SHARED, {"n1": inventory()})
    for peer in (ALICE, BOB):
        host.start(submit("job", command=SECRET, comment=SECRET), peer=peer)
    return host


@pytest.mark.parametrize(("shown_to", "whole"), [(None, {1, 2}), (ALICE, {1}), (BOB, {2})])
def test_history_shows_the_jobs_of_others_without_what_is_private(
    host: CoreHost, shown_to: Peer | None, whole: set[int]
) -> None:
    answer = answer_to(
        host, ReplyHistory(route=ROUTE, request_id=ASKED, query=client.QueryHistory(), shown_to=shown_to)
    )

    assert isinstance(answer, client.Jobs)
    assert [job.job_id for job in answer.jobs] == [1, 2]
    assert {job.job_id for job in answer.jobs if SECRET in repr(job)} == whole


def test_the_audit_trail_is_read_from_the_store(host: CoreHost) -> None:
    answer = answer_to(host, ReplyAudit(route=ROUTE, request_id=ASKED, query=client.QueryAudit(user="bob", limit=100)))

    assert isinstance(answer, client.AuditTrail)
    assert [(entry.user, entry.action, entry.object) for entry in answer.entries] == [("bob", "Submit", "job 2")]
    assert not answer.more
