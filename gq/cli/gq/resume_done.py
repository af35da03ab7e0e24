"""gq resume-done: a script says, from inside its job, that this is where it was when it was stopped."""

from __future__ import annotations

from gq.cli.framework.command import Command
from gq.cli.framework.in_job import says
from gq.wire.client import ResumeDone

_NAME = "gq resume-done"

COMMAND = Command(
    name=_NAME,
    summary="Say from inside a job that was started again that it is where it was.",
    options=(),
    run=says(_NAME, ResumeDone),
    details=(
        "How long that took is what another stop of the job would cost, whatever --resume-cost says: where jobs take "
        "turns, those are stopped that lose least.  In a job's first run it means nothing."
    ),
)
