"""The result type of explanations: the pending reason of a job and its facts, which `gq.explain` renders.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from gq.explain.render import Rendered, render
from gq.explain.sentence import Context
from gq.model.explanation import Fact, JobName, Text
from gq.model.ids import JobId
from gq.wire import client
from gq.wire.explanation import encoded_facts
from gqd.state.cluster import Cluster
from gqd.state.records import Job


class Explanation(NamedTuple):
    """Why a job waits, runs or ended."""

    reason: str
    """The pending reason, named as in Slurm."""
    details: tuple[Fact, ...]
    blockers: tuple[int, ...] = ()
    """Ids of the jobs that hold what the job waits for."""
    expected_start_at: float | None = None
    shortage: client.Shortage | None = None

    def plus(self, *facts: Fact) -> Explanation:
        """The explanation with further facts."""
        return self._replace(details=(*self.details, *facts))

    def without(self, kind: type[Fact]) -> Explanation:
        """The explanation without the facts of a kind."""
        return self._replace(details=tuple(fact for fact in self.details if not isinstance(fact, kind)))

    def has(self, kind: type[Fact]) -> bool:
        return any(isinstance(fact, kind) for fact in self.details)


def text(reason: str, why: str, hint: str = "") -> Explanation:
    """An explanation of one sentence."""
    return Explanation(reason, (Text(text=why, hint=hint),))


class Names:
    """The names of the cluster's jobs; it keeps those that were looked up, which are sent with the facts."""

    def __init__(self, cluster: Cluster) -> None:
        self._jobs = cluster.jobs
        self.found: dict[int, JobName] = {}

    def find(self, job_id: int) -> JobName | None:
        job = self._jobs.get(JobId(job_id))
        if job is None:
            return None
        return self.found.setdefault(job_id, name_of(job))


def name_of(job: Job) -> JobName:
    return JobName(job.job_id, job.label, job.user, job.spec.name)


def in_words(cluster: Cluster, job: Job, explanation: Explanation) -> Rendered:
    return render(Context(name_of(job), Names(cluster).find), explanation.details)


def as_reply(cluster: Cluster, job: Job, state: str, explanation: Explanation) -> client.Explanation:
    """The answer to a client: the facts with the names that they mention, and the same in words."""
    names = Names(cluster)
    rendered = render(Context(name_of(job), names.find), explanation.details)
    return client.Explanation(
        job_id=job.job_id,
        state=state,
        reason=explanation.reason,
        why=rendered.why,
        hint=rendered.hint,
        blockers=explanation.blockers,
        expected_start_at=explanation.expected_start_at,
        facts=rendered.facts,
        shortage=explanation.shortage,
        details=encoded_facts(explanation.details),
        jobs=tuple({int(job.job_id): name_of(job), **names.found}.values()),
    )
