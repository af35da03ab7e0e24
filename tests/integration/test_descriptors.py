"""The daemons have as many descriptors as the machine allows; jobs keep the limit that the cluster was started with."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.clusters import RunAs, cluster_yard
from tests.conftest import MARK

SOFT = 512


@pytest.mark.slow
def test_only_the_daemons_have_all_descriptors(cluster_base: Path, pytestconfig: pytest.Config) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with_low_limit = RunAs(os.geteuid(), prefix=("sh", "-c", f'ulimit -Sn {SOFT}; exec "$@"', "sh"))
    with cluster_yard(cluster_base, pytestconfig.stash[MARK], with_low_limit) as yard:
        cluster = yard.make()
        for daemon in ("gqd", "gqnode-n1"):
            assert resource.prlimit(cluster.pid(daemon), resource.RLIMIT_NOFILE) == (hard, hard)
        cluster.ok("gqsub", "--wait", "--output=out", "--wrap=ulimit -Sn; ulimit -Hn")
        assert (cluster.workdir / "out").read_text().split() == [str(SOFT), str(hard)]
        assert cluster.ok("gqrun", "sh", "-c", "ulimit -Sn").split() == [str(SOFT)]
