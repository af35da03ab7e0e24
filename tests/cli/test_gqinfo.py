"""`gqinfo`: the first line, partitions, nodes with what they enforce, and JSON."""

from __future__ import annotations

import json
import re
import time

import msgspec
import pytest

from gq.cli.gqinfo import headline
from gq.model.node import ClusterInfo, GangSize, GpuInfo, GpuSummary, IsolationLevels, NodeInfo, PartitionInfo, XidError
from gq.model.reservation import Booking, OccurrenceInfo, OccurrenceState, ReservationInfo
from gq.model.resource import Grant
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

KINDS = (GpuSummary(type="a100", total=40, free=29), GpuSummary(type="h100", total=24, free=12))
CLUSTER = ClusterInfo(
    cluster="gq",
    gq_version="0",
    started_at=0,
    gpus=KINDS,
    largest_gangs=(GangSize(gpus=8, nodes=1), GangSize(gpus=24, nodes=3)),
    partitions=(
        PartitionInfo(partition="main", is_default=True, state="UP", nodes=("n1", "n2", "n3"), default_time_s=None,
                      max_time_s=None, cpus=192, cpus_free=100, gpus=KINDS),
        PartitionInfo(partition="cpu", is_default=False, state="DOWN", nodes=("c1",), default_time_s=60,
                      max_time_s=86400, cpus=8, cpus_free=8),
    ),
)  # fmt: skip
NODE = NodeInfo(
    node="n1", state="MIXED", partitions=("main", "big"), cpus=64, cpus_free=12, memory_mib=65536, memory_free_mib=1024,
    gpus=tuple(
        GpuInfo(index=index, uuid=f"GPU-{index}", type="a100", memory_mib=81920, state=state, job_id=job)
        for index, (state, job) in enumerate([("IDLE", None), ("ALLOCATED", 7), ("DRAINED", None)])
    ),
    isolation=IsolationLevels(cpu="cgroup2", kill="cgroup2"),
)  # fmt: skip
NODE.gpus[1].does_answer, NODE.gpus[1].utilisation_percent, NODE.gpus[1].memory_used_mib = True, 97, 4000
NODE.gpus[1].xids = (XidError(xid=79, at=1767225600.0),)


@pytest.fixture
def cluster(controller: ScriptedController) -> ScriptedController:
    controller.on(wire.GetCluster, wire.Cluster(info=CLUSTER))
    controller.on(wire.ListReservations, wire.Reservations(reservations=()))
    controller.on(wire.ListNodes, wire.Nodes(nodes=(NODE,)))
    return controller


def test_the_first_line_counts_gpus_and_names_the_largest_gang(run: Run, cluster: ScriptedController) -> None:
    assert run("gqinfo").lines == [
        "GPUs 41/64 free: 29×a100 12×h100; largest gang startable now: 8 on 1 node, 24 on 3",
        "PARTITION AVAIL  TIMELIMIT NODES    CPUS                  GPUS NODELIST",
        "main*     up      infinite     3 100/192 29/40×a100 12/24×h100 n[1-3]",
        "cpu       down  1-00:00:00     1     8/8                     0 c1",
    ]


def test_isolation_is_shown_by_function(run: Run, cluster: ScriptedController) -> None:
    assert run("gqinfo", "--isolation").lines == [
        "NODE CPU     CPUSET MEMORY DEVICES PIDS KILL    TMP    USER",
        "n1   cgroup2 none   none   none    none cgroup2 shared daemon",
    ]
    assert run("gqinfo", "--isolation", "-h", "-p", "elsewhere").lines == []


@pytest.mark.parametrize(
    ("kinds", "gangs", "line"),
    [
        ((), (), "no GPUs"),
        ((GpuSummary(type="h100", total=8, free=0),), (), "GPUs 0/8 free; largest gang startable now: none"),
        (
            (GpuSummary(type="h100", total=8, free=1),),
            (GangSize(gpus=1, nodes=1),),
            "GPUs 1/8 free: 1×h100; largest gang startable now: 1 on 1 node",
        ),
    ],
)
def test_the_first_line_is_true_of_every_cluster(
    kinds: tuple[GpuSummary, ...], gangs: tuple[GangSize, ...], line: str
) -> None:
    info = ClusterInfo(cluster="gq", gq_version="0", started_at=0, gpus=kinds, largest_gangs=gangs)

    assert headline(info) == line


def test_nodes_are_shown_with_what_they_enforce(run: Run, cluster: ScriptedController) -> None:
    [_, header, row] = run("gqinfo", "-N").lines

    assert header.split() == ["NODE", "STATE", "PARTITIONS", "CPUS", "MEMORY", "GPUS", "ISOLATION", "REASON"]
    assert row.split() == [
        "n1", "mixed", "main,big", "12/64", "1G/64G", "1/3×a100", "drained:2",
        "cpu=cgroup2", "cpuset=none", "memory=none", "devices=none", "pids=none", "kill=cgroup2",
        "tmp=shared", "user=daemon", "none",
    ]  # fmt: skip


