"""Dependencies against a second opinion that never forgets: it reads the log and asks every term again, each time.

Random jobs and arrays that depend on each other end well, badly, or not yet, are cancelled, queued again, held one by
one and changed; the controller restarts and forgets.  After every step both must agree on who may start, and on who
never can.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gq.errors import Refusal
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.ids import JobId
from gq.model.policy_tables import Limits, Timers
from gq.model.state import JobState, Outcome
from gq.model.tasks import parse_tasks, task_bit, tasks_in, unpack_tasks
from gq.wire import client
from gq.wire import node as wire
from gqd.state.events import event
from gqd.state.index.queue import startable_tasks
from gqd.state.input import Tick
from gqd.state.policy import Policy
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

ARRAYS = ("", "", "1-2", "1-3", "2-4")
KINDS = tuple(DependencyKind)
KEEP_S = 5
NODE = inventory(cpus=256)

Unit = tuple[int, int | None]
"""A job by its id, or a task by its array's."""


@dataclass
class Life:
    """What the log says of a job or of a task."""

    began_at: float | None = None
    """Of this run of it."""
    is_success: bool | None = None


@dataclass
class Oracle:
    units: dict[Unit, Life] = field(default_factory=dict)
    arrays: dict[int, set[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    asked: dict[Unit, Dependency] = field(default_factory=dict)
    met: dict[Unit, set[DependencyTerm]] = field(default_factory=dict)
    lost: dict[Unit, set[DependencyTerm]] = field(default_factory=dict)
    since: dict[tuple[Unit, DependencyTerm], float] = field(default_factory=dict)
    """When the job of an `after` with minutes was first seen to have started."""
    unit_of: dict[int, Unit] = field(default_factory=dict)
    """By job id."""
    read: int = 0

    def follow(self, log: list[event.Event], now: float) -> None:
        for fact in log[self.read :]:
            self._take(fact)
            self._decide(fact.at)
        self.read = len(log)
        self._decide(now)

    def ask(self, unit: Unit, dependency: Dependency | None) -> None:
        """A new wish, which is judged by how things stand."""
        self.asked.pop(unit, None)
        self.met[unit], self.lost[unit] = set(), set()
        self.since = {key: at for key, at in self.since.items() if key[0] != unit}
        if dependency is not None:
            self.asked[unit] = dependency

    def _take(self, fact: event.Event) -> None:
        match fact:
            case event.JobSubmitted():
                tasks = list(tasks_in(parse_tasks(fact.spec.array))) if fact.spec.array else [None]
                self.names[fact.job_id] = fact.spec.name
                if fact.spec.array:
                    self.arrays[fact.job_id] = {task for task in tasks if task is not None}
                else:
                    self.unit_of[fact.job_id] = (fact.job_id, None)
                for task in tasks:
                    self.units[fact.job_id, task] = Life()
                    self.ask((fact.job_id, task), fact.spec.dependency)
            case event.ArrayTaskLeft():
                self.unit_of[fact.job_id] = (fact.array_job_id, fact.task)
            case event.ArrayTasksCancelled():
                for task in tasks_in(unpack_tasks(fact.tasks)):
                    self._end(self.units[fact.array_job_id, task], fact.at, is_success=False)
            case event.JobStarted():
                self.units[self.unit_of[fact.attempt_id.job_id]].began_at = fact.at
            case event.JobRequeued():
                self.units[self.unit_of[fact.job_id]].began_at = None
            case event.JobEnded() if fact.job_id in self.unit_of:
                self._end(self.units[self.unit_of[fact.job_id]], fact.at, fact.outcome is Outcome.COMPLETED)

    def _end(self, life: Life, at: float, is_success: bool) -> None:
        life.began_at = at if life.began_at is None else life.began_at
        life.is_success = is_success

    def _decide(self, now: float) -> None:
        for unit, dependency in self.asked.items():
            for term in dependency.terms:
                if term in self.met[unit] or term in self.lost[unit]:
                    continue
                verdict = self._judge(unit, term, now)
                if verdict is not None:
                    (self.met if verdict else self.lost)[unit].add(term)

    def _judge(self, unit: Unit, term: DependencyTerm, now: float) -> bool | None:
        if term.kind is DependencyKind.SINGLETON:
            return True if not self._jobs_before(unit) else None
        if term.kind is DependencyKind.AFTERCORR:
            life = self.units.get((term.job_id, unit[1]))
            return False if life is None else life.is_success
        lives = self._lives(term)
        if term.kind is DependencyKind.AFTER:
            return self._judge_start(unit, term, lives, now)
        if any(life.is_success is None for life in lives):
            return None
        went_well = all(life.is_success for life in lives)
        wanted = {DependencyKind.AFTEROK: went_well, DependencyKind.AFTERNOTOK: not went_well}
        return wanted.get(term.kind, True)

    def _judge_start(self, unit: Unit, term: DependencyTerm, lives: list[Life], now: float) -> bool | None:
        begins = [life.began_at for life in lives]
        if (unit, term) not in self.since:
            if any(at is None for at in begins):
                return None
            self.since[unit, term] = max(at for at in begins if at is not None)
        return True if now >= self.since[unit, term] + term.delay_s else None

    def _lives(self, term: DependencyTerm) -> list[Life]:
        if term.task is not None:
            return [self.units[term.job_id, term.task]]
        if term.job_id in self.arrays:
            return [self.units[term.job_id, task] for task in self.arrays[term.job_id]]
        return [self.units[self.unit_of[term.job_id]]]

    def _jobs_before(self, unit: Unit) -> list[Unit]:
        name = self.names[unit[0]]
        return [
            other
            for other, life in self.units.items()
            if other[0] < unit[0] and self.names[other[0]] == name and life.is_success is None
        ]

    def may_start(self, unit: Unit) -> bool:
        asked = self.asked.get(unit)
        if asked is None:
            return True
        return bool(self.met[unit]) if asked.is_any else self.met[unit] >= set(asked.terms)

    def never(self, unit: Unit) -> bool:
        asked = self.asked.get(unit)
        if asked is None or self.may_start(unit):
            return False
        return self.lost[unit] >= set(asked.terms) if asked.is_any else bool(self.lost[unit])


class DependencyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        policy = Policy(
            owner_uid=OWNER.uid, limits=Limits(ended_job_keep_s=KEEP_S), timers=Timers(node_lost_s=1e6, grace_s=0)
        )
        self.host = CoreHost(policy, nodes={"n1": NODE})
        self.oracle = Oracle()
        self.kills: set[int] = set()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _dependency(self, data: st.DataObject, array: str) -> Dependency | None:
        known = list(range(1, self.host.cluster.next_job_id))
        if not known:
            return None
        terms = [self._term(data, known, array) for _ in range(data.draw(st.integers(0, 3)))]
        return Dependency(tuple(dict.fromkeys(terms)), data.draw(st.booleans())) if terms else None

    def _term(self, data: st.DataObject, known: list[int], array: str) -> DependencyTerm:
        arrays = list(self.oracle.arrays)
        kind = data.draw(st.sampled_from(KINDS))
        if kind is DependencyKind.SINGLETON or (kind is DependencyKind.AFTERCORR and not (array and arrays)):
            return DependencyTerm(DependencyKind.SINGLETON)
        if kind is DependencyKind.AFTERCORR:
            return DependencyTerm(kind, data.draw(st.sampled_from(arrays)))
        job_id = data.draw(st.sampled_from(known))
        tasks = sorted(self.oracle.arrays.get(job_id, ()))
        task = data.draw(st.sampled_from([None, *tasks]))
        is_late = kind is DependencyKind.AFTER and not tasks and data.draw(st.booleans())
        return DependencyTerm(kind, job_id, task, 60 if is_late else 0)

    @rule(data=st.data(), array=st.sampled_from(ARRAYS), name=st.sampled_from("ab"), kill=st.booleans())
    def submit(self, data: st.DataObject, array: str, name: str, kill: bool) -> None:
        dependency = self._dependency(data, array)
        job_id = self.host.submit(submit(name, array=array, dependency=dependency, kill_on_invalid_dep=kill))
        if kill:
            self.kills.add(job_id)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """Of a job, of a task, or of all that waits in a record."""
        waiting = [job for job in self.host.cluster.jobs.values() if job.is_waiting]
        if not waiting:
            return
        job = data.draw(st.sampled_from(waiting))
        units = self._waiting_units(job.job_id)
        tasks = "" if job.array is None else data.draw(st.sampled_from(["", *[str(unit[1]) for unit in units]]))
        if job.array is not None and not tasks:
            left = [self.host.cluster.jobs[one] for one in job.array.jobs.values()]
            units += [self.oracle.unit_of[one.job_id] for one in left if one.state is JobState.PENDING]
        asked_before = {unit: self._asked_of(unit) for unit in units}
        is_array = job.array is not None or job.array_job_id is not None
        dependency = self._dependency(data, "1" if is_array else "")
        change = client.UpdateJob(
            job_id=job.job_id, tasks=tasks, dependency=dependency, clear_dependency=dependency is None
        )
        try:
            self.host.ask(change)
        except Refusal as refusal:
            assert refusal.code == "cycle", refusal
            return
        self._settle()
        for unit in units:
            if (not tasks or unit[1] == int(tasks)) and asked_before[unit] != dependency:
                self.oracle.ask(unit, dependency)

    def _asked_of(self, unit: Unit) -> Dependency | None:
        job = self.host.job(unit[0])
        if job.array is not None and unit[1] in job.array.jobs:
            job = self.host.cluster.jobs[job.array.jobs[unit[1]]]
        return job.spec.dependency

    def _waiting_units(self, job_id: int) -> list[Unit]:
        job = self.host.job(job_id)
        if job.array is not None:
            return [(job_id, task) for task in tasks_in(job.array.waiting)]
        return [self.oracle.unit_of[job_id]]

    def _pick(self, data: st.DataObject, *states: JobState) -> int | None:
        ids = [one.job_id for one in self.host.cluster.jobs.values() if one.state in states and one.array is None]
        return data.draw(st.sampled_from(ids)) if ids else None

    @rule()
    def start(self) -> None:
        self.host.schedule()
        self.host.obey()

    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]))
    def end(self, data: st.DataObject, code: int) -> None:
        if (job_id := self._pick(data, JobState.RUNNING)) is not None:
            self.host.finish(job_id, code)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if (job_id := self._pick(data, JobState.RUNNING)) is not None:
            self.host.ask(client.RequeueJobs(job_ids=(job_id,)))
            self.host.obey()

    @rule(data=st.data(), whole=st.booleans())
    def cancel(self, data: st.DataObject, whole: bool) -> None:
        job_id = self._pick(data, JobState.PENDING, JobState.RUNNING)
        arrays = [one for one in self.oracle.arrays if one in self.host.cluster.jobs]
        if whole and arrays:
            job_id = data.draw(st.sampled_from(arrays))
        if job_id is not None:
            self.host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))))
            self.host.obey()

    @rule(data=st.data())
    def cancel_a_task(self, data: st.DataObject) -> None:
        """While it waits in its record."""
        records = [one for one in self.host.cluster.jobs.values() if one.array is not None and one.is_waiting]
        if records:
            record = data.draw(st.sampled_from(records))
            assert record.array is not None
            task = data.draw(st.sampled_from(list(tasks_in(record.array.waiting))))
            self.host.ask(client.CancelJobs(filter=client.JobFilter(tasks={record.job_id: str(task)})))

    @rule(data=st.data())
    def hold_a_task(self, data: st.DataObject) -> None:
        """It leaves its record, and takes along what it waits for."""
        records = [one for one in self.host.cluster.jobs.values() if one.array is not None and one.is_waiting]
        if records:
            record = data.draw(st.sampled_from(records))
            assert record.array is not None
            task = data.draw(st.sampled_from(list(tasks_in(record.array.waiting))))
            self.host.ask(client.HoldJobs(job_ids=(), tasks={record.job_id: str(task)}))
            self.host.ask(client.ReleaseJobs(job_ids=(), tasks={record.job_id: str(task)}))

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([1, 20, 100]))
    def pass_time(self, seconds: int) -> None:
        self.host.handle(Tick(), self.host.now + seconds)
        self.host.handle(Tick(), self.host.now + 1)

    @precondition(lambda self: self.host.cluster.jobs)
    @rule()
    def restart(self) -> None:
        self.host.restart()
        held = list(self.host.cluster.nodes["n1"].held)
        attempts = tuple(wire.AttemptStatus(attempt_id=one, phase="running") for one in held)
        self.host.handle(hello("n1", NODE, attempts=attempts))
        self.host.obey()

    # ── both opinions ─────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        self.host.handle(Tick(), self.host.now)
        self.oracle.follow(self.host.log, self.host.now)

    @invariant()
    def both_agree(self) -> None:
        self._settle()
        for job in self.host.cluster.jobs.values():
            if job.state is not JobState.PENDING:
                continue
            units = self._waiting_units(job.job_id)
            for unit in units:
                is_free = (
                    job.dependency is None if job.array is None else bool(startable_tasks(job) & task_bit(unit[1] or 0))
                )
                assert is_free is self.oracle.may_start(unit), f"{unit} of job {job.job_id}"
                if unit[0] in self.kills:
                    assert not self.oracle.never(unit), f"{unit} never can start, and is still there"
            if units and all(self.oracle.never(unit) for unit in units):
                if job.hold is None:
                    assert self.host.explain(job.job_id).reason == "DependencyNeverSatisfied"
            elif units and job.never:
                raise AssertionError(f"job {job.job_id} never can start: {job.never}; the oracle thinks it can")

    @invariant()
    def arrays_end_when_their_tasks_have(self) -> None:
        self._settle()
        for array_id, tasks in self.oracle.arrays.items():
            job = self.host.cluster.jobs.get(JobId(array_id))
            over = all(self.oracle.units[array_id, task].is_success is not None for task in tasks)
            assert job is None or (job.state is JobState.ENDED) is over

    @invariant()
    def whoever_was_ended_for_it_never_could_start(self) -> None:
        self._settle()
        for fact in self.host.log:
            if isinstance(fact, event.JobEnded) and fact.reason == "DependencyNeverSatisfied":
                unit = self.oracle.unit_of.get(fact.job_id)
                assert unit is None or (self.oracle.never(unit) and unit[0] in self.kills)


TestDependencies = DependencyMachine.TestCase
TestDependencies.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestDependenciesForLong(DependencyMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
