"""What a node says of itself is held to what can be: it is turned away, and nobody else notices."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus, Usage
from gq.model.node import Gpu, Inventory
from gq.model.state import Outcome
from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.shell.listeners.node_limits import MAX_GPUS, why_unacceptable
from tests.requires import needs_root
from tests.shell.rig import hello, running
from tests.shell.shared import shared_running

ATTEMPT = AttemptId(JobId(1), 1)


def gpu(index: int, **fields: object) -> Gpu:
    return msgspec.structs.replace(Gpu(index=index, uuid="u", type="fake", memory_mib=1), **fields)


def inventory(**fields: object) -> node_wire.Hello:
    return hello(inventory=msgspec.structs.replace(Inventory(cpus=4, memory_mib=4096), **fields))


def report(body: node_wire.ReportBody, **fields: object) -> node_wire.Report:
    return msgspec.structs.replace(node_wire.Report(node="n1", incarnation="first", seq=1, body=body), **fields)


def ended(**fields: object) -> node_wire.Report:
    body = node_wire.AttemptEnded(attempt_id=ATTEMPT, outcome=Outcome.COMPLETED, exit=ExitStatus(), ended_at=1.0)
    return report(msgspec.structs.replace(body, **fields))


def beat(**fields: object) -> node_wire.Heartbeat:
    return msgspec.structs.replace(node_wire.Heartbeat(node="n1", incarnation="first", at=1.0), **fields)


def holding(job_id: int) -> node_wire.Hello:
    """A hello of a node that says that it has something of this job."""
    return hello(attempts=(node_wire.AttemptStatus(attempt_id=AttemptId(JobId(job_id), 1), phase="running"),))


HOSTILE: dict[str, node_wire.NodeMessage] = {
    "negative CPUs": inventory(cpus=-3),
    "CPUs without end": inventory(cpus=2**62),
    "more than 64 bits": inventory(memory_mib=2**64 - 1),
    "negative memory": inventory(memory_mib=-1),
    "a GPU twice": inventory(gpus=(gpu(0), gpu(0))),
    "a GPU below zero": inventory(gpus=(gpu(-1),)),
    "a GPU far away": inventory(gpus=(gpu(10**9),)),
    "GPUs without end": inventory(gpus=tuple(gpu(0) for _ in range(MAX_GPUS + 1))),
    "memory of a GPU": inventory(gpus=(gpu(0, memory_mib=-5),)),
    "links of a GPU": inventory(gpus=(gpu(0, nvlink=((0, 2**64 - 1),)),)),
    "a long name": hello("n1", address="x" * 5000),
    "a long secret": hello(ticket_key=b"x" * 5000),
    "features without end": inventory(features=("x",) * 200_000),
    "more features than anybody has": inventory(features=tuple(f"f{number}" for number in range(20_000))),
    "an attribute without end": inventory(attributes={"rack": "x" * 300}),
    "an attribute that rings": inventory(attributes={"rack": "\x07"}),
    "a resource below zero": inventory(resources={"fpga": -1}),
    "a resource over 64 bits": inventory(resources={"fpga": 2**64 - 1}),
    "a data set that cannot be printed": inventory(data=("a\nb",)),
    "CPUs of a NUMA node that it has not": inventory(cpu_numa=((0, "0-4"),)),
    "CPUs of a NUMA node without end": inventory(cpu_numa=((0, "0-999999999"),)),
    "CPUs of a NUMA node that are none": inventory(cpu_numa=((0, "all"),)),
    "a NUMA node over 64 bits": inventory(cpu_numa=((2**64 - 1, "0"),)),
    "nearness without end": inventory(gpus=(gpu(0, pcie=((1, 10),) * 2000),)),
    "an attempt below zero": holding(-1),
    "an attempt over 64 bits": holding(2**64 - 1),
    "a report number over 64 bits": report(node_wire.CellEmptied(attempt_id=ATTEMPT), seq=2**64 - 1),
    "a last report below zero": hello(last_seq=-1),
    "an end at infinity": ended(ended_at=math.inf),
    "an end at no time": ended(ended_at=math.nan),
    "an end before time": ended(ended_at=-1.0),
    "an exit code over 64 bits": ended(exit=ExitStatus(code=2**64 - 1)),
    "use below zero": ended(usage=Usage(user_cpu_s=-1.0)),
    "use without end": ended(usage=Usage(system_cpu_s=math.inf)),
    "memory use over 64 bits": ended(usage=Usage(max_rss_mib=2**64 - 1)),
    "a port that is none": report(node_wire.Prepared(attempt_id=ATTEMPT, master_port=70_000)),
    "a limit below zero": report(node_wire.TimeLimitSet(attempt_id=ATTEMPT, time_limit_s=-1)),
    "words without end": report(node_wire.PrepareRefused(attempt_id=ATTEMPT, why="x" * 1_000_000)),
    "a heartbeat at no time": beat(at=math.nan),
    "load without end": beat(load=math.inf),
    "memory below zero": beat(memory_available_mib=-1),
    "a relay number over 64 bits": node_wire.Relay(
        node="n1", incarnation="first", relay_id=2**64 - 1, uid=0, gid=0, user="root", payload=b""
    ),
    "a uid below zero": node_wire.Relay(
        node="n1", incarnation="first", relay_id=1, uid=-1, gid=0, user="root", payload=b""
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_cannot_be_is_said_in_words(what: str) -> None:
    assert why_unacceptable(HOSTILE[what])


@pytest.mark.parametrize(
    "message",
    [
        hello(attempts=(node_wire.AttemptStatus(attempt_id=ATTEMPT, phase="running", time_limit_s=60),)),
        inventory(cpus=4096, memory_mib=2**40, gpus=tuple(gpu(index) for index in range(MAX_GPUS))),
        ended(ended_at=1.7e9, exit=ExitStatus(code=255), usage=Usage(1.5, 2.5, 100)),
        ended(exit=ExitStatus(signal=64)),
        beat(at=1.7e9, load=300.0, memory_available_mib=2**30),
        report(node_wire.CellEmptied(attempt_id=ATTEMPT), seq=2**63 - 1),
    ],
)
def test_what_can_be_is_acceptable(message: node_wire.NodeMessage) -> None:
    assert why_unacceptable(message) == ""


def test_a_hostile_node_of_this_host_is_told_to_stay_away_and_others_go_on() -> None:
    async def scenario() -> None:
        async with running() as rig:
            good = rig.node_wire()
            await good.say(hello("good"))
            assert isinstance(await good.hear(), node_wire.Welcome)
            bad = rig.node_wire()
            for message in HOSTILE.values():
                await bad.say(message)
                assert isinstance(await bad.hear(), node_wire.Unwelcome)
            assert (await rig.counters())["malformed"] == len(HOSTILE)
            nodes = await rig.ask(wire.ListNodes())
            assert isinstance(nodes, wire.Nodes)
            assert [one.node for one in nodes.nodes] == ["good"]
            await good.say(node_wire.Heartbeat(node="good", incarnation="first", at=1.0))
            assert isinstance(await good.hear(), node_wire.HeartbeatSeen)

    asyncio.run(scenario())


@needs_root
def test_the_audit_trail_names_the_node_that_said_what_cannot_be_once() -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            _, link = await shared.member("n1")
            for _ in range(20):
                await link.say(beat(at=math.nan))
                assert isinstance(await link.hear(), node_wire.Unwelcome)
            [told] = await shared.audit("Malformed")
            assert told.origin == "node n1"
            assert "at is nan" in told.detail

    asyncio.run(scenario())
