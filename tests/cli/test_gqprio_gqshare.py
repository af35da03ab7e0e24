"""`gqprio` and `gqshare`: points that add up, the tree, who borrows, and what is asked for."""

from __future__ import annotations

import getpass
import json

import msgspec
import pytest

from gq.model.account import PriorityInfo, ShareInfo
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

FIRST = PriorityInfo(
    job_id=7, user="ada", account="nlp", partition="main", qos="high", priority=1250,
    points={"age": 250, "fair_share": 1100, "nice": -100}, factors={"age": 0.25, "fair_share": 0.55},
)  # fmt: skip
ARRAY = PriorityInfo(
    job_id=8, user="bob", account="vision", partition="main", qos="normal", priority=900,
    points={"age": 900}, factors={"age": 0.9}, array_job_id=8, array_tasks="1,3,5,7-9,11-13,15-17,20",
)  # fmt: skip
LEFT = PriorityInfo(
    job_id=12, user="bob", account="vision", partition="main", qos="normal", priority=800,
    points={"age": 800}, array_job_id=8, array_task_id=2,
)  # fmt: skip
TREE = (
    ShareInfo(account="root", norm_shares=1, norm_usage=1, usage=3600 * 300, gpus=12),
    ShareInfo(
        account="nlp", depth=1, shares=2, norm_shares=2 / 3, norm_usage=0.8, usage=3600 * 240.04, level_fs=0.8333,
        gpus=10, guaranteed_gpus=8, borrowed_gpus=2, may_borrow_gpus=2, gives_back=1,
    ),
    ShareInfo(
        account="nlp", user="ada", depth=2, norm_shares=2 / 3, norm_usage=0.8, usage=3600 * 240.04, level_fs=0.8333,
        fair_share=0.5, gpus=10,
    ),
    ShareInfo(account="vision", depth=1, norm_shares=1 / 3, level_fs=5000.0, gpus=2),
)  # fmt: skip


# ── gqprio ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_points_are_columns_in_the_order_in_which_they_come(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(FIRST, ARRAY, LEFT)))

    assert run("gqprio").lines == [
        "        JOBID PARTITION USER ACCOUNT PRIORITY AGE FAIRSHARE NICE",
        "            7 main      ada  nlp         1250 250      1100 -100",
        "8_[1,3,5,...] main      bob  vision       900 900         0    0",
        "          8_2 main      bob  vision       800 800         0    0",
    ]
    for job in (FIRST, ARRAY, LEFT):
        assert sum(job.points.values()) == job.priority


def test_on_a_terminal_factors_without_points_are_left_out(
    run: Run, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.gqprio.is_terminal", lambda: True)
    one = msgspec.structs.replace(LEFT, points={"size": 0, **LEFT.points}, factors={"age": 0.0, "size": 0.0})
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(one,)))

    assert run("gqprio").lines[0].split() == ["JOBID", "PARTITION", "USER", "ACCOUNT", "PRIORITY", "AGE"]
    assert "SIZE" in run("gqprio", "--norm").lines[0]


def test_factors_are_shown_between_0_and_1(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(FIRST, LEFT)))

    assert [line.split() for line in run("gqprio", "--norm", "-h").lines] == [
        ["7", "main", "ada", "nlp", "1250", "0.2500", "0.5500"],
        ["8_2", "main", "bob", "vision", "800", "-", "-"],
    ]


def test_weights_are_those_of_the_controller(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(), weights={"age": 1000.0, "fair_share": 2500.5}))

    assert run("gqprio", "-w").lines == [" AGE FAIRSHARE", "1000    2500.5"]
    assert json.loads(run("gqprio", "-w", "--json").out) == {"age": 1000.0, "fair_share": 2500.5}


def test_all_pages_are_asked_for(run: Run, controller: ScriptedController) -> None:
    pages = {0: wire.Priorities(jobs=(FIRST, ARRAY), more=True), 2: wire.Priorities(jobs=(LEFT,))}
    controller.on(wire.ListPriorities, lambda body: pages[body.skip])

    shown = json.loads(run("gqprio", "--json").out)

    assert [one["job_id"] for one in shown] == [7, 8, 12]
    assert (shown[0]["points"]["nice"], shown[1]["array_tasks"], shown[2]["array_task_id"]) == (
        -100,
        ARRAY.array_tasks,
        2,
    )


