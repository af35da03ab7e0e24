"""Runs the daemon's controller and planner with an event heap and a virtual clock.  Pure.

Nothing is decided here: submissions, reports of virtual nodes and ticks are inputs of the same `Controller` that the
daemon runs, which adopts the plans of the same `Planner`.  At one instant the engine handles all ends, then all
arrivals, then runs one complete planning pass, whose jobs start at that instant.  Equal input gives equal output.

Ticks come when the controller asks to be woken, and at intervals so that ended jobs leave memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gq.errors import Refusal
from gq.model.ids import JobId, RequestId
from gq.model.job import JobSpec
from gq.wire import client
from gq.wire import node as wire
from gqd.control.controller import Controller
from gqd.control.turn import Turn
from gqd.sched.planner import Planner
from gqd.sim.virtual_nodes import FutureReport, VirtualNodes
from gqd.sim.workload import SimJob, Site
from gqd.state.cluster import Cluster
from gqd.state.effect import Effect, Reply
from gqd.state.index.changes import Changes
from gqd.state.input import ClientRequest, Input, NodeReport, Peer, Tick
from gqd.state.policy import Policy

EPOCH = 1_000_000_000.0
"""Instant of the controller's clock at the trace's second 0."""
FORGET_AFTER = 512
"""Maximum number of job ends between two ticks."""
FIRST_UID = 100_000
_ROOT = Peer(uid=0, gid=0, user="root")
_ROUTE = ("clients", b"")
_STEP = 10**9
"""Units of work for a step of the planner; more than a pass takes."""
MAX_PASSES = 64
"""Planning passes at one instant."""


class Gap(NamedTuple):
    """The time (s of the trace) from a job's stop until it started again."""

    place: int
    """Index of the job in the trace."""
    from_s: float
    to_s: float


@dataclass(slots=True)
class Run:
    """Starts and ends (s) of the jobs, in the order of the trace; NaN: the job did not start, or end.

    A job that is stopped and starts again has one start, the first, and one end.
    """

    starts_s: list[float]
    ends_s: list[float]
    refused: dict[int, str] = field(default_factory=dict)
    """Why the controller refused a job, by its index in the trace."""
    gaps: list[Gap] = field(default_factory=list)
    passes: int = 0
    inputs: int = 0


