"""Commands with which a script reports on its own job."""

from __future__ import annotations

import os
from collections.abc import Callable

from gq.checkpoint import own_job_id
from gq.cli.framework.connection import ask
from gq.connection.client import Client
from gq.connection.locate import find_cluster
from gq.errors import Refusal, UsageError
from gq.request.getopt import Arguments
from gq.wire.client import CheckpointDone, Done, ResumeDone


def says(command: str, what: type[CheckpointDone | ResumeDone]) -> Callable[[Arguments], int]:
    """Return the function of a command that takes no operands and reports `what` of the job that it runs in."""

    def run(arguments: Arguments) -> int:
        if arguments.operands:
            raise UsageError("operands", f"`{command}` takes no operand, not `{arguments.operands[0]}`")
        job_id = own_job_id()
        if job_id is None:
            why = "this is not inside a job: GQ_JOB_ID is not set"
            raise Refusal("not_in_a_job", why, "run it in the job's script")
        with Client(find_cluster(os.environ)) as client:
            ask(client, what(job_id=job_id), Done)
        return 0

    return run
