"""Partitions that name what the cluster does not know: told by a reload and a check, and refused at submission."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.wire import client
from gqd.state.effect import Reply
from gqd.state.input import ConfigChecked, PolicyChanged
from gqd.state.policy import Partition
from tests.builders import client_request, hello, inventory, submit
from tests.hosts import POLICY, CoreHost

MAIN = Partition(name="main", is_default=True)
GHOST = Partition(name="ghost", nodes=("g1", "g2"))
HALF = Partition(name="half", nodes=("n1", "n9"))


def host(*partitions: Partition) -> CoreHost:
    return CoreHost(msgspec.structs.replace(POLICY, partitions=(MAIN, *partitions)), {"n1": inventory()})


def test_a_job_for_a_partition_without_any_of_its_nodes_is_refused_with_their_names() -> None:
    scene = host(GHOST)
    with pytest.raises(Refusal) as refused:
        scene.submit(submit(partition="ghost", ntasks=1))

    told = "partition `ghost` has no nodes: g[1-2] in gq.toml has never registered"
    assert (refused.value.code, refused.value.message) == ("impossible", told)


def test_a_job_for_a_partition_with_some_of_its_nodes_is_queued() -> None:
    scene = host(HALF)

    assert scene.job(scene.submit(submit(partition="half", ntasks=1))).partition == "half"


def test_a_reload_names_the_nodes_that_never_registered() -> None:
    scene = host()
    policy = msgspec.structs.replace(scene.controller.policy, partitions=(MAIN, GHOST, HALF))
    asked = client_request(client.ReloadConfig(), 900)
    turn = scene.handle(PolicyChanged(policy=policy, request=asked, text="in force: partition.ghost"))

    [answer] = [one.body for one in turn.effects if isinstance(one, Reply)]
    assert answer == client.Done(
        text="in force: partition.ghost"
        "; warning: partition `ghost` names nodes that have never registered: g[1-2]"
        "; warning: partition `half` names nodes that have never registered: n9"
    )


def test_a_check_of_a_file_names_nodes_accounts_and_qos_that_do_not_exist() -> None:
    odd = msgspec.structs.replace(HALF, accounts=("default", "nlp"), qos=("normal", "hgih"))
    asked = client_request(client.CheckConfig(text="", path="x"), 900)
    turn = host().handle(ConfigChecked(request=asked, text="-", partitions=(MAIN, odd)))

    [answer] = [one.body for one in turn.effects if isinstance(one, Reply)]
    assert answer == client.Done(
        text="-\n"
        "warning: partition `half` names nodes that have never registered: n9\n"
        "warning: partition `half` names accounts that do not exist: nlp\n"
        "warning: partition `half` names QOS that do not exist: hgih"
    )


def test_a_reload_on_a_cluster_without_nodes_names_none() -> None:
    scene = CoreHost(POLICY, {})
    policy = msgspec.structs.replace(POLICY, partitions=(MAIN, GHOST))
    asked = client_request(client.ReloadConfig(), 900)
    turn = scene.handle(PolicyChanged(policy=policy, request=asked, text="x"))

    assert [one.body for one in turn.effects if isinstance(one, Reply)] == [client.Done(text="x")]
    scene.handle(hello("g1", inventory()))
    assert scene.job(scene.submit(submit(partition="ghost", ntasks=1))).partition == "ghost"
