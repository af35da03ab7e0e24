"""Which jobs a new reservation keeps waiting, what it leaves for jobs without GPUs, and which jobs are in its way."""

from __future__ import annotations

import msgspec
import pytest

from gqd.state.policy import Partition, Policy
from tests.builders import inventory, submit
from tests.control.test_reservations import BOOKABLE, booking, gpus_of, host_of, only, refuse, set_
from tests.control.test_reservations_moved import reload
from tests.hosts import CoreHost

HOUR = 3600
DAY = 86400
WEEK = Partition(name="main", is_default=True, max_time_s=7 * DAY)
ENDLESS = msgspec.structs.replace(BOOKABLE, partitions=(Partition(name="main", is_default=True),))
WITHOUT_DEFAULT = msgspec.structs.replace(BOOKABLE, partitions=(WEEK,))
WITH_DEFAULT = msgspec.structs.replace(BOOKABLE, partitions=(msgspec.structs.replace(WEEK, default_time_s=2 * DAY),))
SOON_DEFAULT = msgspec.structs.replace(BOOKABLE, partitions=(msgspec.structs.replace(WEEK, default_time_s=HOUR),))


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "limit", "way_out"),
    [
        (ENDLESS, "no time limit (neither default_time nor max_time is set)", "default_time and max_time of"),
        (WITHOUT_DEFAULT, "its max_time, 7 d (no default_time is set)", "set default_time of"),
        (WITH_DEFAULT, "its default_time, 2 d", "set a shorter default_time of"),
    ],
    ids=["no limit", "max_time", "default_time"],
)
def test_a_new_reservation_says_which_kind_of_jobs_waits_and_which_setting_changes_it(
    policy: Policy, limit: str, way_out: str
) -> None:
    host = CoreHost(policy, {"n1": inventory()})

    [note] = set_(host, booking(at=DAY)).notes

    fact, hint = note.split("\nhint: ")
    assert fact == (
        f"jobs without --time in partition `main` have {limit}, so jobs that need resources of `talk` wait until"
        f" @{{{DAY + HOUR}}}"
    )
    assert way_out in hint
    assert "[[partition]] `main` in gq.toml" in hint


def test_nothing_is_said_where_jobs_without_a_limit_are_over_in_time() -> None:
    host = CoreHost(SOON_DEFAULT, {"n1": inventory()})
    assert set_(host, booking(at=DAY)).notes == ()


def test_the_jobs_in_the_queue_that_wait_for_its_end_are_named() -> None:
    host = CoreHost(ENDLESS, {"n1": inventory()})
    host.start(submit(gpus=4, time_limit_s=HOUR))
    for limit_s in (None, 2 * DAY, HOUR, None):
        host.submit(submit(gpus=3, time_limit_s=limit_s))
    host.submit(submit(cpus_per_task=2))

    _, note = set_(host, booking(gpus=2, at=DAY)).notes

    assert note == (
        "3 jobs (2, 5 with no time limit; 3 with 2 d) in the queue wait until `talk` ends"
        "\nhint: gqctl update JOB --time=23:59:00 or less lets a job start before it"
    )


def test_jobs_that_find_enough_beside_what_is_kept_are_not_named() -> None:
    host = CoreHost(ENDLESS, {"n1": inventory(), "n2": inventory()})
    host.start(submit(gpus=4, nodelist=("n2",)))
    host.submit(submit(gpus=4))
    assert len(set_(host, booking(at=DAY, nodelist=("n1",))).notes) == 1


# ── what is left for jobs without GPUs ────────────────────────────────────────────────────────────────────────


def test_a_job_without_gpus_and_without_a_limit_starts_beside_reserved_gpus() -> None:
    host = CoreHost(ENDLESS, {"n1": inventory()})
    set_(host, booking(gpus=4, at=DAY))

    jobs = [host.start(submit()), host.start(submit(mem_per_node_mib=8192)), host.submit(submit(gpus=1))]
    host.schedule()

    assert [host.job(job_id).state.value for job_id in jobs] == ["RUNNING", "RUNNING", "PENDING"]


@pytest.mark.parametrize(("cpus", "gpus", "kept"), [(64, 8, 48), (8, 4, 4), (4, 4, 3), (2, 4, 1), (1, 1, 1)], ids=str)
def test_a_quarter_of_the_cpus_and_at_least_one_stays_beside_reserved_gpus(cpus: int, gpus: int, kept: int) -> None:
    host = CoreHost(ENDLESS, {"n1": inventory(cpus=cpus, gpu_count=gpus)})
    set_(host, booking(gpus=gpus, at=DAY))
    [grant] = only(host).grants
    assert (len(grant.gpus), len(grant.cpus)) == (gpus, kept)


