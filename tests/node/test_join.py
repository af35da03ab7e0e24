"""A node that comes to a running job, leaves it and comes again: which time an order means, what the job is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gq.elastic
from gq.model.job import SignalSpec
from gq.model.node import Gpu
from gq.model.resource import Grant
from gq.model.state import Outcome
from gq.wire.node import (
    AttemptResized,
    CellEmptied,
    GangMember,
    Go,
    Prepare,
    Prepared,
    PrepareReceived,
    ResizeAttempt,
    Stop,
)
from gqnode.control.agent import Agent
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.control.effect import Effect, EmptyCell, MakeCell, SendReport, SignalProcess, StartProcess, WriteElasticFile
from gqnode.control.input import Acknowledged, CellEmpty, CellMade, OrderReceived
from gqnode.daemon import elastic
from tests.builders import hello
from tests.hosts import CoreHost
from tests.node.agent_host import ATTEMPT, BLOBS, SETTINGS, launch

NOW = 1000.0
INVENTORY = tuple(
    Gpu(index=index, uuid=f"GPU-{index}", type="fake", memory_mib=1024, is_fake=True) for index in range(4)
)


def joining(join: int, gpus: tuple[int, ...] = (0, 1), **facts: Any) -> Prepare:
    grant = Grant(node="n2", tasks=1, cpus=(0, 1), gpus=gpus)
    return Prepare(launch=launch(rank=1, nodes=2, most_nodes=3, join=join, grant=grant, **facts))


def give(agent: Agent, order: Any, now: float = NOW) -> tuple[Effect, ...]:
    return agent.handle(OrderReceived(order=order, blobs=BLOBS), now)


def said(effects: tuple[Effect, ...]) -> list[Any]:
    return [one.body for one in effects if isinstance(one, SendReport)]


def prepared(join: int = 1) -> Agent:
    agent = Agent("n2", [], SETTINGS)
    give(agent, joining(join))
    agent.handle(CellMade(attempt_id=ATTEMPT, master_port=0, account=None), NOW)
    return agent


def stopped(agent: Agent, join: int) -> None:
    """Nothing is left of it, and the controller knows."""
    give(agent, Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0, join=join))
    effects = agent.handle(CellEmpty(attempt_id=ATTEMPT), NOW)
    [report] = [one for one in effects if isinstance(one, SendReport)]
    assert report.body == CellEmptied(attempt_id=ATTEMPT, join=join)
    agent.handle(Acknowledged(seqs=tuple(range(1, report.seq + 1))), NOW)


def test_a_node_that_has_left_may_come_again_and_an_order_of_the_time_before_starts_nothing() -> None:
    agent = prepared(1)
    stopped(agent, 1)

    assert said(give(agent, joining(1))) == [CellEmptied(attempt_id=ATTEMPT, join=1)]
    effects = give(agent, joining(4))

    assert said(effects) == [PrepareReceived(attempt_id=ATTEMPT)]
    assert [type(one) for one in effects if isinstance(one, MakeCell)] == [MakeCell]


def test_a_stop_of_the_time_before_does_not_end_this_one() -> None:
    agent = prepared(4)
    assert give(agent, Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0, join=3)) == ()
    [record] = agent.records()
    assert record.phase is Phase.PREPARED
    assert give(agent, Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0, join=4))


def test_what_the_controller_has_forgotten_is_ended_whenever_it_came() -> None:
    agent = prepared(4)
    controller = CoreHost()
    controller.handle(hello("n2", attempts=agent.statuses()), now=NOW)
    [stop] = [one.order for one in controller.orders if isinstance(one.order, Stop)]
    assert [one for one in give(agent, stop) if isinstance(one, EmptyCell)]


def test_a_stop_that_overtakes_its_prepare_holds() -> None:
    agent = Agent("n2", [], SETTINGS)
    stop = Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, join=2)
    assert said(give(agent, stop)) == [CellEmptied(attempt_id=ATTEMPT, join=2)]
    assert said(give(agent, joining(1))) == [CellEmptied(attempt_id=ATTEMPT, join=1)]


def test_what_was_prepared_for_another_time_is_not_started_but_ended() -> None:
    agent = prepared(1)
    assert give(agent, Go(attempt_id=ATTEMPT, master_port=9, join=4)) == ()

    effects = give(agent, joining(4, (2, 3)))

    assert not [one for one in said(effects) if isinstance(one, Prepared)]
    assert [one for one in effects if isinstance(one, EmptyCell)]
    assert not [one for one in effects if isinstance(one, StartProcess)]


# ── what it is told ───────────────────────────────────────────────────────────────────────────────────────────


def member(number: int) -> GangMember:
    joined = 3 if number == 3 else 0
    return GangMember(node=f"n{number}", address=f"10.0.0.{number}", tasks=1, cpus=2, gpus=2, joined=joined)


def change(generation: int, *numbers: int, **facts: Any) -> ResizeAttempt:
    return ResizeAttempt(
        attempt_id=ATTEMPT,
        generation=generation,
        gpus=(0, 1),
        keeps=(0, 1),
        members=tuple(map(member, numbers)),
        **facts,
    )


def running(**facts: Any) -> Agent:
    record = AttemptRecord(launch=joining(1, **facts).launch, phase=Phase.RUNNING, started_at=NOW)
    return Agent("n2", [record], SETTINGS)


def test_which_nodes_there_are_is_saved_told_and_reported() -> None:
    agent = running()
    effects = give(agent, change(3, 1, 3, 2))
    [record] = agent.records()
    assert ([one.node for one in record.launch.members], record.launch.node_rank) == (["n1", "n3", "n2"], 2)
    assert record.launch.grant.gpus == (0, 1)
    assert said(effects) == [AttemptResized(attempt_id=ATTEMPT, generation=3, gpus=(0, 1))]
    assert [type(one) for one in effects if isinstance(one, WriteElasticFile | SignalProcess)] == [WriteElasticFile]
    assert agent.statuses()[0].generation == 3


def test_the_jobs_signal_is_sent_when_a_node_is_to_go_and_not_when_one_comes() -> None:
    agent = running(signal=SignalSpec(signum=10, before_s=60))
    assert not [one for one in give(agent, change(3, 1, 2, 3)) if isinstance(one, SignalProcess)]
    effects = give(agent, change(4, 1, 2, 3, leaving=("n3",), ends_at=NOW + 60))
    assert [(one.signum, one.scope) for one in effects if isinstance(one, SignalProcess)] == [(10, "steps")]


@pytest.mark.parametrize(("leaving", "target"), [("n3", ("0", "1")), ("n2", ())])
def test_the_file_names_the_nodes_and_those_that_stay(
    leaving: str, target: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = running()
    give(agent, change(4, 1, 2, 3, leaving=(leaving,), ends_at=NOW + 60))
    [record] = agent.records()
    path = elastic.path_of(str(tmp_path), "n2", ATTEMPT)
    elastic.write(path, elastic.elastic_file(record, INVENTORY), None)
    monkeypatch.setenv(gq.elastic.VARIABLE, path)

    known = gq.elastic.gpus()

    assert known is not None and (known.current, known.target, known.deadline) == (("0", "1"), target, NOW + 60)
    assert gq.elastic.nodes()[2] == gq.elastic.Node(name="n3", address="10.0.0.3", gpus=2, tasks=1, joined=3)
    assert gq.elastic.target_nodes() == tuple(one for one in ("n1", "n2", "n3") if one != leaving)
    assert known.most_nodes == 3
    assert next(gq.elastic.watch()) == known


def test_a_job_whose_nodes_stay_is_told_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = replace(launch(most_gpus=4), grant=Grant(node="n1", tasks=1, cpus=(0,), gpus=(0,)))
    path = elastic.path_of(str(tmp_path), "n1", ATTEMPT)
    elastic.write(path, elastic.elastic_file(AttemptRecord(launch=fixed, phase=Phase.RUNNING), INVENTORY), None)
    monkeypatch.setenv(gq.elastic.VARIABLE, path)
    known = gq.elastic.gpus()
    assert known is not None and (known.nodes, known.target_nodes, known.most_nodes) == ((), (), 0)
