"""What must come after what: every kind of dependency, on jobs, tasks and arrays, whatever becomes of the parent."""

from __future__ import annotations

from typing import Any

import pytest

from gq.errors import Refusal
from gq.model.dependency import format_dependency, parse_dependency
from gq.model.policy_tables import Accounting, Limits, Timers
from gq.model.state import JobState, Outcome, Reason
from gq.model.tasks import format_tasks
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events import event
from gqd.state.input import Tick
from gqd.state.phases import Hold
from gqd.state.policy import Policy
from gqd.state.records import Job
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

BADLY = 1


def cluster(**fields: Any) -> CoreHost:
    policy = Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6), **fields)
    return CoreHost(policy, nodes={"n1": inventory(cpus=64)})


def child(host: CoreHost, text: str, name: str = "child", **fields: Any) -> int:
    return host.submit(submit(name, dependency=parse_dependency(text), **fields))


def run(host: CoreHost) -> None:
    """Whatever may start, starts."""
    host.schedule()
    host.obey()


def cancel(host: CoreHost, job_id: int, tasks: str = "") -> None:
    chosen = client.JobFilter(tasks={job_id: tasks}) if tasks else client.JobFilter(job_ids=(job_id,))
    host.ask(client.CancelJobs(filter=chosen))
    host.obey()


def waits(host: CoreHost, job_id: int) -> bool:
    run(host)
    return host.job(job_id).state is JobState.PENDING


def left(job: Job) -> str:
    return "" if job.dependency is None else format_dependency(job.dependency)


def task(host: CoreHost, array_id: int, number: int) -> int:
    """The job of a task that has left its array."""
    array = host.job(array_id).array
    assert array is not None
    return array.jobs[number]


# ── each kind, on a job ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "code", "starts"),
    [
        ("afterok", 0, True),
        ("afterok", BADLY, False),
        ("afternotok", 0, False),
        ("afternotok", BADLY, True),
        ("afterany", 0, True),
        ("afterany", BADLY, True),
    ],
)
def test_a_job_starts_after_the_end_that_it_waits_for_and_never_after_another(
    kind: str, code: int, starts: bool
) -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    job_id = child(host, f"{kind}:{parent}")
    assert waits(host, job_id)

    host.finish(parent, code)

    assert waits(host, job_id) is not starts
    assert bool(host.job(job_id).never) is not starts


def test_a_decision_is_one_event_in_the_turn_in_which_the_parent_ends() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    job_id = child(host, f"afterok:{parent}")
    before = len(host.log)

    host.finish(parent, now=7)

    decided = [one for one in host.log[before:] if isinstance(one, event.DependencyChanged)]
    assert decided == [event.DependencyChanged(at=7, job_id=job_id, left=None)]  # type: ignore[arg-type]
    assert host.job(job_id).accrue_at == host.job(job_id).eligible_at == 7


def test_after_waits_for_the_start_alone() -> None:
    host = cluster()
    parent = host.submit(submit("parent"))
    job_id = child(host, f"after:{parent}")
    assert left(host.job(job_id)) == f"after:{parent}"

    run(host)  # the parent starts

    assert left(host.job(job_id)) == ""
    assert not waits(host, job_id)


def test_after_with_minutes_waits_so_long_after_the_start_also_over_a_restart() -> None:
    host = cluster()
    parent = host.start(submit("parent"), now=100)
    job_id = child(host, f"after:{parent}+5")
    host.finish(parent, now=110)
    host.handle(Tick(), now=150)
    assert host.controller.next_wakeup(150) == 400
    host.restart(now=200)
    host.handle(Tick(), now=399)
    host.handle(hello("n1", inventory(cpus=64)))
    assert waits(host, job_id)
    assert host.explain(job_id).expected_start_at == 400

    host.handle(Tick(), now=400)

    assert not waits(host, job_id)


@pytest.mark.parametrize(
    ("kind", "starts"), [("after", True), ("afterany", True), ("afternotok", True), ("afterok", False)]
)
def test_a_parent_that_is_cancelled_while_it_waits_has_begun_and_ended_badly(kind: str, starts: bool) -> None:
    host = cluster()
    parent = host.submit(submit("parent", is_held=True))
    job_id = child(host, f"{kind}:{parent}")

    cancel(host, parent)

    assert waits(host, job_id) is not starts


