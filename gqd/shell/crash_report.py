"""The log entry for an input that the deciding code failed to handle: the input, and the jobs that it names."""

from __future__ import annotations

from gq.model.ids import JobId
from gqd.shell.log import LOG
from gqd.state.cluster import Cluster
from gqd.state.input import ClientRequest, Input, NodeReport


def log_crash(input: Input, cluster: Cluster) -> None:
    """Log what may help to understand the failure; the events are in the database."""
    LOG.critical("the controller could not handle this input and stops: %s", _outline(input))
    for job_id in _job_ids(input):
        job = cluster.jobs.get(job_id)
        LOG.critical("job %d: %r", job_id, job, extra={"fields": {"job": job_id}})
        if job is not None:
            LOG.critical("its attempt: %r", cluster.attempt_of(job), extra={"fields": {"job": job_id}})


def _job_ids(input: Input) -> list[JobId]:
    """Ids of the jobs that an input names."""
    if not isinstance(input, ClientRequest | NodeReport):
        return []
    body = input.body
    found = [getattr(body, "job_id", None), *getattr(body, "job_ids", ())]
    found += [getattr(getattr(body, name, None), "job_id", None) for name in ("attempt_id", "step_id")]
    return [JobId(job_id) for job_id in found if isinstance(job_id, int)]


def _outline(input: Input) -> str:
    """The input in one line, without long or secret values."""
    match input:
        case ClientRequest():
            return f"{type(input.body).__name__} of {input.peer.user} (uid {input.peer.uid}): {input.body!r}"
        case NodeReport():
            return f"report {input.seq} of node {input.node}: {input.body!r}"
        case _:
            return type(input).__name__
