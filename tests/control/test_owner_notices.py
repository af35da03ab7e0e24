"""What owners of reservations and crontabs are told: what they did not ask for, once, in its turn."""

from __future__ import annotations

from typing import Any

import msgspec

from gq.model.notice import NotifySettings, Target
from gq.wire import client
from gqd.state.events.event import NoticeQueued
from tests.builders import SHARED
from tests.control.test_crontab import NIGHT, CronHost, entry
from tests.control.test_reservations import BOOKABLE, booking, host_of, set_, tick
from tests.hosts import CoreHost

HOOK = "https://hooks.example.org/ada"
TELLING = NotifySettings(webhook_hosts=("hooks.example.org",), default=f"slack:{HOOK}")


def told(host: CoreHost) -> list[NoticeQueued]:
    return [one for one in host.log if isinstance(one, NoticeQueued)]


def texts(host: CoreHost) -> list[str]:
    return [said(one)["text"] for one in told(host)]


def said(one: NoticeQueued) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(one.body)
    return body


def test_the_owner_is_told_of_a_no_show_and_of_nothing_that_was_meant() -> None:
    host = host_of(1, msgspec.structs.replace(BOOKABLE, notify=TELLING))
    set_(host, booking(at=0, no_show_s=1200))
    set_(host, booking("later", at=9000))
    host.ask(client.DeleteReservation(name="later"))
    tick(host, 1201)

    [one] = told(host)
    body = said(one)
    assert (one.user, one.kind, one.on, body["reservation"], body["occurrence"]) == (
        "ada",
        "slack",
        "reservation",
        "talk",
        1,
    )
    assert body["text"].startswith("occurrence 1 of reservation talk was released because it was unused")


def test_the_owner_is_told_when_nodes_fail_and_nothing_else_is_there() -> None:
    host = host_of(1, msgspec.structs.replace(BOOKABLE, notify=TELLING))
    set_(host, booking(at=1000))
    host.ask(client.UpdateNodes(names=("n1",), action="down", reason="smoke"))
    for now in (10, 20, 200):
        tick(host, now)

    assert len(texts(host)) == 1
    assert texts(host)[0].startswith("occurrence 1 of reservation talk has changed: ")


def test_the_owner_is_told_when_what_was_missing_is_there_again() -> None:
    host = host_of(1, msgspec.structs.replace(BOOKABLE, notify=TELLING))
    set_(host, booking(at=1000))
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason="a fan"))
    tick(host, 10)
    host.ask(client.UpdateNodes(names=("n1",), action="resume"))
    for now in (20, 200):
        tick(host, now)

    assert texts(host) == [
        "occurrence 1 of reservation talk has changed: n1 is drained, and no replacement is free for 4 GPUs",
        "occurrence 1 of reservation talk has changed: it is complete again: it has n1",
    ]


def test_without_a_default_nobody_is_told_of_reservations() -> None:
    host = host_of(1)
    set_(host, booking(at=0, no_show_s=1200))
    tick(host, 1201)

    assert told(host) == []


def cron_host() -> CronHost:
    return CronHost(msgspec.structs.replace(SHARED, notify=TELLING))


def test_the_owner_of_a_crontab_is_told_of_a_line_that_failed_and_of_one_that_became_no_job() -> None:
    host = cron_host()
    host.set(entry(name="backup"))
    host.tick(NIGHT + 3600)
    host.run_last(code=3)
    del host.users["alice"]
    host.tick(NIGHT + 7200)

    first, second = told(host)
    assert (first.user, first.on, said(first)["line"]) == ("alice", "cron", 1)
    assert said(first)["text"].startswith("line 1 of your crontab (backup) failed: job 1 is FAILED: ")
    assert said(second)["text"].startswith("line 1 of your crontab (backup) started no job: ")


def test_a_line_that_says_whom_to_tell_tells_them_and_of_its_jobs_the_jobs_do() -> None:
    host = cron_host()
    own = Target(kind="webhook", to=f"{HOOK}/own", on=("fail",))
    host.set(entry(name="backup", notify=(own,)))
    host.tick(NIGHT + 3600)
    host.run_last(code=3)
    del host.users["alice"]
    host.tick(NIGHT + 7200)

    assert [(one.on, one.kind, one.job_id) for one in told(host)] == [("fail", "webhook", 1), ("cron", "webhook", None)]


def test_of_a_job_that_is_in_the_way_is_told_once_and_of_a_refusal_each_time() -> None:
    host = cron_host()
    host.set(entry(name="backup"))
    for hours in (1, 2, 3, 4):
        host.tick(NIGHT + hours * 3600)
    [only] = told(host)
    assert said(only)["text"].endswith("started no job: job 1 of the previous run is still pending")

    host = cron_host()
    host.set(entry(name="backup"))
    host.hook["hook_refusal"] = "not at night"
    for hours in (1, 2):
        host.tick(NIGHT + hours * 3600)
    assert len(told(host)) == 2


def test_a_line_that_goes_well_tells_nobody() -> None:
    host = cron_host()
    host.set(entry())
    host.tick(NIGHT + 3600)
    host.run_last()

    assert told(host) == []
