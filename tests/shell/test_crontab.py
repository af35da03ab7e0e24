"""Entries that are due, on their way past the host's user database; crontabs on their way in."""

from __future__ import annotations

import pwd

import msgspec

from gq.model.crontab import CronEntry
from gq.wire.client import CronJob, SetCrontab, Submit
from gqd.shell.listeners.submission import digest, take_crontab_blobs
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.requests.cron_fire import CronFire
from gqd.shell.zones import load_zones, zones_named_by, zones_of
from gqd.state.cluster import Cluster
from gqd.state.crontab import Crontab, Entry
from gqd.state.effect import FireCron
from gqd.state.input import ClientRequest, CronDue
from tests.builders import spec

USER = pwd.getpwnam("nobody")


def fired(user: str, uid: int) -> ClientRequest:
    entered: list[ClientRequest] = []
    peers = UserDirectory(owner_uid=0, is_shared=True)
    due = CronDue(user=user, number=2, set_at=1.0, due_at=60.0)
    desk = CronFire(peers, lambda request, blobs: entered.append(request))
    desk.fire(FireCron(uid=uid, cron=due, spec=spec("nightly")))
    [request] = entered
    assert request.body == Submit(spec=spec("nightly"))
    assert request.cron is not None and msgspec.structs.replace(request.cron, why_not="") == due
    return request


def test_the_owner_comes_as_this_host_knows_them_now() -> None:
    request = fired(USER.pw_name, USER.pw_uid)
    assert (request.peer.user, request.peer.uid, request.peer.gid) == (USER.pw_name, USER.pw_uid, USER.pw_gid)
    assert request.peer.groups and request.cron is not None and request.cron.why_not == ""


def test_an_owner_who_is_not_there_any_more_or_is_another_is_said() -> None:
    for user, uid, said in (
        ("no-such-user", 4321, "user no-such-user (uid 4321 when it was asked for) is not known"),
        (USER.pw_name, 4321, f"has uid 4321 when it was asked for and uid {USER.pw_uid} on the controller's host"),
    ):
        request = fired(user, uid)
        assert request.cron is not None and said in request.cron.why_not


def entry(line: int, zone: str = "") -> CronEntry:
    return CronEntry(line=line, schedule="0 * * * *", zone=zone, spec=spec("x", cron="forged", script_digest="forged"))


def test_scripts_and_environments_of_a_crontab_become_names_and_nothing_forged_stays() -> None:
    jobs = (
        CronJob(entry=entry(1), script=b"#!/bin/sh\na\n", environment={"A": "1"}),
        CronJob(entry=entry(2), script=b"#!/bin/sh\na\n"),
    )
    bare, blobs = take_crontab_blobs(SetCrontab(text="t", jobs=jobs), 100, 100)
    first, second = bare.jobs
    assert (first.script, first.environment, second.script) == (b"", {}, b"")
    assert first.entry.spec.script_digest == second.entry.spec.script_digest == digest(b"#!/bin/sh\na\n")
    assert set(blobs) == {first.entry.spec.script_digest, first.entry.spec.environment_digest}
    assert (second.entry.spec.environment_digest, second.entry.spec.cron) == ("", "")


def test_zones_that_a_crontab_names_are_loaded_and_others_left_out() -> None:
    body = SetCrontab(
        text="", jobs=tuple(CronJob(entry=entry(1, zone)) for zone in ("Europe/Berlin", "Mars/X", "", ".."))
    )
    assert list(load_zones(zones_named_by(body))) == ["Europe/Berlin"]
    kept = Crontab("ann", 1000, "", 1.0, {1: Entry(entry(1, "Asia/Kolkata"), 1.0)})
    assert list(load_zones(zones_of(Cluster(crontabs={"ann": kept})))) == ["Asia/Kolkata"]
