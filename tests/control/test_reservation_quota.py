"""What counts as GPU-hours of who keeps CPUs, or nodes without GPUs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking
from gq.wire import client
from tests.builders import ALICE, inventory
from tests.control.test_reservations import HOUR, OPEN, booking, refuse, refused, set_
from tests.hosts import CoreHost


def host_with(gpu_hours: float, **nodes: Any) -> CoreHost:
    """By default one with 8 CPUs and 4 GPUs."""
    rules = Rules(users=True, max_gpu_hours=gpu_hours)
    return CoreHost(msgspec.structs.replace(OPEN, booking=rules), nodes or {"n1": inventory()})


def of_cpus(count: int, name: str = "talk") -> Booking:
    return booking(name, 0, nodes_min=1, ntasks=1, cpus_per_task=count)


@pytest.mark.parametrize(("cpus", "gpu_hours"), [(2, "1"), (4, "2"), (8, "4"), (1, "0.5")])
def test_cpus_count_as_the_share_of_the_gpus_that_they_are(cpus: int, gpu_hours: str) -> None:
    answer = refuse(host_with(0.25), of_cpus(cpus), ALICE)

    assert answer.message == f"this is {gpu_hours} GPU-hours, and 0.25 of 0.25 are left"
    assert set_(host_with(float(gpu_hours)), of_cpus(cpus), ALICE).is_changed


def test_what_was_booked_of_cpus_is_not_left() -> None:
    host = host_with(2)
    set_(host, of_cpus(3), ALICE)

    answer = refuse(host, booking("gpus", 1), ALICE)

    assert answer.message == "this is 1 GPU-hours, and 0.5 of 2 are left"
    assert refused(host, client.EditOccurrence(name="talk", number=1, duration_s=2 * HOUR), ALICE).message == (
        "this is 3 GPU-hours, and 2 of 2 are left"
    )


def test_gpus_with_more_than_their_share_of_cpus_count_as_these() -> None:
    assert refuse(host_with(3.5), booking(gpus=1, cpus_per_gpu=8), ALICE).code == "too_many_gpu_hours"
    assert set_(host_with(1), booking(gpus=1), ALICE).is_changed


def test_nodes_without_gpus_count_as_one_each() -> None:
    bare = {"c1": inventory(gpu_count=0), "c2": inventory(gpu_count=0)}
    both = booking(gpus=0, nodes_min=2, is_exclusive=True)

    assert refuse(host_with(1.5, **bare), both, ALICE).message == ("this is 2 GPU-hours, and 1.5 of 1.5 are left")
    assert set_(host_with(2, **bare), both, ALICE).is_changed


def test_of_cpus_too_nothing_is_offered_that_would_be_refused() -> None:
    host = host_with(4)
    set_(host, of_cpus(6, "half"), ALICE)  # 3 of 4 GPU-hours

    answer = refuse(host, of_cpus(4), ALICE)

    assert (answer.code, answer.offers) == ("conflict", ())