def test_all_of_them_or_any_of_them() -> None:
    host = cluster()
    first, second = host.start(submit("a")), host.start(submit("b"))
    both = child(host, f"afterok:{first}:{second}")
    either = child(host, f"afterok:{first}?afterok:{second}")

    host.finish(first, BADLY)

    assert host.job(both).never.startswith(f"job {first} had to succeed and failed")
    assert left(host.job(either)) == f"afterok:{second}"
    assert not host.job(either).never
    host.finish(second)
    assert waits(host, both)
    assert not waits(host, either)


def test_any_of_them_can_never_be_when_the_last_of_them_cannot() -> None:
    host = cluster()
    first, second = host.start(submit("a")), host.start(submit("b"))
    job_id = child(host, f"afterok:{first}?afterok:{second}")

    host.finish(first, BADLY)
    host.finish(second, BADLY)

    assert host.job(job_id).never
    assert host.explain(job_id).reason == Reason.DEPENDENCY_NEVER


# ── singleton ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_singleton_waits_for_earlier_jobs_of_its_name_and_user_only() -> None:
    host = cluster()
    other = host.start(submit("other"))
    first = host.start(submit("one"))
    second = child(host, "singleton", name="one")
    third = child(host, "singleton", name="one")
    later = host.start(submit("one"))
    assert waits(host, second) and waits(host, third)

    host.finish(first)

    assert not waits(host, second)
    assert waits(host, third)
    host.finish(second)
    assert not waits(host, third), "jobs that were queued later do not keep it"
    assert {host.job(one).state for one in (other, later)} == {JobState.RUNNING}


def test_a_singleton_starts_when_the_job_before_it_is_given_another_name() -> None:
    host = cluster()
    first = host.start(submit("one"))
    second = child(host, "singleton", name="one")
    host.ask(client.UpdateJob(job_id=first, name="two"))
    assert not waits(host, second)


def test_a_singleton_array_waits_for_the_whole_array_before_it_and_not_for_itself() -> None:
    host = cluster()
    first = host.start(submit("one", array="1-2"))
    second = child(host, "singleton", name="one", array="1-2")
    assert waits(host, second)

    for number in (1, 2):
        host.finish(task(host, first, number))

    run(host)
    assert [host.job(task(host, second, number)).state for number in (1, 2)] == [JobState.RUNNING] * 2


# ── arrays and their tasks ────────────────────────────────────────────────────────────────────────────────────


def test_an_array_as_a_parent_means_all_of_its_tasks() -> None:
    host = cluster()
    array = host.submit(submit("array", array="1-3"))
    good, bad, started = (
        child(host, f"afterok:{array}"),
        child(host, f"afternotok:{array}"),
        child(host, f"after:{array}"),
    )
    assert waits(host, good)
    assert not waits(host, started), "all of its tasks have started"
    host.finish(task(host, array, 1))
    host.finish(task(host, array, 2), BADLY)
    assert waits(host, good) and waits(host, bad)

    host.finish(task(host, array, 3))

    assert host.job(good).never
    assert not waits(host, bad)


def test_after_an_array_waits_for_its_last_task() -> None:
    host = cluster()
    array = host.submit(submit("array", array="1-3", array_throttle=2))
    job_id = child(host, f"after:{array}")
    run(host)
    assert waits(host, job_id)

    cancel(host, array, "3")

    assert not waits(host, job_id), "what was cancelled before it could start will not start"


def test_one_task_of_an_array_is_a_parent_of_its_own() -> None:
    host = cluster()
    array = host.submit(submit("array", array="1-3", array_throttle=1))
    on_first, on_third, on_job = (child(host, f"afterok:{array}_{number}") for number in (1, 3, 2))
    run(host)
    by_id = child(host, f"afterok:{task(host, array, 1)}")

    host.finish(task(host, array, 1))

    assert not waits(host, on_first)
    assert not waits(host, by_id), "by the id that it got when it left"
    assert waits(host, on_job) and waits(host, on_third)
    cancel(host, array, "3")
    assert host.job(on_third).never == f"task {array}_3 had to succeed and failed (CANCELLED)"


