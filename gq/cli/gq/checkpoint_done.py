"""gq checkpoint-done: a script says, from inside its job, that what the job has done so far is saved."""

from __future__ import annotations

from gq.cli.framework.command import Command
from gq.cli.framework.in_job import says
from gq.wire.client import CheckpointDone

_NAME = "gq checkpoint-done"

COMMAND = Command(
    name=_NAME,
    summary="Report from inside a job that its work so far is saved.",
    options=(),
    run=says(_NAME, CheckpointDone),
    details=(
        "The jobs that would lose least are preempted first: a job loses its GPUs times the time since its last "
        "checkpoint or its start."
    ),
)
