"""What a site's program says of a node, and what the machine says of its CPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gq.config.config import NodeSettings
from gq.connection.locate import Location
from gq.model.node import Inventory, IsolationLevels
from gqnode.daemon import attributes, machine
from gqnode.daemon.attributes import MAX_OUTPUT, AttributeScript, Said, read_said
from tests.node.controller import CONFIG, NodeProcess, ScriptedController, private_cluster


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def read(path: str) -> tuple[bool, Said]:
    one = AttributeScript(path, None, "n1")
    return asyncio.run(one.read()), one.said


def test_lines_are_attributes_features_and_data_sets_and_others_are_told() -> None:
    said, wrong = read_said(
        "# a comment\n\n rack = r7 \ncuda=12.4\nfeature ib\nfeature  rack1\ndata imagenet\n"
        "nonsense\nfeature a b\n1x=2\n=3\n"
    )

    assert said == Said({"cuda": "12.4", "rack": "r7"}, ("ib", "rack1"), ("imagenet",))
    assert wrong == ["nonsense", "feature a b", "1x=2", "=3"]


def test_lines_without_end_and_values_without_measure_are_not_taken() -> None:
    said, wrong = read_said("\n".join(f"a{number}=1" for number in range(10_000)) + "\n")
    assert len(said.attributes) == attributes.MAX_LINES and not wrong

    said, wrong = read_said(f"long={'x' * 300}\nbell=\x07\n")
    assert said == Said() and len(wrong) == 2


def test_what_the_program_says_is_added_to_what_is_configured() -> None:
    found = Inventory(cpus=1, memory_mib=1, features=("ib",), attributes={"arch": "x86_64", "rack": "r1"}, data=("c4",))

    inventory = Said({"rack": "r2"}, ("gds", "ib"), ("pile",)).added_to(found)

    assert inventory.features == ("ib", "gds") and inventory.data == ("c4", "pile")
    assert inventory.attributes == {"arch": "x86_64", "rack": "r2"}


def test_the_program_is_told_which_node_it_is_and_has_no_input(tmp_path: Path) -> None:
    path = script(tmp_path / "attributes", "read line && echo feature bad\necho node=$GQ_NODE")

    assert read(path) == (True, Said({"node": "n1"}))


def test_a_run_that_fails_changes_nothing(tmp_path: Path) -> None:
    one = AttributeScript(script(tmp_path / "attributes", "echo rack=r1"), None, "n1")
    assert asyncio.run(one.read())
    assert not asyncio.run(one.read()), "the same again is no news"

    for body in ("echo rack=r2; exit 1", f"head -c {MAX_OUTPUT + 1} /dev/zero", "printf '\\377'"):
        script(tmp_path / "attributes", body)
        assert not asyncio.run(one.read())
        assert one.said == Said({"rack": "r1"})


def test_a_program_that_does_not_end_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attributes, "DEADLINE_S", 0.5)
    pid_file = tmp_path / "pid"
    path = script(tmp_path / "attributes", f"sleep 1000 & echo $! > {pid_file}\nwait")

    assert read(path) == (False, Said())

    status = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_program_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    path = script(tmp_path / "attributes", f"touch {tmp_path}/ran\necho feature bad")
    Path(path).chmod(0o777)

    assert read(path) == (False, Said())
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read(str(tmp_path / "missing")) == (False, Said())
    assert read("") == (False, Said())


# ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────


def test_cpus_are_told_by_numa_node_as_the_node_counts_them(tmp_path: Path) -> None:
    for number, cpus in ((0, "0-3,8-11"), (1, "4-7,12-15"), (2, "")):
        directory = tmp_path / f"devices/system/node/node{number}"
        directory.mkdir(parents=True)
        (directory / "cpulist").write_text(f"{cpus}\n")

    assert machine.cpu_numa(tuple(range(16)), str(tmp_path)) == ((0, "0-3,8-11"), (1, "4-7,12-15"))
    assert machine.cpu_numa((2, 3, 4, 5), str(tmp_path)) == ((0, "0-1"), (1, "2-3"))
    assert machine.cpu_numa((0, 1), str(tmp_path / "nothing")) == ()


def test_an_inventory_has_what_is_configured_over_what_is_found() -> None:
    node = NodeSettings(
        name="n1", features=("ib",), attributes={"kernel": "mine"}, resources={"tmp": 100}, data=("c4",)
    )

    found = machine.find_inventory(node, (), IsolationLevels(), False, attributes={"cuda": "12.4"})

    assert found.features == ("ib",) and found.data == ("c4",) and found.resources == {"tmp": 100}
    assert found.attributes["cuda"] == "12.4" and found.attributes["kernel"] == "mine" and found.attributes["arch"]
    assert found.cpu_numa == (), "without CPUs of its own it has no NUMA nodes"


def test_a_daemon_says_what_its_program_says_at_the_start_and_when_that_changes(tmp_path: Path) -> None:
    path = script(tmp_path / "attributes", "echo rack=r1")
    settings = f'attribute_script = "{path}"\nattribute_interval = "1s"\nfeatures = ["ib"]\nresources = {{fpga = 2}}\n'
    config = CONFIG.replace("[[node]]\n", f"[[node]]\n{settings}")
    assert settings in config
    with private_cluster(tmp_path / "cluster", config) as location:
        _check_daemon(location, tmp_path)


def _check_daemon(location: Location, tmp_path: Path) -> None:
    controller = ScriptedController(location.node_endpoint)
    controller.bind()
    node = NodeProcess(location)
    try:
        node.start()
        first = controller.hear(lambda: controller.hellos and controller.hellos[0])
        assert first.inventory.attributes["rack"] == "r1" and first.inventory.features == ("ib",)
        assert first.inventory.resources == {"fpga": 2}

        script(tmp_path / "attributes", "echo rack=r2; echo data c4")

        again = controller.hear(lambda: [one for one in controller.hellos if one.inventory.data])[0]
        assert again.inventory.attributes["rack"] == "r2" and again.incarnation == first.incarnation
    finally:
        node.close()
        controller.close()
