"""What a new gq.toml does to what is kept on nodes that their partition no longer has."""

from __future__ import annotations

import msgspec

from gq.model.reservation import Flag
from gqd.state.input import PolicyChanged
from gqd.state.policy import Partition
from tests.control.test_reservations import BOOKABLE, booking, gpus_of, host_of, only, set_, tick
from tests.hosts import CoreHost

REST = Partition(name="rest", max_time_s=86400)


def partition(*nodes: str, name: str = "main") -> Partition:
    return Partition(name=name, is_default=True, max_time_s=86400, nodes=nodes)


def reload(host: CoreHost, now: float, *partitions: Partition) -> None:
    """The daemon's loop asks at once what is due."""
    policy = msgspec.structs.replace(BOOKABLE, partitions=partitions)
    host.policy = policy
    host.handle(PolicyChanged(policy=policy), now)
    assert host.controller.next_wakeup(now) == now
    tick(host, now)


def test_what_is_kept_on_a_node_that_left_the_partition_goes_to_another() -> None:
    host = host_of(2)
    set_(host, booking())
    assert gpus_of(only(host).grants) == {"n1": 4}

    reload(host, 10, partition("n2"), REST)

    assert gpus_of(only(host).grants) == {"n2": 4}
    assert only(host).why == "n1 is no longer in partition main: it has moved to n2"


def test_what_no_other_node_has_is_missing_until_a_reload_gives_the_node_back() -> None:
    host = host_of(2)
    set_(host, booking(gpus=8, at=0))
    tick(host, 1)

    reload(host, 10, partition("n1"), REST)
    assert (gpus_of(only(host).grants), only(host).missing_gpus) == ({"n1": 4}, 4)
    assert only(host).why == "n2 is no longer in partition main, and no replacement is free for 4 GPUs"
    reload(host, 20, partition("n1", "n2"), REST)

    assert (gpus_of(only(host).grants), only(host).missing_gpus) == ({"n1": 4, "n2": 4}, 0)


def test_of_a_partition_that_went_nothing_is_left() -> None:
    host = host_of(1)
    set_(host, booking(partition="main"))

    reload(host, 10, partition("n1", name="other"))

    assert (only(host).grants, only(host).missing_gpus) == ((), 4)
    assert only(host).why == "n1 is no longer in partition main, and no replacement is free for 4 GPUs"


def test_maintenance_stays_on_the_node() -> None:
    host = host_of(2)
    set_(host, booking(flags=(Flag.MAINT,)))

    reload(host, 10, partition("n2"), REST)

    assert gpus_of(only(host).grants) == {"n1": 4}