def test_what_jobs_inside_get_by_default_is_kept_with_each_gpu() -> None:
    main = msgspec.structs.replace(WEEK, default_cpus_per_gpu=2, default_mem_per_gpu_mib=16384)
    host = CoreHost(msgspec.structs.replace(BOOKABLE, partitions=(main,)), {"n1": inventory()})
    set_(host, booking(gpus=4, at=0))

    job_id = host.start(submit(gpus=4, time_limit_s=60, reservation="talk"))

    assert (len(only(host).grants[0].cpus), host.job(job_id).state.value) == (8, "RUNNING")


def test_cpus_and_whole_nodes_that_are_asked_for_are_kept_whole() -> None:
    host = host_of(2)
    set_(host, booking("a", 4, cpus_per_gpu=2, nodelist=("n1",)))
    set_(host, booking("b", 0, nodelist=("n2",), is_exclusive=True))
    assert [len(only(host, name).grants[0].cpus) for name in ("a", "b")] == [8, 8]


# ── running jobs in its way ───────────────────────────────────────────────────────────────────────────────────


def test_a_node_whose_partition_has_no_max_time_is_reserved_where_no_job_holds_it() -> None:
    host = CoreHost(ENDLESS, {"n1": inventory()})
    set_(host, booking(gpus=4, at=DAY))
    waiting = host.submit(submit(gpus=1))
    short = host.start(submit(gpus=1, time_limit_s=HOUR))
    host.schedule()
    assert (host.job(waiting).state.value, host.job(short).state.value) == ("PENDING", "RUNNING")
    host.finish(short, now=100.0)
    host.schedule(DAY + HOUR + 1.0)
    assert host.job(waiting).state.value == "STARTING"


@pytest.mark.parametrize(
    ("policy", "limit", "setting"),
    [(ENDLESS, "no time limit", "default_time and max_time"), (WITHOUT_DEFAULT, "7 d", "default_time")],
    ids=["no limit", "max_time"],
)
def test_the_refusal_names_the_jobs_in_the_way_and_the_settings_that_would_have_bounded_them(
    policy: Policy, limit: str, setting: str
) -> None:
    host = CoreHost(policy, {"n1": inventory()})
    host.start(submit())
    host.start(submit(gpus=1))

    answer = refuse(host, booking(gpus=4, at=DAY))

    assert answer.code == "conflict"
    assert answer.message.endswith(f": 1 job (2 with {limit}) may run until then")
    assert answer.hint.split("\n")[1] == (
        f"set {setting} of [[partition]] `main` in gq.toml for jobs without --time; gqctl update 2 --time=… limits"
        " that job"
    )
    assert [one.gpus for one in answer.offers if one.begin_at == DAY] == [3]


def test_a_job_whose_owner_chose_the_limit_is_no_reason_to_name_settings() -> None:
    host = CoreHost(ENDLESS, {"n1": inventory()})
    host.start(submit(gpus=1, time_limit_s=2 * DAY))
    answer = refuse(host, booking(gpus=4, at=DAY))
    assert answer.message.endswith(": 1 job (1 with 2 d) may run until then")
    assert "default_time" not in answer.hint


# ── fewer GPUs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_most_gpus_that_are_free_are_offered() -> None:
    host = CoreHost(BOOKABLE, {"n1": inventory(gpu_count=8, cpus=64)})
    set_(host, booking("a", 2, at=0))
    offers = refuse(host, booking("b", 7, at=0)).offers
    assert [one.gpus for one in offers if one.begin_at == 0] == [6]


def test_after_the_loss_of_a_node_as_many_gpus_as_there_are_left_are_kept() -> None:
    host = host_of(2)
    set_(host, booking("talk", 4))
    set_(host, booking("other", 1))
    assert gpus_of(only(host, "talk").grants) | gpus_of(only(host, "other").grants) == {"n1": 4, "n2": 1}

    reload(host, 10, Partition(name="main", is_default=True, max_time_s=DAY, nodes=("n2",)))

    assert (gpus_of(only(host, "talk").grants), only(host, "talk").missing_gpus) == ({"n2": 3}, 1)
