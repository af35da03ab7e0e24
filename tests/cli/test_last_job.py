"""``last``: which job it names, and that every command that takes a job takes it."""

from __future__ import annotations

import pytest

from gq.model.job import JobInfo
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job, jobs

HOST = "login1"


def remember(controller: ScriptedController, in_memory: list[JobInfo], in_history: list[JobInfo]) -> None:
    """Ada's jobs, as the controller has them in memory and in its database."""

    def history(query: wire.QueryHistory) -> wire.Jobs:
        since = query.ended_after or 0.0
        found = [*in_memory, *in_history]
        return jobs(*(job for job in found if job.job_id > query.after and (job.end_at or 2e9) >= since))

    identity = wire.Identity(user="ada", uid=1000, role="user", origin="local", cluster="gq", now=0.0)
    controller.on(wire.WhoAmI, identity)
    controller.on(wire.ListJobs, jobs(*in_memory))
    controller.on(wire.QueryHistory, history)
    controller.on(wire.Explain, explained)


def explained(body: wire.Explain) -> wire.Explanation:
    return wire.Explanation(job_id=body.job_id, state="PENDING", reason="Priority", why=f"job {body.job_id}")


@pytest.mark.parametrize(
    ("in_memory", "in_history", "last"),
    [
        ([a_job(5, submit_host=HOST), a_job(7, submit_host=HOST)], [], 7),
        ([a_job(5, submit_host=HOST)], [a_job(9, submit_host=HOST, end_at=1.0)], 9),
        ([], [a_job(3, submit_host=HOST, end_at=1.0)], 3),
        ([a_job(5, submit_host=HOST), a_job(8, cron="line 3: 0 20 * * *"), a_job(9, name="notify-5")], [], 5),
        (
            [
                a_job(5, submit_host=HOST, array_job_id=5, array_tasks="3-9"),
                a_job(6, submit_host=HOST),
                a_job(8, submit_host=HOST, array_job_id=5, array_task_id=1),
            ],
            [],
            6,
        ),
    ],
    ids=[
        "in memory",
        "ended long ago",
        "only in the history",
        "not what the controller queued",
        "not a task of another",
    ],
)
def test_last_is_the_job_that_the_caller_submitted_last(
    run: Run, controller: ScriptedController, in_memory: list[JobInfo], in_history: list[JobInfo], last: int
) -> None:
    remember(controller, in_memory, in_history)

    assert run("gqwhy", "last") == (0, f"job {last}\n", "")
    assert controller.all(wire.ListJobs)[0].filter.users == ("ada",)


def test_of_an_array_last_is_the_array_and_a_task_may_be_named(run: Run, controller: ScriptedController) -> None:
    task = a_job(8, submit_host=HOST, array_job_id=5, array_task_id=1)
    remember(controller, [a_job(5, submit_host=HOST, array_job_id=5, array_tasks="3-9"), task], [])

    run("gqwhy", "last_4")

    assert (controller.the(wire.Explain).job_id, controller.the(wire.Explain).task) == (5, 4)


def test_a_dependency_may_be_on_the_last_job(run: Run, controller: ScriptedController) -> None:
    remember(controller, [a_job(5, submit_host=HOST)], [])
    controller.on(wire.Submit, wire.Submitted(job_id=6))

    assert run("gqsub", "-d", "afterok:last:3,afterany:last_2", "--wrap", "true").status == 0
    dependency = controller.the(wire.Submit).spec.dependency
    assert dependency is not None
    assert [(term.job_id, term.task) for term in dependency.terms] == [(5, None), (3, None), (5, 2)]


def test_without_any_job_last_is_refused(run: Run, controller: ScriptedController) -> None:
    remember(controller, [a_job(8, cron="line 3: 0 20 * * *")], [])

    expected = "error: ada has not submitted such a job yet\nhint: gqsub submits one\n"
    assert run("gqdel", "last") == (1, "", expected)
