"""Virtual nodes: they carry out each order at once, without failure; a job runs as long as the trace says.  Pure.

Owns the messages of nodes: hello, prepared, go received, started, ended, emptied.  What takes time (the start of a job,
and its run) is returned as a `FutureReport`, which the engine delivers when it is due.  Nothing is encoded; receipts
of orders are left out where the report that the order leads to follows in the same instant.

A job that is stopped has saved its work at that instant.  When it starts again it continues from there, after
`resume_s` for resuming.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gq.model.node import Inventory
from gq.model.state import Outcome
from gq.wire import node as wire
from gq.wire.codec import WIRE_VERSION
from gqd.state.effect import Effect, SendOrder
from gqd.state.input import NodeHello, NodeReport, Route

INCARNATION = "1"
MASTER_PORT = 20000
_WELL = ExitStatus()


class FutureReport(NamedTuple):
    """The report about a job that a node will send in `in_s` seconds."""

    in_s: float
    job_id: JobId
    report: NodeReport


class VirtualNodes:
    """All nodes of a simulation.

    `lengths` gives by job the remaining run time in seconds and whether its time limit ends it; `resume_s` is added to
    the remaining run time of a job that was stopped.
    """

    def __init__(
        self,
        nodes: dict[str, Inventory],
        lengths: dict[JobId, tuple[float, bool]],
        start_delay_s: float,
        resume_s: float = 0.0,
    ) -> None:
        self._nodes = nodes
        self._lengths = lengths
        self._start_delay_s = start_delay_s
        self._resume_s = resume_s
        self._routes: dict[str, Route] = {name: ("nodes", name.encode()) for name in nodes}
        self._launched: dict[AttemptId, tuple[str, bool]] = {}
        """(batch node, whether it is the only node) of attempts that were prepared but not launched."""
        self._begun: dict[AttemptId, float] = {}
        """Start instants of the running attempts."""
        self.stopped_at: dict[JobId, float] = {}
        """The instants at which jobs were stopped that have not started again."""
        self._seq = 0

    def hellos(self) -> list[NodeHello]:
        """The registrations of all nodes."""
        return [NodeHello(route=self._routes[name], hello=_hello(name, has)) for name, has in self._nodes.items()]

    def obey(self, effects: Iterable[Effect], now: float) -> tuple[list[NodeReport], list[FutureReport]]:
        """Carry out orders; returns the reports of this instant and the later ones."""
        said: list[NodeReport] = []
        later: list[FutureReport] = []
        for effect in effects:
            if not isinstance(effect, SendOrder):
                continue
            node, order = effect.node, effect.order
            match order:
                case wire.Prepare():
                    self._prepare(node, order.launch, said, later)
                case wire.Go():
                    self._go(node, order.attempt_id, now, said, later)
                case wire.Stop():
                    self._stop(order.attempt_id, now)
                    said.append(self._report(node, wire.CellEmptied(attempt_id=order.attempt_id)))
                case wire.SetTimeLimit():
                    said.append(self._report(node, _limit_set(order)))
                case _:
                    pass
        return said, later

    def comes_to_its_end(self, attempt_id: AttemptId) -> bool:
        """Whether the end that was predicted at the start takes place: not if the attempt was stopped since."""
        return self._begun.pop(attempt_id, None) is not None

    def _stop(self, attempt_id: AttemptId, now: float) -> None:
        """Stop the whole attempt; the orders to its other nodes then change nothing."""
        self._launched.pop(attempt_id, None)
        began_at = self._begun.pop(attempt_id, None)
        if began_at is None:
            return
        length_s, is_cut = self._lengths[attempt_id.job_id]
        self._lengths[attempt_id.job_id] = max(0.0, length_s - (now - began_at)) + self._resume_s, is_cut
        self.stopped_at[attempt_id.job_id] = now

    def _prepare(self, node: str, launch: wire.Launch, said: list[NodeReport], later: list[FutureReport]) -> None:
        attempt_id = launch.attempt_id
        if launch.node_rank == 0:
            self._launched[attempt_id] = node, len(launch.members) == 1
        ready = self._report(node, wire.Prepared(attempt_id=attempt_id, master_port=MASTER_PORT))
        if not self._start_delay_s:
            said.append(ready)
            return
        said.append(self._report(node, wire.PrepareReceived(attempt_id=attempt_id)))
        later.append(FutureReport(self._start_delay_s, attempt_id.job_id, ready))

    def _go(
        self, node: str, attempt_id: AttemptId, now: float, said: list[NodeReport], later: list[FutureReport]
    ) -> None:
        batch_node, is_alone = self._launched.get(attempt_id, ("", False))
        if batch_node != node:
            said.append(self._report(node, wire.GoReceived(attempt_id=attempt_id)))
            return
        del self._launched[attempt_id]
        said.append(self._report(node, wire.Started(attempt_id=attempt_id, at=now)))
        self._begun[attempt_id] = now
        length_s, is_cut = self._lengths[attempt_id.job_id]
        ended = wire.AttemptEnded(
            attempt_id=attempt_id,
            outcome=Outcome.TIMEOUT if is_cut else Outcome.COMPLETED,
            exit=_WELL,
            started_at=now,
            ended_at=now + length_s,
            cell_emptied=is_alone,
        )
        later.append(FutureReport(length_s, attempt_id.job_id, self._report(node, ended)))

    def _report(self, node: str, body: wire.ReportBody) -> NodeReport:
        self._seq += 1
        return NodeReport(route=self._routes[node], node=node, incarnation=INCARNATION, seq=self._seq, body=body)


def _hello(name: str, has: Inventory) -> wire.Hello:
    return wire.Hello(
        node=name,
        version=WIRE_VERSION,
        incarnation=INCARNATION,
        boot_id="1",
        address=name,
        inventory=has,
        step_endpoint="",
    )


def _limit_set(order: wire.SetTimeLimit) -> wire.TimeLimitSet:
    return wire.TimeLimitSet(attempt_id=order.attempt_id, time_limit_s=order.time_limit_s)
