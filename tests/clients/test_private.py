"""How a machine is dealt out among the nodes of a private cluster, and what its gq.toml says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gq.config import private_cluster
from gq.config.config import parse_config
from gq.config.private_cluster import ClusterOptions, Machine, NodeShape, config_text, divide_machine
from gq.connection.locate import Location, private_location
from gq.errors import Refusal, UsageError

MACHINE = Machine(cpus=8, memory_mib=32768, gpus=5)


def shapes(options: ClusterOptions, machine: Machine = MACHINE) -> list[NodeShape]:
    return divide_machine(options, machine, "/home/ada/cluster")


def test_real_gpus_memory_and_ports_are_dealt_out_disjointly() -> None:
    found = shapes(ClusterOptions(nodes=3))
    assert [shape.name for shape in found] == ["n1", "n2", "n3"]
    assert sorted(gpu for shape in found for gpu in shape.gpus) == [0, 1, 2, 3, 4]
    assert sum(shape.memory_mib for shape in found) <= MACHINE.memory_mib
    ports = sorted(port for shape in found for port in range(shape.ports[0], shape.ports[1] + 1))
    assert len(ports) == len(set(ports))
    assert ports[0] >= private_cluster.PORTS_FROM
    assert ports[-1] <= private_cluster.PORTS_TO


def test_pretended_gpus_take_the_place_of_real_ones() -> None:
    assert [(shape.gpus, shape.fake_gpus) for shape in shapes(ClusterOptions(nodes=2, fake_gpus=4))] == [
        ((), 4),
        ((), 4),
    ]


def test_a_node_may_have_more_cpus_than_the_machine() -> None:
    assert [shape.cpus for shape in shapes(ClusterOptions(nodes=4, cpus_per_node=64))] == [64] * 4


def test_every_node_has_a_cpu_however_many_there_are() -> None:
    assert {shape.cpus for shape in shapes(ClusterOptions(nodes=20))} == {1}


def test_memory_that_the_machine_does_not_have_is_refused_with_what_fits() -> None:
    with pytest.raises(UsageError, match="2 nodes with 20000 MiB each need 40000 MiB; this machine has 32768") as error:
        shapes(ClusterOptions(nodes=2, memory_per_node_mib=20000))
    assert error.value.hint == "use at most --mem-per-node 16384M"


def test_many_nodes_still_have_ports_of_their_own() -> None:
    ranges = [shape.ports for shape in shapes(ClusterOptions(nodes=private_cluster.MAX_NODES))]
    assert len(set(ranges)) == private_cluster.MAX_NODES
    assert all(low <= high for low, high in ranges)


def test_the_written_file_means_what_was_dealt_out() -> None:
    found = shapes(ClusterOptions(nodes=2, fake_gpus=3, cpus_per_node=16))
    config = parse_config(config_text(found), "gq.toml")
    assert [(node.name, node.cpus, node.memory_mib, len(node.fake_gpus), node.port_range) for node in config.nodes] == [
        (shape.name, 16, shape.memory_mib, 3, shape.ports) for shape in found
    ]
    assert [partition.name for partition in config.partitions] == ["main"]
    assert config.partitions[0].max_time_s is None


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return private_location(str(tmp_path / "cluster"), {})


def test_the_file_is_written_once_and_kept_for_its_owner(location: Location) -> None:
    _, is_new = private_cluster.ensure_config(location, ClusterOptions(nodes=2))
    text = Path(location.config_path).read_text()
    config, is_new_again = private_cluster.ensure_config(location, ClusterOptions())
    assert (is_new, is_new_again) == (True, False)
    assert Path(location.config_path).read_text() == text
    assert [node.name for node in config.nodes] == ["n1", "n2"]
    assert Path(location.state_dir).stat().st_mode & 0o777 == 0o700


def test_options_that_an_existing_cluster_does_not_have_are_refused(location: Location) -> None:
    private_cluster.ensure_config(location, ClusterOptions(nodes=2, fake_gpus=4))
    private_cluster.ensure_config(location, ClusterOptions(nodes=2, fake_gpus=4))  # the same options again are accepted
    with pytest.raises(Refusal, match=r"`gq up --nodes 3` cannot change the cluster of .*, which has 2"):
        private_cluster.ensure_config(location, ClusterOptions(nodes=3))
