"""Which events call for a new plan: every kind of event is decided upon."""

from __future__ import annotations

from typing import get_args

import pytest

from gq.wire import client
from gqd.control.replan import CHANGES_PLAN
from gqd.state.events import event
from tests.builders import inventory, submit
from tests.hosts import CoreHost

DECIDED_BY_CONTENT = {event.JobSubmitted, event.JobStarted, event.DependencyChanged}
LEAVES_PLAN = {
    event.JobAllocated, event.PartPrepared, event.PartsReleased, event.PartWentLive, event.PartStranded,
    event.JobEnding, event.LaunchFailed, event.JobsForgotten, event.ArrayTaskLeft, event.StartEstimated,
    event.StepStarted, event.StepPartReceived, event.StepPartEnded, event.StepFinished,
    event.NodeBackedOff, event.NodeBackoffCleared, event.KeyFileGone, event.KeyAdded, event.NodeJoined,
    event.KeyRevoked, event.KeysExpired, event.RequestAnswered, event.RequestsForgotten, event.Audited,
    event.MemberRemoved, event.HalfLifeSet, event.CrontabSet, event.CrontabRemoved, event.CronFired,
    event.CronRunEnded, event.PreemptionDecided, event.JobCheckpointed, event.JobCaughtUp, event.OrderOwed,
    event.OrderConfirmed, event.JobAsked, event.AsksAnswered, event.ShrinkDecided, event.ShrinkAccepted,
    event.ShrinkAgreed, event.NodesGoing, event.NoticeQueued, event.NoticeDropped, event.NoticeCommandQueued,
    event.NoticeDelivered, event.NoticeFailed, event.JobTold,
}  # fmt: skip


def test_every_kind_of_event_is_decided_upon() -> None:
    assert set(get_args(event.Event)) == CHANGES_PLAN | DECIDED_BY_CONTENT | LEAVES_PLAN
    assert len(CHANGES_PLAN) + len(DECIDED_BY_CONTENT) + len(LEAVES_PLAN) == len(get_args(event.Event))


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        (client.HoldJobs(job_ids=(2,)), True),
        (client.UpdateNodes(names=("n1",), action="drain", reason="disk"), True),
        (client.CancelJobs(filter=client.JobFilter(job_ids=(2,))), True),
        (client.NotifyJob(job_id=1, text="look"), False),
    ],
)
def test_a_request_calls_for_a_plan_if_its_events_change_one(request_body: client.RequestBody, expected: bool) -> None:
    host = CoreHost(nodes={"n1": inventory(gpu_count=2)})
    host.start(submit(gpus=2))
    host.submit(submit(gpus=2))
    host.schedule()
    assert not host.controller.volatile.wants_plan

    host.ask(request_body)

    assert host.controller.volatile.wants_plan is expected
