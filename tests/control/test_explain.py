"""gqwhy names the true blocker: what is scarce, who holds it, what is away, and one thing that helps."""

from __future__ import annotations

from typing import Any

import pytest

from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.state.input import Tick
from tests.builders import attempt_id, hello, inventory, submit
from tests.hosts import CoreHost

HELD: dict[str, dict[str, Any]] = {
    "gpus": {"gpus_per_node": 3},
    "cpus": {"cpus_per_task": 7},
    "memory": {"mem_per_node_mib": 60 * 1024},
}
# fmt: off
SCARCE: list[tuple[str, dict[str, Any], str]] = [
    ("gpus", {"gpus_per_node": 3}, "it needs 3 GPUs, 2 are free: job 1 (ada) holds 3 GPUs on n1 until"),
    ("gpus", {"gpus_per_node": 2}, "it needs 2 GPUs and 2 are free, but not in the right places: job 1 (ada) holds 3 GPUs"),
    ("cpus", {"cpus_per_task": 3}, "it needs 3 CPUs, 2 are free: job 1 (ada) holds 7 CPUs on n1 until"),
    ("cpus", {"cpus_per_task": 2, "gpus": 1}, "it needs 2 CPUs and 2 are free, but not in the right places"),
    ("memory", {"mem_per_node_mib": 8 * 1024}, "it needs 8G of memory and 8G is free, but not in the right places: job 1 (ada) holds 60G of memory on n1 until"),
    ("memory", {"mem_per_node_mib": 5 * 1024, "gpus": 1}, "it needs 5G of memory and 8G is free, but not in the right places"),
    ("gpus", {"is_exclusive": True}, "it needs 1 idle node, 0 are free: job 1 (ada) holds 3 GPUs on n1 until"),
]  # fmt: skip
# fmt: on


@pytest.mark.parametrize(("held", "wanted", "sentence"), SCARCE, ids=[case[2][:40] for case in SCARCE])
def test_what_is_scarce_is_named_with_who_holds_it(held: str, wanted: dict[str, Any], sentence: str) -> None:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    for node in ("n1", "n2"):
        host.start(submit(**HELD[held], nodelist=(node,), time_limit_s=600))
    host.submit(submit(**wanted))
    host.schedule()
    assert host.job(3).state is JobState.PENDING
    told = host.explain(3)
    assert sentence in told.why
    assert told.blockers == (1, 2)
    assert told.expected_start_at == 600


def test_only_holders_of_the_wanted_type_are_named() -> None:
    host = CoreHost(
        nodes={"n1": inventory(gpu_count=2, gpu_type="a100"), "n2": inventory(gpu_count=2, gpu_type="h100")}
    )
    for gpu_type in ("a100", "h100"):
        host.start(submit(gpus=2, gpu_type=gpu_type))
    host.submit(submit(gpus=1, gpu_type="h100"))
    host.schedule()
    assert host.explain(3).blockers == (2,)
    assert "it needs 1 GPU, 0 are free: job 2 (ada) holds 2 GPUs on n2 with no known end" in host.explain(3).why


def test_no_node_has_everything_at_once_is_said_so() -> None:
    host = CoreHost(nodes={"n1": inventory(cpus=64, gpu_count=0), "n2": inventory(cpus=2, gpu_count=4)})
    with pytest.raises(Exception, match="no node that it may use has 1 GPU and 8 CPUs at once"):
        host.submit(submit(gpus=1, cpus_per_task=8))


def test_nodes_that_are_away_are_named_with_what_helps() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.restart(now=1)
    host.submit(submit(gpus=1))
    told = host.explain(1)
    assert told.why == "it needs nodes that are not available: n1 is not connected since the controller started"
    assert told.hint == "start gqnode on n1, or check why it does not respond"
    host.handle(hello("n1"), now=2)
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="fire"))
    told = host.explain(1)
    assert "n1 is down: fire" in told.why
    assert told.hint == "gqctl node resume n1 makes it available again"


def test_a_failed_launch_is_told_only_while_its_node_is_left_out() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.submit(submit(gpus=1), now=1)
    host.schedule()
    host.report("n1", wire.PrepareRefused(attempt_id=attempt_id(1), why="bad home", is_job_fault=True), now=2)
    told = host.explain(1)
    assert told.reason == "LaunchFailed"
    assert "bad home" in told.why
    assert "n1 is left out after its own launch failed there" in told.why
    assert told.expected_start_at == 32
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="fan"), now=20)
    host.beat(now=40)
    host.handle(Tick(), now=41)
    assert host.explain(1).reason == "ReqNodeNotAvail"
    assert "fan" in host.explain(1).why


def test_release_lets_a_job_try_the_nodes_that_it_left_out() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.submit(submit(gpus=1), now=0)
    now = 0.0
    for attempt in range(1, 11):
        host.schedule(now=now)
        refused = wire.PrepareRefused(attempt_id=attempt_id(1, attempt), why="bad home", is_job_fault=True)
        host.report("n1", refused, now=now)
        now = host.job(1).avoid["n1"]
        host.beat(now=now)
    told = host.explain(1)
    assert told.reason == "launch_failed_requeued_held"
    assert "failed 10 times; last: node n1: bad home" in told.why
    host.ask(client.ReleaseJobs(job_ids=(1,)), now=now - 0.0)
    assert host.job(1).avoid == {}
    host.schedule()
    assert host.job(1).state is JobState.STARTING


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("client", "it was cancelled, because its client exited while the job was pending"),
        ("user", "it was cancelled by ada"),
    ],
)
def test_the_end_of_a_job_is_told_in_a_sentence(how: str, sentence: str) -> None:
    host = CoreHost()
    host.submit(submit(is_interactive=True))
    if how == "client":
        host.ask(client.EndInteractive(job_id=1))
    else:
        host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,))))
    assert host.explain(1).why == sentence
