"""A working directory that is missing on a node: another node is tried, and a job that no node is left for is held."""

from __future__ import annotations

from typing import Any

import pytest

from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events import event
from gqd.state.phases import Hold
from tests.builders import attempt_id, inventory, submit
from tests.hosts import CoreHost

WHY = "cannot change to the directory `/data`: No such file or directory"


def cluster(*names: str) -> CoreHost:
    return CoreHost(nodes={name: inventory() for name in names})


def fail(host: CoreHost, job_id: int, **fields: Any) -> str:
    """The batch node has no such directory; which node that was."""
    attempt = host.attempt(job_id)
    end = wire.AttemptEnded(
        attempt_id=attempt.attempt_id, outcome=Outcome.BOOT_FAIL, exit=ExitStatus(), ended_at=host.now, why=WHY,
        cell_emptied=True, **{"launch_failure": "workdir"} | fields,
    )  # fmt: skip
    host.report(attempt.batch_node, end)
    return attempt.batch_node


def launch(host: CoreHost) -> None:
    host.schedule()
    host.obey()


def test_a_job_without_its_directory_on_one_node_starts_on_another() -> None:
    host = cluster("n1", "n2")
    job_id = host.submit(submit("job", cpus_per_task=1), now=1)
    host.schedule(now=2)
    first = fail(host, job_id)

    job = host.job(job_id)
    assert (job.state, job.hold, job.reason, job.restart_count) == (JobState.PENDING, None, "BadWorkdir", 0)
    assert set(job.avoid) == {first} and job.avoid[first] == 2 + 24 * 3600
    host.schedule(now=3)
    assert host.attempt(job_id).batch_node != first
    host.obey()
    assert (host.job(job_id).state, host.job(job_id).reason) == (JobState.RUNNING, "None")
    assert not [one for one in host.log if isinstance(one, event.NodeBackedOff)], "the node is good for other jobs"


def test_a_job_that_no_node_is_left_for_is_held_and_released_again() -> None:
    host = cluster("n1", "n2")
    job_id = host.submit(submit("job", cpus_per_task=1), now=1)
    for _ in range(2):
        host.schedule()
        last = fail(host, job_id)

    [shown] = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,)))).jobs  # type: ignore[union-attr]
    assert (shown.state, shown.reason, host.job(job_id).hold) == ("PENDING", "BadWorkdir", Hold.LAUNCH)
    assert shown.why == f"it is held because its working directory does not exist on the node; last: node {last}: {WHY}"

    host.ask(client.ReleaseJobs(job_ids=(job_id,)))
    launch(host)
    assert host.job(job_id).state is JobState.RUNNING


def test_a_job_that_waits_for_a_busy_node_tells_why_and_may_be_sent_back_at_once() -> None:
    host = cluster("n1", "n2")
    job_id = host.submit(submit("job", cpus_per_task=8), now=1)
    host.schedule(now=2)
    first = fail(host, job_id)
    other = "n2" if first == "n1" else "n1"
    host.ask(client.UpdateNodes(names=(other,), action="drain", reason="disk"))
    host.schedule(now=3)

    [shown] = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,)))).jobs  # type: ignore[union-attr]
    assert (shown.reason, host.job(job_id).hold) == ("BadWorkdir", None)
    assert WHY in shown.why

    host.ask(client.ReleaseJobs(job_ids=(job_id,)))
    host.schedule(now=4)
    assert host.attempt(job_id).batch_node == first


def test_the_waiting_tasks_of_an_array_are_held_with_the_one_that_failed() -> None:
    host = cluster("n1")
    record = host.submit(submit("sweep", cpus_per_task=8, array="1-4"), now=1)
    host.schedule(now=2)
    [task] = [job_id for job_id in host.cluster.jobs if job_id != record]
    fail(host, task)

    assert [host.job(one).hold for one in (record, task)] == [Hold.LAUNCH] * 2
    jobs = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(record,)))).jobs  # type: ignore[union-attr]
    assert {one.reason for one in jobs} == {"BadWorkdir"}
    host.ask(client.ReleaseJobs(job_ids=(record,)))
    assert [host.job(one).hold for one in (record, task)] == [None, None]


@pytest.mark.parametrize("fields", [{"launch_failure": ""}, {"launch_failure": "something newer"}])
def test_another_failure_of_the_start_and_an_older_node_fail_the_job(fields: dict[str, str]) -> None:
    host = cluster("n1", "n2")
    job_id = host.submit(submit("job", cpus_per_task=1), now=1)
    host.schedule(now=2)
    fail(host, job_id, **fields)

    job = host.job(job_id)
    assert (job.state, job.outcome, job.reason) == (JobState.ENDED, Outcome.FAILED, "JobLaunchFailure")


def test_the_other_nodes_of_a_gang_are_stopped_before_it_waits_again() -> None:
    host = cluster("n1", "n2", "n3")
    job_id = host.submit(submit("gang", nodes_min=2, gpus_per_node=4), now=1)
    host.schedule(now=2)
    failed = fail(host, job_id)
    [other] = host.attempt(job_id).parts

    assert host.job(job_id).state is JobState.COMPLETING
    host.report(other, wire.CellEmptied(attempt_id=attempt_id(job_id)))
    assert (host.job(job_id).state, host.job(job_id).hold) == (JobState.PENDING, None)
    host.schedule(now=3)
    assert failed not in host.attempt(job_id).parts
