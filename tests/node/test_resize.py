"""GPUs that become more and fewer, on the node: an order done once, what is overdue taken, nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gq.model.ids import JobId, StepId
from gq.model.job import SignalSpec
from gq.model.node import Gpu
from gq.model.resource import Grant
from gq.model.step import StepLayout, StepPart
from gq.wire.node import AttemptResized, LaunchStep, ResizeAttempt, StepEnded, StepReceived
from gqnode.accel.protocol import GpuProcess, GpuSample
from gqnode.control.agent import Agent
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import (
    Effect,
    ForgetStep,
    RevokeGpus,
    SaveRecord,
    SendReport,
    SignalProcess,
    WidenCell,
    WriteElasticFile,
)
from gqnode.control.input import GpusTaken, OrderReceived, StepAttached, Tick
from gqnode.daemon import elastic
from gqnode.shepherd.processes import MARKER
from tests.node.agent_host import ATTEMPT, SETTINGS, launch

NOW = 1000.0
INVENTORY = tuple(
    Gpu(index=index, uuid=f"GPU-{index}", type="fake", memory_mib=1024, is_fake=True) for index in range(4)
)


def running(gpus: tuple[int, ...] = (0,), **facts: Any) -> Agent:
    grant = Grant(node="n1", tasks=1, cpus=(0, 1), gpus=gpus)
    record = AttemptRecord(launch=launch(grant=grant, most_gpus=4, **facts), phase=Phase.RUNNING, started_at=NOW)
    return Agent("n1", [record], SETTINGS)


def order(
    generation: int, gpus: tuple[int, ...], keeps: tuple[int, ...], ends_at: float | None = None
) -> ResizeAttempt:
    return ResizeAttempt(attempt_id=ATTEMPT, generation=generation, gpus=gpus, keeps=keeps, ends_at=ends_at)


def give(agent: Agent, one: ResizeAttempt, now: float) -> tuple[Effect, ...]:
    return agent.handle(OrderReceived(order=one), now)


def said(effects: tuple[Effect, ...]) -> list[tuple[int, tuple[int, ...]]]:
    bodies = [one.body for one in effects if isinstance(one, SendReport)]
    return [(body.generation, body.gpus) for body in bodies if isinstance(body, AttemptResized)]


def kinds(effects: tuple[Effect, ...]) -> list[type]:
    return [type(one) for one in effects]


def test_what_comes_is_saved_allowed_told_and_reported_in_this_order() -> None:
    agent = running()
    effects = give(agent, order(1, (0, 1, 2), (0, 1, 2)), NOW + 1)
    assert kinds(effects) == [SaveRecord, WidenCell, WriteElasticFile, SendReport]
    assert said(effects) == [(1, (0, 1, 2))]
    assert agent.statuses()[0].generation == 1


def step_on(number: int, gpus: tuple[int, ...]) -> OrderReceived:
    part = StepPart(node="n1", first_rank=0, tasks=1, cpus=(0,), gpus=gpus)
    layout = StepLayout(name="s", parts=(part,))
    return OrderReceived(order=LaunchStep(step_id=StepId(JobId(7), 1, number), key=b"k" * 32, layout=layout))


def bodies(effects: tuple[Effect, ...], *kinds: type) -> list[Any]:
    return [one.body for one in effects if isinstance(one, SendReport) and isinstance(one.body, kinds)]


def test_a_step_with_gpus_that_are_not_here_yet_or_are_going_is_not_received() -> None:
    agent = running()
    assert not agent.handle(step_on(0, (1,)), NOW + 1)
    give(agent, order(1, (0, 1), (0, 1)), NOW + 2)
    assert bodies(agent.handle(step_on(0, (1,)), NOW + 3), StepReceived)
    give(agent, order(2, (0, 1), (0,), NOW + 10), NOW + 4)
    assert not agent.handle(step_on(1, (1,)), NOW + 5)
    assert bodies(agent.handle(step_on(2, (0,)), NOW + 5), StepReceived)


def test_a_step_to_which_nobody_has_come_is_over_when_its_gpus_are_taken_and_others_go_on() -> None:
    agent = running((0, 1, 2))
    for number in range(3):
        agent.handle(step_on(number, (number,)), NOW + 1)
    agent.handle(StepAttached(step_id=StepId(JobId(7), 1, 2)), NOW + 2)
    give(agent, order(1, (0, 1, 2), (0,), NOW + 10), NOW + 3)

    effects = agent.handle(Tick(), NOW + 10)

    assert [one.step_id.step for one in bodies(effects, StepEnded)] == [1]
    assert [one.step_id.step for one in effects if isinstance(one, ForgetStep)] == [1]
    assert [one.gpus for one in effects if isinstance(one, RevokeGpus)] == [(1, 2)]


def test_an_order_that_was_seen_is_only_answered_again_and_an_older_one_changes_nothing() -> None:
    agent = running()
    give(agent, order(2, (0, 1), (0, 1)), NOW + 1)
    assert kinds(give(agent, order(2, (0, 1), (0, 1)), NOW + 2)) == [SendReport]
    late = give(agent, order(1, (0, 1, 2), (0, 1, 2)), NOW + 3)
    assert (kinds(late), said(late)) == ([SendReport], [(2, (0, 1))])


def test_what_is_to_go_is_told_now_and_taken_at_the_deadline_until_nobody_uses_it() -> None:
    agent = running((0, 1, 2))
    effects = give(agent, order(1, (0, 1, 2), (0,), NOW + 10), NOW + 1)
    assert kinds(effects) == [SaveRecord, WriteElasticFile, SendReport]
    assert said(effects) == [(1, (0, 1, 2))]
    assert agent.next_wakeup() == NOW + 1 + SETTINGS.resend_s, "the report; then the deadline"
    assert RevokeGpus not in kinds(agent.handle(Tick(), NOW + 9.9))

    taking = [one for one in agent.handle(Tick(), NOW + 10) if isinstance(one, RevokeGpus)]
    assert [(one.gpus, one.launch.grant.gpus, one.generation) for one in taking] == [((1, 2), (0,), 1)]

    again = agent.handle(GpusTaken(attempt_id=ATTEMPT, generation=1, is_done=False), NOW + 10.1)
    assert said(again) == []
    assert RevokeGpus in kinds(agent.handle(Tick(), NOW + 10.1 + SETTINGS.quiet_check_s))
    done = agent.handle(GpusTaken(attempt_id=ATTEMPT, generation=1, is_done=True), NOW + 11)
    assert kinds(done) == [SaveRecord, WriteElasticFile, SendReport]
    assert said(done) == [(1, (0,))]
    assert RevokeGpus not in kinds(agent.handle(Tick(), NOW + 60))


def test_what_is_given_up_is_taken_before_the_deadline() -> None:
    agent = running((0, 1))
    give(agent, order(1, (0, 1), (0,), NOW + 60), NOW + 1)
    effects = give(agent, order(1, (0, 1), (0,), NOW + 5), NOW + 5)
    assert RevokeGpus in kinds(effects)


@pytest.mark.parametrize(("to_batch_shell", "scope"), [(False, "steps"), (True, "batch")])
def test_its_own_signal_is_sent_after_the_file_was_written(to_batch_shell: bool, scope: str) -> None:
    agent = running((0, 1), signal=SignalSpec(signum=10, before_s=30, to_batch_shell=to_batch_shell))
    effects = give(agent, order(1, (0, 1), (0,), NOW + 30), NOW + 1)
    assert kinds(effects)[:3] == [SaveRecord, WriteElasticFile, SignalProcess]
    assert [(one.signum, one.scope) for one in effects if isinstance(one, SignalProcess)] == [(10, scope)]


def test_after_a_restart_the_cell_and_the_file_are_as_they_were_and_what_is_overdue_is_taken() -> None:
    agent = running((0, 1))
    give(agent, order(1, (0, 1), (0,), NOW + 10), NOW + 1)
    again = Agent("n1", agent.records(), SETTINGS)
    effects = again.resume(NOW + 20)
    assert [one for one in kinds(effects) if one in (WidenCell, WriteElasticFile, RevokeGpus)] == [
        WriteElasticFile,
        WidenCell,
        RevokeGpus,
    ]


def test_an_attempt_that_is_not_here_or_is_being_ended_is_passed_over() -> None:
    agent = Agent("n1", [], SETTINGS)
    assert give(agent, order(1, (0, 1), (0, 1)), NOW) == ()
    ending = AttemptRecord(launch=launch(), phase=Phase.STOPPING, started_at=NOW)
    assert give(Agent("n1", [ending], SETTINGS), order(1, (0, 1), (0, 1)), NOW) == ()


# ── files and processes ───────────────────────────────────────────────────────────────────────────────────────


def test_the_file_says_what_it_has_and_what_is_to_go_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    agent = running((0, 1, 2))
    give(agent, order(3, (0, 1, 2), (0, 2), NOW + 10), NOW + 1)
    [record] = agent.records()
    path = elastic.path_of(str(tmp_path), "n1", ATTEMPT)

    elastic.write(path, elastic.elastic_file(record, INVENTORY), None)
    elastic.write(path, elastic.elastic_file(record, INVENTORY), None)

    told = {"job_id": 7, "generation": 3, "current": ["0", "1", "2"], "target": ["0", "2"], "most": 4}
    assert json.loads(Path(path).read_text()) == told | {"deadline": NOW + 10}
    assert Path(path).stat().st_mode & 0o777 == 0o400
    assert [one.name for one in Path(path).parent.iterdir()] == [f"n1.{ATTEMPT}.json"]
    elastic.remove(path)
    elastic.remove(path)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Processes of the cell `mine`, by what they may see, and one of another cell."""
    cells = {"0": "mine", "0,1": "mine", "2": "mine", "1": "other"}
    running = {
        visible: subprocess.Popen(
            ["sleep", "60"], env=os.environ | {"CUDA_VISIBLE_DEVICES": visible, MARKER: f"{tmp_path}/{cell}"}
        )
        for visible, cell in cells.items()
    }
    yield {visible: one.pid for visible, one in running.items()}
    for one in running.values():
        one.send_signal(signal.SIGKILL)
        one.wait()


