"""Apply the events of answered requests to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Answer


def apply_answered(cluster: Cluster, fact: event.RequestAnswered) -> None:
    cluster.answers[fact.request_id] = Answer(fact.at, fact.uid, fact.answer)
    cluster.changes.answers[fact.request_id] = None


def apply_forgotten(cluster: Cluster, fact: event.RequestsForgotten) -> None:
    for request_id in [request_id for request_id, answer in cluster.answers.items() if answer.at < fact.before]:
        del cluster.answers[request_id]
        cluster.changes.answers.pop(request_id, None)
    cluster.changes.answers_forgotten_before = fact.before
