"""How long jobs are expected to run: by their limit, else as those before them did; said once, and durable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.model.scheduling import MAX_HISTORY_JOBS, Scheduling
from gq.wire import client
from gqd.state import runtime_history
from gqd.state.input import PolicyChanged
from gqd.state.policy import Partition, Policy
from gqd.state.runtime_history import ANY_GPUS, RuntimeHistory, Signature, learn, predict
from tests.builders import ALICE, BOB, SHARED, client_request, inventory, submit
from tests.hosts import CoreHost

HOUR = 3600.0


def shared(scheduling: Scheduling = SHARED.scheduling, **fields: Any) -> CoreHost:
    policy: Policy = msgspec.structs.replace(SHARED, scheduling=scheduling, **fields)
    return CoreHost(policy, {"n1": inventory(cpus=64, gpu_count=8)})


def ran(host: CoreHost, for_s: float, **fields: Any) -> int:
    """A job of alice's that ends by itself after so long."""
    job_id = host.start(submit(**fields), peer=ALICE)
    host.finish(job_id, now=host.now + for_s)
    return job_id


def expected(host: CoreHost, **fields: Any) -> float | None:
    return host.job(host.submit(submit(is_held=True, **fields), peer=ALICE)).expected_s


def test_a_job_is_expected_to_run_as_long_as_its_owner_says_else_as_the_last_like_it_else_as_its_users() -> None:
    host = shared(Scheduling(history_jobs=3))
    assert expected(host, gpus=1) == HOUR, "nothing is known"
    for length in (1000.0, 100.0, 200.0, 600.0):
        ran(host, length, gpus=2)
    ran(host, 1200.0, gpus=8)

    assert expected(host, gpus=2) == 300.0, "the last three with two GPUs"
    assert expected(host, gpus=1) == pytest.approx((200 + 600 + 1200) / 3), "the last three of any size"
    assert expected(host, gpus=2, time_limit_s=7 * 3600) == 7 * HOUR
    assert host.job(host.submit(submit(gpus=2), peer=BOB)).expected_s == HOUR, "of bob nothing is known"


def test_the_limit_that_a_partition_gives_only_bounds_what_is_expected() -> None:
    host = shared(partitions=(Partition(name="main", is_default=True, default_time_s=86400, max_time_s=86400),))
    ran(host, 500.0, gpus=1)
    assert expected(host, gpus=1) == 500.0
    ran(host, 80_000.0, gpus=1)
    short = Partition(name="main", is_default=True, default_time_s=60)
    policy = msgspec.structs.replace(host.controller.policy, partitions=(short,))
    host.handle(PolicyChanged(policy=policy))
    assert expected(host, gpus=1) == 60.0


def test_by_limits_alone_a_job_without_one_is_expected_to_run_for_nobody_knows_how_long() -> None:
    host = shared(Scheduling(expect="limit"))
    ran(host, 100.0)
    assert expected(host) is None
    assert expected(host, time_limit_s=60) == 60.0


def test_what_is_said_is_said_once_until_the_limit_changes() -> None:
    host = shared()
    job_id = host.submit(submit(gpus=1), peer=ALICE)
    ran(host, 60.0, gpus=1)
    host.ask(client.UpdateJob(job_id=job_id, name="other"), peer=ALICE)
    assert host.job(job_id).expected_s == HOUR
    host.ask(client.UpdateJob(job_id=job_id, time_limit_s=120), peer=ALICE)
    assert host.job(job_id).expected_s == 120.0


def test_the_tasks_of_an_array_are_expected_to_run_as_long_as_the_array_was() -> None:
    host = shared()
    ran(host, 700.0, gpus=1)
    record = host.start(submit(gpus=1, array="1-3"), peer=ALICE)
    tasks = [job for job in host.cluster.jobs.values() if job.array_job_id == record]
    assert len(tasks) == 3
    assert {job.expected_s for job in tasks} == {700.0} == {host.job(record).expected_s}


def test_a_job_shows_how_long_it_is_expected_to_run() -> None:
    host = shared()
    host.submit(submit(time_limit_s=90), peer=ALICE)
    shown = host.ask(client.ListJobs(), peer=ALICE)
    assert isinstance(shown, client.Jobs)
    assert shown.jobs[0].expected_s == 90.0


def test_the_simulator_says_how_long_a_job_will_run() -> None:
    host = shared(Scheduling(policy="easy", expect="exact"))
    request = msgspec.structs.replace(client_request(submit(time_limit_s=600), 77, ALICE), expected_s=41.5)
    host.handle(request)
    assert host.job(1).expected_s == 41.5


def test_what_was_cancelled_counts_as_long_as_it_ran_and_what_is_queued_again_does_not() -> None:
    host = shared()
    job_id = host.start(submit(gpus=1), peer=ALICE)
    host.now += 100
    host.ask(client.RequeueJobs(job_ids=(job_id,)), peer=ALICE)
    host.obey()
    assert not host.cluster.lengths
    host.schedule(host.now + 60)
    host.obey()
    host.now += 50
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))), peer=ALICE)
    host.obey()
    assert {one: known.lengths_s for one, known in host.cluster.lengths.items()} == {
        Signature("alice", "default", 1): (50.0,),
        Signature("alice", "default", ANY_GPUS): (50.0,),
    }


def test_what_never_started_teaches_nothing() -> None:
    host = shared()
    job_id = host.submit(submit(gpus=1), peer=ALICE)
    host.schedule()
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))), peer=ALICE)
    host.obey()
    assert not host.cluster.lengths


def test_what_was_learned_survives_a_restart() -> None:
    host = shared()
    ran(host, 250.0, gpus=2)
    waits = host.submit(submit(gpus=2), peer=ALICE)
    host.restart()
    assert host.job(waits).expected_s == 250.0
    assert expected(host, gpus=2) == 250.0


def test_of_each_signature_so_many_lengths_are_kept_and_of_too_many_signatures_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_history, "MAX_SIGNATURES", 3)
    known: RuntimeHistory = {}
    for number in range(MAX_HISTORY_JOBS + 5):
        assert learn(known, Signature("ann", "a", 1), number, float(number)) == [Signature("ann", "a", 1)]
    assert known[Signature("ann", "a", 1)].lengths_s == tuple(float(one) for one in range(5, MAX_HISTORY_JOBS + 5))
    for user in ("bob", "carl"):
        learn(known, Signature(user, "a", 1), 9.0, 100.0)
    learn(known, Signature("ann", "a", 1), 1.0, 200.0)
    touched = learn(known, Signature("dora", "a", 1), 9.0, 300.0)
    assert touched == [Signature("dora", "a", 1), Signature("bob", "a", 1)]
    assert predict(known, ("bob", "a"), 1, 10) is None
    assert predict(known, ("ann", "a"), 1, 1) == 1.0