def test_a_range_of_tasks_is_a_term_for_each_of_them() -> None:
    written = "after:7_[1-2]+5:8,afterok:9_[3,1-9:4]"
    told = "after:7_1+5,after:7_2+5,after:8,afterok:9_1,afterok:9_3,afterok:9_5,afterok:9_9"
    assert format_dependency(parse_dependency(written)) == told
    assert format_dependency(parse_dependency("afterok:9_[3,5]?singleton")) == "afterok:9_3?afterok:9_5?singleton"

    host = cluster()
    array = host.submit(submit("sweep", array="1-3"))
    run(host)
    on_two = child(host, f"afternotok:{array}_[1-2]")
    on_any = child(host, f"afternotok:{array}_[1,2]?afterok:{array}_3")
    host.finish(task(host, array, 1), BADLY)
    assert waits(host, on_two) and not waits(host, on_any)
    host.finish(task(host, array, 2), BADLY)
    assert not waits(host, on_two)


def test_the_tasks_of_an_array_wait_for_its_dependency_together() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    array = child(host, f"afterok:{parent}", array="1-2")
    assert waits(host, array) and host.job(array).width == 2

    host.finish(parent)

    run(host)
    assert host.job(array).width == 0


def test_corresponding_tasks_start_one_by_one() -> None:
    host = cluster()
    first = host.submit(submit("first", array="1-3"))
    second = child(host, f"aftercorr:{first}", array="1-3")
    run(host)
    assert host.job(second).width == 3

    host.finish(task(host, first, 2))
    run(host)

    assert host.job(task(host, second, 2)).state is JobState.RUNNING
    assert host.job(second).width == 2
    host.finish(task(host, first, 1))
    host.finish(task(host, first, 3), BADLY)
    run(host)
    array = host.job(second).array
    assert array is not None and format_tasks(array.waiting) == "3"
    assert f"task 3 can never start, because that task of array {first} did not succeed" in host.explain(second).why


def test_a_task_without_a_counterpart_never_can_start_and_ends_where_that_is_wanted() -> None:
    host = cluster()
    first = host.submit(submit("first", array="1-2"))
    stays = child(host, f"aftercorr:{first}", array="1-4")
    goes = child(host, f"aftercorr:{first}", array="1-4", kill_on_invalid_dep=True)
    run(host)

    for number in (1, 2):
        host.finish(task(host, first, number))
    run(host)

    for array_id in (stays, goes):
        assert {host.job(task(host, array_id, number)).state for number in (1, 2)} == {JobState.RUNNING}
    array = host.job(goes).array
    assert array is not None and (array.waiting, format_tasks(array.cancelled)) == (0, "3-4")
    array = host.job(stays).array
    assert array is not None and format_tasks(array.waiting) == "3-4"
    assert host.explain(stays).reason == Reason.DEPENDENCY_NEVER
    for number in (1, 2):
        host.finish(task(host, goes, number))
    assert host.job(goes).state is JobState.ENDED


def test_a_task_that_leaves_its_array_takes_along_what_it_waits_for() -> None:
    host = cluster()
    first = host.submit(submit("first", array="1-2"))
    second = child(host, f"aftercorr:{first}", array="1-3")
    host.ask(client.HoldJobs(job_ids=(), tasks={second: "2-3"}))
    assert left(host.job(task(host, second, 2))) == f"afterok:{first}_2"
    assert host.job(task(host, second, 3)).never == f"task {first}_3 had to succeed and failed"
    host.ask(client.ReleaseJobs(job_ids=(), tasks={second: "2"}))
    run(host)
    assert waits(host, task(host, second, 2))

    host.finish(task(host, first, 2))

    assert not waits(host, task(host, second, 2))


