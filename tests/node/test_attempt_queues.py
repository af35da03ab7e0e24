"""AttemptQueues and leases: order within an attempt, independence between attempts, ports that are nobody else's."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable

import pytest

from gq.errors import Refusal
from gq.model.ids import AttemptId, JobId
from gqnode.daemon.attempt_queues import AttemptQueues
from gqnode.daemon.effects import with_time
from gqnode.daemon.ports import PortLeases

ONE, OTHER = AttemptId(JobId(1), 1), AttemptId(JobId(2), 1)


def test_work_of_one_attempt_is_done_in_order_and_does_not_hold_up_another() -> None:
    done: list[str] = []
    gate = threading.Event()

    async def run() -> None:
        lanes = AttemptQueues(lambda error: done.append(repr(error)))

        async def slow() -> None:
            await lanes.in_thread(gate.wait, 10)
            done.append("slow")

        lanes.put(ONE, slow)
        lanes.put(ONE, lambda: done.append("after it"))
        lanes.put(OTHER, lambda: done.append("beside it"))
        assert done == ["beside it"]
        gate.set()
        async with asyncio.timeout(10):
            while len(done) < 3:
                await asyncio.sleep(0.001)
        await lanes.close(1.0)

    asyncio.run(run())
    assert done == ["beside it", "slow", "after it"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_work_that_fails_is_told_and_what_stands_behind_it_is_not_done(is_awaited: bool) -> None:
    failures: list[str] = []
    done: list[str] = []

    async def fails() -> None:
        raise ValueError("broken")

    def fails_at_once() -> Awaitable[None] | None:
        raise ValueError("broken")

    async def run() -> None:
        lanes = AttemptQueues(lambda error: failures.append(str(error)))
        lanes.put(ONE, fails if is_awaited else fails_at_once)
        lanes.put(ONE, lambda: done.append("behind"))
        async with asyncio.timeout(10):
            while not failures:
                await asyncio.sleep(0.001)
        await lanes.close(1.0)

    asyncio.run(run())
    assert (failures, done) == (["broken"], [])


def _free_range(count: int) -> int:
    """First of so many ports in a row that are free now."""
    for first in range(23_000, 30_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def test_ports_go_round_the_range_and_none_is_leased_twice() -> None:
    first = _free_range(3)
    ports = PortLeases(first, first + 2)

    leased = [ports.lease(AttemptId(JobId(job), 1)) for job in range(3)]
    again = ports.lease(AttemptId(JobId(0), 1))
    with pytest.raises(Refusal, match="no port"):
        ports.lease(AttemptId(JobId(9), 1))
    ports.release(AttemptId(JobId(1), 1))

    assert leased == [first, first + 1, first + 2]
    assert again == first
    assert ports.lease(AttemptId(JobId(9), 1)) == first + 1


def test_a_port_that_something_listens_on_is_passed_over() -> None:
    first = _free_range(2)
    with socket.socket() as listener:
        listener.bind(("", first))
        listener.listen()

        assert PortLeases(first, first + 1).lease(ONE) == first + 1


def test_a_port_that_was_told_before_a_restart_stays_its_attempts() -> None:
    first = _free_range(2)
    ports = PortLeases(first, first + 1)

    assert ports.lease(ONE, wanted=first) == first
    ports.keep(OTHER, first + 1)

    with pytest.raises(Refusal, match="no port"):
        ports.lease(AttemptId(JobId(3), 1))


def test_the_time_in_a_line_is_local_and_only_put_where_it_is_wanted() -> None:
    assert with_time("keep {time}", None) == "keep {time}"
    written = with_time("AT {time} !", 1_795_224_332.0)
    assert written.startswith("AT 2026-11-2")
    assert written.endswith(":32 !")
