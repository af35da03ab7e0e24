"""An elastic job of which something is asked may answer by giving up what came to it, and then takes no more."""

from __future__ import annotations

import pytest

from gq.errors import Refusal
from gq.model.ask import AskAnswer
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events import event
from gqd.state.input import Peer
from tests.builders import ALICE, BOB, SHARED
from tests.control import test_elastic as of_gpus
from tests.control import test_elastic_nodes as of_nodes
from tests.hosts import CoreHost

ASKED = 1100.0
CARLA = Peer(uid=2009, gid=2009, user="carla")


def answer(host: CoreHost, job_id: int, keep: int | None = None, word: AskAnswer = AskAnswer.SHRINK) -> None:
    host.ask(client.AskJob(job_id=job_id, text="a GPU?"), ASKED)
    assert host.ask(client.AnswerAsks(job_id=job_id, answer=word, keep=keep), ASKED) == client.Done()


def refusal_of(host: CoreHost, job_id: int, keep: int | None = None, word: AskAnswer = AskAnswer.SHRINK) -> str:
    with pytest.raises(Refusal) as caught:
        answer(host, job_id, keep, word)
    return caught.value.code


def test_gpus_that_came_are_given_up_with_notice_and_not_taken_again() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host)

    answer(host, job_id)

    [told] = [one for one in host.log if isinstance(one, event.ShrinkDecided)]
    assert (told.keeps, told.ends_at, told.to) == ((0,), ASKED + 10, ())
    host.obey()
    host.schedule(ASKED + 60)
    assert of_gpus.gpus(host, job_id) == (0,)
    assert "it has 1 GPU, its maximum" in host.explain(job_id).why


def test_as_many_as_it_says_stay_with_their_cpus() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host, cpus_per_gpu=2)

    answer(host, job_id, keep=3)
    host.obey()

    held = host.attempt(job_id).grants[0]
    assert (len(held.gpus), len(held.cpus)) == (3, 6)


def test_nodes_that_came_leave_and_the_first_ones_stay() -> None:
    host = of_nodes.cluster()
    job_id = of_nodes.grown(host)
    first = of_nodes.nodes(host, job_id)[0]

    answer(host, job_id)
    of_nodes.tick(host, ASKED + 20)
    of_nodes.settle(host)

    assert of_nodes.nodes(host, job_id) == [first]


def test_what_is_given_up_for_another_job_meanwhile_comes_first_and_the_rest_follows() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host)
    of_gpus.rival(host, ASKED - 5, gpus=2)
    assert [len(one.keeps) for one in host.log if isinstance(one, event.ShrinkDecided)] == [6]

    answer(host, job_id, keep=2)
    host.obey()
    of_gpus.tick(host, ASKED + 1)
    host.obey()

    assert len(of_gpus.gpus(host, job_id)) == 2


def test_what_was_agreed_is_known_after_a_restart() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host)
    answer(host, job_id, keep=2)
    host.restart()
    elastic = host.attempt(job_id).elastic
    assert elastic is not None
    assert (elastic.takes, elastic.most) == (2, 8)


def asked_twice() -> tuple[CoreHost, int]:
    """A second answer keeps more than the first one, before the node has said that the GPUs are given up."""
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host)
    answer(host, job_id, keep=2)
    host.ask(client.AskJob(job_id=job_id, text="one more?"), ASKED + 1)
    told = host.ask(client.AnswerAsks(job_id=job_id, answer=AskAnswer.SHRINK, keep=4), ASKED + 1)
    assert told == client.Done(
        text="job 1 keeps 2 GPUs, not 4: an earlier answer applies until the asker's job has ended"
    )
    host.obey()
    return host, job_id


def grown(host: CoreHost, job_id: int, now: float) -> int:
    """Number of GPUs of the job after it could have taken idle ones."""
    of_gpus.tick(host, now)
    host.schedule(now)
    host.obey()
    return len(of_gpus.gpus(host, job_id))


