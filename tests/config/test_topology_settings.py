"""What gq.toml says of where things are: topology, licences, and what a node is and has."""

from __future__ import annotations

import pytest

from gq.config.config import parse_config
from gq.errors import UsageError
from gq.model.scheduling import Switch
from gqd.shell.settings import policy_of

FILE = """
[licenses]
matlab = 5
[[topology]]
name = "leaf1"
nodes = ["n[1-3]", "login"]
[[topology]]
name = "leaf2"
nodes = "n[4-5]"
[[topology]]
name = "spine"
switches = ["leaf[1-2]"]
[[node]]
name = "n1"
features = ["ib", "rack1"]
attributes = {rack = "r7", ib_gbps = 400, gds = true}
attribute_script = "/etc/gq/attributes"
attribute_interval = "never"
resources = {fpga = 2, tmp = "2G"}
data = ["imagenet", "/ds/c4"]
[[node.fake_gpu]]
nvlink = [[1, 4]]
pcie = [[1, 10]]
[[node.fake_gpu]]
"""


def test_topology_and_licences_reach_the_policy() -> None:
    policy = policy_of(parse_config(FILE, "gq.toml"), 1000)

    assert policy.licenses == {"matlab": 5}
    assert policy.topology == (
        Switch(name="leaf1", nodes=("n1", "n2", "n3", "login")),
        Switch(name="leaf2", nodes=("n4", "n5")),
        Switch(name="spine", switches=("leaf1", "leaf2")),
    )


def test_what_a_node_is_and_has_is_read_in_peoples_words() -> None:
    node = parse_config(FILE, "gq.toml").node("n1")

    assert node.features == ("ib", "rack1") and node.data == ("imagenet", "/ds/c4")
    assert node.attributes == {"rack": "r7", "ib_gbps": "400", "gds": "yes"}
    assert (node.attribute_script, node.attribute_interval_s) == ("/etc/gq/attributes", None)
    assert node.resources == {"fpga": 2, "tmp": 2048}
    assert node.fake_gpus[0].pcie == ((1, 10),)


@pytest.mark.parametrize("written", ['["g[1-3]", "big"]', '"g[1-3],big"'])
def test_the_nodes_of_a_partition_are_names_and_ranges(written: str) -> None:
    text = f'[[partition]]\nname = "batch"\nnodes = {written}\n'

    [partition] = policy_of(parse_config(text, "gq.toml"), 1000).partitions

    assert partition.nodes == ("g1", "g2", "g3", "big")


@pytest.mark.parametrize(
    ("written", "message"),
    [("[1]", 'must be nodes such as ["n[1-8]", "login"]'), ('["g[1"]', "its brackets do not match")],
)
def test_nodes_of_a_partition_that_are_no_names_are_an_error(written: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_config(f'[[partition]]\nname = "batch"\nnodes = {written}\n', "gq.toml")

    assert "`partition.batch.nodes`" in raised.value.message
    assert message in raised.value.message


def test_each_of_these_values_knows_where_it_comes_from() -> None:
    said = {key: origin for key, _, origin in parse_config(FILE, "gq.toml").settings()}

    assert said["licenses.matlab"] == said["topology.leaf1.nodes"] == said["node.n1.features"] == "gq.toml"
    assert said["topology.leaf1.switches"] == "default"


LEAF = '[[topology]]\nname = "%s"\nnodes = "n1"\n'
NODE = '[[node]]\nname = "n1"\n'


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[licenses]\nmatlab = -1\n", "`licenses` has `-1` for `matlab`"),
        ('[licenses]\n"a b" = 1\n', "`a b`, which is not a name"),
        ("licenses = 3\n", "must be a table"),
        (f"{NODE}features = 'ib'\n", "`node.n1.features` must be a list"),
        (f"{NODE}features = ['8x']\n", "`8x`, which --constraint cannot use"),
        (f"{NODE}attributes = {{a = [1]}}\n", "has a value for `a` that is neither text nor a number"),
        (f"{NODE}attributes = {{a = ''}}\n", "has a value for `a` that is neither text nor a number"),
        (f"{NODE}resources = {{fpga = '2'}}\n", "`2` for `fpga`"),
        (f"{NODE}resources = {{tmp = 'lots'}}\n", "lots"),
        (f"{NODE}data = [1]\n", "`1`, which is not the name of a data set"),
        (f"{NODE}data = ['a b']\n", "`a b`, which is not the name of a data set"),
        (f"{NODE}attribute_script = 'bin/x'\n", "is not an absolute path"),
        (f"{NODE}attribute_interval = '0s'\n", "must be at least 1"),
        ('[[topology]]\nname = "a"\n', "`a` has neither nodes nor switches"),
        ('[[topology]]\nname = "a"\nnodes = ["n1"]\nswitches = ["a"]\n', "has both nodes and switches"),
        ('[[topology]]\nname = "a"\nswitches = ["b"]\n', "names switch `b`, which does not exist"),
        ('[[topology]]\nname = "a"\nswitches = ["a"]\n', "switch `a` is connected to itself"),
        ('[[topology]]\nname = "a"\nnodes = ["n[1-"]\n', "is not a node list"),
        (f"{LEAF % 'a'}{LEAF % 'b'}", "node `n1` is connected to `a` and to `b`"),
        ('[[topology]]\nnodes = "n1"\n', "has no name"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_its_key(toml: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_config(toml, "gq.toml")
    assert words in refused.value.message
