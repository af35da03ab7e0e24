"""Favours that are asked of the holder of a job: who hears of them, how they are answered, and what that does."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.ask import AskAnswer, AskInfo
from gq.model.notice import NotifySettings, Target
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.control.ask import MAX_OPEN
from gqd.state.events import event
from gqd.state.input import Peer
from tests.builders import ALICE, BOB, OLGA, SHARED, inventory, submit
from tests.hosts import CoreHost


def host_with(*bodies: client.Submit) -> CoreHost:
    """Jobs of alice, which run as far as there is room."""
    host = CoreHost(SHARED, {"n1": inventory()})
    for body in bodies:
        host.start(body, peer=ALICE)
    host.orders = []
    return host


def ask(host: CoreHost, job_id: int = 1, text: str = "until noon?", peer: Peer = BOB, now: float = 10.0) -> None:
    assert host.ask(client.AskJob(job_id=job_id, text=text), now, peer=peer) == client.Done()


def asks(host: CoreHost, peer: Peer) -> list[AskInfo]:
    answer = host.ask(client.ListAsks(), peer=peer)
    assert isinstance(answer, client.Asks)
    return list(answer.asks)


def answer(host: CoreHost, word: AskAnswer, text: str = "", peer: Peer = ALICE, requeue: bool = False) -> None:
    body = client.AnswerAsks(job_id=1, answer=word, text=text, requeue=requeue)
    assert host.ask(body, 20.0, peer=peer) == client.Done()


def refusal_of(host: CoreHost, body: client.RequestBody, peer: Peer = BOB) -> str:
    with pytest.raises(Refusal) as caught:
        host.ask(body, peer=peer)
    return caught.value.code


def test_the_holder_is_told_in_the_job_and_in_lists_and_whoever_asked_hears_the_answer() -> None:
    host = host_with(submit(gpus=4))

    ask(host)

    line = "gq: bob asks: until noon? (`gqctl answer 1` `release` or `decline`)"
    assert [one.order for one in host.orders] == [wire.Notify(attempt_id=host.attempt(1).attempt_id, text=line)]
    told = AskInfo(job_id=1, label="1", holder="alice", job_state="RUNNING", by="bob", at=10.0, text="until noon?")
    assert asks(host, ALICE) == asks(host, BOB) == asks(host, OLGA) == [told]
    assert asks(host, Peer(uid=2009, gid=2009, user="carla")) == []
    jobs = host.ask(client.ListJobs(), peer=ALICE)
    assert isinstance(jobs, client.Jobs)
    assert jobs.jobs[0].open_asks == 1

    answer(host, AskAnswer.DECLINE, "it ends at ten")

    [told] = asks(host, BOB)
    assert (told.answer, told.answer_text, told.answered_by, told.answered_at) == (
        AskAnswer.DECLINE, "it ends at ten", "alice", 20.0,
    )  # fmt: skip
    assert host.job(1).state is JobState.RUNNING
    trail = [(one.user, one.action, one.object, one.detail) for one in host.trail[-2:]]
    assert trail == [
        ("bob", "AskJob", "job 1", "until noon?"),
        ("alice", "AnswerAsks", "job 1", "decline: it ends at ten"),
    ]


def test_what_was_asked_outlives_a_restart() -> None:
    host = host_with(submit(gpus=4))
    ask(host)
    before = asks(host, BOB)

    host.restart(15.0)

    assert asks(host, BOB) == before


def test_a_release_ends_the_job_and_says_why() -> None:
    host = host_with(submit(gpus=4))
    ask(host)

    answer(host, AskAnswer.RELEASE)
    host.obey()

    assert (host.job(1).state, host.job(1).why) == (JobState.ENDED, "by alice, as bob asked")


def test_a_release_may_queue_the_job_again() -> None:
    host = host_with(submit(gpus=4))
    ask(host)

    answer(host, AskAnswer.RELEASE, requeue=True)
    host.obey()

    assert (host.job(1).state, host.job(1).restart_count) == (JobState.PENDING, 1)


def test_a_pending_job_may_be_asked_for_and_let_go() -> None:
    host = host_with(submit(is_held=True))

    ask(host)
    assert host.orders == []
    again = client.AnswerAsks(job_id=1, answer=AskAnswer.RELEASE, requeue=True)
    assert refusal_of(host, again, ALICE) == "bad_answer"
    answer(host, AskAnswer.RELEASE)

    assert host.job(1).state is JobState.ENDED


def test_who_is_told_of_the_job_is_told_of_the_favour() -> None:
    host = CoreHost(msgspec.structs.replace(SHARED, notify=NotifySettings(mail="/bin/true")), {"n1": inventory()})
    host.start(submit(gpus=4, notify=(Target(kind="mail", on=("fail",)),)), peer=ALICE)

    ask(host)

    queued = [one for one in host.log if isinstance(one, event.NoticeQueued)]
    assert [(one.user, one.job_id, one.on) for one in queued] == [("alice", 1, "ask")]
    assert "bob asks: until noon?" in queued[0].body


def test_one_asks_once_until_it_is_answered() -> None:
    host = host_with(submit(gpus=4))
    ask(host)

    assert refusal_of(host, client.AskJob(job_id=1, text="please?")) == "asked_already"
    ask(host, peer=OLGA)
    answer(host, AskAnswer.DECLINE)
    ask(host, text="and at one?", now=30.0)

    assert [(one.by, one.answer) for one in asks(host, ALICE)] == [
        ("bob", AskAnswer.DECLINE), ("olga", AskAnswer.DECLINE), ("bob", None),
    ]  # fmt: skip


def test_one_user_has_so_many_open_favours_at_most_and_those_of_jobs_that_are_over_do_not_count() -> None:
    host = host_with(*(submit(is_held=True) for _ in range(MAX_OPEN + 1)))
    for job_id in range(1, MAX_OPEN + 1):
        ask(host, job_id)
    last = client.AskJob(job_id=MAX_OPEN + 1, text="and this?")
    assert refusal_of(host, last) == "too_many_asks"

    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))), peer=ALICE)

    assert host.ask(last, peer=BOB) == client.Done()


@pytest.mark.parametrize(
    ("text", "code"), [("", "no_text"), ("  ", "no_text"), ("a\nb", "bad_text"), ("x" * 501, "bad_text")]
)
def test_what_is_asked_is_one_line(text: str, code: str) -> None:
    assert refusal_of(host_with(submit()), client.AskJob(job_id=1, text=text)) == code


def test_only_who_may_answer_does_and_only_what_was_asked() -> None:
    host = host_with(submit(gpus=4))
    decline = client.AnswerAsks(job_id=1, answer=AskAnswer.DECLINE)
    assert refusal_of(host, decline, ALICE) == "not_asked"
    ask(host)

    assert refusal_of(host, decline, BOB) == "not_owner"
    assert host.ask(decline, peer=OLGA) == client.Done()
    assert refusal_of(host, client.AskJob(job_id=99, text="x")) == "unknown_job"


def test_of_a_job_that_is_over_nothing_is_asked() -> None:
    host = host_with(submit())
    host.finish(1)

    assert refusal_of(host, client.AskJob(job_id=1, text="x")) == "job_over"
