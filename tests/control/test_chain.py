"""Chains: stages that are queued together or not at all, and that follow each other."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gq.model.dependency import format_dependency, parse_dependency
from gq.model.policy_tables import Limits
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.state.policy import Policy
from tests.builders import OWNER, client_request, inventory, submit
from tests.hosts import CoreHost


def cluster(**fields: Any) -> CoreHost:
    return CoreHost(Policy(owner_uid=OWNER.uid, **fields), nodes={"n1": inventory()})


def chain(host: CoreHost, *stages: client.Submit) -> tuple[int, ...]:
    answer = host.ask(client.SubmitChain(stages=stages))
    assert isinstance(answer, client.ChainSubmitted)
    return answer.job_ids


def run(host: CoreHost) -> None:
    host.schedule()
    host.obey()


def test_each_stage_starts_when_the_one_before_has_ended_well() -> None:
    host = cluster()
    stages = chain(host, submit("prep", cpus_per_task=8), submit("train", gpus=4), submit("eval", gpus=1))
    for place, job_id in enumerate(stages):
        run(host)
        states = [host.job(one).state for one in stages]
        assert states == [JobState.ENDED] * place + [JobState.RUNNING] + [JobState.PENDING] * (2 - place)
        host.finish(job_id)


def test_a_stage_that_fails_ends_all_after_it() -> None:
    host = cluster()
    prep, train, evaluation = chain(host, submit("prep"), submit("train"), submit("eval"))
    run(host)
    host.finish(prep, 1)
    assert [host.job(one).outcome for one in (train, evaluation)] == [Outcome.CANCELLED] * 2


def test_what_a_stage_waits_for_besides_holds_too() -> None:
    host = cluster()
    other = host.start(submit("other"))
    first, second = chain(host, submit("a"), submit("b", dependency=parse_dependency(f"afterok:{other}")))
    run(host)
    host.finish(first)
    assert format_dependency(host.job(second).dependency) == f"afterok:{other}"  # type: ignore[arg-type]
    host.finish(other)
    run(host)
    assert host.job(second).state is JobState.RUNNING


def test_corresponding_tasks_and_names_within_one_chain() -> None:
    host = cluster()
    first, second, third = chain(
        host, submit("a", array="1-2"), submit("a", dependency=parse_dependency("singleton")), submit("c", array="1-2")
    )
    assert format_dependency(host.job(second).dependency) == f"afterok:{first},singleton"  # type: ignore[arg-type]
    assert host.job(third).width == 2


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([submit("a"), submit("b", gpus=99)], "stage 2 of 2 (b): the job can never run"),
        ([submit("a", gpus=99), submit("b")], "stage 1 of 2 (a): the job can never run"),
        ([submit("a"), submit("b", partition="none")], "stage 2 of 2 (b): partition `none` does not exist"),
        ([submit("a"), submit("b", dependency=parse_dependency("afterok:9"))], "stage 2 of 2 (b): job 9, which"),
        ([submit("a"), submit("b", dependency=parse_dependency("afterok:1?afterany:1"))], "is for any of several jobs"),
        ([submit("a"), submit("b", is_interactive=True)], "this is an interactive job"),
        ([submit("a")] * 4, "stage 4 of 4 (a): user ada has 3 jobs in the queue, and the maximum per user is 3"),
        ([], "a chain has 1 to 100 stages, not 0"),
        ([submit("a")] * 101, "a chain has 1 to 100 stages, not 101"),
    ],
)
def test_a_chain_with_a_stage_that_cannot_be_queued_queues_nothing(stages: list[client.Submit], said: str) -> None:
    host = cluster(limits=Limits(jobs_per_user=3))
    log = list(host.log)
    with pytest.raises(Refusal) as refused:
        chain(host, *stages)
    assert said in refused.value.message
    assert host.log == log and not host.cluster.jobs


def test_a_stage_may_depend_on_one_before_it_by_the_id_that_it_will_have() -> None:
    host = cluster()
    *_, third = chain(host, submit("a"), submit("b"), submit("c", dependency=parse_dependency("after:1+5")))
    assert format_dependency(host.job(third).dependency) == "afterok:2,after:1+5"  # type: ignore[arg-type]


def test_a_chain_that_is_sent_again_is_queued_once() -> None:
    host = cluster()
    body = client.SubmitChain(stages=(submit("a"), submit("b")))
    first = host.handle(client_request(body, 77))
    again = host.handle(client_request(body, 77))
    assert len(host.cluster.jobs) == 2
    assert first.effects == again.effects and not again.events
