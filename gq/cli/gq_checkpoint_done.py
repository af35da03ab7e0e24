"""gq checkpoint-done: a script says, from inside its job, that what the job has done so far is saved."""

from __future__ import annotations

import os

from gq.checkpoint import own_job_id
from gq.cli._command import Command
from gq.cli._connection import ask
from gq.client import Client
from gq.errors import Refusal, UsageError
from gq.getopt import Arguments
from gq.locate import find_cluster
from gq.wire.client import CheckpointDone, Done


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq checkpoint-done` takes no operand, not `{arguments.operands[0]}`")
    job_id = own_job_id()
    if job_id is None:
        raise Refusal("not_in_a_job", "this is not inside a job: GQ_JOB_ID is not set", "call it from the job's script")
    with Client(find_cluster(os.environ)) as client:
        ask(client, CheckpointDone(job_id=job_id), Done)
    return 0


COMMAND = Command(
    name="gq checkpoint-done",
    summary="Say from inside a job that what it has done so far is saved.",
    options=(),
    run=run,
    details=(
        "Of the jobs that could give way to another those do that would lose least: their GPUs times the time since "
        "their last checkpoint, or their start."
    ),
)
