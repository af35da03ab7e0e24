"""`gqstat --sort`: fields up and down, and the order of the queue."""

from __future__ import annotations

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

QUEUE = (
    a_job(1, name="b", user="ada", priority=10, gpus=4),
    a_job(2, name="a", user="bob", state="RUNNING", start_at=SUBMITTED_AT, time_limit_s=60, gpus=1),
    a_job(3, name="c", user="ada", priority=30, time_limit_s=120),
    a_job(4, name="c", user="bob", priority=30, gpus=4),
)


def ids(run: Run, *words: str) -> list[int]:
    done = run("gqstat", "-h", "-o", "%A", *words)
    assert (done.status, done.err) == (0, "")
    return [int(line) for line in done.lines]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("j", [2, 1, 3, 4]),
        ("-j", [3, 4, 1, 2]),
        ("u,-i", [3, 1, 4, 2]),
        ("+u,-jobid", [3, 1, 4, 2]),
        ("-gpus,-Q", [4, 1, 2, 3]),
        ("-priority", [3, 4, 1, 2]),
        ("l", [2, 3, 1, 4]),
        ("T,i", [1, 3, 4, 2]),
        ("S", [2, 1, 3, 4]),
    ],
)
def test_jobs_are_sorted_by_fields_and_equal_ones_by_id(
    run: Run, controller: ScriptedController, sort: str, order: list[int]
) -> None:
    controller.on(wire.ListJobs, jobs(*QUEUE))

    assert ids(run, f"--sort={sort}") == order
    assert ids(run, f"-S{sort}", "--limit=2") == order[:2]


def test_the_order_of_the_queue_is_the_controllers(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, lambda body: jobs(QUEUE[1], QUEUE[3], QUEUE[2], QUEUE[0]))

    assert ids(run, "--sort=queue", "--limit=9") == [2, 4, 3, 1]
    assert controller.the(wire.ListJobs).in_queue_order


def test_a_queue_longer_than_an_answer_is_sorted_by_state_and_priority(
    run: Run, controller: ScriptedController
) -> None:
    controller.on(wire.ListJobs, lambda body: jobs(*QUEUE, more=body.in_queue_order))

    assert ids(run, "--sort=queue") == [2, 3, 4, 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sort=prioriti"], "error: `--sort`: `prioriti` is no field to sort by\nhint: did you mean `priority`?\n"),
        (["-S", ""], "error: `-S`: no field is named\nhint: for example -Q,i or queue\n"),
        (
            ["-S", "i", "--start"],
            "error: `--sort` and `--start` exclude each other\nhint: remove --sort; --start sorts by the start\n",
        ),
    ],
)
def test_what_cannot_be_sorted_by_is_refused(
    run: Run, controller: ScriptedController, words: list[str], said: str
) -> None:
    assert run("gqstat", *words) == (2, "", said)
    assert controller.heard == []
