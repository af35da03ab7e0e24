"""Where reservations may go at all: a request that leaves every node out is told so, and ends nothing."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking
from gq.model.resource import ResourceRequest
from gq.wire import client
from gqd.state.policy import Partition
from tests.builders import ALICE, SHARED, inventory
from tests.hosts import CoreHost

MAIN = Partition(name="main", is_default=True, max_time_s=86400)
OPEN = msgspec.structs.replace(SHARED, partitions=(MAIN,), booking=Rules(users=True))
LEAVES_ALL_OUT = {
    "no such feature": (ResourceRequest(gpus=1, constraint="foo"), "has a feature or an attribute `foo`"),
    "nothing is so": (ResourceRequest(gpus=1, constraint="gpus>=8"), "is what --constraint=gpus>=8 says"),
    "all excluded": (
        ResourceRequest(gpus=1, exclude=("n1", "n2")),
        "it may use no node of partition `main`",
    ),
}


@pytest.mark.parametrize("which", LEAVES_ALL_OUT)
def test_a_request_that_no_node_admits_is_refused_with_the_reason(which: str) -> None:
    host = CoreHost(OPEN, {f"n{number}": inventory() for number in (1, 2)})
    resources, words = LEAVES_ALL_OUT[which]
    wanted = Booking(name="talk", resources=resources, begin_at=1000, duration_s=3600)

    with pytest.raises(Refusal) as refused:
        host.ask(client.SetReservation(booking=wanted), peer=ALICE)

    assert refused.value.code == "impossible"
    assert words in refused.value.message
    assert refused.value.hint
    assert not host.cluster.reservations


def test_a_cluster_whose_nodes_have_not_come_yet_reserves_nothing() -> None:
    host = CoreHost(OPEN, {})
    wanted = Booking(name="talk", resources=ResourceRequest(gpus=1), begin_at=1000, duration_s=3600)

    with pytest.raises(Refusal, match="it may use no node of partition `main`"):
        host.ask(client.SetReservation(booking=wanted), peer=ALICE)
