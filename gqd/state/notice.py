"""What owners of jobs are to be told and have not been yet: the outbox, and its way out.  Pure.

The outbox is durable; only apply functions change it.  What is on its way out (`Delivery`) may be forgotten: after a
restart everything that is in the outbox goes out again, so each notice is delivered once or more often.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gq.model.ids import JobId

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given_up"
NO_JOB = JobId(0)
MOST_SENDING = 32
MOST_SENDING_OF_USER = 4
"""Whose host does not answer takes the place of nobody else."""


@dataclass(slots=True)
class Notice:
    """One thing to be told to one target; in memory while it waits."""

    notice_id: int
    user: str
    uid: int
    job_id: JobId
    """0: it is of no job."""
    on: str
    kind: str
    to: str
    body: str
    """JSON, as gq-notify(7) says."""
    queued_at: float
    next_at: float
    """When it is tried next."""
    attempts: int = 0
    why: str = ""
    """Why the last attempt failed."""
    state: str = WAITING
    ended_at: float | None = None
    by_job: JobId = NO_JOB
    """The job that runs its command now; 0: none does."""


@dataclass(slots=True)
class Outbox:
    notices: dict[int, Notice] = field(default_factory=dict)
    """Those that wait."""
    next_id: int = 1
    told: dict[JobId, dict[str, int]] = field(default_factory=dict)
    """Of jobs that have not ended: what was told of only once, and in which attempt."""
    dropped: dict[str, int] = field(default_factory=dict)
    """By user: notices for which there was no room, since the last one for which there was."""
    waiting: dict[str, int] = field(default_factory=dict, compare=False)
    """Index: notices that wait, by user."""
    commands: dict[JobId, int] = field(default_factory=dict, compare=False)
    """Index: the notice whose command a job runs, by job."""

    def add(self, notice: Notice) -> None:
        self.notices[notice.notice_id] = notice
        self.waiting[notice.user] = self.waiting.get(notice.user, 0) + 1
        if notice.by_job:
            self.commands[notice.by_job] = notice.notice_id

    def set_job(self, notice: Notice, job_id: JobId) -> None:
        """`job_id` runs the command of this notice from now on; 0: no job does any more."""
        self.commands.pop(notice.by_job, None)
        notice.by_job = job_id
        if job_id:
            self.commands[job_id] = notice.notice_id

    def remove(self, notice: Notice) -> None:
        self.set_job(notice, NO_JOB)
        del self.notices[notice.notice_id]
        self.waiting[notice.user] -= 1
        if not self.waiting[notice.user]:
            del self.waiting[notice.user]

    def has_told(self, job_id: JobId, on: str, attempt: int = 0) -> bool:
        return self.told.get(job_id, {}).get(on) == attempt


@dataclass(slots=True)
class Delivery:
    """Which notices go out when; volatile."""

    due: list[tuple[float, int]] = field(default_factory=list)
    """A heap of (when, which); one that is not so any more is passed over."""
    sending: dict[int, str] = field(default_factory=dict)
    """Notice → user."""
    parked: dict[str, deque[int]] = field(default_factory=dict)
    """Due, of users of whom enough are being sent."""

    def add(self, at: float, notice_id: int) -> None:
        heappush(self.due, (at, notice_id))

    def next_at(self) -> float | None:
        return self.due[0][0] if self.due and len(self.sending) < MOST_SENDING else None

    def take(self, notices: dict[int, Notice], now: float) -> list[Notice]:
        """Those that go out now."""
        taken: list[Notice] = []
        while self.due and self.due[0][0] <= now and len(self.sending) < MOST_SENDING:
            notice = notices.get(heappop(self.due)[1])
            if notice is None or notice.notice_id in self.sending or notice.next_at > now:
                continue
            if sum(user == notice.user for user in self.sending.values()) >= MOST_SENDING_OF_USER:
                self.parked.setdefault(notice.user, deque()).append(notice.notice_id)
                continue
            self.sending[notice.notice_id] = notice.user
            taken.append(notice)
        return taken

    def done(self, notice_id: int, now: float) -> None:
        """One place is free: of those of this user that were due, the next may go."""
        user = self.sending.pop(notice_id, "")
        parked = self.parked.get(user)
        if parked:
            self.add(now, parked.popleft())
            if not parked:
                del self.parked[user]
