"""Going through the queue by shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gqd.sched.snapshot.queue_scan import QueueScan, columns_of
from tests.sched.test_backfill import EASY, job


@pytest.mark.parametrize("most", [3, 2**16 - 1, 2**16 + 3])
def test_the_jobs_of_a_shape_are_found_in_the_order_of_the_queue_however_many_shapes_there_are(most: int) -> None:
    jobs = tuple(job(number, 1, 60) for number in range(1, 7))
    codes = np.array([most, 3, most, 0, 3, most])
    scan = QueueScan(replace(columns_of(jobs), shape=codes), EASY)

    assert scan.codes == sorted({0, 3, most})
    for code in scan.codes:
        assert scan.indices_of_shape(code).tolist() == np.flatnonzero(codes == code).tolist()
    scan.skip_shape(most)
    assert scan.is_candidate.tolist() == (codes != most).tolist()


def test_of_a_shape_only_those_may_be_left_out_that_take_longer() -> None:
    jobs = tuple(job(number, 1, 60 * number) for number in range(1, 5))
    scan = QueueScan(columns_of(jobs), EASY)

    scan.skip_shape(0, limit_over_s=120.0, expected_over_s=180.0)

    assert scan.is_candidate.tolist() == [True, True, True, False]
