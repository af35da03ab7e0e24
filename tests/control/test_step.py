"""Steps on the core: disjoint shares of an allocation, waiting, ends."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gq.model.ids import JobId, StepId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events import event
from gqd.state.input import Tick
from tests.builders import client_request, hello, inventory, submit
from tests.hosts import CoreHost


def gang() -> CoreHost:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    host.start(submit("gang", nodes_min=2, gpus_per_node=4, cpus_per_task=4))
    return host


def create(host: CoreHost, **fields: Any) -> client.StepCreated | None:
    answer = host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step", **fields)))
    host.obey()
    assert answer is None or isinstance(answer, client.StepCreated)
    return answer


def end_step(host: CoreHost, number: int, *nodes: str, code: int = 0) -> None:
    for node in nodes:
        host.report(node, wire.StepEnded(step_id=StepId(JobId(1), 1, number), exit=ExitStatus(code=code)))


def test_a_step_gets_all_that_the_job_has_unless_it_says_less() -> None:
    host = gang()
    step = create(host)
    assert step is not None
    assert [(part.node, part.first_rank, part.tasks, len(part.cpus), part.gpus) for part in step.layout.parts] == [
        ("n1", 0, 1, 4, (0, 1, 2, 3)),
        ("n2", 1, 1, 4, (0, 1, 2, 3)),
    ]
    assert len(step.key) == 32


def test_a_step_has_tasks_for_each_of_its_gpus() -> None:
    host = gang()

    step = create(host, ntasks_per_gpu=1, gpus_per_node=2, cpus_per_task=1)
    other = create(host, ntasks_per_gpu=2, ntasks=4, gpus=2, cpus_per_task=1, overlap=True)

    assert step is not None and other is not None
    assert [(part.tasks, part.gpus) for part in step.layout.parts] == [(2, (0, 1)), (2, (0, 1))]
    assert [(part.tasks, len(part.gpus)) for part in other.layout.parts] == [(2, 1), (2, 1)]
    assert (step.layout.tasks_per_gpu, other.layout.tasks_per_gpu) == (1, 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ntasks_per_gpu": 2, "gpus": 2, "ntasks": 3}, "--ntasks=3 contradicts the 4 tasks of 2 GPUs at 2 per GPU"),
        ({"ntasks_per_gpu": 2, "gpus": 0}, "--ntasks-per-gpu needs GPUs, and the step has none"),
        ({"ntasks_per_gpu": 2, "gpus_per_task": 1}, "--ntasks-per-gpu and --gpus-per-task exclude each other"),
        ({"ntasks_per_gpu": 2, "ntasks_per_node": 1}, "--ntasks-per-gpu and --ntasks-per-node exclude each other"),
        ({"ntasks_per_gpu": 0}, "--ntasks-per-gpu=0 is not between 1 and"),
    ],
)
def test_a_step_with_contradictory_tasks_per_gpu_is_refused(fields: dict[str, int], message: str) -> None:
    host = gang()

    with pytest.raises(Refusal) as caught:
        create(host, **fields)

    assert caught.value.message.startswith(message)


def test_concurrent_steps_get_disjoint_gpus_and_wait_for_them() -> None:
    host = gang()
    one = create(host, ntasks=2, cpus_per_task=1, gpus_per_task=2)
    two = create(host, ntasks=2, cpus_per_task=1, gpus_per_task=2)
    assert one is not None and two is not None
    assert set(one.layout.parts[0].gpus) & set(two.layout.parts[0].gpus) == set()
    assert create(host, ntasks=2, cpus_per_task=1, gpus_per_task=2) is None, "it waits"
    assert create(host, ntasks=2, cpus_per_task=1, gpus_per_task=2, overlap=True) is not None
    host.replies.clear()
    end_step(host, 0, "n1", "n2")
    (reply,) = host.replies
    assert isinstance(reply.body, client.StepCreated)
    assert reply.body.layout.parts[0].gpus == one.layout.parts[0].gpus


def test_a_step_that_waits_too_long_is_told_so() -> None:
    host = gang()
    create(host)
    host.replies.clear()
    assert create(host) is None
    host.handle(Tick(), now=26)
    (reply,) = host.replies
    assert isinstance(reply.body, client.Refused)
    assert reply.body.code == "step_waits"


def test_a_step_request_that_is_sent_again_keeps_its_first_deadline() -> None:
    host = gang()
    create(host)
    body = client.CreateStep(job_id=1, step=StepRequest(name="second"), wait_s=25)
    for sent_at in (0, 5, 15):
        host.handle(client_request(body, 99), now=sent_at)
    host.replies.clear()

    host.handle(Tick(), now=25)

    (reply,) = host.replies
    assert isinstance(reply.body, client.Refused)
    assert reply.body.code == "step_waits"


def test_a_step_larger_than_the_job_is_refused() -> None:
    host = gang()
    for fields in ({"gpus_per_node": 5}, {"ntasks": 9}, {"nodes": 3}, {"nodelist": ("n7",)}):
        with pytest.raises(Refusal):
            create(host, **fields)


def test_tasks_are_dealt_out_in_blocks() -> None:
    host = gang()
    step = create(host, ntasks=7, cpus_per_task=1)
    assert step is not None
    assert [(part.first_rank, part.tasks) for part in step.layout.parts] == [(0, 4), (4, 3)]


def test_a_step_ends_when_its_last_node_says_so_with_the_worst_exit() -> None:
    host = gang()
    create(host)
    end_step(host, 0, "n1", code=3)
    assert 0 in host.attempt(1).steps
    end_step(host, 0, "n2")
    assert 0 not in host.attempt(1).steps
    finished = [one for one in host.log if type(one).__name__ == "StepFinished"]
    assert [one.exit.code for one in finished] == [3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        (Outcome.COMPLETED, Outcome.CANCELLED, Outcome.CANCELLED),
        (Outcome.CANCELLED, Outcome.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY),
        (Outcome.CANCELLED, Outcome.FAILED, Outcome.FAILED),
        (Outcome.TIMEOUT, Outcome.COMPLETED, Outcome.TIMEOUT),
        (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.COMPLETED),
    ],
)
def test_a_step_ends_as_the_gravest_of_its_parts_did(first: Outcome, second: Outcome, outcome: Outcome) -> None:
    host = gang()
    create(host)
    for node, its in (("n1", first), ("n2", second)):
        host.report(node, wire.StepEnded(step_id=StepId(JobId(1), 1, 0), exit=ExitStatus(), outcome=its))
    [finished] = [one for one in host.log if isinstance(one, event.StepFinished)]
    assert finished.outcome is outcome


@pytest.mark.parametrize(
    ("exit", "outcome"),
    [
        (ExitStatus(signal=15), Outcome.CANCELLED),
        (ExitStatus(code=143), Outcome.CANCELLED),
        (ExitStatus(signal=9), Outcome.CANCELLED),
        (ExitStatus(signal=11), Outcome.FAILED),
        (ExitStatus(code=1), Outcome.FAILED),
    ],
)
def test_a_step_whose_tasks_gqrun_ended_for_a_cancelled_job_is_cancelled_too(
    exit: ExitStatus, outcome: Outcome
) -> None:
    host = gang()
    create(host)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(JobId(1),))))
    for node, its in (("n1", Outcome.CANCELLED), ("n2", Outcome.FAILED)):
        host.report(node, wire.StepEnded(step_id=StepId(JobId(1), 1, 0), exit=exit, outcome=its))

    [finished] = [one for one in host.log if isinstance(one, event.StepFinished)]
    assert finished.outcome is outcome


@pytest.mark.parametrize(
    ("ended_at", "outcome"),
    [
        (20.5, Outcome.CANCELLED),
        (19.5, Outcome.CANCELLED),  # the clocks of two machines differ a little
        (15.0, Outcome.FAILED),  # the link was down, and the report is late
    ],
)
def test_a_step_that_ended_after_its_job_was_cancelled_is_cancelled_whatever_its_exit_code(
    ended_at: float, outcome: Outcome
) -> None:
    host = gang()
    create(host)
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(JobId(1),))), now=20)
    step_id = StepId(JobId(1), 1, 0)
    end = wire.StepEnded(step_id=step_id, exit=ExitStatus(code=1), outcome=Outcome.FAILED, ended_at=ended_at)
    host.report("n1", wire.StepEnded(step_id=step_id, outcome=Outcome.CANCELLED, ended_at=21), now=21)
    host.report("n2", end, now=21)

    [finished] = [one for one in host.log if isinstance(one, event.StepFinished)]
    assert finished.outcome is outcome


def test_steps_end_with_their_job() -> None:
    host = gang()
    create(host)
    host.finish(1)
    finished = [one for one in host.log if type(one).__name__ == "StepFinished"]
    assert len(finished) == 1


def test_a_step_order_is_repeated_until_the_node_has_it() -> None:
    host = gang()
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step")))
    host.orders.clear()
    host.handle(Tick(), now=host.now + 6)
    assert [(one.node, type(one.order).__name__) for one in host.orders] == [("n1", "LaunchStep"), ("n2", "LaunchStep")]
    host.obey()
    host.handle(Tick(), now=host.now + 6)
    assert host.orders == []


def test_a_client_that_asks_again_while_it_waits_gets_one_step() -> None:
    host = gang()
    create(host)
    assert create(host) is None
    host._requests -= 1
    assert create(host) is None, "the same request, by a new link"
    host.replies.clear()
    end_step(host, 0, "n1", "n2")
    assert [type(one.body).__name__ for one in host.replies] == ["StepCreated"]


def test_a_step_of_a_script_that_runs_unheard_waits_until_its_node_says_so() -> None:
    """The controller died between GO and `Started`; the script asks as soon as it is back."""
    host = CoreHost(nodes={"n1": inventory()})
    host.submit(submit("script", gpus=1))
    host.schedule()
    attempt_id = host.attempt(1).attempt_id
    host.report("n1", wire.Prepared(attempt_id=attempt_id, master_port=20000))
    host.restart(10.0)
    host.handle(hello("n1", inventory(), attempts=(wire.AttemptStatus(attempt_id=attempt_id, phase="running"),)))
    host.orders = []
    assert create(host) is None
    host.report("n1", wire.Started(attempt_id=attempt_id, at=1.0))
    assert isinstance(host.replies[-1].body, client.StepCreated)


def test_a_job_that_was_not_let_go_has_no_steps() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.submit(submit("script", gpus=1))
    host.schedule()
    with pytest.raises(Refusal, match="job 1 is starting, not running"):
        create(host)
