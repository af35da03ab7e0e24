"""Notices to owners of jobs that are not delivered yet: the durable outbox, and the schedule of deliveries.  Pure.

Only apply functions change the outbox.  The schedule (`Delivery`) may be lost: after a restart every notice in the
outbox is sent again, so each notice is delivered at least once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gq.model.ids import JobId

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given_up"
NO_JOB = JobId(0)
MAX_SENDING = 32
MAX_SENDING_OF_USER = 4
"""Maximum number of concurrent deliveries for one user, so that a target that does not answer delays no other user."""


@dataclass(slots=True)
class Notice:
    """A notice to one target; in memory while it waits for delivery."""

    notice_id: int
    user: str
    uid: int
    job_id: JobId
    """Job that the notice is about; 0: no job."""
    on: str
    kind: str
    to: str
    body: str
    """JSON, as in gq-notify(7)."""
    queued_at: float
    next_at: float
    """Instant of the next delivery attempt."""
    attempts: int = 0
    why: str = ""
    """Why the last attempt failed."""
    state: str = WAITING
    ended_at: float | None = None
    by_job: JobId = NO_JOB
    """Job that runs the notice's command now; 0: none."""


@dataclass(slots=True)
class Outbox:
    """The notices that wait for delivery."""

    notices: dict[int, Notice] = field(default_factory=dict)
    """Waiting notices by number."""
    next_id: int = 1
    told: dict[JobId, dict[str, int]] = field(default_factory=dict)
    """For jobs that have not ended: one-time notice → attempt in which it was sent."""
    dropped: dict[str, int] = field(default_factory=dict)
    """User → number of notices dropped for lack of room since the last one that was accepted."""
    waiting: dict[str, int] = field(default_factory=dict, compare=False)
    """Index: number of waiting notices by user."""
    commands: dict[JobId, int] = field(default_factory=dict, compare=False)
    """Index: job → notice whose command the job runs."""

    def add(self, notice: Notice) -> None:
        self.notices[notice.notice_id] = notice
        self.waiting[notice.user] = self.waiting.get(notice.user, 0) + 1
        if notice.by_job:
            self.commands[notice.by_job] = notice.notice_id

    def set_job(self, notice: Notice, job_id: JobId) -> None:
        """Record that `job_id` runs the command of the notice; 0: no job does."""
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
        """Whether the one-time notice `on` was sent for this attempt of the job."""
        return self.told.get(job_id, {}).get(on) == attempt


@dataclass(slots=True)
class Delivery:
    """The schedule of deliveries; not stored."""

    due: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (instant, notice); outdated entries are skipped."""
    sending: dict[int, str] = field(default_factory=dict)
    """Notice under delivery → its user."""
    parked: dict[str, deque[int]] = field(default_factory=dict)
    """User → due notices that wait because enough of the user's notices are under delivery."""

    def add(self, at: float, notice_id: int) -> None:
        heappush(self.due, (at, notice_id))

    def next_at(self) -> float | None:
        """Next instant at which a notice is due; None: none is, or too many are under delivery."""
        return self.due[0][0] if self.due and len(self.sending) < MAX_SENDING else None

    def take(self, notices: dict[int, Notice], now: float) -> list[Notice]:
        """Take the notices that are to be sent now."""
        taken: list[Notice] = []
        while self.due and self.due[0][0] <= now and len(self.sending) < MAX_SENDING:
            notice = notices.get(heappop(self.due)[1])
            if notice is None or notice.notice_id in self.sending or notice.next_at > now:
                continue
            if sum(user == notice.user for user in self.sending.values()) >= MAX_SENDING_OF_USER:
                self.parked.setdefault(notice.user, deque()).append(notice.notice_id)
                continue
            self.sending[notice.notice_id] = notice.user
            taken.append(notice)
        return taken

    def done(self, notice_id: int, now: float) -> None:
        """End a delivery, and schedule the user's next due notice."""
        user = self.sending.pop(notice_id, "")
        parked = self.parked.get(user)
        if parked:
            self.add(now, parked.popleft())
            if not parked:
                del self.parked[user]
