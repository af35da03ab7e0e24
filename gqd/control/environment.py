"""The environment of a running job, for those who run something for it elsewhere: `gqalloc`, `gqrun`.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.request.environment import job_variables
from gq.wire import client
from gqd.control import job, orders

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


def environment_of(draft: TurnBuilder, job_id: int) -> client.JobEnvironment:
    """What every process of the job sees, less what is true of one node only.  `Refusal` unless it runs."""
    one = job.running(draft, job_id)
    attempt = draft.cluster.attempts[one.attempt_id]
    launch = orders.launch_of(draft, one, attempt, attempt.batch_node)
    start_at = attempt.allocated_at if attempt.start_at is None else attempt.start_at
    return client.JobEnvironment(
        job_id=job_id,
        variables=job_variables(launch, attempt.master_port, start_at, launch.time_limit_s),
        chdir=one.spec.chdir,
        use_interactive_step=draft.policy.use_interactive_step,
    )
