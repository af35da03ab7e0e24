"""gq.toml read again by a controller with real sockets, by request and by SIGHUP."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gq.config.config import Config, load_config, parse_config
from gq.connection.locate import private_location
from gq.errors import Refusal
from gq.wire import client as wire
from gq.wire import node as node_wire
from gqd.shell.reload import what_changed
from tests.clusters import PrivateCluster, wait_until
from tests.shell.rig import PATIENCE_S, Rig, hello, running, short_directory

BASE = "[timers]\ntick_s = 0.05\n"


@asynccontextmanager
async def served(text: str = BASE) -> AsyncIterator[tuple[Rig, Path]]:
    with short_directory() as directory:
        path = Path(directory, "gq.toml")
        path.write_text(text)
        async with running(load_config(private_location(directory, {})), directory=directory) as rig:
            yield rig, path


async def reload(rig: Rig) -> str:
    answer = await rig.ask(wire.ReloadConfig())
    assert isinstance(answer, wire.Done)
    return answer.text


async def partitions(rig: Rig) -> list[str]:
    answer = await rig.ask(wire.GetCluster())
    assert isinstance(answer, wire.Cluster)
    return [one.partition for one in answer.info.partitions]


def test_what_a_fresh_file_says_is_in_force_without_a_restart() -> None:
    async def scene() -> None:
        async with served() as (rig, path):
            path.write_text(f'{BASE}[limits]\npage = 7\n[[partition]]\nname = "gpu"\n')
            assert await reload(rig) == "in force: limits.page, partition.main, partition.gpu"
            assert await partitions(rig) == ["gpu"]
            assert await reload(rig) == "no setting that takes effect at once has changed"

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", ["[priority]\nage = -1\n", "[limits\n", '[controller]\ntime_zone = "Mars/Phobos"\n'])
def test_a_wrong_file_changes_nothing_and_says_what_is_wrong(wrong: str) -> None:
    async def scene() -> None:
        async with served() as (rig, path):
            path.write_text(f'{wrong}\n[[partition]]\nname = "gpu"\n')
            with pytest.raises(Refusal) as caught:
                await rig.ask(wire.ReloadConfig())
            assert caught.value.code == "bad_config"
            assert str(path) in caught.value.message
            path.unlink()
            with pytest.raises(Refusal, match="does not exist"):
                await rig.ask(wire.ReloadConfig())
            assert await partitions(rig) == ["main"]

    asyncio.run(scene())


def test_what_waits_for_a_restart_is_named_until_there_is_one() -> None:
    async def scene() -> None:
        async with served() as (rig, path):
            path.write_text(f'cluster = "other"\n{BASE}[limits]\ninbox = 17\n[[node]]\nname = "n1"\ncpus = 3\n')
            for _ in range(2):
                said = await reload(rig)
                assert "after `gqd restart`: cluster, limits.inbox" in said
                assert "after `gqnode restart` on the node's host: node.n1" in said
            shown = await rig.ask(wire.WhoAmI())
            assert isinstance(shown, wire.Identity)
            assert shown.cluster == "gq", "as it was started"

    asyncio.run(scene())


def test_a_text_that_may_become_gq_toml_is_compared_and_nothing_changes() -> None:
    async def scene() -> None:
        async with served(f"{BASE}[limits]\npage = 9\n") as (rig, path):
            text = f'cluster = "other"\n{BASE}[limits]\npage = 7\n[[partition]]\nname = "gpu"\n'
            text += 'nodes = ["n1", "g7"]\nmax_time = "1h"\nqos = ["hgih"]\n[[node]]\nname = "n1"\ncpus = 3\n'
            answer = await rig.ask(wire.CheckConfig(text=text, path="new.toml"))
            assert answer == wire.Done(
                text="would take effect with `gqctl config reload`:\n"
                "  limits.page: 9 -> 7\n"
                "  partition.main: removed\n"
                "  partition.gpu: new\n"
                '    nodes = ["n1","g7"]\n'
                '    max_time = "3600s"\n'
                '    qos = ["hgih"]\n'
                "would take effect with `gqd restart`:\n"
                '  cluster: "gq" -> "other"\n'
                "would take effect with `gqnode restart` on the node's host:\n"
                "  node.n1: new\n"
                "    cpus = 3\n"
                "warning: partition `gpu` names QOS that do not exist: hgih"
            )
            same = await rig.ask(wire.CheckConfig(text=path.read_text(), path="new.toml"))
            assert same == wire.Done(text="no setting would change")
            with pytest.raises(Refusal, match=r"`limits\.pgae` is not a setting"):
                await rig.ask(wire.CheckConfig(text="[limits]\npgae = 1\n", path="new.toml"))
            assert await partitions(rig) == ["main"]
            assert await reload(rig) == "no setting that takes effect at once has changed"

    asyncio.run(scene())


def test_nodes_are_told_at_once_how_often_to_say_that_they_live() -> None:
    async def scene() -> None:
        async with served() as (rig, path):
            link = rig.node_wire()
            await link.say(hello("n1"))
            first = await link.hear()
            path.write_text(f"{BASE}heartbeat_s = 0.5\nnode_lost_s = 2\n")
            assert await reload(rig) == "in force: timers.heartbeat_s, timers.node_lost_s"
            again = await link.hear()
            assert isinstance(first, node_wire.Welcome)
            assert isinstance(again, node_wire.Welcome)
            assert (first.heartbeat_s, again.heartbeat_s) == (5.0, 0.5)

    asyncio.run(scene())


def test_sighup_does_the_same_and_leaves_a_line_in_the_trail() -> None:
    async def until(rig: Rig, outcome: str) -> str:
        while True:
            answer = await rig.ask(wire.QueryAudit(action="ReloadConfig"))
            assert isinstance(answer, wire.AuditTrail)
            found = [one for one in answer.entries if one.outcome == outcome]
            if found:
                assert found[0].origin == "signal"
                return found[0].detail
            await asyncio.sleep(0.01)

    async def scene() -> None:
        async with served() as (rig, path):
            path.write_text("[limits\n")
            os.kill(os.getpid(), signal.SIGHUP)
            assert "is not TOML" in await asyncio.wait_for(until(rig, "bad_config"), PATIENCE_S)
            path.write_text(f"{BASE}[limits]\npage = 9\n")
            os.kill(os.getpid(), signal.SIGHUP)
            assert await asyncio.wait_for(until(rig, "done"), PATIENCE_S) == "in force: limits.page"

    asyncio.run(scene())


def test_a_daemon_that_gets_sighup_reads_its_file_and_goes_on(private_cluster: Callable[..., PrivateCluster]) -> None:
    cluster = private_cluster()
    path = cluster.directory / "gq.toml"
    path.write_text(f'{path.read_text()}\n[[partition]]\nname = "late"\n')
    os.kill(cluster.pid("gqd"), signal.SIGHUP)
    wait_until(lambda: "late" in cluster.ok("gqinfo"), what="the partition is there")
    assert cluster.ok("gqsub", "--parsable", "-p", "late", "--wait", "--wrap", "true")


def test_long_lists_of_what_changed_are_cut() -> None:
    before = parse_config("", "gq.toml")
    after = parse_config("".join(f'[[partition]]\nname = "p{one}"\n' for one in range(20)), "gq.toml")
    said = what_changed(before, before, after)
    assert said.startswith("in force: partition.main, partition.p0, ")
    assert said.endswith(" and 9 more")


def test_what_the_commands_of_laptops_read_is_no_daemons_business() -> None:
    before = Config(path="gq.toml")
    after = parse_config('[client]\ncontroller = "tcp://10.0.0.1:7134"\n', "gq.toml")
    assert what_changed(before, before, after) == "no setting that takes effect at once has changed"
