"""Who is protected in a pass, and from when: promises that are kept, and starts that are worked out anew.  Pure.

When somebody becomes protected it is only noted; the instant is worked out when something hangs on it (`settle`), since
in most passes nothing does.  What the plan before promised is kept for whoever has not been looked at yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import NamedTuple

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import Guard, JobWindow
from gqd.sched.placement.placement import is_possible
from gqd.sched.reasons.eligibility import Ground
from gqd.sched.reservation.windows import brought_forward, is_too_long, windows_of
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.timeline.timeline import Ends, Fit, Timeline, Window, ending_of, expected_length
from gqd.state.index.queue import Integers
from gqd.state.plan import Protected


class _Unsettled(NamedTuple):
    job: PendingJob
    slot: str
    is_outranked: bool


class Protection:
    def __init__(self, snapshot: Snapshot, ground: Ground) -> None:
        self.snapshot = snapshot
        self.ground = ground
        self.scheduling = snapshot.policy.scheduling
        self.guard = Guard(Overlay.of(snapshot), ground.places)
        self.started: list[tuple[PendingJob, tuple[Grant, ...], Ends]] = []
        """What this pass has started."""
        self.spent = 0
        """Units of work."""
        self._unsettled: list[_Unsettled] = []
        """Who is protected, and when they start is not worked out yet."""
        self._promised: dict[JobId, tuple[PendingJob, Protected]] = {}
        """Whom the plan before promised a start, and is still to be looked at."""
        self._kept: dict[JobId, JobWindow] = {}
        """What is kept of these promises."""
        self._by_limit: Timeline | None = None
        self._expected: Timeline | None = None
        if snapshot.booked:
            coming = windows_of(snapshot.booked, ground.places, snapshot.now, self._timeline_by_limit())
            self.guard.book(coming)

    # ── what happens in the pass ──────────────────────────────────────────────────────────────────────────────

    def remember(self, job: PendingJob, before: Protected) -> None:
        """It was promised a start, and is still to be looked at."""
        if before.grants:
            self._promised[job.job_id] = (job, before)

    def forget(self, job_ids: Iterable[JobId]) -> None:
        """Others may go before these now."""
        for job_id in job_ids:
            self._promised.pop(job_id, None)
            self._drop_kept(job_id)

    def promise(self, promised: Iterable[tuple[PendingJob, Protected]]) -> None:
        """These were promised a start, and none of them will be looked at."""
        for job, before in promised:
            self.remember(job, before)
        self._keep_promises()

    def protect(self, job: PendingJob, slot: str, is_outranked: bool) -> None:
        """Outranked: others may yet go before it, so nothing is promised."""
        self._unsettled.append(_Unsettled(job, slot, is_outranked))

    def settle(self, starting: JobId | None = None) -> None:
        """Work out when those start who have become protected: nobody can start before that is known."""
        if len(self._promised) > 1:
            self._keep_promises()
        for one in self._unsettled:
            self._drop_kept(one.job.job_id)
            if (window := self._window(*one)) is not None:
                self.guard.add(window)
        self._unsettled.clear()
        self._drop_kept(starting)  # not before: it may yet turn out that it cannot start now

    def start(self, job: PendingJob, grants: tuple[Grant, ...], ends: Ends) -> None:
        self.guard.start(grants, ends)
        self._promised.pop(job.job_id, None)
        self.started.append((job, grants, ends))
        if self._by_limit is not None:
            self._by_limit.add(ending_of(ends.by_limit, self.ground.places, grants))
        if self._expected is not None:
            self._expected.add(ending_of(ends.expected, self.ground.places, grants))

    def keep(self, job_id: JobId, running: Sequence[RunningJob], grants: tuple[Grant, ...], ends: Ends) -> None:
        """Others give way to the job, which is to have this; what runs is told anew, with them as going."""
        self._promised.pop(job_id, None)
        self._drop_kept(job_id)
        self.snapshot = replace(self.snapshot, running=running)
        self._by_limit = self._expected = None
        self.guard.keep(grants, ends)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def binds(self) -> bool:
        """Somebody is protected whose start is not worked out, and as there are time limits it may be a promise, which
        the next pass has to keep."""
        if not self._unsettled or self.scheduling.expect == "exact":
            return False
        ends = chain((job.ends_at for job in self.snapshot.running), (ends.by_limit for _, _, ends in self.started))
        return any(at not in (None, inf) for at in ends)

    def has_place_at(self, job: PendingJob, places: Integers, windows: Sequence[Window]) -> float:
        """When it could start if all that runs ends at its limit; infinite: nobody knows."""
        limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
        self.spent += 1 + len(places)
        fit = self._timeline_by_limit().earliest(job.shape, places, limit_s, windows)
        return inf if fit is None else fit.at

    def promised_at(self, job_id: JobId) -> float | None:
        return next((one.at for one in self.guard.windows if one.job.job_id == job_id and one.is_promise), None)

    def told(self) -> tuple[Protected, ...]:
        """Of those that were not worked out, who is not outranked keeps what was promised to it before."""
        before = {(one.job_id, one.slot): one for one in self.snapshot.protected}
        still = [
            (None if one.is_outranked else before.get((one.job.job_id, one.slot)))
            or Protected(job_id=one.job.job_id, slot=one.slot, starts_at=inf, is_promise=False, nodes=())
            for one in self._unsettled
        ]
        return (*(one.told() for one in self.guard.windows), *still)

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep_promises(self) -> None:
        """Whatever was promised before and can still be kept."""
        timeline = self._timeline_by_limit()
        for job_id, (job, one) in self._promised.items():
            if one.starts_at < self.snapshot.now:
                continue
            trial = timeline.left(one.starts_at, one.until, (*self._kept.values(), *self.guard.booked))
            self.spent += 1
            if is_possible(trial, one.grants, self.ground.places):
                places = self.ground.available(job, self.snapshot.now)
                profile = timeline.at(one.starts_at)
                kept = JobWindow(job, one.slot, one.starts_at, one.until, True, one.grants, places, profile)
                self._kept[job_id] = kept
                self.guard.add(kept, may_move=False)
        self._promised.clear()

    def _drop_kept(self, job_id: JobId | None) -> None:
        if job_id is not None and (kept := self._kept.pop(job_id, None)) is not None:
            self.guard.remove(kept)

    def _window(self, job: PendingJob, slot: str, is_outranked: bool) -> JobWindow | None:
        """None: as far as can be seen it never fits, or not in time; nothing can be kept for it then."""
        places = self.ground.available(job, self.snapshot.now)
        self.spent += 1 + len(places)
        limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
        expected_s = expected_length(job, self.scheduling)
        windows, booked = self.guard.windows, self.guard.booked
        fit: Fit | None = None
        is_promise = self.scheduling.expect != "exact" and all(one.is_promise for one in windows)
        if is_promise and not is_outranked:
            fit = self._timeline_by_limit().earliest(job.shape, places, limit_s, [*booked, *windows])
        if fit is None:
            is_promise = False
            forward = brought_forward(booked, limit_s, expected_s)
            fit = self._timeline_expected().earliest(job.shape, places, expected_s, [*forward, *windows])
        inside = self.snapshot.inside
        if fit is None or (inside is not None and is_too_long(job, inside, fit.at)):
            return None
        until = fit.at + (limit_s if is_promise else expected_s)
        return JobWindow(job, slot, fit.at, until, is_promise, fit.grants, places, fit.profile)

    def _timeline_by_limit(self) -> Timeline:
        if self._by_limit is None:
            self._by_limit = self._timeline(0)
        return self._by_limit

    def _timeline_expected(self) -> Timeline:
        if self._expected is None:
            self._expected = self._timeline(1)
        return self._expected

    def _timeline(self, which: int) -> Timeline:
        """`which` of the two ends."""
        now = self.snapshot.now
        running = self.ground.endings(self.snapshot.running, now, by_limit=which == 0)
        started = [ending_of(ends[which], self.ground.places, grants) for _, grants, ends in self.started]
        return Timeline(self.guard.now, self.ground.places, now, running + started)
