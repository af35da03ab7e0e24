"""Sweeps: the values of a task follow from its number, and go to the node and into every list."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gq.errors import Refusal
from gq.model.ids import JobId
from gq.model.policy_tables import Limits
from gq.model.resource import Grant
from gq.model.state import JobState
from gq.wire import client
from gq.wire import node as wire
from gqd.state.plan import Plan, Start
from gqd.store.protocol import HistoryQuery
from tests.builders import ALICE, BOB, SHARED, hello, inventory, submit
from tests.hosts import CoreHost

SWEEP = (("lr", ("1e-3", "1e-4")), ("bs", ("32", "64")))


def host_of(**limits: Any) -> CoreHost:
    return CoreHost(replace(SHARED, limits=Limits(**limits)), nodes={"n1": inventory(cpus=64, gpu_count=8)})


def start(host: CoreHost, task: int, cpu: int = 0) -> None:
    grant = Grant(node="n1", tasks=1, cpus=(cpu,), gpus=(), memory_mib=0)
    host.adopt(Plan(made_at=host.now, starts=(Start(JobId(1), 0, (grant,), task),)))


def launched(host: CoreHost) -> list[wire.Launch]:
    return [one.order.launch for one in host.orders if isinstance(one.order, wire.Prepare)]


def test_the_node_is_told_the_values_of_the_task() -> None:
    host = host_of()
    host.submit(submit(array="0-3", sweep=SWEEP), peer=ALICE)

    start(host, 2)

    (launch,) = launched(host)
    assert launch.parameters == (("lr", "1e-4"), ("bs", "32"))


def test_no_task_runs_without_its_values_on_a_node_that_does_not_know_them() -> None:
    host = host_of()
    host.handle(hello("n1", replace(inventory(cpus=64, gpu_count=8), can_suspend=False)))
    host.submit(submit(array="0-3", sweep=SWEEP), peer=ALICE)
    host.submit(submit(array="0-3"), peer=ALICE)

    start(host, 2)
    task = next(one for one in host.cluster.jobs.values() if one.array_task_id == 2)
    assert not launched(host)
    host.obey()

    assert task.state is JobState.PENDING
    assert "n1" in task.avoid
    assert "too old to pass the values of a sweep" in task.why
    host.handle(hello("n2", inventory()))
    host.schedule()
    assert {one.node for one in host.orders if isinstance(one.order, wire.Prepare) and one.order.launch.parameters} == {
        "n2"
    }


def test_a_job_that_is_no_sweep_brings_no_values() -> None:
    host = host_of()
    host.submit(submit(array="0-3"), peer=ALICE)

    start(host, 2)

    assert launched(host)[0].parameters == ()


def test_a_task_is_kept_with_its_own_values_alone_and_the_record_with_all() -> None:
    host = host_of()
    host.submit(submit(array="0-3", sweep=SWEEP), peer=ALICE)

    start(host, 1)

    assert host.job(1).spec.sweep == SWEEP
    assert host.job(2).spec.sweep == (("lr", ("1e-3",)), ("bs", ("64",)))


def test_lists_and_the_history_show_the_values_to_the_owner_and_to_nobody_else() -> None:
    host = host_of()
    host.submit(submit(array="0-3", sweep=SWEEP), peer=ALICE)
    start(host, 3)
    asked = client.ListJobs(filter=client.JobFilter(job_ids=(1,)))

    shown = host.ask(asked, peer=ALICE)
    assert isinstance(shown, client.Jobs)
    assert {job.job_id: job.sweep for job in shown.jobs} == {1: SWEEP, 2: (("lr", ("1e-4",)), ("bs", ("64",)))}
    kept = list(host.store.history(HistoryQuery(filter=client.JobFilter(job_ids=(1,)))))
    assert {job.job_id: job.sweep for job in kept} == {1: SWEEP, 2: (("lr", ("1e-4",)), ("bs", ("64",)))}
    others = host.ask(asked, peer=BOB)
    assert isinstance(others, client.Jobs)
    assert all(job.sweep == () for job in others.jobs)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sweep": SWEEP}, "the job is not an array"),
        ({"sweep": SWEEP, "array": "0-4"}, "the array has tasks beyond the 4 combinations of its sweep"),
        ({"sweep": (("PATH", ("1",)),), "array": "0"}, "--sweep: `PATH` is a variable that programs"),
        ({"sweep": (("a", ()),), "array": "0"}, "--sweep: `a` has no values"),
        ({"array": "0-3", "array_auto": True, "array_throttle": 2}, "both a limit on running tasks and `%auto`"),
        ({"array_auto": True}, "the job is not an array"),
    ],
)
def test_what_no_gqsub_would_send_is_refused(fields: dict[str, Any], said: str) -> None:
    host = host_of()
    with pytest.raises(Refusal) as caught:
        host.submit(submit(**fields), peer=ALICE)
    assert said in caught.value.message
    assert not host.cluster.jobs


def test_a_sweep_has_no_more_tasks_than_the_site_lets_an_array_have() -> None:
    host = host_of(array_tasks=3)
    with pytest.raises(Refusal, match="the array has 4 tasks, the maximum is 3"):
        host.submit(submit(array="0-3", sweep=SWEEP), peer=ALICE)

    host.submit(submit(array="1-3", sweep=SWEEP), peer=ALICE)  # some of the combinations


def test_a_sweep_may_be_tested_and_asked_about_before_it_is_queued() -> None:
    host = host_of()
    body = submit(array="0-3", sweep=SWEEP, gpus=1, array_auto=True)

    tested = host.study(replace(body, test_only=True), peer=ALICE)
    assert isinstance(tested, client.Tested)
    assert tested.start_at == host.now
    answer = host.study(client.WhatIf(spec=body.spec), peer=ALICE)
    assert isinstance(answer, client.Alternatives)
    assert not host.cluster.jobs
