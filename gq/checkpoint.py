"""Reports of a program in a job about its checkpoints and resumption.

    import gq

    torch.save(state, path)
    gq.checkpoint_done()

The module owns how a job identifies itself (``GQ_JOB_ID``).  A program must not fail because no controller listens.
"""

from __future__ import annotations

import os

from gq.connection.client import Client
from gq.connection.locate import find_cluster
from gq.errors import Refusal, Unreachable
from gq.wire.client import CheckpointDone, Done, ResumeDone

_PATIENCE_S = 2.0
_TIMEOUT_S = 5.0


def own_job_id() -> int | None:
    """Return the id of the job that this process belongs to, or None."""
    text = os.environ.get("GQ_JOB_ID", "")
    return int(text) if text.isdecimal() else None


def checkpoint_done() -> bool:
    """Notify the scheduler that all work of this job so far is saved.

    The scheduler prefers victims of preemption that lose little work.  Returns False if the report was not recorded,
    because this process is in no running job or the controller is unreachable; the program continues.
    """
    return _report(CheckpointDone)


def resume_done() -> bool:
    """Notify the scheduler that this job, restarted after a stop, has reached the point where it was stopped.

    The time since the restart is the expected cost of another stop.  The call has no effect in a job's first run, so a
    program may make it whenever it is ready to continue.  Returns False as `checkpoint_done` does.
    """
    return _report(ResumeDone)


def _report(what: type[CheckpointDone | ResumeDone]) -> bool:
    job_id = own_job_id()
    if job_id is None:
        return False
    try:
        with Client(find_cluster(os.environ), _TIMEOUT_S, _PATIENCE_S) as client:
            client.ask_for(what(job_id=job_id), Done)
    except (Refusal, Unreachable):
        return False
    return True
