"""Commands that wait go on when gqd, or the daemon that relays for their host, ends and starts again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gq.cli import gqlog
from gq.cli.framework import connection
from gq.cli.views import log_source
from gq.connection.locate import Location
from gq.model.notice import EventInfo
from gq.wire import client as wire
from gq.wire import step as step_wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job
from tests.clients.scripted import ScriptedDoor

OVER = wire.Waited(is_done=True, jobs=(a_job(7, state="FAILED", exit_code=3),))
STILL = wire.Waited(is_done=False, jobs=(a_job(7),))
AWAY_S = 0.3


@contextmanager
def restarting(
    location: Location, script: Callable[[ScriptedController, bool], None], heard: type[wire.RequestBody]
) -> Iterator[None]:
    """A controller that ends once it has heard such a request, and is back a moment later.

    `script` scripts the first (False) and the second (True).
    """

    def live() -> None:
        with ScriptedController(location) as first:
            script(first, False)
            is_up.set()
            while not first.all(heard) and not is_over.wait(0.01):
                pass
        Path(location.client_socket).unlink(missing_ok=True)
        is_over.wait(AWAY_S)
        with ScriptedController(location) as second:
            script(second, True)
            is_over.wait(60)

    is_up, is_over = threading.Event(), threading.Event()
    lives = threading.Thread(target=live)
    lives.start()
    try:
        assert is_up.wait(30)
        yield
    finally:
        is_over.set()
        lives.join()


@contextmanager
def ending(location: Location) -> Iterator[None]:
    """A controller that ends once somebody waits for a job, and never comes back."""

    def live() -> None:
        with ScriptedController(location) as controller:
            controller.on(wire.WaitJobs, STILL)
            is_up.set()
            while not controller.all(wire.WaitJobs) and not is_over.wait(0.01):
                pass
        Path(location.client_socket).unlink(missing_ok=True)

    is_up, is_over = threading.Event(), threading.Event()
    life = threading.Thread(target=live)
    life.start()
    try:
        assert is_up.wait(30)
        yield
    finally:
        is_over.set()
        life.join()


def waits(controller: ScriptedController, is_back: bool) -> None:
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    controller.on(wire.WaitJobs, OVER if is_back else STILL)


@pytest.mark.parametrize("words", [("gqwait", "7"), ("gqsub", "--wait", "--parsable", "--wrap", "true")])
def test_waiting_for_a_job_goes_on_after_the_link_was_lost(
    run: Run, location: Location, words: tuple[str, ...]
) -> None:
    with restarting(location, waits, wire.WaitJobs):
        result = run(*words)

    assert result.status == 3, "the job's code"
    assert result.err.count("trying again for up to 10 min") == 1


def test_a_controller_that_stays_away_is_125_in_the_end(
    run: Run, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RECONNECT_S", 0.2)
    with ending(location):
        result = run("gqwait", "7")

    assert result.status == 125
    assert "error: no controller listens" in result.err


def test_the_timeout_of_a_wait_counts_while_the_controller_is_away(run: Run, location: Location) -> None:
    began = time.monotonic()
    with ending(location):
        status = run("gqwait", "--timeout=0.6", "7").status

    assert status == 124
    assert 0.5 < time.monotonic() - began < 30


def test_events_are_followed_on_from_the_last_that_was_shown(run: Run, location: Location) -> None:
    def script(controller: ScriptedController, is_back: bool) -> None:
        def events(query: wire.QueryEvents) -> wire.ReplyBody:
            if query.after == 5:
                return wire.Refused(code="enough", message="that was all of this test")
            return wire.Events(events=(EventInfo(seq=5, at=1.0, type="JobStarted", body="{}"),), last=5)

        controller.on(wire.QueryEvents, events if is_back else wire.Events(events=(), last=4))

    with restarting(location, script, wire.QueryEvents):
        result = run("gqctl", "events", "-f", "--json")

    assert '"seq":5' in result.out.replace(" ", "")
    assert "that was all of this test" in result.err


def test_output_is_followed_on_when_the_nodes_daemon_was_away(
    run: Run, controller: ScriptedController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_source, "_ANSWER_S", 0.1)
    monkeypatch.setattr(gqlog, "_ASK_S", 0.1)
    asked: list[wire.AccessLog] = []

    def say(door: ScriptedDoor, peer: bytes, message: step_wire.ToDoor) -> None:
        assert isinstance(message, step_wire.OpenLog)
        door.send(peer, step_wire.LogData(offset=message.offset, data=b"" if message.offset else b"hello\n"))

    with ScriptedDoor(tmp_path, "n1", say) as door:

        def access(body: wire.AccessLog) -> wire.LogAccess:
            """The node's daemon is away at first; later it is back, and the job ends."""
            asked.append(body)
            return wire.LogAccess(
                job_id=7,
                attempt=1,
                state="COMPLETED" if len(asked) > 2 else "RUNNING",
                node="n1",
                path="/nowhere/out",
                endpoint=f"ipc://{tmp_path}/nobody.sock" if len(asked) == 1 else door.endpoint,
                ticket=b"ticket",
                exit_code=0,
            )

        controller.on(wire.AccessLog, access)
        result = run("gqlog", "-f", "7")

    assert (result.status, result.out) == (0, "hello\n")
    assert "node n1 does not answer; trying again" in result.err
