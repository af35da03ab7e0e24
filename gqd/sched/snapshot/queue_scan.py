"""A scan over the queue that skips whole shapes at once instead of visiting every job.  Pure.

Within a pass the free resources only shrink.  So once a job does not fit, no later job of its shape fits; and once a
job would delay a planned start, so would every job of its shape that takes as long or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gq.model.scheduling import Scheduling
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import PendingColumns, PendingJobs
from gqd.state.index.queue import Booleans, Floats, Integers, Member


def columns_of(pending: PendingJobs) -> PendingColumns:
    """Build the columns job by job, for snapshots that do not come from the controller's queue."""
    codes: dict[Shape, int] = {}
    reservations, members, names = {"": 0}, dict[Member, int](), dict[str, int]()
    return PendingColumns(
        job_id=np.array([job.job_id for job in pending], np.int64),
        shape=np.array([codes.setdefault(job.shape, len(codes)) for job in pending], np.int64),
        expected_s=np.array([np.inf if job.expected_s is None else job.expected_s for job in pending], np.float64),
        time_limit_s=np.array([np.inf if job.time_limit_s is None else job.time_limit_s for job in pending]),
        since=np.array([job.since for job in pending], np.float64),
        band=np.zeros(len(pending), np.int64),
        priority=np.zeros(len(pending), np.int64),
        reservation=np.array(
            [reservations.setdefault(job.reservation, len(reservations)) for job in pending], np.int64
        ),
        member=np.array([members.setdefault((job.user, job.account), len(members)) for job in pending], np.int64),
        qos=np.array([names.setdefault(job.qos, len(names)) for job in pending], np.int64),
        reservations=tuple(reservations),
        members=tuple(members),
        names_of_qos=tuple(names),
    )


def expected_lengths(columns: PendingColumns, scheduling: Scheduling) -> Floats:
    """Return the expected run time of each job, as `gqd.sched.timeline.timeline.expected_length` computes it."""
    if scheduling.expect == "limit":
        return columns.time_limit_s
    expected_s = np.minimum(columns.expected_s, columns.time_limit_s)
    return np.where(np.isinf(expected_s), scheduling.expected_without_history_s, expected_s)


def _in_order(codes: Integers) -> Integers:
    """Return the queue indices sorted stably by code; 16-bit codes sort faster, where they suffice."""
    is_short = not len(codes) or int(codes.max()) <= np.iinfo(np.uint16).max
    return np.argsort(codes.astype(np.uint16) if is_short else codes, kind="stable")


class QueueScan:
    """The candidates that a pass has still to visit, by queue index."""

    def __init__(self, columns: PendingColumns, scheduling: Scheduling) -> None:
        self.columns = columns
        self._scheduling = scheduling
        self.is_candidate = np.ones(len(columns.shape), np.bool_)
        """The job is still a candidate."""
        self.is_unvisited = np.ones(len(columns.shape), np.bool_)
        """The job itself was not visited, though it may have been skipped with its shape."""
        self._is_exempt: Booleans | None = None
        """Jobs that `skip_shape` does not skip; None: no job."""
        self._by_shape: Integers = _in_order(columns.shape)
        in_order = columns.shape[self._by_shape]
        is_first = np.ones(len(in_order), np.bool_)
        np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
        self._bounds: Integers = np.append(np.flatnonzero(is_first), len(in_order))
        self._sizes: Integers = self._bounds[1:] - self._bounds[:-1]
        self.codes: list[int] = in_order[self._bounds[:-1]].tolist()
        """Codes of the shapes that occur in the queue, ascending."""
        self._number_of = {code: number for number, code in enumerate(self.codes)}

    @cached_property
    def _lengths(self) -> Floats:
        """Expected run times, computed only once a job would delay a planned start."""
        return expected_lengths(self.columns, self._scheduling)

    def next(self, queue_index: int) -> int | None:
        """Return the index of the first candidate at or after `queue_index`; None: there is none."""
        rest = self.is_candidate[queue_index:]
        if not len(rest):
            return None
        step = int(rest.argmax())
        return queue_index + step if rest[step] else None

    def skip(self, queue_index: int) -> None:
        """Mark the job as visited."""
        self.is_candidate[queue_index] = self.is_unvisited[queue_index] = False

    def exclude(self, mask: Booleans) -> None:
        """Exclude these jobs from the scan altogether."""
        self.is_candidate[mask] = self.is_unvisited[mask] = False

    def exempt(self, mask: Booleans | None) -> None:
        """Let `skip_shape` from now on leave these jobs, and no others, among the candidates."""
        self._is_exempt = mask

    def end_exemption(self, queue_index: int, of_member: bool) -> None:
        """End the exemption of jobs with this job's shape and QOS and, if `of_member`, with its user and account."""
        if self._is_exempt is None:
            return
        columns = self.columns
        indices = self.indices_of_shape(int(columns.shape[queue_index]))
        indices = indices[columns.qos[indices] == columns.qos[queue_index]]
        if of_member:
            indices = indices[columns.member[indices] == columns.member[queue_index]]
        self._is_exempt[indices] = False

    def skip_all(self, indices: Integers | Booleans) -> None:
        """Skip these jobs without marking them as visited."""
        self.is_candidate[indices] = False

    def skip_shape(self, code: int, limit_over_s: float = -np.inf, expected_over_s: float = -np.inf) -> None:
        """Skip the non-exempt jobs of this shape whose time limit and expected run time exceed these bounds."""
        indices = self.indices_of_shape(code)
        if limit_over_s > -np.inf:
            indices = indices[self.columns.time_limit_s[indices] > limit_over_s]
        if expected_over_s > -np.inf:
            indices = indices[self._lengths[indices] > expected_over_s]
        if self._is_exempt is not None:
            indices = indices[~self._is_exempt[indices]]
        self.is_candidate[indices] = False

    def indices_of_shape(self, code: int) -> Integers:
        """Return the queue indices of the jobs of this shape, ascending."""
        number = self._number_of[code]
        return self._by_shape[self._bounds[number] : self._bounds[number + 1]]

    def first_of_each_shape(self) -> list[int]:
        """Return the index of the first job of each shape, in the order of `codes`."""
        indices: list[int] = self._by_shape[self._bounds[:-1]].tolist()
        return indices

    def expand_by_shape(self, values: Sequence[bool]) -> Booleans:
        """Expand values for each of `codes` to values by queue index."""
        spread = np.empty(len(self.is_candidate), np.bool_)
        spread[self._by_shape] = np.repeat(np.array(values, np.bool_), self._sizes)
        return spread

    def index_of(self, job_id: int) -> int | None:
        """Return the queue index of the job; None: it is not in the queue."""
        indices = np.flatnonzero(self.columns.job_id == job_id)
        return int(indices[0]) if len(indices) else None