def test_jobs_are_chosen_as_in_gqstat(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(FIRST,)))

    run("gqprio", "-j", "7,8_[1-3]", "-u", "ada", "-p", "main", "-A", "nlp", "-q", "high", "--me")

    assert controller.the(wire.ListPriorities).filter == wire.JobFilter(
        job_ids=(7,), tasks={8: "1-3"}, users=("ada", getpass.getuser()), partitions=("main",), accounts=("nlp",),
        qos=("high",),
    )  # fmt: skip


def test_jobs_that_do_not_wait_are_said_not_to(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListPriorities, wire.Priorities(jobs=()))

    assert run("gqprio").lines == ["JOBID PARTITION USER ACCOUNT PRIORITY"]
    assert run("gqprio", "-j", "7") == (
        1,
        "",
        "error: none of these jobs is pending\nhint: `gqstat` shows their states\n",
    )


# ── gqshare ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tree_is_shown_with_what_is_due_and_what_was_used(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListShares, wire.Shares(lines=TREE))

    assert run("gqshare").lines == [
        "ACCOUNT  USER SHARES    DUE GPU-HOURS   USED LEVELFS FAIRSHARE GPUS",
        "root               1 100.0%     300.0 100.0%       -             12",
        "  nlp              2  66.7%     240.0  80.0%    0.83             10",
        "    nlp  ada       1  66.7%     240.0  80.0%    0.83     0.500   10",
        "  vision           1  33.3%       0.0   0.0%    >999              2",
    ]


def test_who_borrows_and_who_gives_back_first_is_shown(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListShares, wire.Shares(lines=TREE))

    assert run("gqshare", "-g").lines == [
        "ACCOUNT  GPUS GUARANTEED BORROWED MAY BORROW GIVES BACK",
        "root       12          -        0       idle",
        "  nlp      10          8        2          2          1",
        "  vision    2          -        0       idle",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], wire.ListShares(users=(getpass.getuser(),))),
        (["--all"], wire.ListShares()),
        (["-u", "ada,bob", "-A", "nlp"], wire.ListShares(users=("ada", "bob"), accounts=("nlp",))),
    ],
)
def test_whose_lines_are_wanted_is_asked(
    run: Run, controller: ScriptedController, words: list[str], expected: wire.ListShares
) -> None:
    controller.on(wire.ListShares, wire.Shares(lines=TREE))

    run("gqshare", *words)

    assert controller.heard == [expected]


def test_who_is_in_no_account_yet_sees_the_accounts_and_nobody_in_them(
    run: Run, controller: ScriptedController
) -> None:
    stranger = wire.Refused(code="unknown_user", message="user `ada` is in no account")
    controller.on(wire.ListShares, lambda body: stranger if body.users else wire.Shares(lines=TREE))

    assert [line.split()[0] for line in run("gqshare", "-h").lines] == ["root", "nlp", "vision"]
    assert run("gqshare", "-u", "ada") == (1, "", "error: user `ada` is in no account\n")


def test_why_somebody_stands_where_they_stand_is_said_in_words(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListShares, wire.Shares(lines=TREE, why="ada used 80 %\nnlp is due 67 %"))

    assert run("gqshare", "--explain", "ada").lines == ["ada used 80 %", "nlp is due 67 %"]
    assert controller.the(wire.ListShares).explain == "ada"
    assert json.loads(run("gqshare", "--explain=ada", "--json").out) == {"why": "ada used 80 %\nnlp is due 67 %"}


def test_shares_as_json_are_numbers(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListShares, wire.Shares(lines=TREE))

    shown = json.loads(run("gqshare", "--json").out)

    assert [(one["account"], one["user"]) for one in shown] == [
        ("root", None),
        ("nlp", None),
        ("nlp", "ada"),
        ("vision", None),
    ]
    assert (shown[1]["guaranteed_gpus"], shown[1]["gives_back"], shown[3]["usage_gpu_hours"]) == (8, 1, 0.0)
