"""What a job asks of its nodes, as tables and JSON show it."""

from __future__ import annotations

import json

import pytest

from gq.model.resource import Amount, Grant, ResourceRequest, Role, RoleRequest, RoleShare
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job, jobs

ONE = ResourceRequest(
    constraint="nvlink",
    prefer="fast",
    switches=1,
    switches_wait_s=600,
    licenses=(Amount("matlab", 2), Amount("ansys", 1)),
    gpus_per_node=2,
    gpu_type="a100",
    resources=(Amount("fpga", 1), Amount("tmp", 10240)),
    data=("c4", "pile"),
)
GANG = ResourceRequest(
    roles=(
        Role(name="ps", resources=RoleRequest(ntasks=2, exclude=("n9",))),
        Role(name="worker", resources=RoleRequest(ntasks=4, gpus_per_task=2, constraint="a100", exclude=("n9",))),
    )
)
SHARES = (
    RoleShare(role="ps", tasks=2, cpus=(0, 1)),
    RoleShare(role="worker", tasks=1, cpus=(2,), gpus=(0, 1), memory_mib=5),
)


@pytest.mark.parametrize(
    ("codes", "shown"),
    [
        ("%f %W %d %b", "nvlink matlab:2,ansys:1 10G gpu:a100:2,fpga:1 | ps=;worker=a100 (null) 0 N/A"),
        ("%x", " | n9"),
    ],
)
def test_codes_show_what_is_asked_for(run: Run, controller: ScriptedController, codes: str, shown: str) -> None:
    controller.on(wire.ListJobs, jobs(a_job(1, resources=ONE), a_job(2, resources=GANG)))

    assert run("gqstat", "-h", "-o", codes).out == "\n".join(shown.split(" | ")) + "\n"


def test_fields_show_what_is_asked_for(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs(a_job(1, resources=ONE), a_job(2, resources=GANG)))
    lines = run("gqstat", "-h", "-O", "feature:8,prefer:7,reqswitch:8,mintmpdisk:4,data:8,roles:20").lines

    assert [line.split() for line in lines] == [
        ["nvlink", "fast", "1@10:00", "10G", "c4,pile", "(null)"],
        ["ps=;work(null)", "0", "0", "(null)", "ps:2,worker:4"],
    ]


def test_the_history_shows_what_was_asked_for(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.QueryHistory, jobs(a_job(1, resources=ONE), a_job(2, resources=GANG)))
    shown = run("gqacct", "-nXP", "-j", "1,2", "--format=Constraints,Licenses,ReqSwitches,Roles")

    assert shown.lines == ["nvlink|matlab:2,ansys:1|1@10:00|", "ps=;worker=a100|||ps:2,worker:4"]


def test_everything_is_shown_of_one_job(run: Run, controller: ScriptedController) -> None:
    held = Grant(node="n1", cpus=(0, 1, 2), gpus=(0, 1), resources=(Amount("fpga", 1),), roles=SHARES)
    controller.on(wire.ListJobs, jobs(a_job(2, resources=GANG, grants=(held,), state="RUNNING")))

    [shown] = json.loads(run("gqctl", "show", "2", "--json").out)

    assert [(one["role"], one["tasks"], one["gpus"], one["constraint"]) for one in shown["roles"]] == [
        ("ps", 2, 0, ""),
        ("worker", 4, 8, "a100"),
    ]
    assert shown["grants"] == [
        {
            "node": "n1",
            "cpus": "0-2",
            "gpus": "0-1",
            "memory_mib": 0,
            "resources": {"fpga": 1},
            "roles": [
                {"role": "ps", "tasks": 2, "cpus": "0-1", "gpus": "", "memory_mib": 0},
                {"role": "worker", "tasks": 1, "cpus": "2", "gpus": "0-1", "memory_mib": 5},
            ],
        }
    ]
    controller.on(wire.ListJobs, jobs(a_job(1, resources=ONE)))
    [shown] = json.loads(run("gqctl", "show", "1", "--json").out)
    assert (shown["licenses"], shown["resources"], shown["data"], shown["switches_wait_s"]) == (
        {"matlab": 2, "ansys": 1},
        {"fpga": 1, "tmp": 10240},
        ["c4", "pile"],
        600,
    )
    assert "matlab" in run("gqctl", "show", "1").out
