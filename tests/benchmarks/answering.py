"""How long a request waits at a real controller that plans all the time.

A thousand nodes that only talk, a long queue of jobs of random shapes, and somebody who submits one more now and then,
so that one pass follows the other.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import msgspec

from gq.connection.client import Client
from gq.connection.locate import find_cluster
from gq.errors import Refusal
from gq.model.resource import ResourceRequest
from gq.wire import client as wire
from tests.benchmarks.bench import Bench
from tests.benchmarks.gq_side import ANSWER_S, GqSide
from tests.benchmarks.planning import CPUS, GPUS, NODES, shape_of
from tests.benchmarks.row import Beside, Row, at_most, median, percentile

BAR_S = 0.1
_REQUESTS = 500
_PAUSE_S = 0.02
_SUBMISSION_EVERY_S = 0.2


def answering(bench: Bench) -> Iterator[Row]:
    row = partial(Row, bench.family)
    count = bench.scale.planned[0]
    with bench.gq() as gq, _virtual_nodes(gq):
        idle = Beside("idle", median(_waits_s(gq)))
        random = Random(1)
        for answer in gq.client.submit_many([_job(gq, random) for _ in range(count)]):
            if isinstance(answer, Refusal):
                raise answer
        plans = gq.counters()["plans"]
        with _one_more_now_and_then(gq, random):
            waits_s = _waits_s(gq)
        assert gq.counters()["plans"] > plans, "nothing was planned meanwhile"
    for part in (0.5, 0.99):
        measure = f"{count:,} jobs planned, p{part:.0%}".rstrip("%")
        yield row(measure, percentile(waits_s, part), "s", len(waits_s), idle, at_most(BAR_S, "s"))


def _job(gq: GqSide, random: Random) -> wire.Submit:
    shape = shape_of(random)
    limit_s = shape.pop("time_limit_s")
    body = gq.prepare("true")
    spec = msgspec.structs.replace(body.spec, resources=ResourceRequest(**shape), time_limit_s=limit_s)
    return msgspec.structs.replace(body, spec=spec)


def _waits_s(gq: GqSide) -> list[float]:
    waits_s = []
    for _ in range(_REQUESTS):
        began = time.perf_counter()
        gq.connection.ask(wire.Ping())
        waits_s.append(time.perf_counter() - began)
        time.sleep(_PAUSE_S)
    return waits_s


@contextmanager
def _one_more_now_and_then(gq: GqSide, random: Random) -> Iterator[None]:
    is_over = threading.Event()

    def submit() -> None:
        with Client(find_cluster(gq.environ), timeout_s=ANSWER_S, patience_s=ANSWER_S) as connection:
            while not is_over.wait(_SUBMISSION_EVERY_S):
                connection.ask(_job(gq, random))

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _virtual_nodes(gq: GqSide) -> Iterator[None]:
    argv = [sys.executable, "-m", "tests.benchmarks.virtual_nodes", find_cluster(gq.environ).node_endpoint]
    with subprocess.Popen([*argv, str(NODES), str(GPUS), str(CPUS)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "in\n", "the nodes did not get in"
            yield
        finally:
            process.kill()
