"""`gqresv --notify`: as for jobs, and as it is shown."""

from __future__ import annotations

import json

import msgspec

from gq.model.notice import Target
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController
from tests.cli.test_gqresv import NIGHT, as_asked, info

HOOK = Target(kind="webhook", to="https://hooks.example.org/x")
TOLD = msgspec.structs.replace(NIGHT, notify=(Target(kind="mail"), HOOK))
SAID = ("--notify=mail", "--notify=webhook:https://hooks.example.org/x")


def test_who_is_told_is_said_once_for_each(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetReservation, as_asked)

    done = run("gqresv", "create", "night", "--gpus=4", "--start=2035-11-23T18:00", "-t12h", "--json", *SAID)

    assert controller.the(wire.SetReservation).booking.notify == TOLD.notify
    assert json.loads(done.out)[0]["notify"] == ["mail", "webhook:https://hooks.example.org/x"]


def test_what_is_no_target_is_refused_here(run: Run, controller: ScriptedController) -> None:
    done = run("gqresv", "create", "night", "--gpus=4", "--start=2035-11-23T18:00", "-t12h", "--notify=fax:1")

    assert done.status == 2
    assert "`fax:1` is not one of mail, webhook, slack, command" in done.err


def test_an_update_takes_others_or_none_and_leaves_them_where_it_says_nothing(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(TOLD),)))
    controller.on(wire.SetReservation, as_asked)

    for word in ("--comment=x", "--notify=none", "--notify=mail"):
        assert run("gqresv", "update", "night", word).status == 0

    asked = [one.booking.notify for one in controller.all(wire.SetReservation)]
    assert asked == [TOLD.notify, (), (Target(kind="mail"),)]


def test_show_says_who_is_told(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListReservations, wire.Reservations(reservations=(info(TOLD), info())))

    shown = run("gqresv", "show", "night").out

    assert "mail" in shown
    assert "webhook:https://hooks.example.org/x" in shown
    assert "the site's setting" in shown
