"""The planned starts of a pass: guarantees carried over from the plan before, and starts computed anew.  Pure.

A job that becomes protected is only noted.  Its start is worked out (`resolve`) when another decision depends on it,
which in most passes never happens.  Guarantees of the plan before hold until the pass considers their jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import NamedTuple

from gq.model.ids import JobId
from gq.model.resource import Grant
from gqd.sched.backfill.windows import BackfillProfile, JobWindow
from gqd.sched.placement.placement import is_possible
from gqd.sched.reasons.eligibility import EligibilityCache
from gqd.sched.reservation.windows import advanced_windows, is_too_long, windows_of
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.timeline.timeline import EarliestFit, EndTimes, Timeline, Window, expected_length, release_of
from gqd.state.index.queue import Integers
from gqd.state.plan import Protected


class _Unsettled(NamedTuple):
    job: PendingJob
    slot: str
    is_outranked: bool


class PlannedStarts:
    def __init__(self, snapshot: Snapshot, eligibility: EligibilityCache) -> None:
        self.snapshot = snapshot
        self.eligibility = eligibility
        self.scheduling = snapshot.policy.scheduling
        self.backfill = BackfillProfile(Overlay.of(snapshot), eligibility.places)
        self.started: list[tuple[PendingJob, tuple[Grant, ...], EndTimes]] = []
        """The jobs that this pass has started."""
        self.spent = 0
        """Units of work done."""
        self._unsettled: list[_Unsettled] = []
        """Protected jobs whose start has not been computed yet."""
        self._promised: dict[JobId, tuple[PendingJob, Protected]] = {}
        """Jobs with a guaranteed start from the plan before that the pass has not considered yet."""
        self._kept: dict[JobId, JobWindow] = {}
        """The windows carried over for these guarantees."""
        self._by_limit: Timeline | None = None
        self._expected: Timeline | None = None
        if snapshot.booked:
            coming = windows_of(snapshot.booked, eligibility.places, snapshot.now, self._timeline_by_limit())
            self.backfill.book(coming)

    # ── what happens in the pass ──────────────────────────────────────────────────────────────────────────────

    def carry_over(self, job: PendingJob, before: Protected) -> None:
        """Note a job that the plan before guaranteed a start and that the pass has not considered yet."""
        if before.grants:
            self._promised[job.job_id] = (job, before)

    def forget(self, job_ids: Iterable[JobId]) -> None:
        """Drop the guarantees of these jobs: other jobs may start before them."""
        for job_id in job_ids:
            self._promised.pop(job_id, None)
            self._drop_kept(job_id)

    def promise(self, promised: Iterable[tuple[PendingJob, Protected]]) -> None:
        """Carry over the guarantees of jobs that the pass will not consider."""
        for job, before in promised:
            self.carry_over(job, before)
        self._keep_promises()

    def protect(self, job: PendingJob, slot: str, is_outranked: bool) -> None:
        """Protect the job's start; if it is outranked, other jobs may start before it and nothing is guaranteed."""
        self._unsettled.append(_Unsettled(job, slot, is_outranked))

    def resolve(self, starting: JobId | None = None) -> None:
        """Compute the pending planned starts; no other job can start before they are known."""
        if len(self._promised) > 1:
            self._keep_promises()
        for one in self._unsettled:
            self._drop_kept(one.job.job_id)
            if (window := self._window(*one)) is not None:
                self.backfill.add(window)
        self._unsettled.clear()
        self._drop_kept(starting)  # not before: it may yet turn out that it cannot start now

    def start(self, job: PendingJob, grants: tuple[Grant, ...], ends: EndTimes) -> None:
        self.backfill.start(grants, ends)
        self._promised.pop(job.job_id, None)
        self.started.append((job, grants, ends))
        if self._by_limit is not None:
            self._by_limit.add(release_of(ends.by_limit, self.eligibility.places, grants))
        if self._expected is not None:
            self._expected.add(release_of(ends.expected, self.eligibility.places, grants))

    def keep(self, job_id: JobId, running: Sequence[RunningJob], grants: tuple[Grant, ...], ends: EndTimes) -> None:
        """Earmark grants for a preemptor; `running` are the running jobs with its victims marked as ending."""
        self._promised.pop(job_id, None)
        self._drop_kept(job_id)
        self.snapshot = replace(self.snapshot, running=running)
        self._by_limit = self._expected = None
        self.backfill.keep(grants, ends)

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def constrains_next_plan(self) -> bool:
        """Whether a planned start is not computed yet and may be a guarantee, which the next pass has to keep."""
        if not self._unsettled or self.scheduling.expect == "exact":
            return False
        ends = chain((job.ends_at for job in self.snapshot.running), (ends.by_limit for _, _, ends in self.started))
        return any(at not in (None, inf) for at in ends)

    def has_place_at(self, job: PendingJob, places: Integers, windows: Sequence[Window]) -> float:
        """When the job could start if all running jobs end at their limits; infinite: unknown."""
        limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
        self.spent += 1 + len(places)
        fit = self._timeline_by_limit().earliest(job.shape, places, limit_s, windows)
        return inf if fit is None else fit.at

    def promised_at(self, job_id: JobId) -> float | None:
        return next(
            (window.at for window in self.backfill.windows if window.job.job_id == job_id and window.is_promise), None
        )

    def as_protected(self) -> tuple[Protected, ...]:
        """The planned starts as results of the plan; a start not computed keeps the earlier guarantee unless it is
        outranked."""
        before = {(one.job_id, one.slot): one for one in self.snapshot.protected}
        still = [
            (None if one.is_outranked else before.get((one.job.job_id, one.slot)))
            or Protected(job_id=one.job.job_id, slot=one.slot, starts_at=inf, is_promise=False, nodes=())
            for one in self._unsettled
        ]
        return (*(window.as_protected() for window in self.backfill.windows), *still)

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep_promises(self) -> None:
        """Add windows for the guarantees of the plan before that can still be kept."""
        timeline = self._timeline_by_limit()
        for job_id, (job, one) in self._promised.items():
            if one.starts_at < self.snapshot.now:
                continue
            trial = timeline.left(one.starts_at, one.until, (*self._kept.values(), *self.backfill.booked))
            self.spent += 1
            if is_possible(trial, one.grants, self.eligibility.places):
                places = self.eligibility.available(job, self.snapshot.now)
                profile = timeline.at(one.starts_at)
                kept = JobWindow(job, one.slot, one.starts_at, one.until, True, one.grants, places, profile)
                self._kept[job_id] = kept
                self.backfill.add(kept, may_move=False)
        self._promised.clear()

    def _drop_kept(self, job_id: JobId | None) -> None:
        if job_id is not None and (kept := self._kept.pop(job_id, None)) is not None:
            self.backfill.remove(kept)

    def _window(self, job: PendingJob, slot: str, is_outranked: bool) -> JobWindow | None:
        """The window of a planned start; None: the job fits at no known time, or not before its reservation ends."""
        places = self.eligibility.available(job, self.snapshot.now)
        self.spent += 1 + len(places)
        limit_s = inf if job.time_limit_s is None else float(job.time_limit_s)
        expected_s = expected_length(job, self.scheduling)
        windows, booked = self.backfill.windows, self.backfill.booked
        fit: EarliestFit | None = None
        is_promise = self.scheduling.expect != "exact" and all(window.is_promise for window in windows)
        if is_promise and not is_outranked:
            fit = self._timeline_by_limit().earliest(job.shape, places, limit_s, [*booked, *windows])
        if fit is None:
            is_promise = False
            forward = advanced_windows(booked, limit_s, expected_s)
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
        """The timeline of the ends by limit (0) or the expected ends (1)."""
        now = self.snapshot.now
        running = self.eligibility.endings(self.snapshot.running, now, by_limit=which == 0)
        started = [release_of(ends[which], self.eligibility.places, grants) for _, grants, ends in self.started]
        return Timeline(self.backfill.now, self.eligibility.places, now, running + started)
