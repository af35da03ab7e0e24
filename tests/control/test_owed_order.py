"""Signals, lines for jobs and ends of steps are on disk before they are acknowledged, and repeated until confirmed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gq.model.ids import StepId
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.state.cluster import Cluster
from gqd.state.events.event import RequestAnswered
from gqd.state.events.owed_order import OrderConfirmed, OrderOwed
from gqd.state.input import Tick
from tests.builders import attempt_id, hello, inventory, submit
from tests.hosts import CoreHost

CONFIRMS = msgspec.structs.replace(inventory(), confirms_orders=True)
RUNS = wire.AttemptStatus(attempt_id=attempt_id(1), phase="running")


def host_with_step() -> CoreHost:
    host = CoreHost(nodes={"n1": CONFIRMS})
    host.start(submit(gpus=1))
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name="train")))
    host.obey()
    host.orders.clear()
    return host


def signal_job(host: CoreHost) -> None:
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1,)), signum=10))


def notify_job(host: CoreHost) -> None:
    host.ask(client.NotifyJob(job_id=1, text="look"))


def signal_step(host: CoreHost) -> None:
    host.ask(client.SignalStep(job_id=1, step=0, signum=10))


def end_step(host: CoreHost) -> None:
    host.ask(client.SignalStep(job_id=1, step=0))


REQUESTS = {"signal a job": signal_job, "notify": notify_job, "signal a step": signal_step, "end a step": end_step}


def owed(cluster: Cluster) -> list[wire.OneOffOrder]:
    return list(cluster.owed_orders.values())


def sent_of(host: CoreHost, kind: type) -> list[wire.Order]:
    return [one.order for one in host.orders if isinstance(one.order, kind)]


@pytest.mark.parametrize("request_it", REQUESTS.values(), ids=REQUESTS)
def test_what_was_acknowledged_is_sent_again_after_a_crash_of_the_controller(
    request_it: Callable[[CoreHost], None],
) -> None:
    host = host_with_step()
    request_it(host)
    [order] = owed(host.cluster)
    assert [type(one) for one in host.log[-2:]] == [OrderOwed, RequestAnswered], "in one batch"

    host.restart(now=5)
    host.orders.clear()
    assert owed(host.cluster) == [order]
    host.handle(hello("n1", CONFIRMS, attempts=(RUNS,)), now=6)

    assert sent_of(host, type(order)) == [order]


@pytest.mark.parametrize("request_it", REQUESTS.values(), ids=REQUESTS)
def test_an_order_is_repeated_until_the_node_confirms_it(request_it: Callable[[CoreHost], None]) -> None:
    host = host_with_step()
    request_it(host)
    [order] = owed(host.cluster)
    host.orders.clear()
    host.beat(now=30)
    host.handle(Tick(), now=30)
    assert order in sent_of(host, type(order))

    host.report("n1", wire.OrderConfirmed(attempt_id=attempt_id(1), order_id=order.order_id))
    again = host.report("n1", wire.OrderConfirmed(attempt_id=attempt_id(1), order_id=order.order_id))

    assert isinstance(host.log[-1], OrderConfirmed)
    assert (owed(host.cluster), again.events) == ([], ())
    host.orders.clear()
    host.beat(now=60)
    host.handle(Tick(), now=60)
    assert order not in sent_of(host, type(order))


def test_an_order_goes_with_the_last_that_its_node_had_of_the_attempt() -> None:
    host = host_with_step()
    signal_job(host)
    assert len(owed(host.cluster)) == 1

    host.finish(1, now=9)

    assert owed(host.cluster) == []


def test_a_node_that_confirms_nothing_is_told_once() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.start(submit(gpus=1))
    host.orders.clear()
    signal_job(host)

    assert len(sent_of(host, wire.SignalAttempt)) == 1
    assert owed(host.cluster) == []


def test_each_step_and_request_has_an_order_of_its_own() -> None:
    host = host_with_step()
    for _ in range(2):
        signal_step(host)

    first, second = owed(host.cluster)
    assert isinstance(first, wire.StopStep) and first.step_id == StepId(1, 1, 0)
    assert first.order_id != second.order_id
