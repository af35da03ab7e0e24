"""A node speaks only for its own parts: whatever it reports of attempts elsewhere changes nothing."""

from __future__ import annotations

import copy
from typing import Any, get_args

import msgspec
import pytest

from gq.model.ids import AttemptId, JobId, StepId
from gq.model.job import ExitStatus
from gq.model.state import JobState, Outcome
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.state.effect import AckReport, SendOrder
from tests.builders import ALICE, SHARED, hello, inventory, report, submit
from tests.hosts import CoreHost

RUNNING, STARTING = AttemptId(JobId(1), 1), AttemptId(JobId(2), 1)
STEP = StepId(JobId(1), 1, 0)


@pytest.fixture
def host() -> CoreHost:
    """Job 1 runs on n1 with a step, job 2 starts there; n2 has nothing."""
    host = CoreHost(SHARED, {"n1": inventory(), "n2": inventory()})
    host.start(submit(nodelist=("n1",)), peer=ALICE)
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name="s", ntasks=1)), peer=ALICE)
    host.submit(submit(nodelist=("n1",)), peer=ALICE)
    host.schedule()
    assert [host.job(one).state for one in (1, 2)] == [JobState.RUNNING, JobState.STARTING]
    return host


def about(kind: type, attempt_id: AttemptId) -> Any:
    """A report of this kind that would do something if the right node said it."""
    fields: dict[str, Any] = {
        "attempt_id": attempt_id,
        "step_id": STEP,
        "why": "a lie",
        "at": 1.0,
        "outcome": Outcome.FAILED,
        "exit": ExitStatus(code=3),
        "ended_at": 1.0,
        "cell_emptied": True,
        "time_limit_s": 7,
        "is_suspended": True,
        "generation": 1,
        "gpus": (),
        "order_id": bytes(16),
    }
    return kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})  # type: ignore[attr-defined]


@pytest.mark.parametrize("attempt_id", [RUNNING, STARTING])
@pytest.mark.parametrize("kind", get_args(wire.ReportBody), ids=lambda kind: kind.__name__)
def test_a_report_about_the_attempt_of_another_node_changes_nothing(
    host: CoreHost, kind: type, attempt_id: AttemptId
) -> None:
    """At most it is told to stop what it says it has."""
    before = copy.deepcopy(host.cluster)
    turn = host.report("n2", about(kind, attempt_id), now=5)

    assert turn.events == ()
    assert host.cluster == before
    orders = [one for one in turn.effects if not isinstance(one, AckReport)]
    assert all(isinstance(one, SendOrder) and one.node == "n2" and isinstance(one.order, wire.Stop) for one in orders)


@pytest.mark.parametrize("kind", get_args(wire.ReportBody), ids=lambda kind: kind.__name__)
def test_a_report_by_another_link_than_the_nodes_own_changes_nothing(host: CoreHost, kind: type) -> None:
    before = copy.deepcopy(host.cluster)
    said = msgspec.structs.replace(report("n1", about(kind, RUNNING)), route=("nodes", b"somebody else"))
    turn = host.handle(said, now=5)
    assert turn.events == ()
    assert host.cluster == before


def test_a_hello_that_names_the_attempts_of_another_node_takes_none_of_them_over(host: CoreHost) -> None:
    before = host.attempt(1)
    stolen = (wire.AttemptStatus(attempt_id=RUNNING, phase="running"),)
    host.handle(hello("n2", incarnation="2", attempts=stolen), now=5)
    assert host.attempt(1) == before
    assert list(host.attempt(1).parts) == ["n1"]
    assert not host.cluster.nodes["n2"].held
