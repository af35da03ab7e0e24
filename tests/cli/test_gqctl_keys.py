"""`gqctl token`, `gqctl key`, `gqctl audit`, `gqctl whoami`: what is asked, what is shown, what is refused."""

from __future__ import annotations

import io
import json
import stat
import sys
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from gq.config.config import parse_config
from gq.connection.token import parse_token
from gq.model.audit import AuditEntry
from gq.model.key import KeyInfo, KeyKind
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController
from tests.cli.test_run import seen_on_a_terminal, strip_colour

SERVER_KEY = zmq.curve_keypair()[0].decode()
ENDPOINT = "tcp://head:7133"
CREATED = wire.TokenCreated(endpoint=ENDPOINT, server_key=SERVER_KEY, expires_at=SUBMITTED_AT + 3600)
LAPTOP = KeyInfo(
    public="laptop00" + "x" * 32, kind=KeyKind.USER, name="ada", uid=1000, added_at=SUBMITTED_AT, added_by="ada",
    note="laptop",
)  # fmt: skip
NODE = KeyInfo(public="node0000" + "x" * 32, kind=KeyKind.NODE, name="g1", added_at=SUBMITTED_AT, added_by="root")
LOGIN = msgspec.structs.replace(NODE, public="login000" + "x" * 32, name="l1", is_login=True)
TOKEN = KeyInfo(
    public="token000" + "x" * 32, kind=KeyKind.JOIN, name="g2", added_at=SUBMITTED_AT, added_by="root",
    expires_at=SUBMITTED_AT + 60,
)  # fmt: skip
USED = msgspec.structs.replace(TOKEN, public="token111" + "x" * 32, name="", joined="g1", is_login=True)
IDENTITY = wire.Identity(
    user="ada", uid=1000, role="operator", origin="key laptop00", cluster="lab", now=SUBMITTED_AT
)  # fmt: skip
EVERY_KEY = wire.Keys(keys=(LAPTOP, NODE, LOGIN, TOKEN, USED))


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_holds_the_secret_of_the_key_that_was_sent_and_the_key_of_the_controller(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.CreateToken, CREATED)

    result = run("gqctl", "token", "create")

    token = parse_token(result.out)
    asked = controller.the(wire.CreateToken)
    assert asked == wire.CreateToken(public=token.join_keys.public.decode(), ttl_s=3600)
    assert zmq.curve_public(token.join_keys.secret) == token.join_keys.public
    assert (token.server_key.decode(), len(result.lines)) == (SERVER_KEY, 1)