class Engine:
    """A simulation of `jobs`, sorted by submission.

    `knows`: the controller knows each run time; `resume_s`: seconds that a stopped job needs to resume.
    """

    def __init__(
        self,
        site: Site,
        policy: Policy,
        jobs: Sequence[SimJob],
        start_delay_s: float = 0.0,
        knows: bool = False,
        resume_s: float = 0.0,
    ) -> None:
        self._jobs = jobs
        self._knows = knows
        self._resume_s = resume_s
        self._controller = Controller(Cluster(), _for_virtual_nodes(site, policy, start_delay_s))
        self._planner = Planner()
        self._lengths: dict[JobId, tuple[float, bool]] = {}
        self._virtual_nodes = VirtualNodes(site.nodes, self._lengths, start_delay_s, resume_s)
        self._places: dict[JobId, int] = {}
        self._heap: list[tuple[float, int, int, NodeReport]] = []
        """(instant, index of the job in the trace, serial number, report)."""
        self._count = 0
        self._ended = 0
        self._forgotten = 0
        self._peers = {user: _peer(user, number) for number, user in enumerate(dict.fromkeys(job.user for job in jobs))}
        self._setup = site.setup
        self._run = Run([math.nan] * len(jobs), [math.nan] * len(jobs))

    @property
    def controller(self) -> Controller:
        return self._controller

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Run:
        """Run until all jobs have ended, or nothing can happen; calls `progress` with the number of ended jobs."""
        first_s = self._jobs[0].submit_s if self._jobs else 0.0
        self._set_up(EPOCH + first_s)
        position, now = 0, EPOCH + first_s
        while True:
            arrives_at = EPOCH + self._jobs[position].submit_s if position < len(self._jobs) else math.inf
            ends_at = self._heap[0][0] if self._heap else math.inf
            wakes_at = self._controller.next_wakeup(now) or math.inf
            if (now := max(now, min(arrives_at, ends_at, wakes_at))) == math.inf:
                return self._run
            while self._heap and self._heap[0][0] <= now:
                self._report(heapq.heappop(self._heap)[3], now)
            while position < len(self._jobs) and EPOCH + self._jobs[position].submit_s <= now:
                self._submit(position, now)
                position += 1
            if wakes_at <= now or self._ended - self._forgotten >= FORGET_AFTER:
                self._forgotten = self._ended
                self._handle(Tick(), now)
                self._controller.cluster.changes = Changes()  # changed rows, which no store needs here
                progress(self._ended)
            self._plan(now)

    # ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_up(self, now: float) -> None:
        """Register the nodes, and set up accounts, QOS, limits and reservations."""
        self._obey(self._controller.resume(now).effects, now)
        for hello in self._virtual_nodes.hellos():
            self._handle(hello, now)
        for number, body in enumerate(self._setup):
            self._ask(_ROOT, body, -1 - number, now)

    def _submit(self, position: int, now: float) -> None:
        job = self._jobs[position]
        spec = JobSpec(
            name=job.name or "job",
            resources=job.resources,
            partition=job.partition,
            time_limit_s=None if job.limit_s is None else max(1, math.ceil(job.limit_s)),
            account=job.account or None,
            qos=job.qos or None,
            reservation=job.reservation,
            resume_s=round(self._resume_s),
        )
        job_id = JobId(self._controller.cluster.next_job_id)
        self._places[job_id] = position
        self._lengths[job_id] = (job.runs_s, job.runs_s < job.duration_s)
        try:
            self._ask(self._peers[job.user], client.Submit(spec=spec), position, now, job.runs_s)
        except Refusal as refusal:
            self._run.refused[position] = refusal.message
            del self._places[job_id], self._lengths[job_id]

    def _ask(
        self, peer: Peer, body: client.RequestBody, number: int, now: float, length_s: float | None = None
    ) -> None:
        request = ClientRequest(
            peer=peer,
            route=_ROUTE,
            request_id=RequestId(number.to_bytes(16, "big", signed=True)),
            body=body,
            expected_s=length_s if self._knows else None,
        )
        for effect in self._handle(request, now).effects:
            if isinstance(effect, Reply) and isinstance(effect.body, client.Refused):
                raise Refusal(effect.body.code, effect.body.message, effect.body.hint)

    def _plan(self, now: float) -> None:
        """Run a complete pass; run another one only if the controller wants it at once."""
        for _ in range(MAX_PASSES):
            if not self._controller.wants_plan(now):
                return
            self._planner.begin(self._controller.snapshot(now), skip_planned_starts=True)
            while (plan := self._planner.step(_STEP)) is None:
                pass
            self._run.passes += 1
            self._obey(self._controller.adopt(plan, now).effects, now)
            if not plan.starts and not plan.preemptions and plan.searches_from is None:
                return

    def _handle(self, happened: Input, now: float) -> Turn:
        self._run.inputs += 1
        turn = self._controller.handle(happened, now)
        if turn.effects:
            self._obey(turn.effects, now)
        return turn

    def _report(self, report: NodeReport, now: float) -> None:
        body = report.body
        if isinstance(body, wire.AttemptEnded):
            if not self._virtual_nodes.comes_to_its_end(body.attempt_id):
                return
            job_id = body.attempt_id.job_id
            self._run.ends_s[self._places.pop(job_id)] = body.ended_at - EPOCH
            del self._lengths[job_id]
            self._ended += 1
        elif isinstance(body, wire.Started):
            self._note_start(body.attempt_id.job_id, body.at - EPOCH)
        self._handle(report, now)

    def _note_start(self, job_id: JobId, at_s: float) -> None:
        place = self._places[job_id]
        stopped_at = self._virtual_nodes.stopped_at.pop(job_id, None)
        if stopped_at is None:
            self._run.starts_s[place] = at_s
        else:
            self._run.gaps.append(Gap(place, stopped_at - EPOCH, at_s))

    def _obey(self, effects: Iterable[Effect], now: float) -> None:
        """Let the nodes carry out orders; handle their reports now or schedule them."""
        said, later = self._virtual_nodes.obey(effects, now)
        for one in later:
            self._push(one, now)
        for report in self._as_they_were_taken(said) if len(said) > 1 else said:
            self._report(report, now)

    def _as_they_were_taken(self, said: list[NodeReport]) -> list[NodeReport]:
        """The reports sorted so that a job's nodes are freed in the order in which they were chosen."""
        nodes = self._controller.cluster.nodes
        if any(not isinstance(one.body, wire.CellEmptied) for one in said):
            return said
        return sorted(said, key=lambda one: nodes[one.node].free_since)

    def _push(self, report: FutureReport, now: float) -> None:
        self._count += 1
        place = self._places[report.job_id]
        heapq.heappush(self._heap, (now + report.in_s, place, self._count, report.report))


def _for_virtual_nodes(site: Site, policy: Policy, start_delay_s: float) -> Policy:
    """The policy with the site's partitions, for all users; virtual nodes are never lost, and may prepare slowly."""
    timers = msgspec.structs.replace(
        policy.timers,
        node_lost_s=math.inf,
        prepare_s=policy.timers.prepare_s + start_delay_s,
        schedule_min_interval_s=0.0,
    )
    limits = msgspec.structs.replace(
        policy.limits, jobs=1 << 60, jobs_per_user=1 << 60, nodes=1 << 60, accounts=1 << 60
    )
    return msgspec.structs.replace(
        policy, partitions=site.partitions, is_shared=True, owner_uid=0, timers=timers, limits=limits
    )


def _peer(user: str, number: int) -> Peer:
    return Peer(uid=FIRST_UID + number, gid=FIRST_UID + number, user=user)
