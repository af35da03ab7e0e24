"""A job that this process holds: queue it, wait for it with its user, keep it alive, give it back.

Owns what `gqalloc` and `gqrun` outside a job have in common.  Whatever ends the wait (Ctrl-C, a lost terminal)
cancels the job; what ends this process without a word is noticed by gqd, which cancels it after a minute.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from gq.cli.framework.connection import RECONNECT_S, ask, say_waiting
from gq.cli.step.async_client import KEEP_ALIVE_S
from gq.cli.step.steps import Note
from gq.connection.client import Client
from gq.errors import GqError, Refusal
from gq.model.job import JobInfo, JobSpec
from gq.model.state import ACTIVE_WORDS
from gq.wire.client import (
    CancelJobs,
    Done,
    EndInteractive,
    GetJobEnvironment,
    JobEnvironment,
    JobFilter,
    JobsDone,
    KeepAlive,
    Submit,
    Submitted,
    Waited,
    WaitJobs,
)

_AT_ONCE_S = 0.3
"""A start within this time is not worth the word "queued"."""
_PAUSE_S = 0.1


class HeldJob:
    """A running interactive job; `end` gives it back, and leaving the block does so in any case."""

    def __init__(self, client: Client, job: JobInfo) -> None:
        self.job = job
        self._client = client
        self._is_ended = False

    def end(self, exit_code: int) -> None:
        """Say that we are done with it; that it has ended already is no error."""
        self._is_ended = True
        with contextlib.suppress(Refusal):
            ask(self._client, EndInteractive(job_id=self.job.job_id, exit_code=exit_code), Done)

    def abandon(self) -> None:
        """After a failure of ours, which matters more than whether this works."""
        if not self._is_ended:
            with contextlib.suppress(GqError):
                self.end(1)


@contextlib.contextmanager
def held_job(client: Client, spec: JobSpec, environment: dict[str, str], note: Note) -> Iterator[HeldJob]:
    """Queue the job and wait until it runs; however the block is left, it is given back."""
    with _ended_by_signals():
        answer = ask(client, Submit(spec=spec, environment=environment), Submitted)
        job_id = answer.job_id
        if answer.note:
            note(answer.note)
        try:
            held = HeldJob(client, _await_start(client, job_id, note))
        except BaseException:
            _cancel(client, job_id, note)
            raise
    try:
        yield held
    finally:
        held.abandon()


def _await_start(client: Client, job_id: int, note: Note) -> JobInfo:
    """Until it runs; `Refusal` if it ends before."""
    with client.reconnecting(RECONNECT_S, say_waiting):
        return _await_start_linked(client, job_id, note)


def _await_start_linked(client: Client, job_id: int, note: Note) -> JobInfo:
    told = False
    alive_at = time.monotonic()
    while True:
        waited = ask(client, WaitJobs(job_ids=(job_id,), until="started", timeout_s=_wait_s(told)), Waited)
        job = waited.jobs[0]
        if job.state == "RUNNING":
            if told:
                note(f"job {job_id} has been allocated resources")
            return job
        if job.state not in ACTIVE_WORDS:
            raise Refusal("job_ended", f"job {job_id} ended before it could run: {job.state}", job.why)
        if not told:
            note(f"job {job_id} queued and waiting for resources")
            told = True
        if waited.is_done:  # started and ended again: about to be queued once more
            time.sleep(_PAUSE_S)
        if time.monotonic() - alive_at >= KEEP_ALIVE_S / 2:
            alive_at = time.monotonic()
            ask(client, KeepAlive(job_id=job_id), Done)


def _wait_s(told: bool) -> float:
    return KEEP_ALIVE_S / 2 if told else _AT_ONCE_S


def _cancel(client: Client, job_id: int, note: Note) -> None:
    with contextlib.suppress(GqError):
        done = ask(client, CancelJobs(filter=JobFilter(job_ids=(job_id,))), JobsDone)
        if job_id in done.job_ids:
            note(f"job {job_id} cancelled")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A lost terminal or a TERM ends the wait as Ctrl-C does, so that the job is cancelled."""
    former = {signum: signal.signal(signum, _interrupt) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in former.items():
            signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def allocation_environment(client: Client, job_id: int) -> dict[str, str]:
    """The variables of a running job."""
    return dict(ask(client, GetJobEnvironment(job_id=job_id), JobEnvironment).variables)
