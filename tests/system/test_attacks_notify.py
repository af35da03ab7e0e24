"""What a user can have the controller do by being told: webhooks, mail, commands; and what others are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gq.model.job import JobSpec
from gq.model.notice import Target
from gq.wire import client as wire
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, submit
from tests.requires import needs_program, needs_root
from tests.system.attacks import CONTAINED, REFUSED, attack
from tests.system.stage import Stage

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

INNER, OUTER = 8098, 8099
_SERVER = """
import http.server, os, sys, threading
port, location, log = int(sys.argv[1]), sys.argv[2], sys.argv[3]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open(log, "a").write(self.path + "\\n")
        self.send_response(307 if location else 200)
        self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_POST
server = http.server.HTTPServer(("0.0.0.0", port), Handler)
open(log, "w").close()
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
"""


@contextmanager
def serving(stage: Stage, port: int, location: str = "") -> Iterator[Path]:
    """A server on the controller's host; the file into which it writes what is asked of it."""
    ctl = stage.host("ctl")
    log = ctl.path(f"/run/server-{port}")
    process = ctl.start(sys.executable, "-c", _SERVER, str(port), location, f"/run/server-{port}")
    try:
        wait_until(log.exists, LONG_S, f"a server listens on port {port}")
        yield log
    finally:
        process.communicate()  # the end of its input is its end
        log.unlink(missing_ok=True)


def told(stage: Stage, job: str) -> tuple[str, str]:
    """(state, why) of the notice of a job, when it waits no more."""
    query = "SELECT state, why FROM notices WHERE job_id = ? AND state <> 'waiting'"
    wait_until(lambda: stage.rows(query, int(job)), LONG_S, "the notice is delivered or given up")
    [(state, why)] = stage.rows(query, int(job))
    return state, why


def refused(stage: Stage, *targets: Target) -> list[str]:
    bodies = [wire.Submit(spec=JobSpec(name="x", notify=(one,)), script=b"#!/bin/sh\n") for one in targets]
    return [stage.refusal(stage.bob, body) for body in bodies]


@attack("A webhook to a host that is not listed", REFUSED, "Submit: bad_notify")
def test_a_webhook_to_a_host_that_is_not_listed(stage: Stage) -> None:
    urls = (
        "http://127.0.0.1:8099/", "http://[::1]:8099/", "http://2130706433/", "http://n1/", "file:///etc/shadow",
        "http://localhost:8098@n1/", "http://localhost:8098\\@n1/", "gopher://localhost:8098/", "http://localhost/",
    )  # fmt: skip
    with serving(stage, INNER) as log:
        codes = refused(stage, *(Target(kind=kind, to=url) for url in urls for kind in ("webhook", "slack")))
        assert log.read_text() == ""

    assert set(codes) == {"bad_notify"}


@attack("A webhook to a listed name that resolves to the controller's own host", REFUSED, "Submit: bad_notify")
def test_a_webhook_to_a_listed_name_that_resolves_to_the_controllers_own_host(stage: Stage) -> None:
    with serving(stage, INNER) as log:
        codes = refused(stage, Target(kind="webhook", to=f"http://localhost:{INNER}/admin"))
        assert log.read_text() == ""

    assert codes == ["bad_notify"]


@attack("A webhook to the metadata address of a cloud", REFUSED, "Submit: bad_notify")
def test_a_webhook_to_the_metadata_address_of_a_cloud(stage: Stage) -> None:
    stage.host("ctl").ok("ip", "address", "add", "169.254.169.254/32", "dev", "lo")
    with serving(stage, 80) as log:
        codes = refused(stage, Target(kind="webhook", to="http://169.254.169.254/latest/meta-data"))
        assert log.read_text() == ""
    stage.host("ctl").ok("ip", "address", "del", "169.254.169.254/32", "dev", "lo")

    assert codes == ["bad_notify"]


@attack("A webhook that is redirected to the controller's own host", REFUSED, "Submit: done")
def test_a_webhook_that_is_redirected_to_the_controllers_own_host(stage: Stage) -> None:
    with serving(stage, INNER) as inner, serving(stage, OUTER, f"http://127.0.0.1:{INNER}/admin") as outer:
        address = stage.host("ctl").address
        job = submit(stage.bob, f"--notify=webhook:http://{address}:{OUTER}/x", wrap="true")
        state, why = told(stage, job)
        assert (inner.read_text(), outer.read_text()) == ("", "/x\n")

    assert (state, "redirects are not followed" in why) == ("given_up", True)


@attack("A header, a recipient or an option in the address of a mail", REFUSED, "Submit: bad_notify")
def test_a_header_a_recipient_or_an_option_in_the_address_of_a_mail(stage: Stage) -> None:
    addresses = ("a@b\r\nBcc: c@d", "a@b\nX: y", "a@b,c@d", "-oQ/tmp", "a@b c@d", "<a@b>", "|/bin/sh", "a@b\0")

    assert set(refused(stage, *(Target(kind="mail", to=one) for one in addresses))) == {"bad_notify"}


@attack("A notification command that runs in the daemon or as another user", CONTAINED, "Submit: done")
def test_a_notification_command_that_runs_in_the_daemon_or_as_another_user(stage: Stage) -> None:
    directory = stage.bob.home
    command = f"id -un > {directory}/who; hostname >> {directory}/who"
    job = submit(stage.bob, "-w", "n1", f"--notify=command:{command}; $(touch /run/owned); true", wrap="true")
    anywhere = [stage.host(name).path(f"{directory}/who") for name in ("n1", "n2")]  # A job of its own: where it fits.

    seen: list[str] = []

    def has_run() -> bool:
        seen[:] = [word for path in anywhere if path.exists() for word in path.read_text().split()]
        return len(seen) == 2

    wait_until(has_run, LONG_S, "the command has run")

    assert told(stage, job)[0] == "delivered"
    assert seen[0] == "bob"
    assert not stage.host("ctl").path("/run/owned").exists()


@attack("See the events of another user's jobs", CONTAINED)
def test_see_the_events_of_another_users_jobs(stage: Stage) -> None:
    hers = submit(stage.alice, "-H", "--comment", "s3cret", wrap="true")
    events = [json.loads(line) for line in stage.bob.ok("gqctl", "events", "--since", "0").splitlines()]
    named = stage.bob.ok("gqctl", "events", "--since", "0", "--job", hers)

    assert named == "" and "s3cret" not in json.dumps(events)
    mine = {str(job_id) for (job_id,) in stage.rows("SELECT job_id FROM jobs WHERE user = 'bob'")}
    assert {str(one["job_id"]) for one in events} <= mine


@attack("See the notices of another user", REFUSED, "ListNotices: not_owner")
def test_see_the_notices_of_another_user(stage: Stage) -> None:
    done: subprocess.CompletedProcess[str] = stage.bob.run("gqctl", "notice", "list", "--user", "alice")

    assert (done.returncode, done.stdout) == (1, "")
    assert {one["user"] for one in json.loads(stage.bob.ok("gqctl", "notice", "list", "--json"))} <= {"bob"}
