"""The environment of a running job, for commands that run elsewhere."""

from __future__ import annotations

import pytest

from gq.errors import Refusal
from gq.wire import client
from tests.builders import inventory, submit
from tests.hosts import CoreHost


def test_a_running_job_tells_its_nodes_and_where_they_meet() -> None:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    host.start(submit("gang", nodes_min=2, gpus_per_node=4))
    answer = host.ask(client.GetJobEnvironment(job_id=1))
    assert isinstance(answer, client.JobEnvironment)
    wanted = {"GQ_JOB_ID": "1", "GQ_JOB_NAME": "gang", "GQ_NODELIST": "n[1-2]", "GQ_GPUS": "8", "SLURM_JOB_ID": "1"}
    assert {name: answer.variables[name] for name in wanted} == wanted
    assert {"MASTER_ADDR", "MASTER_PORT"} <= set(answer.variables)
    assert "GQ_PROCID" not in answer.variables, "that is true of one task only"


def test_a_job_that_waits_has_no_environment_yet() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.ask(submit("waits", ntasks=1))
    with pytest.raises(Refusal, match="job 1 is pending, not running"):
        host.ask(client.GetJobEnvironment(job_id=1))
