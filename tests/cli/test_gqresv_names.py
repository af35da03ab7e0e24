"""Commands about a reservation that is not there name the one that was probably meant."""

from __future__ import annotations

import msgspec
import pytest

from gq.model.node import ClusterInfo
from gq.model.reservation import ReservationInfo
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController
from tests.cli.test_gqresv import NIGHT, info

PAPER = info(msgspec.structs.replace(NIGHT, name="paper"))


def those_asked_for(request: wire.ListReservations) -> wire.Reservations:
    there: tuple[ReservationInfo, ...] = (info(), PAPER)
    return wire.Reservations(
        reservations=tuple(one for one in there if not request.names or one.booking.name in request.names)
    )


@pytest.mark.parametrize(
    "words", [["show"], ["list"], ["ics"], ["update", "--duration=1h"], ["renew", "-t", "1h"], ["skip"]]
)
def test_a_name_that_is_nearly_right_is_told_of(run: Run, controller: ScriptedController, words: list[str]) -> None:
    controller.on(wire.ListReservations, those_asked_for)
    controller.on(wire.GetCluster, wire.Cluster(info=ClusterInfo(cluster="lab", gq_version="1", started_at=0.0)))

    done = run("gqresv", *words, "papr")

    assert done.status == 1
    assert done.err.splitlines() == ["error: reservation `papr` does not exist", "hint: did you mean `paper`?"]


def test_of_a_name_that_is_like_no_other_it_is_said_where_all_are(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListReservations, those_asked_for)

    assert run("gqresv", "show", "zzz").err.splitlines()[1] == "hint: `gqresv list` lists all"
