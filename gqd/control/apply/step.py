"""Apply the events of steps to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.job import Usage
from gqd.control.apply.job import move
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Step, StepPartEnd


def apply_started(cluster: Cluster, fact: event.StepStarted) -> None:
    job = cluster.jobs[fact.step_id.job_id]
    move(cluster, job, event.StepStarted)
    attempt = cluster.attempts[fact.step_id.attempt_id]
    step = Step(step_id=fact.step_id, key=fact.key, layout=fact.layout, start_at=fact.at)
    attempt.steps[fact.step_id.step] = step
    attempt.next_step = fact.step_id.step + 1
    cluster.changes.attempts[attempt.attempt_id] = None
    cluster.changes.steps[fact.step_id] = step


def apply_part_received(cluster: Cluster, fact: event.StepPartReceived) -> None:
    step = cluster.attempts[fact.step_id.attempt_id].steps[fact.step_id.step]
    step.received.add(fact.node)
    cluster.changes.steps[fact.step_id] = step


def apply_part_ended(cluster: Cluster, fact: event.StepPartEnded) -> None:
    step = cluster.attempts[fact.step_id.attempt_id].steps[fact.step_id.step]
    step.received.add(fact.node)
    step.part_ends[fact.node] = StepPartEnd(fact.exit, fact.outcome)
    step.usage = Usage(
        user_cpu_s=step.usage.user_cpu_s + fact.usage.user_cpu_s,
        system_cpu_s=step.usage.system_cpu_s + fact.usage.system_cpu_s,
        max_rss_mib=max(step.usage.max_rss_mib, fact.usage.max_rss_mib),
    )
    cluster.changes.steps[fact.step_id] = step


def apply_finished(cluster: Cluster, fact: event.StepFinished) -> None:
    step = cluster.attempts[fact.step_id.attempt_id].steps.pop(fact.step_id.step)
    step.end_at, step.exit, step.outcome = fact.at, fact.exit, fact.outcome
    cluster.changes.steps[fact.step_id] = step
