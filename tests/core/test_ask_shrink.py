"""An elastic job of which something is asked may answer by giving up what came to it, and then takes no more."""

from __future__ import annotations

import pytest

from gq.errors import Refusal
from gq.model.ask import AskAnswer
from gq.wire import client
from gq.wire import node as wire
from gqd.state import event
from tests.core import test_elastic as of_gpus
from tests.core import test_elastic_nodes as of_nodes
from tests.hosts import CoreHost

ASKED = 1100.0


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
    assert "it has 1 GPU, the most that it wants" in host.explain(job_id).why


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
