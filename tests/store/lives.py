"""Random but lawful lives: events that fit a cluster as it stands, one turn after the other, from a seed.

Not the controller: nothing here decides well, but every event may happen, in every order that the table allows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, PreemptMode, QosInfo
from gq.model.ask import AskAnswer
from gq.model.crontab import CronEntry, Missed, Overlap
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Gpu, Inventory
from gq.model.reservation import Booking, OccurrenceState
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout, StepPart
from gq.model.tasks import pack_tasks, parse_tasks, task_bit, tasks_in
from gq.wire import node as wire
from gqd.control.apply.table import apply
from gqd.state import parked
from gqd.state.cluster import Cluster
from gqd.state.elastic import is_left
from gqd.state.events import event
from gqd.state.events.event import Event
from gqd.state.phases import AfterEnding, Hold
from gqd.state.records import Attempt, Job, LimitKey, Node, Step
from gqd.state.reservation import Occurrence
from tests.store.lives_elastic import resized

CPUS, GPUS = 6, 4
WHYS = ("", "smoke", "äöü 'quoted'; DROP TABLE audit")


class Lives:
    """``turn()`` makes something happen to the cluster, and tells what."""

    def __init__(self, random: Random, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self.now = 1000.0
        self._random = random
        self._events: list[Event] = []
        self._arrays = 0
        self._actions: list[Callable[[], None]] = [
            self._register, self._submit, self._submit, self._hold_or_update, self._allocate, self._allocate,
            self._go_on, self._go_on, self._go_on, self._step, self._end, self._empty, self._empty, self._finish,
            self._finish, self._node, self._answer, self._forget, self._remove, self._add_key, self._add_key,
            self._join, self._drop_keys, self._audit, self._submit_array, self._change_array, self._change_array,
            self._change_dependency, self._account, self._member, self._qos, self._limit, self._half_life,
            self._crontab, self._notice, self._tell, self._reserve, self._reserve, self._preempt, self._preempt,
            self._suspend, self._ask, self._resize, self._resize, self._park, self._park, self._owe,
        ]  # fmt: skip

    def turn(self, size: int = 4) -> list[Event]:
        """The events, at least one, of about `size` happenings; the cluster has them, and their changes."""
        self._events = []
        wanted = self._random.randint(1, size)
        while len(self._events) < wanted:
            self.now += self._random.random() * 10
            self._random.choice(self._actions)()
        return self._events

    @property
    def own_jobs(self) -> int:
        """How many there have been, but for the records of arrays, which lists show by their parts."""
        return self.cluster.next_job_id - 1 - self._arrays

    def _note(self, fact: Event) -> None:
        apply(self.cluster, fact)
        self._events.append(fact)
        if isinstance(fact, event.JobEnded | event.ArrayTasksCancelled):
            self._end_arrays()
        for one, known in list(self.cluster.parked.items()):
            is_back = known.lent is None or parked.is_back(self.cluster, known.lent)
            if one in self.cluster.parked and is_back and not parked.is_waited_for(self.cluster, one):
                self._note(event.JobUnparked(at=self.now, attempt_id=one))

    def _end_arrays(self) -> None:
        """A record is over with the last of its tasks."""
        for job_id in list(self.cluster.arrays):
            record = self.cluster.jobs[job_id]
            array = record.array
            over = 0 if array is None else array.cancelled | array.succeeded | array.failed
            if over == parse_tasks(record.spec.array):
                self._note(event.JobEnded(at=self.now, job_id=job_id, outcome=Outcome.FAILED, exit=record.exit))

    def _job(self, *states: JobState, may_be_record: bool = False) -> Job | None:
        jobs = self._jobs(*states, may_be_record=may_be_record)
        return self._random.choice(jobs) if jobs else None

    def _jobs(self, *states: JobState, may_be_record: bool = False) -> list[Job]:
        jobs = [job for job in self.cluster.jobs.values() if job.state in states]
        return [job for job in jobs if job.array is None or (may_be_record and job.array.waiting)]

    def _usage(self) -> Usage:
        return Usage(self._random.random(), self._random.random(), self._random.randrange(999))

    def _exit(self) -> ExitStatus:
        return ExitStatus(self._random.choice([0, 0, 1, 3]), self._random.choice([0, 0, 9]))

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self) -> None:
        number = self.cluster.next_job_id
        self._note(
            event.JobSubmitted(
                at=self.now, job_id=JobId(number), user=self._random.choice(["ann", "bob"]), uid=1000, gid=100,
                spec=_spec(self._random, number), partition=self._random.choice(["main", "gpu"]),
                time_limit_s=self._random.choice([None, 60]), requeue=self._random.random() < 0.5,
                expected_s=self._random.choice([None, 59.5]),
            )
        )  # fmt: skip

    def _submit_array(self) -> None:
        number = self.cluster.next_job_id
        self._arrays += 1
        tasks = self._random.choice(["1-4", "0-9:3", "7", ",".join(str(one * one) for one in range(300))])
        spec = structs.replace(_spec(self._random, number), array=tasks, array_throttle=self._random.choice([None, 2]))
        if self._random.random() < 0.3:
            spec = structs.replace(spec, array="0-5", sweep=(("lr", ("1", "2")), ("bs", ("a", "b c", ""))))
        self._note(
            event.JobSubmitted(
                at=self.now, job_id=JobId(number), user="ann", uid=1000, gid=100, spec=spec, partition="main",
                time_limit_s=None, requeue=True,
            )
        )  # fmt: skip

    def _change_array(self) -> None:
        records = [job for job in self.cluster.jobs.values() if job.array is not None and job.array.waiting]
        if not records:
            return
        record = self._random.choice(records)
        job_id, array = record.job_id, record.array
        assert array is not None
        tasks = list(tasks_in(array.waiting))
        match self._random.randrange(6):
            case 0:
                bits = sum(task_bit(one) for one in self._random.sample(tasks, self._random.randint(1, len(tasks))))
                packed, why = pack_tasks(bits), self._random.choice(WHYS)
                self._note(event.ArrayTasksCancelled(at=self.now, array_job_id=job_id, tasks=packed, why=why))
            case 1:
                throttle, is_auto = self._random.choice([(None, False), (1, False), (None, True)])
                self._note(event.ArrayThrottleSet(at=self.now, array_job_id=job_id, throttle=throttle, is_auto=is_auto))
            case _:
                task, own = self._random.choice(tasks), JobId(self.cluster.next_job_id)
                self._note(event.ArrayTaskLeft(at=self.now, array_job_id=job_id, task=task, job_id=own))

    def _hold_or_update(self) -> None:
        job = self._job(JobState.PENDING, may_be_record=True)
        if job is None:
            return
        match self._random.randrange(3):
            case 0:
                self._note(event.JobHeld(at=self.now, job_id=job.job_id, hold=self._random.choice(list(Hold))))
            case 1:
                self._note(event.JobReleased(at=self.now, job_id=job.job_id))
            case _:
                array, throttle = job.spec.array, job.spec.array_throttle
                spec = structs.replace(_spec(self._random, job.job_id), array=array, array_throttle=throttle)
                self._note(
                    event.JobUpdated(
                        at=self.now,
                        job_id=job.job_id,
                        spec=spec,
                        partition="main",
                        time_limit_s=30,
                        requeue=True,
                        expected_s=30.0,
                    )
                )

    def _change_dependency(self) -> None:
        """On names and on the clock alone: what depends on jobs must be decided before these leave memory."""
        job = self._job(JobState.PENDING, may_be_record=True)
        if job is None:
            return
        waiting = 0 if job.array is None else job.array.waiting
        terms = [
            DependencyTerm(DependencyKind.SINGLETON),
            DependencyTerm(DependencyKind.AFTER, 1, delay_s=60, since=self.now),
            DependencyTerm(DependencyKind.AFTERCORR, 2, good=pack_tasks(waiting)),
        ]
        chosen = tuple(self._random.sample(terms, self._random.randint(0, 3)))
        left = Dependency(chosen, self._random.random() < 0.5) if chosen else None
        never = self._random.choice(WHYS) if chosen else ""
        ready = pack_tasks(waiting & 0b110) if chosen else ""
        is_new = self._random.random() < 0.5
        fact = event.DependencyChanged(
            at=self.now, job_id=job.job_id, left=left, never=never, ready=ready, is_new=is_new
        )
        self._note(fact)

    def _allocate(self) -> None:
        job = self._job(JobState.PENDING)
        if job is not None and job.dependency is not None:
            self._note(event.DependencyChanged(at=self.now, job_id=job.job_id))
        lent = parked.lent_masks(self.cluster)
        grants = [
            grant for node in self.cluster.nodes.values() if (grant := _free(node, self._random, lent.get(node.name)))
        ]
        if job is None or not grants:
            return
        attempt_id = AttemptId(job.job_id, job.attempt + 1)
        most = 1 if job.spec.resources.most_gpus is not None else len(grants)
        chosen = tuple(self._random.sample(grants, self._random.randint(1, most)))
        billing = self._random.choice([0, 1_500_000])
        if self._random.random() < 0.3:
            told = FirstEstimate(self.now, self.now + 60, self._random.choice([None, self.now + 90]), True)
            self._note(event.StartEstimated(at=self.now, job_id=job.job_id, estimate=told))
        slot = self._random.choice(["", "wide"])
        reservation, occurrence = self._occurrence()
        borrows = () if reservation else self._random.choice([(), ("talk", "lab"), ("lab",)])
        self._note(
            event.JobAllocated(
                at=self.now, attempt_id=attempt_id, grants=chosen, billing=billing, slot=slot,
                reservation=reservation, occurrence=occurrence, borrows=borrows, priority=billing // 7,
            )
        )  # fmt: skip

    def _go_on(self) -> None:
        job = self._job(JobState.STARTING)
        if job is None:
            return
        attempt = self.cluster.attempts[job.attempt_id]
        node = self._random.choice(list(attempt.parts))
        one = attempt.attempt_id
        match self._random.randrange(5):
            case 0:
                self._note(event.PartPrepared(at=self.now, attempt_id=one, node=node, master_port=20001))
            case 1:
                self._note(event.PartsReleased(at=self.now, attempt_id=one, nodes=(node,), master_port=20001))
            case 2:
                self._note(event.PartWentLive(at=self.now, attempt_id=one, node=node))
            case 3:
                self._note(event.JobStarted(at=self.now, attempt_id=one, master_port=20001))
            case _:
                self._note(
                    event.LaunchFailed(
                        at=self.now, attempt_id=one, node=node, why="silent", is_job_fault=True, until=self.now + 30
                    )
                )

    def _end(self) -> None:
        job = self._job(JobState.STARTING, JobState.RUNNING, JobState.COMPLETING)
        if job is None or (job.state is JobState.RUNNING and self._random.random() < 0.5):
            return
        self._note(
            event.JobEnding(
                at=self.now, attempt_id=job.attempt_id, outcome=self._random.choice(list(Outcome)),
                then=self._random.choice(list(AfterEnding)), exit=self._exit(), why="it was time", grace_s=5,
                lost_gpu_s=self._random.choice([0.0, 12.5]),
            )
        )  # fmt: skip

    def _preempt(self) -> None:
        """Others give way to a job that waits, or may stay after all; they save their work now and then."""
        running = [self.cluster.attempts[job.attempt_id] for job in self._jobs(JobState.RUNNING)]
        if running and self._random.random() < 0.3:
            attempt_id = self._random.choice(running).attempt_id
            self._note(event.JobCheckpointed(at=self.now, attempt_id=attempt_id))
            self._note(event.JobCaughtUp(at=self.now, attempt_id=attempt_id, resume_s=self._random.choice([0.0, 61.5])))
        if self.cluster.claims and self._random.random() < 0.3:
            job_id = self._random.choice(list(self.cluster.claims))
            self._note(event.PreemptionDropped(at=self.now, job_id=job_id, why=self._random.choice(WHYS)))
        waiting = [job for job in self._jobs(JobState.PENDING) if job.job_id not in self.cluster.claims]
        victims = [one for one in running if one.preemption is None]
        if not waiting or not victims:
            return
        chosen = self._random.sample(victims, self._random.randint(1, len(victims)))
        reservation, occurrence = self._occurrence()
        self._note(
            event.PreemptionDecided(
                at=self.now, job_id=self._random.choice(waiting).job_id, grants=chosen[0].grants,
                victims=tuple((one.attempt_id, self.now + self._random.randrange(90)) for one in chosen),
                is_reclaim=self._random.random() < 0.5, reservation=reservation, occurrence=occurrence,
            )
        )  # fmt: skip

    def _suspend(self) -> None:
        """A job stands still, or goes on."""
        if running := self._jobs(JobState.RUNNING):
            attempt = self.cluster.attempts[self._random.choice(running).attempt_id]
            kind = event.JobSuspended if attempt.suspended_at is None else event.JobResumed
            if attempt.attempt_id not in self.cluster.parked:
                self._note(kind(at=self.now, attempt_id=attempt.attempt_id))

    def _owe(self) -> None:
        """A user's signal is owed to a node, or one that was is confirmed."""
        if self.cluster.owed_orders and self._random.random() < 0.5:
            key = self._random.choice(list(self.cluster.owed_orders))
            confirmed = {"attempt_id": key.attempt_id, "node": key.node, "order_id": key.order_id}
            self._note(event.OrderConfirmed(at=self.now, **confirmed))
        elif running := self._jobs(JobState.RUNNING):
            attempt = self.cluster.attempts[self._random.choice(running).attempt_id]
            if attempt.parts:
                order = wire.SignalAttempt(
                    attempt_id=attempt.attempt_id, signum=10, order_id=self._random.randbytes(16)
                )
                node = self._random.choice(list(attempt.parts))
                self._note(event.OrderOwed(at=self.now, attempt_id=attempt.attempt_id, node=node, order=order))

    def _park(self) -> None:
        """One that gives way stands still for the other, and lends what that wants."""
        one = next((one for one, known in self.cluster.parked.items() if known.lent is None), None)
        if one is not None:
            held, claim = self.cluster.attempts[one].grants[0], self.cluster.claims[self.cluster.parked[one].to]
            kept = next((grant for grant in claim.grants if grant.node == held.node), held)
            memory, lent = self._random.randrange(16_384), parked.overlap(held, kept)
            told = tuple((gpu, memory) for gpu in lent.gpus)
            self._note(event.JobParked(at=self.now, attempt_id=one, lent=lent, gpu_memory=told))
            return
        known = (self.cluster.attempts[job.attempt_id] for job in self._jobs(JobState.RUNNING))
        might = [one for one in known if one.suspended_at is None and one.elastic is None and len(one.grants) == 1]
        if found := next((one for one in might if one.preemption is not None and one.batch_node in one.parts), None):
            assert found.preemption is not None
            self._note(event.JobParking(at=self.now, attempt_id=found.attempt_id, to=found.preemption.preemptor))

    def _resize(self) -> None:
        for fact in resized(self.cluster, self._random, self.now, _free):
            self._note(fact)

    def _ask(self) -> None:
        """A favour, of jobs that are over, too; and an answer."""
        jobs = list(self.cluster.jobs.values())
        if not jobs:
            return
        job = self._random.choice(jobs)
        if any(one.is_open for one in job.asks) and self._random.random() < 0.5:
            answer, text = self._random.choice(list(AskAnswer)), self._random.choice(WHYS)
            self._note(event.AsksAnswered(at=self.now, job_id=job.job_id, answer=answer, text=text, by="ada"))
        else:
            text = self._random.choice(WHYS)
            self._note(event.JobAsked(at=self.now, job_id=job.job_id, by="bob", uid=1001, text=text))

    def _empty(self) -> None:
        ending = [
            (attempt, node)
            for attempt in self.cluster.attempts.values()
            for node, part in attempt.parts.items()
            if part.is_stranded
            or is_left(attempt, node)
            or self.cluster.jobs[attempt.attempt_id.job_id].state is JobState.COMPLETING
        ]
        if not ending:
            return
        attempt, node = self._random.choice(ending)
        if self._random.random() < 0.3 and not attempt.parts[node].is_stranded:
            self._note(event.PartStranded(at=self.now, attempt_id=attempt.attempt_id, node=node))
        else:
            self._note(event.PartEmptied(at=self.now, attempt_id=attempt.attempt_id, node=node, usage=self._usage()))

    def _finish(self) -> None:
        """What follows the end of an attempt; a job without one may end just so."""
        job = self._job(JobState.COMPLETING, JobState.PENDING)
        if job is None or (job.state is JobState.PENDING and self._random.random() < 0.8):
            return
        attempt = self.cluster.attempt_of(job)
        if job.state is JobState.COMPLETING:
            assert attempt is not None
            if attempt.waits_for():
                return
            if attempt.then is not AfterEnding.END:
                counts = attempt.then is AfterEnding.REQUEUE
                self._note(event.JobRequeued(at=self.now, job_id=job.job_id, counts=counts))
                return
        outcome = self._random.choice(list(Outcome))
        self._note(event.JobEnded(at=self.now, job_id=job.job_id, outcome=outcome, exit=self._exit(), reason="None"))

    def _forget(self) -> None:
        gone = [
            job.job_id
            for job in self.cluster.jobs.values()
            if job.state is JobState.ENDED
            and not getattr(self.cluster.attempt_of(job), "parts", {})
            and not (job.array and job.array.jobs)
        ]
        if gone:
            self._note(event.JobsForgotten(at=self.now, job_ids=tuple(gone)))
        self._note(event.RequestsForgotten(at=self.now, before=self.now - 30))

    # ── steps, nodes, requests ────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        job = self._job(JobState.RUNNING)
        if job is None:
            return
        attempt = self.cluster.attempts[job.attempt_id]
        if not attempt.steps or self._random.random() < 0.3:
            self._start_step(attempt)
        else:
            self._move_step(self._random.choice(list(attempt.steps.values())))

    def _start_step(self, attempt: Attempt) -> None:
        parts = tuple(
            StepPart(node=grant.node, first_rank=rank, tasks=1, cpus=grant.cpus[:1], gpus=grant.gpus)
            for rank, grant in enumerate(attempt.grants)
        )
        step_id = StepId(attempt.attempt_id.job_id, attempt.attempt_id.attempt, attempt.next_step)
        layout = StepLayout(name="hostname", parts=parts)
        self._note(event.StepStarted(at=self.now, step_id=step_id, key=self._random.randbytes(8), layout=layout))

    def _move_step(self, step: Step) -> None:
        node = self._random.choice(step.layout.parts).node
        match self._random.randrange(3):
            case 0:
                self._note(event.StepPartReceived(at=self.now, step_id=step.step_id, node=node))
            case 1:
                self._note(
                    event.StepPartEnded(
                        at=self.now, step_id=step.step_id, node=node, exit=self._exit(),
                        outcome=Outcome.COMPLETED, usage=self._usage(),
                    )
                )  # fmt: skip
            case _:
                self._note(
                    event.StepFinished(at=self.now, step_id=step.step_id, exit=self._exit(), outcome=Outcome.COMPLETED)
                )

    def _register(self) -> None:
        name = self._random.choice(["n1", "n2", "n3"])
        gpus = tuple(Gpu(index=index, uuid=f"GPU-{name}-{index}", type="fake", memory_mib=8) for index in range(GPUS))
        self._note(
            event.NodeRegistered(
                at=self.now, node=name, address="127.0.0.1",
                inventory=Inventory(cpus=CPUS, memory_mib=1024, gpus=gpus), incarnation=self._random.randbytes(4).hex(),
                boot_id="b", step_endpoint=f"ipc://{name}", ticket_key=self._random.randbytes(8),
            )
        )  # fmt: skip

    def _node(self) -> None:
        if not self.cluster.nodes:
            return
        node = self._random.choice(list(self.cluster.nodes))
        gpu = self._random.choice([None, 0, 1])
        at = self.now
        self._note(
            self._random.choice(
                [
                    event.NodeLost(at=at, node=node),
                    event.NodeDrained(at=at, node=node, reason="fan", by="root", gpu=gpu),
                    event.NodeSetDown(at=at, node=node, reason="smoke", by="root"),
                    event.NodeResumed(at=at, node=node, gpu=gpu),
                    event.NodeBackedOff(at=at, node=node, until=at + 30, failures=2),
                    event.NodeBackoffCleared(at=at, node=node),
                ]
            )
        )

    def _remove(self) -> None:
        """A node that holds nothing, rarely, or nothing would ever run; or one that is known by its key alone."""
        names = [node.name for node in self.cluster.nodes.values() if not node.held and self._random.random() < 0.3]
        of_keys = [key.name for key in self.cluster.keys.values() if key.kind is KeyKind.NODE]
        names += [name for name in of_keys if name not in self.cluster.nodes]
        if names:
            reason = self._random.choice(WHYS)
            self._note(event.NodeRemoved(at=self.now, node=self._random.choice(names), reason=reason, by="root"))
        elif self.cluster.void_key_files:
            node = self._random.choice(list(self.cluster.void_key_files))
            self._note(event.KeyFileGone(at=self.now, node=node))

    # ── keys and the audit trail ──────────────────────────────────────────────────────────────────────────────

    def _add_key(self) -> None:
        kind = self._random.choice([KeyKind.USER, KeyKind.JOIN])
        is_token = kind is KeyKind.JOIN
        self._note(
            event.KeyAdded(
                at=self.now, public=self._random.randbytes(20).hex(), kind=kind, by="root",
                name=self._random.choice(["", "n1"]) if is_token else "ann", uid=None if is_token else 1000,
                gid=None if is_token else 100, is_login=is_token and self._random.random() < 0.5,
                expires_at=self.now + 60 if is_token else None, note=self._random.choice(["", "laptop"]),
            )
        )  # fmt: skip

    def _join(self) -> None:
        """A node has one key at most."""
        tokens = [key for key in self.cluster.keys.values() if key.kind is KeyKind.JOIN and not key.joined]
        if not tokens:
            return
        token = self._random.choice(tokens)
        node = token.name or self._random.choice(["n1", "n2", "login"])
        for old in [key.public for key in self.cluster.keys.values() if (key.kind, key.name) == (KeyKind.NODE, node)]:
            self._note(event.KeyRevoked(at=self.now, public=old, by="root"))
        self._note(
            event.NodeJoined(
                at=self.now, token=token.public, node=node, public=self._random.randbytes(20).hex(),
                is_login=token.is_login, address="192.0.2.7",
            )
        )  # fmt: skip

    def _drop_keys(self) -> None:
        keys = self.cluster.keys
        old = tuple(one for one, key in keys.items() if key.expires_at is not None and key.expires_at <= self.now)
        if old:
            self._note(event.KeysExpired(at=self.now, publics=old))
        elif self.cluster.keys:
            public = self._random.choice(list(self.cluster.keys))
            self._note(event.KeyRevoked(at=self.now, public=public, by="root"))

    def _crontab(self) -> None:
        user = self._random.choice(["ann", "bob"])
        known = self.cluster.crontabs.get(user)
        if known is None or self._random.random() < 0.2:
            lines = self._random.sample(range(1, 9), self._random.randrange(4))
            entries = tuple([self._cron_entry(line) for line in sorted(lines)])
            self._note(event.CrontabSet(at=self.now, user=user, uid=1000, text="# ä", entries=entries))
        elif not known.entries or self._random.random() < 0.1:
            self._note(event.CrontabRemoved(at=self.now, user=user))
        else:
            self._fire(user, self._random.choice(list(known.entries)))

    def _cron_entry(self, line: int) -> CronEntry:
        spec = structs.replace(_spec(self._random, line), command=f"c{line % 3}", script_digest=f"script{line}")
        zone, overlap = self._random.choice(["", "Europe/Berlin"]), self._random.choice(list(Overlap))
        return CronEntry(line=line, schedule="* * * * *", zone=zone, overlap=overlap, missed=Missed.ONCE, spec=spec)

    def _fire(self, user: str, number: int) -> None:
        job_id = JobId(self._random.randint(1, 9))
        if self._random.random() < 0.3:
            state, why = self._random.choice([("COMPLETED", ""), ("FAILED", "no")])
            fact = event.CronRunEnded(at=self.now, user=user, number=number, job_id=job_id, state=state, why=why)
            self._note(fact)
            return
        chosen, why = self._random.choice([(job_id, ""), (None, "refused")])
        self._note(event.CronFired(at=self.now, user=user, number=number, due_at=self.now, job_id=chosen, why=why))

    def _reserve(self) -> None:
        """Times hardly ever meet, so that nothing is kept twice; numbers that jobs have are not used again."""
        name = self._random.choice(["r", "s"])
        known = self.cluster.reservations.get(name)
        if known is None or self._random.random() < 0.1:
            booking = Booking(name=name, resources=ResourceRequest(gpus=1), begin_at=1.0, duration_s=5)
            taken = [one.occurrence.number for one in self.cluster.attempts.values() if one.occurrence is not None]
            self._note(
                event.ReservationSet(
                    at=self.now, booking=booking, owner="ann", uid=1000, planned_until=2.0,
                    first_number=1 + max(taken, default=0),
                )
            )  # fmt: skip
            return
        match self._random.randrange(5):
            case 0 | 1:
                number, begin_at = known.next_number, self._random.random() * 1e9
                grants = (Grant(node="n1", cpus=(0,), gpus=(0,), memory_mib=7),)
                self._note(
                    event.OccurrencePlanned(
                        at=self.now, name=name, number=number, begin_at=begin_at, end_at=begin_at + 5, grants=grants
                    )
                )
            case 2 if self._random.random() < 0.3:
                self._note(event.ReservationRemoved(at=self.now, name=name))
            case 3:
                self._note(event.OccurrencesPassed(at=self.now, name=name, until=self.now))
            case _ if known.occurrences:
                self._move_occurrence(name, self._random.choice(list(known.occurrences.values())))

    def _move_occurrence(self, name: str, one: Occurrence) -> None:
        match self._random.randrange(3):
            case 0 if one.state is OccurrenceState.PLANNED:
                self._note(event.OccurrenceBegan(at=self.now, name=name, number=one.number))
            case 1:
                changed = event.OccurrenceChanged(
                    at=self.now, name=name, number=one.number, begin_at=one.begin_at, end_at=one.end_at - 0.5,
                    grants=(), missing_gpus=1, why=self._random.choice(WHYS),
                )  # fmt: skip
                if one.end_at - 1 > one.begin_at:
                    self._note(changed)
            case _:
                state = self._random.choice([one for one in OccurrenceState if one.is_past])
                self._note(event.OccurrenceEnded(at=self.now, name=name, number=one.number, state=state))

    def _occurrence(self) -> tuple[str, int]:
        """In which a job starts."""
        there = [(name, number) for name, one in self.cluster.reservations.items() for number in one.occurrences]
        return self._random.choice([("", 0), *there])

    def _notice(self) -> None:
        outbox = self.cluster.outbox
        if outbox.notices and self._random.random() < 0.6:
            one = self._random.choice(list(outbox.notices))
            chance = self._random.random()
            if chance < 0.2 and not outbox.notices[one].by_job:
                by_job = JobId(1_000_000 + one)
                self._note(event.NoticeCommandQueued(at=self.now, notice_id=one, by_job=by_job))
            elif chance < 0.5:
                self._note(event.NoticeDelivered(at=self.now, notice_id=one, by_job=JobId(self._random.choice([0, 5]))))
            else:
                next_at = self._random.choice([None, self.now + 30])
                self._note(event.NoticeFailed(at=self.now, notice_id=one, why="no answer", next_at=next_at))
            return
        user, on, kind = self._random.choice(["ann", "bob"]), "end", self._random.choice(["mail", "webhook"])
        job_id = self._random.choice([None, JobId(1), JobId(7)])
        if self._random.random() < 0.3:
            self._note(event.NoticeDropped(at=self.now, user=user, job_id=job_id, on=on, kind=kind))
            return
        self._note(
            event.NoticeQueued(
                at=self.now, notice_id=outbox.next_id, user=user, uid=1000, job_id=job_id, on=on, kind=kind,
                to=self._random.choice(["", "https://example.org/x"]), body='{"text":"it ended"}',
            )
        )  # fmt: skip

    def _tell(self) -> None:
        job = self._job(JobState.RUNNING, JobState.PENDING, may_be_record=True)
        if job is not None:
            self._note(event.JobTold(at=self.now, job_id=job.job_id, on="begin", attempt=job.attempt))

    def _audit(self) -> None:
        self._note(
            event.Audited(
                at=self.now, user=self._random.choice(["", "ann"]), uid=self._random.choice([None, 1000]),
                origin="local", action="CancelJobs", object="job 1", outcome=self._random.choice(["done", "not_owner"]),
                detail=self._random.choice(WHYS),
            )
        )  # fmt: skip

    # ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────

    def _account(self) -> None:
        """Nobody's jobs are in these, so that they may go again."""
        name = self._random.choice(["vision", "speech"])
        if name in self.cluster.accounts and self._random.random() < 0.4:
            self._note(event.AccountRemoved(at=self.now, name=name))
            return
        account = AccountInfo(name=name, shares=self._random.randrange(5), coordinators=("ann",), group="staff")
        self._note(event.AccountSet(at=self.now, account=account))

    def _member(self) -> None:
        place = (self._random.choice(["ann", "bob", "eve"]), "vision")
        if place in self.cluster.members and self._random.random() < 0.4:
            heir = self._random.choice(["", "speech"])
            self._note(event.MemberRemoved(at=self.now, user=place[0], account=place[1], heir=heir))
            return
        member = MemberInfo(user=place[0], account=place[1], shares=self._random.randrange(5), is_default=True)
        self._note(event.MemberSet(at=self.now, member=member))

    def _qos(self) -> None:
        if "urgent" in self.cluster.qos and self._random.random() < 0.4:
            self._note(event.QosRemoved(at=self.now, name="urgent"))
            return
        qos = QosInfo(
            name="urgent", priority=self._random.randrange(9), usage_factor=1.5, users=("ann",), preempts=("normal",),
            preempt_mode=self._random.choice(list(PreemptMode)), min_run_s=self._random.randrange(900),
            borrows_reserved=self._random.random() < 0.5,
        )  # fmt: skip
        self._note(event.QosSet(at=self.now, qos=qos))

    def _limit(self) -> None:
        resource = self._random.choice(["gpus", "gpu_hours_per_day"])
        key = LimitKey(Holder.USER, "ann", resource)
        if key in self.cluster.limits and self._random.random() < 0.4:
            self._note(event.LimitRemoved(at=self.now, holder=key.holder, name=key.name, resource=resource))
            return
        limit = LimitInfo(holder=key.holder, name=key.name, resource=resource, most=float(self._random.randrange(9)))
        self._note(event.LimitSet(at=self.now, limit=limit))

    def _half_life(self) -> None:
        """And a new day now and then."""
        if self._random.random() < 0.5:
            day_at = self.now - self.now % 50
            self._note(event.PeriodsBegan(at=self.now, day_at=day_at, week_at=0.0, month_at=0.0))
            return
        half_life_s = self._random.choice([None, 60.0, 604800.0])
        self._note(event.HalfLifeSet(at=self.now, half_life_s=half_life_s))

    def _answer(self) -> None:
        request_id = RequestId(self._random.randbytes(16))
        self._note(event.RequestAnswered(at=self.now, request_id=request_id, uid=1000, answer=b"\x81\xa2ok\xc3"))


def _spec(random: Random, number: int) -> JobSpec:
    return JobSpec(
        name=f"job-{number % 3}",
        resources=ResourceRequest(nodes_min=1, nodes_max=4, is_elastic=True)
        if random.random() < 0.2
        else ResourceRequest(
            nodes_min=random.choice([None, 2]), gpus=random.choice([None, 3]), most_gpus=random.choice([None, 8])
        ),
        nice=random.choice([0, 0, 5]),
        is_held=random.random() < 0.1,
        comment="ä\x00\n",
    )


def _free(node: Node, random: Random, lent: tuple[int, int] | None) -> Grant | None:
    """Some of what the node has free and nobody lends, or None."""
    lent_cpus, lent_gpus = lent or (0, 0)
    cpus = [cpu for cpu in range(CPUS) if (node.free_cpu_mask & ~lent_cpus) >> cpu & 1]
    gpus = [gpu for gpu in range(GPUS) if (node.free_gpu_mask & ~lent_gpus) >> gpu & 1]
    if not cpus:
        return None
    return Grant(
        node=node.name,
        cpus=tuple(cpus[: random.randint(1, 3)]),
        gpus=tuple(gpus[: random.randint(0, 2)]),
        memory_mib=random.choice([0, 64]),
    )
