"""Calls that block, made in threads: what comes back, in what number, and what becomes of them at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from gqnode.daemon.threads import Threads

PATIENCE_S = 10


def test_each_call_brings_back_its_own_result_however_many_there_are() -> None:
    async def run() -> list[int]:
        threads = Threads(4, "t")
        found = await asyncio.gather(*(threads.run(lambda number=number: number * number) for number in range(5000)))
        threads.close()
        return list(found)

    assert asyncio.run(run()) == [number * number for number in range(5000)]


@pytest.mark.parametrize("error", [OSError(28, "full"), SystemExit(3)])
def test_what_a_call_raises_is_raised_where_it_is_awaited_and_its_thread_goes_on(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def run() -> str:
        threads = Threads(1, "t")
        with pytest.raises(type(error)) as raised:
            await threads.run(fail)
        assert raised.value is error
        name = await threads.run(lambda: threading.current_thread().name)
        threads.close()
        return name

    assert asyncio.run(run()) == "t-0"


def test_a_call_is_made_while_another_one_hangs_and_the_loop_goes_on() -> None:
    gate = threading.Event()

    async def run() -> bool:
        threads = Threads(2, "t")
        hangs = threads.run(lambda: gate.wait(PATIENCE_S))
        assert await threads.run(lambda: "beside it") == "beside it"
        assert not hangs.done()
        gate.set()
        is_set = await hangs
        threads.close()
        return is_set

    assert asyncio.run(run())


def test_closing_lets_the_call_that_is_made_come_to_its_end_and_begins_no_other() -> None:
    began, gate = threading.Event(), threading.Event()
    made: list[str] = []

    def hang() -> None:
        began.set()
        gate.wait(PATIENCE_S)
        made.append("hanging")

    async def run() -> None:
        threads = Threads(1, "t")
        first = threads.run(hang)
        second = threads.run(lambda: made.append("behind"))
        await asyncio.to_thread(began.wait, PATIENCE_S)
        threads.close()
        gate.set()
        await first
        assert second.cancelled()

    asyncio.run(run())
    assert made == ["hanging"]


def test_who_stops_waiting_does_not_disturb_the_others() -> None:
    gate = threading.Event()

    async def run() -> str:
        threads = Threads(1, "t")
        left = threads.run(lambda: gate.wait(PATIENCE_S))
        left.cancel()
        gate.set()
        said = await threads.run(lambda: "still here")
        threads.close()
        return said

    assert asyncio.run(run()) == "still here"


def test_a_call_that_never_returns_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading
from gqnode.daemon.threads import Threads

async def main():
    threads = Threads(1, "t")
    began = threading.Event()
    threads.run(lambda: (began.set(), threading.Event().wait()))
    began.wait()
    threads.close()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, "")