def test_what_to_do_with_a_token_is_said_apart_from_it(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.on(wire.CreateToken, CREATED)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    result = run("gqctl", "token", "create")

    assert result.err == (
        "The token lets one node join, once.\n"
        "Before 2027-01-15T09:00:00, run on that host as root:\n"
        "  gqnode join tcp://head:7133 --token-file FILE --start\n"
        "without --token-file, gqnode reads the token from standard input\n"
    )
    assert result.out.strip() not in result.err


def test_into_a_pipe_a_token_is_all_that_is_printed(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.CreateToken, CREATED)

    result = run("gqctl", "token", "create")

    assert (result.status, len(result.lines), result.err) == (0, 1, "")


def test_as_json_a_token_comes_with_what_it_is_for(run: Run, controller: ScriptedController, tmp_path: Path) -> None:
    controller.on(wire.CreateToken, CREATED)
    words = ("gqctl", "token", "create", "--json", "--node-name=g1")

    [shown] = json.loads(run(*words).out)
    [apart] = json.loads(run(*words, f"--out={tmp_path}/token").out)

    assert parse_token(shown.pop("token")).server_key.decode() == SERVER_KEY
    expected = {"node": "g1", "is_login": False, "endpoint": "tcp://head:7133"}
    assert shown == {**expected, "expires_at": "2027-01-15T09:00:00+00:00"}
    assert apart == {"token": None, **shown}
    assert parse_token((tmp_path / "token").read_text()).server_key.decode() == SERVER_KEY


def test_a_token_can_be_for_one_name_for_a_login_node_and_for_a_while(
    run: Run, controller: ScriptedController, tmp_path: Path
) -> None:
    controller.on(wire.CreateToken, CREATED)

    result = run("gqctl", "token", "create", f"--out={tmp_path}/token", "--ttl", "10m", "--node-name=l1", "--login")

    asked = controller.the(wire.CreateToken)
    assert (asked.ttl_s, asked.node, asked.is_login) == (600, "l1", True)
    assert result.err.startswith("The token lets the login node l1 join, once.\n")


def test_a_token_is_written_where_only_its_owner_reads_it(
    run: Run, controller: ScriptedController, tmp_path: Path
) -> None:
    controller.on(wire.CreateToken, CREATED)
    path = tmp_path / "token"

    result = run("gqctl", "token", "create", f"--out={path}")

    assert (result.status, result.out) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert parse_token(path.read_text()).server_key.decode() == SERVER_KEY
    assert "--token-file token --start" in result.err


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_token_is_not_made_where_it_would_replace_something(
    run: Run, controller: ScriptedController, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "token"
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else path.write_text("mine")

    result = run("gqctl", "token", "create", f"--out={path}")

    assert (result.status, controller.heard) == (1, [])
    assert result.err.startswith(f"error: {path} already exists\nhint: ")
    assert not (tmp_path / "elsewhere").exists()


def test_no_file_stays_where_the_controller_refuses_a_token(
    run: Run, controller: ScriptedController, tmp_path: Path
) -> None:
    controller.on(wire.CreateToken, wire.Refused(code="not_allowed", message="only administrators may"))

    result = run("gqctl", "token", "create", f"--out={tmp_path}/token")

    assert (result.status, result.err) == (1, "error: only administrators may\n")
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_listed_without_the_keys_of_nodes_and_users(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListKeys, EVERY_KEY)

    assert run("gqctl", "token", "list").lines == [
        "TOKEN    FOR LOGIN UNTIL               USED BY CREATED BY",
        "token000 g2  no    2027-01-15T08:01:00 -       root",
        "token111 any yes   2027-01-15T08:01:00 g1      root",
    ]
    assert [one["public"] for one in json.loads(run("gqctl", "token", "list", "--json").out)] == [
        TOKEN.public,
        USED.public,
    ]


def test_a_token_is_revoked_by_its_beginning_and_no_other_key_is(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListKeys, EVERY_KEY)
    controller.on(wire.RevokeKey, wire.Done())

    assert run("gqctl", "token", "revoke", "token0") == (0, "", "")
    assert controller.the(wire.RevokeKey) == wire.RevokeKey(public=TOKEN.public)
    assert run("gqctl", "token", "revoke", "laptop").err.startswith("error: no token begins with `laptop`\n")
    assert len(controller.all(wire.RevokeKey)) == 1


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_enrolled_from_the_command_line_or_standard_input(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.on(wire.AddKey, wire.Done())
    controller.on(wire.WhoAmI, IDENTITY)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{LAPTOP.public}\n"))

    assert run("gqctl", "key", "add", LAPTOP.public).status == 0
    assert run("gqctl", "key", "add", "-", "--user=ada", "--note", "the laptop").status == 0
    assert controller.all(wire.AddKey) == [
        wire.AddKey(public=LAPTOP.public),
        wire.AddKey(public=LAPTOP.public, user="ada", note="the laptop"),
    ]


def test_what_the_machine_of_a_key_needs_is_printed_as_it_belongs_into_its_file(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.AddKey, wire.Done())
    reached = msgspec.structs.replace(IDENTITY, client_endpoint="tcp://head:7135", server_key=SERVER_KEY)
    controller.on(wire.WhoAmI, reached)

    result = run("gqctl", "key", "add", LAPTOP.public)

    config = parse_config(result.out, "gq.toml")
    assert (config.client.controller, config.client.server_key) == ("tcp://head:7135", SERVER_KEY)
    assert "GQ_CONFIG" in result.err


def test_that_no_door_is_open_for_a_key_is_said(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.AddKey, wire.Done())
    controller.on(wire.WhoAmI, IDENTITY)

    result = run("gqctl", "key", "add", LAPTOP.public)

    assert (result.status, result.out) == (0, "")
    assert "cannot be used yet" in result.err and "`listen_clients`" in result.err


def test_keys_of_users_and_nodes_are_shown_without_tokens(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListKeys, EVERY_KEY)

    assert run("gqctl", "key", "show", "-u", "ada").lines == [
        "KEY      KIND  OF  ADDED               BY   NOTE",
        "laptop00 user  ada 2027-01-15T08:00:00 ada  laptop",
        "node0000 node  g1  2027-01-15T08:00:00 root",
        "login000 login l1  2027-01-15T08:00:00 root",
    ]
    assert controller.the(wire.ListKeys).user == "ada"
    shown = json.loads(run("gqctl", "key", "show", "--json").out)
    assert (shown[0]["public"], shown[0]["kind"], shown[0]["added_at"], shown[0]["expires_at"]) == (
        LAPTOP.public,
        "user",
        "2027-01-15T08:00:00+00:00",
        None,
    )


def test_a_key_is_revoked_by_a_beginning_that_only_it_has(run: Run, controller: ScriptedController) -> None:
    twin = msgspec.structs.replace(LAPTOP, public="laptop00" + "y" * 32)
    controller.on(wire.ListKeys, wire.Keys(keys=(LAPTOP, twin)))
    controller.on(wire.RevokeKey, wire.Done())

    assert run("gqctl", "key", "revoke", "laptop00").err == (
        "error: 2 keys begin with `laptop00`\nhint: give more characters\n"
    )
    assert run("gqctl", "key", "revoke", "laptop00y") == (0, "", "")
    assert controller.the(wire.RevokeKey).public == twin.public


# ── audit, whoami ─────────────────────────────────────────────────────────────────────────────────────────────

CANCELLED = AuditEntry(at=SUBMITTED_AT, user="ada", uid=1000, origin="node g1", action="CancelJobs", object="job 7")
IMPOSTOR = AuditEntry(
    at=SUBMITTED_AT + 1, user="", origin="10.0.0.9", action="Impostor", outcome="refused", detail="says that it is g1"
)


def test_the_audit_trail_is_shown_oldest_first_over_all_its_pages(run: Run, controller: ScriptedController) -> None:
    pages = {
        0: wire.AuditTrail(entries=(CANCELLED,), last=5, more=True),
        5: wire.AuditTrail(entries=(IMPOSTOR,), last=9),
    }
    controller.on(wire.QueryAudit, lambda query: pages[query.after])

    assert run("gqctl", "audit").lines == [
        "TIME                USER FROM     ACTION     OBJECT OUTCOME",
        "2027-01-15T08:00:00 ada  node g1  CancelJobs job 7  done",
        "2027-01-15T08:00:01 -    10.0.0.9 Impostor   -      refused: says that it is g1",
    ]
    [first, last] = json.loads(run("gqctl", "audit", "--json").out)
    assert (first["at"], first["uid"], last["user"], last["outcome"]) == (
        "2027-01-15T08:00:00+00:00",
        1000,
        "",
        "refused",
    )


def test_the_audit_trail_is_asked_for_what_the_options_say(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryAudit, wire.AuditTrail(entries=(CANCELLED, IMPOSTOR)))

    result = run("gqctl", "audit", "-u", "ada", "--action=CancelJobs", "--refused", "--since=2h", "--limit=1")

    asked = controller.the(wire.QueryAudit)
    assert (asked.user, asked.action, asked.outcome) == ("ada", "CancelJobs", "refused")
    assert asked.since == pytest.approx(time.time() - 7200, abs=30)
    assert len(result.lines) == 2 and "Impostor" in result.lines[1], "the last one"


@pytest.mark.parametrize(("since", "age_s"), [("90s", 90), ("1d", 86400), ("now", 0)])
def test_the_beginning_of_the_audit_trail_is_a_span_or_a_moment(
    run: Run, controller: ScriptedController, since: str, age_s: int
) -> None:
    controller.on(wire.QueryAudit, wire.AuditTrail(entries=()))
    run("gqctl", "audit", "-S", since)

    assert controller.the(wire.QueryAudit).since == pytest.approx(time.time() - age_s, abs=30)


def test_a_bare_clock_time_is_the_last_one_that_has_been(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryAudit, wire.AuditTrail(entries=()))
    now = time.time()
    ahead = time.strftime("%H:%M", time.localtime(now + 7200))
    run("gqctl", "audit", "-S", ahead)

    assert controller.the(wire.QueryAudit).since == pytest.approx(now + 7200 - 86400, abs=90)


def test_a_caller_is_told_who_the_controller_takes_it_for(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.WhoAmI, IDENTITY)

    assert run("gqctl", "whoami").lines == [
        "user     ada",
        "uid      1000",
        "role     operator",
        "origin   key laptop00",
        "cluster  lab",
        "now      2027-01-15T08:00:00",
    ]
    assert json.loads(run("gqctl", "whoami", "--json").out)[0]["now"] == "2027-01-15T08:00:00+00:00"


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["token"], "missing command after `gqctl token`"),
        (["token", "create", "n1"], "unexpected argument `n1`"),
        (["token", "create", "--ttl=unlimited"], "`--ttl`: `unlimited` is not a valid lifetime"),
        (["token", "create", "--ttl=0"], "`--ttl`: `0` is not a valid lifetime"),
        (["token", "create", "--ttl=soon"], "`--ttl`: `soon` is not a duration"),
        (["key"], "missing command after `gqctl key`"),
        (["key", "add"], "PUBLIC is missing"),
        (["key", "add", "abc"], "a public key has 40 characters, this has 3"),
        (["key", "show", "ada"], "unexpected argument `ada`"),
        (["audit", "ada"], "unexpected argument `ada`"),
        (["audit", "--since=then"], "`--since`: `then` is not a time"),
        (["audit", "--limit=0"], "`--limit`: 0 is too small"),
        (["whoami", "me"], "unexpected argument `me`"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_asked(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    result = run("gqctl", *words)

    assert (result.status, result.out, controller.heard) == (2, "", [])
    assert result.err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["revoke"], "KEY is missing"), (["revoke", "lap"], "`lap` is too short for a key")],
)
def test_a_key_that_is_not_named_well_is_not_revoked(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    controller.on(wire.ListKeys, EVERY_KEY)

    result = run("gqctl", "key", *words)

    assert (result.status, controller.all(wire.RevokeKey)) == (2, [])
    assert result.err.startswith(f"error: {message}")


@pytest.mark.parametrize("words", [["token", "create"], ["token", "create", "--login", f"--node-name={'n' * 30}"]])
def test_what_is_said_to_people_fits_80_columns(
    run: Run, controller: ScriptedController, words: list[str], tmp_path: Path
) -> None:
    controller.on(wire.CreateToken, CREATED)

    assert max(map(len, run("gqctl", *words, f"--out={tmp_path}/token").err.splitlines())) <= 80


def test_the_audit_trail_fits_a_terminal_of_80_columns_and_no_word_of_it_is_lost(
    controller: ScriptedController,
) -> None:
    entry = AuditEntry(
        at=time.time(), user="somebody", uid=1000, origin="key laptop00 (192.0.2.77)", action="GetJobEnvironment",
        object="job 1234567", outcome="not_owner", detail="job 1234567 is alice's, and not somebody's to look into",
    )  # fmt: skip
    controller.on(wire.QueryAudit, wire.AuditTrail(entries=(entry,)))

    lines = [strip_colour(line) for line in seen_on_a_terminal("gqctl", "audit")]

    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    for text in (entry.user, entry.origin, entry.action, entry.object, entry.detail):
        assert set(text.split()) <= set(words), text