def test_users_of_pretended_gpus_are_those_of_the_cell_that_name_one(tmp_path: Path, sleepers: dict[str, int]) -> None:
    found = elastic.gpu_users((1, 3), INVENTORY, (), 0, f"{tmp_path}/mine")
    assert found == [sleepers["0,1"]]


def test_users_of_real_gpus_are_those_of_the_cell_that_the_driver_names(
    tmp_path: Path, sleepers: dict[str, int]
) -> None:
    processes = tuple(GpuProcess(sleepers[one]) for one in ("0", "1"))
    samples = (GpuSample(index=1, processes=processes), GpuSample(index=0, processes=(GpuProcess(sleepers["2"]),)))
    real = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", type="a100", memory_mib=1024, is_fake=False) for index in range(2)
    )
    assert elastic.gpu_users((1,), real, samples, 0, f"{tmp_path}/mine") == [sleepers["0"]]


def test_cpus_that_go_with_gpus_are_kept_until_then() -> None:
    agent = running()
    more = replace(order(1, (0, 1), (0, 1)), cpus=(0, 1, 2, 3), keeps_cpus=(0, 1, 2, 3))
    [widened] = [one for one in give(agent, more, NOW) if isinstance(one, WidenCell)]
    assert widened.launch.grant.cpus == (0, 1, 2, 3)
    fewer = replace(order(2, (0, 1), (0,), NOW + 20), cpus=(0, 1, 2, 3), keeps_cpus=(0, 1))
    give(agent, fewer, NOW + 10)
    [record] = agent.records()
    assert record.launch.grant.cpus == (0, 1, 2, 3)
    [taken] = [one for one in agent.handle(Tick(), NOW + 21) if isinstance(one, RevokeGpus)]
    assert taken.launch.grant.cpus == (0, 1)
    agent.handle(GpusTaken(attempt_id=ATTEMPT, generation=2, is_done=True), NOW + 22)
    [record] = agent.records()
    assert (record.launch.grant.gpus, record.launch.grant.cpus) == ((0,), (0, 1))
