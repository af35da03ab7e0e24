"""A planning pass over a long queue of random shapes, and what an event costs beside jobs that are long over.

The core alone, in this process, with a cluster that no machine here could hold.  A pass goes on in slices, between
which a running controller handles requests: the longest slice is what a request may have to wait for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.wire import node as wire
from gqd.control.controller import Controller
from gqd.sched.planner import Planner
from gqd.shell.daemon import GARBAGE_LOOK
from gqd.shell.planning import SLICE
from gqd.state.cluster import Cluster
from gqd.state.effect import SendOrder
from gqd.state.index.changes import Changes
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from tests.benchmarks.bench import Bench
from tests.benchmarks.row import Beside, Row, at_most, at_most_times, median
from tests.builders import OWNER, client_request, hello, inventory, report, submit
from tests.hosts import obedient_reports

NODES, GPUS, CPUS = 1000, 8, 64
BARS_S = {10_000: 1.0, 50_000: 5.0}
ANSWER_S = 0.1
_ROUNDS = 3
_FEW, _MANY = 500, 20_000
"""Jobs that are over, and in memory."""
_WITHIN = 1.5
"""So many times may an event cost beside many of them: it is measured on a noisy machine."""
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128)


class Core:
    """A controller without a shell: what it says is passed over, but for orders, which nodes obey at once."""

    def __init__(self, nodes: int) -> None:
        self.controller = Controller(Cluster(), Policy(owner_uid=OWNER.uid))
        self.controller.resume(0.0)
        self.now = 0.0
        self._requests = 0
        for number in range(nodes):
            self.controller.handle(hello(f"n{number}", inventory(cpus=CPUS, gpu_count=GPUS)), self.now)

    def submit(self, **fields: Any) -> None:
        self._requests += 1
        self.controller.handle(client_request(submit(**fields), self._requests), self.now)
        self.controller.cluster.changes = Changes()

    def adopt(self, plan: Plan) -> None:
        orders = [one for one in self.controller.adopt(plan, self.now).effects if isinstance(one, SendOrder)]
        while orders:
            reports = [report(one.node, body) for one in orders for body in obedient_reports(one.order, self.now)]
            turns = [self.controller.handle(one, self.now) for one in reports]
            orders = [effect for turn in turns for effect in turn.effects if isinstance(effect, SendOrder)]
        self.controller.cluster.changes = Changes()

    def end(self, job_id: int) -> None:
        attempt = self.controller.cluster.attempts[AttemptId(JobId(job_id), 1)]
        body = wire.AttemptEnded(
            attempt_id=attempt.attempt_id, outcome=Outcome.COMPLETED, exit=ExitStatus(), ended_at=self.now,
            cell_emptied=True,
        )  # fmt: skip
        self.controller.handle(report(attempt.batch_node, body), self.now)
        self.controller.cluster.changes = Changes()


@contextmanager
def _collected_as_in_gqd() -> Iterator[None]:
    """The daemon looks for garbage as seldom."""
    usual = gc.get_threshold()
    gc.set_threshold(GARBAGE_LOOK)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def planning(bench: Bench) -> Iterator[Row]:
    with _collected_as_in_gqd():
        yield from _planning(bench)


def _planning(bench: Bench) -> Iterator[Row]:
    row = partial(Row, bench.family)
    commit = bench.baseline.commit
    core, planner, random = Core(NODES), Planner(), Random(1)
    for count in bench.scale.planned:
        while len(core.controller.cluster.queue) < count:
            core.submit(**shape_of(random))
        passes = [_pass(core, planner) for _ in range(1 + _ROUNDS)][1:]
        whole_s, slice_s = median([one.whole_s for one in passes]), max(one.slice_s for one in passes)
        yield row(f"pass over {count:,} pending", whole_s, "s", _ROUNDS, commit, at_most(BARS_S[count], "s"))
        yield row(f"its longest slice, {count:,}", slice_s, "s", _ROUNDS, commit, at_most(ANSWER_S, "s"))
    few_s, many_s = _event_s(_FEW), _event_s(_MANY)
    beside = Beside(f"{_FEW:,} over", few_s)
    yield row(f"job's life, {_MANY:,} are over", many_s, "s", _MEASURED, beside, at_most_times(_WITHIN, beside))


def shape_of(random: Random) -> dict[str, Any]:
    fields = {
        "gpus": random.choice(_SIZES),
        "cpus_per_gpu": random.randint(1, CPUS // GPUS),
        "time_limit_s": random.choice([None, random.randint(60, 86_400)]),
    }
    return fields | ({"mem_per_gpu_mib": random.randint(500, 8000)} if random.random() < 0.3 else {})


class _Pass(NamedTuple):
    whole_s: float
    slice_s: float


def _pass(core: Core, planner: Planner) -> _Pass:
    """Every job is considered; nothing is adopted, so that the next pass has as much to do.

    The planner is the one that made the pass before, as in a daemon: what it found of nodes and shapes it knows.
    """
    slices = []
    began = before = time.perf_counter()
    planner.begin(core.controller.snapshot(core.now))
    plan: Plan | None = None
    while plan is None:
        plan = planner.step(SLICE)
        after = time.perf_counter()
        slices.append(after - before)
        before = after
    assert plan.starts and plan.resumes_at is None, "a pass that was cut short proves nothing"
    return _Pass(before - began, max(slices))


_MEASURED = 300


def _event_s(over: int) -> float:
    """A submission, a pass, a start and an end, where so many jobs are over."""
    core = Core(4)
    _live(core, over)
    began = time.perf_counter()
    _live(core, _MEASURED)
    return (time.perf_counter() - began) / _MEASURED


def _live(core: Core, count: int) -> None:
    """Jobs one after the other, all within the time that ended jobs stay in memory."""
    planner = Planner()
    for _ in range(count):
        core.now += 1e-3
        core.submit(gpus=1)
        planner.begin(core.controller.snapshot(core.now))
        plan: Plan | None = None
        while plan is None:
            plan = planner.step(SLICE)
        core.adopt(plan)
        core.end(core.controller.cluster.next_job_id - 1)