def test_corresponding_tasks_of_two_arrays_that_have_left_memory() -> None:
    host = cluster(limits=Limits(ended_job_keep_s=1))
    parents = []
    for bad in (2, 3):
        array = host.start(submit("first", array="1-4"))
        for number in (1, 2, 3, 4):
            host.finish(task(host, array, number), code=int(number == bad))
        parents.append(array)
    second = host.start(submit("running", array="1-4"))
    waiting = child(host, f"aftercorr:{parents[0]},aftercorr:{second}", array="1-4")
    for now in (100, 101):  # the tasks first, then their arrays
        host.handle(Tick(), now=now)
    assert not any(one in host.cluster.jobs for one in parents)
    corr = child(host, f"aftercorr:{parents[0]}:{parents[1]}", array="1-4")
    run(host)

    assert host.job(corr).array is not None
    assert format_tasks(host.job(corr).array.waiting) == "2-3"  # type: ignore[union-attr]
    for number in (1, 2):
        host.finish(task(host, second, number))
    run(host)
    assert format_tasks(host.job(waiting).array.waiting) == "2-4"  # type: ignore[union-attr]


# ── parents of long ago, and those that never were ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_purged", [False, True])
def test_a_parent_that_ended_before_is_as_good_as_one_that_ends_later(is_purged: bool) -> None:
    host = cluster(limits=Limits(ended_job_keep_s=1))
    good, bad = host.start(submit("good")), host.start(submit("bad"))
    host.finish(good)
    host.finish(bad, BADLY)
    array = host.start(submit("array", array="1-2"))
    host.finish(task(host, array, 1))
    host.finish(task(host, array, 2), BADLY)
    for now in (100, 101) if is_purged else ():
        host.handle(Tick(), now=now)
    assert (good in host.cluster.jobs) is not is_purged

    start = [
        child(host, text)
        for text in (
            f"afterok:{good}", f"afterany:{bad}", f"afternotok:{bad}", f"after:{good}+1", f"afternotok:{array}",
            f"afterok:{array}_1", f"afternotok:{array}_2",
        )
    ]  # fmt: skip
    never = [
        child(host, text) for text in (f"afterok:{bad}", f"afternotok:{good}", f"afterok:{array}", f"afterok:{array}_2")
    ]

    host.handle(Tick(), now=200)
    assert not [one for one in start if waits(host, one)]
    assert all(host.job(one).never for one in never)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("afterok:99", "unknown_job", "job 99, which the dependency `afterok:99` names, does not exist"),
        ("afterok:2", "unknown_job", "job 2, which"),
        ("afterok:1_3", "unknown_task", "job 1 is not an array"),
        ("aftercorr:1", "not_an_array", "needs two arrays, and this job is not an array"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(text: str, code: str, said: str) -> None:
    host = cluster()
    host.submit(submit("parent"))
    with pytest.raises(Refusal) as refused:
        child(host, text)
    assert refused.value.code == code and said in refused.value.message and refused.value.hint
    assert len(host.cluster.jobs) == 1


def test_a_task_that_an_array_does_not_have_is_refused_and_the_answer_says_which_it_has() -> None:
    host = cluster()
    array = host.submit(submit("array", array="1-9:2"))
    with pytest.raises(Refusal) as refused:
        child(host, f"afterok:{array}_2")
    assert "no task 2" in refused.value.message and "1-9:2" in refused.value.hint


# ── what never can be ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_never_can_start_stays_and_says_so_or_ends_and_those_after_it_hear_of_it() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    stays = child(host, f"afterok:{parent}")
    goes = child(host, f"afterok:{parent}", kill_on_invalid_dep=True)
    after_it = child(host, f"afterok:{goes}", kill_on_invalid_dep=True)
    cleanup = child(host, f"afternotok:{after_it}")

    host.finish(parent, BADLY)

    assert host.job(stays).state is JobState.PENDING
    explained = host.explain(stays)
    assert explained.reason == Reason.DEPENDENCY_NEVER
    assert explained.why.startswith(f"it can never start: job {parent} had to succeed and failed (FAILED)")
    assert f"gqctl update {stays}" in explained.hint
    for one in (goes, after_it):
        assert (host.job(one).outcome, host.job(one).reason) == (Outcome.CANCELLED, Reason.DEPENDENCY_NEVER)
    assert not waits(host, cleanup)
    assert f"job {parent} had to succeed" in host.explain(goes).why


def test_the_site_may_end_such_jobs_unless_they_say_otherwise() -> None:
    host = cluster(accounting=Accounting(kill_on_invalid_dep=True))
    parent = host.start(submit("parent"))
    goes, stays = child(host, f"afterok:{parent}"), child(host, f"afterok:{parent}", kill_on_invalid_dep=False)
    host.finish(parent, BADLY)
    assert host.job(goes).state is JobState.ENDED
    assert host.job(stays).state is JobState.PENDING


def test_a_job_that_never_can_start_at_submit_ends_at_once_where_that_is_wanted() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    host.finish(parent, BADLY)
    job_id = child(host, f"afterok:{parent}", kill_on_invalid_dep=True)
    assert host.job(job_id).outcome is Outcome.CANCELLED


# ── through requeue, restart and forgetting ───────────────────────────────────────────────────────────────────


def test_a_parent_that_is_queued_again_is_waited_for_until_it_ends() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    on_start, on_end = child(host, f"after:{parent}"), child(host, f"afterok:{parent}")
    host.ask(client.RequeueJobs(job_ids=(parent,)))
    host.obey()
    assert host.job(parent).state is JobState.PENDING
    assert left(host.job(on_start)) == "", "it had started"
    assert waits(host, on_end)

    host.finish(parent)

    assert not waits(host, on_end)


def test_nothing_is_lost_in_a_restart_or_when_the_parent_leaves_memory() -> None:
    host = cluster(limits=Limits(ended_job_keep_s=1))
    parent, other = host.start(submit("parent")), host.start(submit("other"))
    job_id = child(host, f"afterok:{parent},afterok:{other}")
    host.finish(parent)
    host.handle(Tick(), now=100)
    assert parent not in host.cluster.jobs
    host.restart()
    assert host.cluster.dependants.by_parent.keys() == {other}
    running = wire.AttemptStatus(attempt_id=host.attempt(other).attempt_id, phase="running")
    host.handle(hello("n1", inventory(cpus=64), incarnation="2", attempts=(running,)))
    assert waits(host, job_id)
    host.finish(other)
    assert not waits(host, job_id)


def test_a_parent_that_ends_and_leaves_memory_in_one_turn_is_heard_of() -> None:
    host = cluster(limits=Limits(ended_job_keep_s=0))
    parent = host.submit(submit("parent", is_interactive=True))
    job_id = child(host, f"afternotok:{parent}")
    host.handle(Tick(), now=1000)  # its client stopped responding
    host.handle(Tick(), now=1001)
    assert parent not in host.cluster.jobs
    assert host.job(job_id).dependency is None


def test_a_held_job_hears_of_its_parents_too_and_starts_when_it_is_released() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    job_id = child(host, f"afterok:{parent}", is_held=True)
    host.finish(parent)
    assert host.job(job_id).dependency is None and host.job(job_id).hold is Hold.USER
    assert host.job(job_id).accrue_at is None
    host.ask(client.ReleaseJobs(job_ids=(job_id,)))
    assert not waits(host, job_id)


def test_a_job_is_asked_again_once_it_has_started_and_was_requeued_it_waits_for_nobody() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    job_id = child(host, f"afterok:{parent}")
    host.finish(parent)
    run(host)
    host.ask(client.RequeueJobs(job_ids=(job_id,)))
    host.obey()
    assert host.job(job_id).dependency is None
    assert not waits(host, job_id)


# ── update, and cycles ────────────────────────────────────────────────────────────────────────────────────────


def update(host: CoreHost, job_id: int, text: str, **fields: Any) -> None:
    dependency = parse_dependency(text) if text else None
    host.ask(client.UpdateJob(job_id=job_id, dependency=dependency, clear_dependency=not text, **fields))


def test_a_dependency_is_changed_and_taken_away() -> None:
    host = cluster()
    first, second = host.start(submit("a")), host.start(submit("b"))
    job_id, other = child(host, f"afterok:{first}"), child(host, f"afterok:{first}")
    update(host, job_id, f"afterok:{second}")
    update(host, other, "")
    host.finish(first, BADLY)
    assert not waits(host, other)
    assert waits(host, job_id) and not host.job(job_id).never
    host.finish(second)
    assert not waits(host, job_id)


def test_a_job_that_never_could_start_can_after_an_update() -> None:
    host = cluster()
    parent = host.start(submit("a"))
    job_id = child(host, f"afterok:{parent}")
    host.finish(parent, BADLY)
    update(host, job_id, f"afterany:{parent}")
    assert not waits(host, job_id)


def test_a_new_job_cannot_be_made_to_wait_for_what_waits_for_it() -> None:
    host = cluster()
    first = host.submit(submit("a", is_held=True))
    second = child(host, f"afterok:{first}")
    third = child(host, f"afterok:{second}")
    later = host.submit(submit("later", is_held=True))
    for target in (first, second, third):
        with pytest.raises(Refusal, match="would wait for itself"):
            update(host, first, f"afterok:{target}")
    update(host, first, f"afterok:{later}")
    with pytest.raises(Refusal, match="would wait for itself"):
        update(host, later, f"afterany:{third}")


def test_a_name_cannot_make_a_cycle_either() -> None:
    host = cluster()
    host.start(submit("b"))
    first = host.submit(submit("a", is_held=True))
    second = child(host, "singleton", name="b")
    update(host, first, f"afterok:{second}")
    with pytest.raises(Refusal, match="would wait for itself"):
        host.ask(client.UpdateJob(job_id=first, name="b"))


def test_tasks_of_one_array_may_wait_for_each_other_but_not_in_a_circle() -> None:
    host = cluster()
    array = host.submit(submit("array", array="1-4"))
    update(host, array, f"afterok:{array}_1", tasks="2")
    assert left(host.job(task(host, array, 2))) == f"afterok:{array}_1"
    for number, text in ((1, f"afterok:{array}_2"), (3, f"afterok:{array}_3"), (3, f"afterok:{array}")):
        with pytest.raises(Refusal, match="would wait for itself"):
            update(host, array, text, tasks=str(number))


def test_a_running_job_waits_for_nobody() -> None:
    host = cluster()
    first, second = host.start(submit("a")), host.start(submit("b"))
    with pytest.raises(Refusal, match="cannot be changed: it is running"):
        update(host, second, f"afterok:{first}")


# ── what is said of it ────────────────────────────────────────────────────────────────────────────────────────


def test_why_a_job_waits_names_whom_it_waits_for() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    job_id = child(host, f"afterok:{parent},singleton", name="parent")
    explained = host.explain(job_id)
    assert explained.reason == Reason.DEPENDENCY
    assert explained.why == (
        f"it waits for job {parent} (ada: parent, running) to succeed and for all earlier jobs of ada named parent"
        " to end"
    )
    assert explained.blockers == (parent,)
    jobs = host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(job_id,))))
    assert isinstance(jobs, client.Jobs)
    assert jobs.jobs[0].dependency == f"afterok:{parent},singleton"
    assert jobs.jobs[0].reason == Reason.DEPENDENCY


def test_jobs_that_wait_for_others_take_no_place_in_the_planning() -> None:
    host = cluster()
    parent = host.start(submit("parent"))
    for _ in range(5):
        child(host, f"afterok:{parent}")
    free = host.submit(submit("free"))
    assert not waits(host, free)
    assert not host.controller.snapshot(host.now).pending


def test_test_only_heeds_the_begin_time_and_what_the_job_would_wait_for() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    later = host.ask(client.Submit(spec=submit(begin_at=5000.0).spec, test_only=True))
    assert isinstance(later, client.Tested) and later.start_at == 5000.0
    host.submit(submit())
    after = parse_dependency("afterok:1")
    waits = host.ask(client.Submit(spec=submit(dependency=after).spec, test_only=True))
    assert isinstance(waits, client.Tested)
    assert (waits.start_at, waits.nodes) == (
        3600.0,
        ("n1",),
    )  # as long as a job is expected to run of which nothing is known
    assert waits.why == "it would wait for afterok:1; 1 job waits before it; by @{10800} if other jobs run late"
