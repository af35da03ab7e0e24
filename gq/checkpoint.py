"""What a program in a job says of its checkpoints, and of going on from one.

    import gq

    torch.save(state, path)
    gq.checkpoint_done()

Owns how a job names itself (``GQ_JOB_ID``).  A program must not end for want of a controller that listens.
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
    """Of the job that this process is part of; None: it is part of none."""
    text = os.environ.get("GQ_JOB_ID", "")
    return int(text) if text.isdecimal() else None


def checkpoint_done() -> bool:
    """Tell the scheduler that all that this job has done so far is saved.

    Whoever has to give way to others is chosen by how much would be lost.  False: it is not noted, since this is no
    job, or one that is over, or nobody listens just now; the program goes on all the same.
    """
    return _said(CheckpointDone)


def resume_done() -> bool:
    """Tell the scheduler that this job, which was stopped and started again, is where it was before.

    How long that took is what another stop would cost.  In a job's first run it means nothing, so it may be said
    wherever a program is ready to go on.  False: it is not noted, as in `checkpoint_done`.
    """
    return _said(ResumeDone)


def _said(what: type[CheckpointDone | ResumeDone]) -> bool:
    job_id = own_job_id()
    if job_id is None:
        return False
    try:
        with Client(find_cluster(os.environ), _TIMEOUT_S, _PATIENCE_S) as client:
            client.ask_for(what(job_id=job_id), Done)
    except (Refusal, Unreachable):
        return False
    return True
