"""`gqctl events` and `gqctl notice`: what is asked, what is shown, what is refused."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from gq.model.notice import EventInfo, NoticeInfo
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController

STARTED = EventInfo(seq=41, at=SUBMITTED_AT, type="JobStarted", job_id=7, body='{"at":1.5,"attempt_id":[7,1]}')
LOST = EventInfo(seq=44, at=SUBMITTED_AT, type="NodeLost", node="n1", body='{"node":"n1"}')
GIVEN_UP = NoticeInfo(
    notice_id=3, user="ada", job_id=7, on="end", kind="webhook", to="https://x.org/…", state="given_up",
    queued_at=SUBMITTED_AT, attempts=9, ended_at=SUBMITTED_AT + 60, why="x.org answered 503", text="it ended",
)  # fmt: skip


def page(*events: EventInfo, more: bool = False, last: int = 0) -> wire.Events:
    return wire.Events(events=events, last=last or (events[-1].seq if events else 0), more=more)


def test_events_are_lines_of_json_where_nobody_looks(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryEvents, page(STARTED, LOST))
    done = run("gqctl", "events", "--since", "40", "-j", "7,8", "--type=JobStarted,NodeLost")

    first, second = map(json.loads, done.out.splitlines())
    assert (first["seq"], first["job_id"], first["node"], first["event"]) == (
        41,
        7,
        None,
        {"at": 1.5, "attempt_id": [7, 1]},
    )
    assert (second["type"], second["node"]) == ("NodeLost", "n1")
    asked = controller.the(wire.QueryEvents)
    assert asked == wire.QueryEvents(after=40, job_ids=(7, 8), types=("JobStarted", "NodeLost"))


def test_gq_events_is_gqctl_events(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryEvents, page(STARTED))

    [line] = run("gq", "events", "--since=40").lines

    assert json.loads(line)["seq"] == 41
    assert controller.the(wire.QueryEvents).after == 40


def test_pages_are_asked_for_one_behind_the_other_and_only_a_follower_waits(
    run: Run, controller: ScriptedController
) -> None:
    pages = iter([page(STARTED, more=True), page(LOST, last=50)])
    controller.on(wire.QueryEvents, lambda body: next(pages))
    done = run("gqctl", "events", "--since=0")

    assert done.out.count("\n") == 2
    assert [(one.after, one.wait_s) for one in controller.all(wire.QueryEvents)] == [(0, 0.0), (41, 0.0)]


def test_a_follower_begins_now_or_where_it_left_off_and_waits_for_more(
    run: Run, controller: ScriptedController
) -> None:
    pages = iter([page(last=44), page(last=44), wire.Refused(code="enough", message="enough of it")])
    controller.on(wire.QueryEvents, lambda body: next(pages))
    done = run("gqctl", "events", "-f")

    assert (done.status, done.out) == (1, "")
    first, second, _ = controller.all(wire.QueryEvents)
    assert (first.from_now, first.after, first.wait_s) == (True, 0, 0.0)
    assert (second.from_now, second.after) == (False, 44) and second.wait_s > 0


def test_without_a_beginning_the_last_hour_is_shown(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryEvents, page())
    run("gqctl", "events")

    since = controller.the(wire.QueryEvents).since
    assert since is not None and abs(time.time() - 3600 - since) < 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("events", "--since", "sometime"), "`--since`"),
        (("events", "--job", "x"), "is not a job id"),
        (("events", "7"), "7"),
        (("notice", "list", "--state", "lost"), "`lost` is not one of waiting, delivered, given_up"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("gqctl", *words)

    assert done.status == 2
    assert said in done.err


def test_notices_are_a_table_with_what_was_dropped_told_besides(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListNotices, wire.Notices(notices=(GIVEN_UP,), dropped={"ada": 2}))
    done = run("gqctl", "notice", "list", "--state=given_up", "-j", "7", "-u", "ada")

    header, line = done.out.splitlines()
    assert header.split() == ["NOTICE", "QUEUED", "USER", "JOB", "OF", "TO", "STATE", "TRIES", "WHY"]
    assert "webhook https://x.org/… given_up     9 x.org answered 503" in line
    assert "2 notices of ada dropped" in done.err
    asked = wire.ListNotices(user="ada", job_ids=(7,), states=("given_up",))
    assert controller.the(wire.ListNotices) == asked


def test_on_a_narrow_terminal_it_can_be_read_when_notices_were_queued(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued_at = time.time()
    notice = msgspec.structs.replace(GIVEN_UP, queued_at=queued_at)
    controller.on(wire.ListNotices, wire.Notices(notices=(notice,)))
    monkeypatch.setattr("gq.cli.framework.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")

    line = run("gqctl", "notice", "list").out.splitlines()[1]

    assert time.strftime("%m-%d %H:%M:%S", time.localtime(queued_at)) in line


def test_notices_as_json_have_stable_keys(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListNotices, wire.Notices(notices=(GIVEN_UP,)))
    [told] = json.loads(run("gqctl", "notice", "list", "--json").out)

    assert list(told) == list(NoticeInfo.__struct_fields__)
    assert (told["state"], told["attempts"], told["next_at"]) == ("given_up", 9, None)


def test_what_a_site_leaves_out_is_said_on_standard_error(run: Run, controller: ScriptedController) -> None:
    note = "--mail-type has no effect: this cluster sends no mail"
    controller.on(wire.Submit, wire.Submitted(job_id=7, note=note))
    done = run("gqsub", "--mail-type=END", "--wrap", "true")

    assert (done.status, done.out) == (0, "Submitted batch job 7\n")
    assert note in done.err
