"""gq checkpoint-done: a script says, from inside its job, that what the job has done so far is saved."""

from __future__ import annotations

from gq.cli.framework.command import Command
from gq.cli.framework.in_job import says
from gq.wire.client import CheckpointDone

_NAME = "gq checkpoint-done"

COMMAND = Command(
    name=_NAME,
    summary="Say from inside a job that what it has done so far is saved.",
    options=(),
    run=says(_NAME, CheckpointDone),
    details=(
        "Of the jobs that could give way to another those do that would lose least: their GPUs times the time since "
        "their last checkpoint, or their start."
    ),
)
