"""Apply the events of `gqctl ask` to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from msgspec.structs import replace

from gqd.state.ask import Ask
from gqd.state.cluster import Cluster
from gqd.state.events import event


def apply_asked(cluster: Cluster, fact: event.JobAsked) -> None:
    job = cluster.jobs[fact.job_id]
    job.asks = (*job.asks, Ask(by=fact.by, uid=fact.uid, at=fact.at, text=fact.text))
    cluster.changes.jobs[fact.job_id] = None


def apply_answered(cluster: Cluster, fact: event.AsksAnswered) -> None:
    job = cluster.jobs[fact.job_id]
    answered = {
        "answer": fact.answer,
        "answer_text": fact.text,
        "answered_by": fact.by,
        "answered_at": fact.at,
    }
    job.asks = tuple(replace(ask, **answered) if ask.is_open else ask for ask in job.asks)
    cluster.changes.jobs[fact.job_id] = None
