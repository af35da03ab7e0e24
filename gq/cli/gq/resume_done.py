"""gq resume-done: a script says, from inside its job, that this is where it was when it was stopped."""

from __future__ import annotations

from gq.cli.framework.command import Command
from gq.cli.framework.in_job import says
from gq.wire.client import ResumeDone

_NAME = "gq resume-done"

COMMAND = Command(
    name=_NAME,
    summary="Report from inside a restarted job that it has caught up with its saved work.",
    options=(),
    run=says(_NAME, ResumeDone),
    details=(
        "The time since the restart becomes the cost of stopping the job again, whatever --resume-cost says: with "
        "time slicing, the jobs that lose least are stopped first.  In a job's first run it has no effect."
    ),
)
