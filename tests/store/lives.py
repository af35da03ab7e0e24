"""Random but lawful lives: events that fit a cluster as it stands, one turn after the other, from a seed.

Not the controller: nothing here decides well, but every event may happen, in every order that the table allows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm
from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, JobId, RequestId, StepId
from gq.model.job import ExitStatus, JobSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Gpu, Inventory
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout, StepPart
from gq.model.tasks import pack_tasks, parse_tasks, task_bit, tasks_in
from gqd.control.apply import apply
from gqd.state import event
from gqd.state.after import AfterEnding, Hold
from gqd.state.cluster import Attempt, Cluster, Job, LimitKey, Node, Step
from gqd.state.event import Event

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

    def _end_arrays(self) -> None:
        """A record is over with the last of its tasks."""
        for job_id in list(self.cluster.arrays):
            record = self.cluster.jobs[job_id]
            array = record.array
            over = 0 if array is None else array.cancelled | array.succeeded | array.failed
            if over == parse_tasks(record.spec.array):
                self._note(event.JobEnded(at=self.now, job_id=job_id, outcome=Outcome.FAILED, exit=record.exit))

    def _job(self, *states: JobState, may_be_record: bool = False) -> Job | None:
        jobs = [job for job in self.cluster.jobs.values() if job.state in states]
        jobs = [job for job in jobs if job.array is None or (may_be_record and job.array.waiting)]
        return self._random.choice(jobs) if jobs else None

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
                throttle = self._random.choice([None, 1, 5])
                self._note(event.ArrayThrottleSet(at=self.now, array_job_id=job_id, throttle=throttle))
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
        grants = [grant for node in self.cluster.nodes.values() if (grant := _free(node, self._random))]
        if job is None or not grants:
            return
        attempt_id = AttemptId(job.job_id, job.attempt + 1)
        chosen = tuple(self._random.sample(grants, self._random.randint(1, len(grants))))
        billing = self._random.choice([0, 1_500_000])
        if self._random.random() < 0.3:
            told = FirstEstimate(self.now, self.now + 60, self._random.choice([None, self.now + 90]), True)
            self._note(event.StartEstimated(at=self.now, job_id=job.job_id, estimate=told))
        slot = self._random.choice(["", "wide"])
        self._note(event.JobAllocated(at=self.now, attempt_id=attempt_id, grants=chosen, billing=billing, slot=slot))

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
            )
        )  # fmt: skip

    def _empty(self) -> None:
        ending = [
            (attempt, node)
            for attempt in self.cluster.attempts.values()
            for node, part in attempt.parts.items()
            if part.is_stranded or self.cluster.jobs[attempt.attempt_id.job_id].state is JobState.COMPLETING
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
        qos = QosInfo(name="urgent", priority=self._random.randrange(9), usage_factor=1.5, users=("ann",))
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
        resources=ResourceRequest(nodes_min=random.choice([None, 2]), gpus=random.choice([None, 3])),
        nice=random.choice([0, 0, 5]),
        is_held=random.random() < 0.1,
        comment="ä\x00\n",
    )


def _free(node: Node, random: Random) -> Grant | None:
    """Some of what the node has free, or None."""
    cpus = [cpu for cpu in range(CPUS) if node.free_cpu_mask >> cpu & 1]
    gpus = [gpu for gpu in range(GPUS) if node.free_gpu_mask >> gpu & 1]
    if not cpus:
        return None
    return Grant(
        node=node.name,
        cpus=tuple(cpus[: random.randint(1, 3)]),
        gpus=tuple(gpus[: random.randint(0, 2)]),
        memory_mib=random.choice([0, 64]),
    )
