"""Words that are meant to be more than words: escapes for terminals, lines for logs, SQL, shell, paths."""

from __future__ import annotations

import pytest

from gq.model.job import JobSpec
from gq.model.resource import ResourceRequest
from gq.wire import client as wire
from gq.wire import node as node_wire
from tests.integration.jobs import submit
from tests.requires import needs_program, needs_root
from tests.system.attacks import CONTAINED, REFUSED, attack
from tests.system.stage import Stage, hear, hello, say
from tests.system.test_attacks_nodes import fresh_keys, join, new_token, why_not

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
HIDDEN = "\x9b2J\u202egnp.exe"
"""Control characters that JSON does not escape by itself."""
SQL = "x'); DROP TABLE jobs; --"


def is_plain(text: str) -> bool:
    """Nothing in it that a terminal would obey."""
    return all(one.isprintable() or one == "\n" for one in text)


@attack("A job name with escape sequences or a new line", REFUSED, "Submit: bad_name")
def test_a_job_name_with_escape_sequences_or_a_new_line(stage: Stage) -> None:
    for name in (ESCAPE, "a\nb", "a\0b", "\u202egnp.exe", ""):
        body = wire.Submit(spec=JobSpec(name=name), script=b"#!/bin/sh\n")
        assert stage.refusal(stage.bob, body) == "bad_name"
    assert all(is_plain(one.detail) for one in stage.audit())
    assert is_plain(stage.operator.ok("gqctl", "audit"))


@attack("Escape sequences in the shown fields of a job other than its name", CONTAINED, "Submit: done")
def test_escape_sequences_in_the_shown_fields_of_a_job_other_than_its_name(stage: Stage) -> None:
    spec = JobSpec(
        name="x", is_held=True, command=ESCAPE + HIDDEN, args=(ESCAPE + HIDDEN,), submit_host=ESCAPE + HIDDEN
    )
    answer = stage.ask(stage.bob, wire.Submit(spec=spec, script=b"#!/bin/sh\n"))
    job = str(answer.job_id) if isinstance(answer, wire.Submitted) else ""
    shown = [
        stage.operator.ok(*argv)
        for argv in (
            ("gqstat", "-o", "%i %j %Z %o %k"),
            ("gqctl", "show", job),
            ("gqacct", "-j", job),
            ("gqwhy", job),
            ("gqctl", "show", job, "--json"),
            ("gqctl", "events", "--since=1h", "--job", job, "--json"),
            ("gqctl", "audit"),
        )
    ]

    assert [text for text in shown if not is_plain(text.replace("\t", ""))] == []
    assert job and all(job in text for text in shown[:2])


@attack("A comment, directory or file with control characters", REFUSED, "Submit: bad_text")
def test_a_comment_directory_or_file_with_control_characters(stage: Stage) -> None:
    for field in ("comment", "chdir", "output", "error", "input"):
        for text in (ESCAPE, HIDDEN, "\r", "a\nb"):
            body = wire.Submit(spec=JobSpec(name="x", **{field: f"/{text}"}), script=b"#!/bin/sh\n")
            assert stage.refusal(stage.bob, body) == "bad_text", (field, text)


@attack("A request for a node with an invalid name", REFUSED, "Submit: unknown_node")
def test_a_request_for_a_node_with_an_invalid_name(stage: Stage) -> None:
    spec = JobSpec(name="x", resources=ResourceRequest(nodelist=(f"n1{ESCAPE}", "../n1")))
    code = stage.refusal(stage.bob, wire.Submit(spec=spec, script=b"#!/bin/sh\n", test_only=True))

    assert code not in ("Tested", "Submitted")


@attack("An invalid path", REFUSED, "Submit: bad_path")
def test_an_invalid_path(stage: Stage) -> None:
    for path in ("relative", "/a\0b", ""):
        body = wire.Submit(spec=JobSpec(name="x", chdir=path), script=b"#!/bin/sh\n")
        assert stage.refusal(stage.bob, body) == "bad_path"


@attack("SQL in names, comments and filters", CONTAINED, "Submit: done")
def test_sql_in_names_comments_and_filters(stage: Stage) -> None:
    job = submit(stage.bob, "-H", "-J", SQL, "--comment", SQL, wrap=f"echo '{SQL}'")
    for option in ("-u", "--name", "-j"):
        stage.bob.run("gqacct", option, "x' OR '1'='1")
    found = stage.bob.run("gqacct", "--json", "-u", "x' OR '1'='1")

    assert (found.returncode, found.stdout) == (1, "") and "user `x' OR '1'='1` does not exist" in found.stderr
    assert stage.facts(job).name == SQL
    assert stage.operator.ok("gqctl", "audit", "--user", "x' OR '1'='1").count("\n") <= 1
    assert stage.rows("SELECT count(*) FROM jobs WHERE name = ?", SQL) == [(1,)]


@attack("A node that joins under an invalid name", REFUSED, "Join: bad_node_name")
def test_a_node_that_joins_under_an_invalid_name(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, new_token(stage))
    for name in ("../../etc/cron.d/x", f"n{ESCAPE}", "a\nb", "", "-rf", "n1,n2", "x" * 64):
        assert "is not a name for a node" in why_not(join(line, name, fresh_keys(stage).public)), name
    assert all(is_plain(one.object + one.detail) for one in stage.audit())


@attack("Escape sequences in the messages of an unknown host", CONTAINED, "Impostor: refused")
def test_escape_sequences_in_the_messages_of_an_unknown_host(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, stage.node_keys("lab"))
    say(line, hello(f"n1\nNodeJoined node=evil {ESCAPE}"))

    assert isinstance(hear(line), node_wire.Unwelcome)
    entry = stage.await_audit(0, "Impostor", "refused")
    assert is_plain(entry.detail) and is_plain(stage.gqd.log)


@attack("Escape sequences in the reason of a drain", CONTAINED, "UpdateNodes: done")
def test_escape_sequences_in_the_reason_of_a_drain(stage: Stage) -> None:
    body = wire.UpdateNodes(names=("n2",), action="drain", reason=f"{ESCAPE}\nn3 IDLE")
    assert stage.refusal(stage.operator, body) == "Done"
    shown = [stage.bob.ok("gqinfo", "-N"), stage.operator.ok("gqctl", "audit"), stage.gqd.log]
    stage.operator.ok("gqctl", "node", "resume", "n2")

    assert all(map(is_plain, shown))


@attack("Escape sequences in the note of a key", CONTAINED, "AddKey: done")
def test_escape_sequences_in_the_note_of_a_key(stage: Stage) -> None:
    public = fresh_keys(stage).public.decode()
    assert stage.refusal(stage.bob, wire.AddKey(public=public, note=ESCAPE)) == "Done"

    assert is_plain(stage.bob.ok("gqctl", "key", "show"))
    assert stage.refusal(stage.bob, wire.RevokeKey(public=public)) == "Done"


@attack("A job name that is a shell command", CONTAINED, "Submit: done")
def test_a_job_name_that_is_a_shell_command(stage: Stage) -> None:
    words = "$(touch /tmp/owned); `touch /tmp/owned`"
    job = submit(stage.bob, "-w", "n1", "-J", words, "--comment", words, "-o", "out", wrap="true")
    stage.await_state(job, "COMPLETED")

    assert not stage.host("n1").path("/tmp/owned").exists()