def test_a_second_answer_with_a_higher_number_does_not_let_the_job_grow_again() -> None:
    host, job_id = asked_twice()
    assert grown(host, job_id, ASKED + 60) == 2
    host.restart()
    host.beat(ASKED + 70)
    assert grown(host, job_id, ASKED + 90) == 2


def test_the_job_grows_again_when_the_job_of_the_user_who_asked_has_ended() -> None:
    host, job_id = asked_twice()
    askers = host.submit(of_gpus.submit(gpus=2, time_limit_s=600), ASKED + 10)
    host.schedule(ASKED + 10)
    later = host.start(of_gpus.submit(gpus=1, time_limit_s=60), ASKED + 15)
    host.finish(later, now=ASKED + 20)
    assert grown(host, job_id, ASKED + 30) == 2, "the first job that started is the asker's job, and runs"

    host.finish(askers, now=ASKED + 40)

    assert grown(host, job_id, ASKED + 60) == 8
    elastic = host.attempt(job_id).elastic
    assert elastic is not None
    assert (elastic.agreed, elastic.agreements) == (None, ())


def test_the_agreement_ends_when_the_user_who_asked_cancels_the_job_that_waits() -> None:
    host, job_id = asked_twice()
    waiting = [host.submit(of_gpus.submit(gpus=8, time_limit_s=60), ASKED + 10) for _ in range(2)]
    for each in waiting:
        assert grown(host, job_id, ASKED + 20) == 2
        host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(each,))), ASKED + 20)
    assert grown(host, job_id, ASKED + 40) == 8


def test_each_agreement_ends_with_the_job_of_its_own_asker() -> None:
    host = CoreHost(SHARED, {"n1": of_gpus.hardware()})
    host.now = of_gpus.START
    job_id = host.start(of_gpus.submit(gpus=1, most_gpus=8, time_limit_s=36_000), peer=ALICE)
    host.schedule(ASKED - 1)
    host.obey()
    for peer, keep in ((BOB, 5), (CARLA, 3)):
        host.ask(client.AskJob(job_id=job_id, text="a GPU?"), ASKED, peer=peer)
        host.ask(client.AnswerAsks(job_id=job_id, answer=AskAnswer.SHRINK, keep=keep), ASKED, peer=ALICE)
    jobs = [host.submit(of_gpus.submit(gpus=1, time_limit_s=600), ASKED + 1, peer=peer) for peer in (BOB, CARLA)]
    host.obey()
    assert grown(host, job_id, ASKED + 30) == 3
    host.finish(jobs[1], now=ASKED + 40)
    assert grown(host, job_id, ASKED + 60) == 5
    host.finish(jobs[0], now=ASKED + 70)
    assert grown(host, job_id, ASKED + 90) == 8


def test_who_has_nothing_to_give_up_is_refused_and_the_request_stays_open() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host, most=2)
    rigid = host.start(of_gpus.submit(gpus=1, time_limit_s=60))

    assert refusal_of(host, rigid) == "not_elastic"
    assert [refusal_of(host, job_id, keep) for keep in (2,)] == ["bad_number"]
    assert host.job(job_id).asks[-1].is_open
    host.ask(client.AnswerAsks(job_id=job_id, answer=AskAnswer.SHRINK), ASKED)
    host.obey()
    assert refusal_of(host, job_id) == "nothing_to_give"


def test_only_a_job_that_shrinks_keeps_some_of_what_it_has() -> None:
    host = of_gpus.cluster()
    assert refusal_of(host, of_gpus.elastic(host), keep=2, word=AskAnswer.DECLINE) == "bad_answer"


def test_the_holder_reads_of_all_three_answers() -> None:
    host = of_gpus.cluster()
    job_id = of_gpus.elastic(host)
    host.ask(client.AskJob(job_id=job_id, text="a GPU?"), ASKED)
    [line] = [one.order.text for one in host.orders if isinstance(one.order, wire.Notify)]
    assert line.endswith("asks: a GPU? (`gqctl answer 1` `release`, `shrink` or `decline`)")