def test_what_nodes_are_and_hold_is_shown_where_any_of_them_says_so(run: Run, cluster: ScriptedController) -> None:
    said = msgspec.structs.replace(
        NODE, node="n2", features=("ib", "rack1"), attributes={"cuda": "12.4"}, resources={"fpga": 2, "tmp": 2048},
        resources_free={"fpga": 1, "tmp": 1024}, switch="leaf1",
    )  # fmt: skip
    cluster.on(wire.ListNodes, wire.Nodes(nodes=(NODE, said)))

    [_, header, first, second] = run("gqinfo", "-N").lines

    assert header.split()[-4:] == ["FEATURES", "RESOURCES", "SWITCH", "REASON"]
    assert first.split()[-4:] == ["none"] * 4
    assert second.split()[-5:] == ["ib,rack1", "fpga:1/2", "tmp:1G/2G", "leaf1", "none"]
    [_, node] = json.loads(run("gqinfo", "--json").out)
    assert (node["attributes"], node["resources_free"]) == ({"cuda": "12.4"}, {"fpga": 1, "tmp": 1024})


@pytest.mark.parametrize("words", [["-p", "mian"], ["-N", "-p", "main,mian"], ["--json", "-p", "mian"]])
def test_a_partition_that_does_not_exist_is_said_so_and_nothing_is_shown(
    run: Run, cluster: ScriptedController, words: list[str]
) -> None:
    assert run("gqinfo", *words) == (1, "", "error: partition `mian` does not exist\nhint: did you mean `main`?\n")


def test_only_some_partitions_and_nodes(run: Run, cluster: ScriptedController) -> None:
    assert [line.split()[0] for line in run("gqinfo", "-h", "-p", "cpu").lines] == ["cpu"]
    assert run("gqinfo", "-h", "-N", "-p", "cpu").out == ""
    run("gqinfo", "-n", "n[1-2]")
    assert cluster.all(wire.ListNodes)[-1].names == ("n1", "n2")


def test_json_is_the_documented_list_of_nodes(run: Run, cluster: ScriptedController) -> None:
    [node] = json.loads(run("gqinfo", "--json").out)

    assert list(node) == [
        "node", "state", "reason", "partitions", "cpus", "cpus_free", "memory_mib", "memory_free_mib", "gpus",
        "isolation", "features", "attributes", "resources", "resources_free", "data", "switch",
    ]  # fmt: skip
    assert node["gpus"][1] == {
        "index": 1, "uuid": "GPU-1", "type": "a100", "memory_mib": 81920, "state": "ALLOCATED", "job_id": 7,
        "does_answer": True, "utilisation_percent": 97, "memory_used_mib": 4000,
        "xids": [{"xid": 79, "at": "2026-01-01T00:00:00+00:00"}],
    }  # fmt: skip
    assert node["isolation"]["kill"] == "cgroup2"


def test_an_operand_is_refused(run: Run, controller: ScriptedController) -> None:
    assert run("gqinfo", "n1").status == 2
    assert controller.heard == []


def test_what_is_reserved_within_a_day_is_named_behind_the_first_line(run: Run, controller: ScriptedController) -> None:
    now = time.time()

    def kept(name: str, begin_s: float, state: OccurrenceState = OccurrenceState.PLANNED) -> ReservationInfo:
        grants = (Grant(node="n1", gpus=(0, 1)),)
        one = OccurrenceInfo(number=1, begin_at=now + begin_s, end_at=now + begin_s + 7200, state=state, grants=grants)
        booking = Booking(name=name, duration_s=7200)
        return ReservationInfo(booking=booking, owner="ada", uid=1, created_at=now, occurrences=(one,))

    there = [kept("soon", 3600), kept("now", -60, OccurrenceState.ACTIVE), kept("far", 2 * 86400)]
    controller.on(wire.ListReservations, wire.Reservations(reservations=tuple(there)))
    controller.on(wire.GetCluster, wire.Cluster(info=CLUSTER))

    told = run("gqinfo").lines[1]

    assert re.fullmatch(
        r"reserved: now 2 GPUs on n1 until (... )?\d\d:\d\d; soon 2 GPUs on n1 from (... )?\d\d:\d\d", told
    )
    many = tuple(kept(f"r{number}", 60.0 * number) for number in range(8))
    controller.on(wire.ListReservations, wire.Reservations(reservations=many))
    assert run("gqinfo").lines[1].endswith("; 3 more in gqresv list")
