"""The environment of a running job, for commands that run something for it elsewhere (`gqalloc`, `gqrun`).  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.request.environment import job_variables
from gq.wire import client
from gqd.control import job, orders

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def environment_of(draft: TurnBuilder, job_id: int) -> client.JobEnvironment:
    """The variables that all processes of the job share, without those of a single node.  `Refusal` unless it runs."""
    running_job = job.running(draft, job_id)
    attempt = draft.cluster.attempts[running_job.attempt_id]
    launch = orders.launch_of(draft, running_job, attempt, attempt.batch_node)
    start_at = attempt.allocated_at if attempt.start_at is None else attempt.start_at
    return client.JobEnvironment(
        job_id=job_id,
        variables=job_variables(launch, attempt.master_port, start_at, launch.time_limit_s),
        chdir=running_job.spec.chdir,
        use_interactive_step=draft.policy.use_interactive_step,
    )
