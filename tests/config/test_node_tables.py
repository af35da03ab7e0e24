"""Changing one [[node]] of a gq.toml and nothing else, or saying that it cannot be done by rule."""

from __future__ import annotations

import tomllib

import pytest

from gq.config.node_tables import with_values, without_node

FILE = """\
# mine
cluster = "lab"   # its name

[timers]
grace_s = 5

[[node]]                         # this host
name = "n1"
address = "10.0.0.1"             # of the fast network
isolation = {cpu = "none"}

  [[node.fake_gpu]]
  type = "H100"

[[node]]
name = "n2"

[access]
operators = ["ada"]
"""


def test_a_node_goes_with_what_is_below_it_and_nothing_else() -> None:
    left = without_node(FILE, "n1")

    assert left is not None
    assert "H100" not in left and "10.0.0.1" not in left
    for kept in ("# mine\n", "[timers]\ngrace_s = 5\n", '[[node]]\nname = "n2"\n', '[access]\noperators = ["ada"]\n'):
        assert kept in left


def test_a_node_that_is_not_there_changes_nothing() -> None:
    assert without_node(FILE, "n3") == FILE


@pytest.mark.parametrize(
    "text",
    [
        'node = [{name = "n1"}, {name = "n2"}]\n',
        '[[node]]\nname = "n1"\ngpus = [\n[[0]],\n]\n[[node]]\nname = "n2"\n',
    ],
)
def test_what_is_written_otherwise_is_not_taken_out_by_rule(text: str) -> None:
    left = without_node(text, "n1")
    assert left is None or [node["name"] for node in tomllib.loads(left)["node"]] == ["n2"]


ALONE = """\
cluster = "old"

[timers]
grace_s = 5

[[node]]
name = "b"
controller = "tcp://old:7133"    # there
no_new_privs = true
# cpus = 4
rlimits = {nofile = "4096:65536"}
"""


def test_values_are_set_where_they_stand_and_everything_else_stays() -> None:
    values = {"name": '"b2"', "controller": '"tcp://new:7133"', "address": '"10.0.0.2"'}

    text = with_values(ALONE, values, {"private_tmp": "true", "no_new_privs": "false"}, "new")

    assert text is not None
    assert 'controller = "tcp://new:7133"    # there\n' in text and "# cpus = 4\n" in text
    read = tomllib.loads(text)
    assert (read["cluster"], read["timers"]) == ("new", {"grace_s": 5})
    assert read["node"] == [
        {
            "name": "b2", "controller": "tcp://new:7133", "address": "10.0.0.2", "no_new_privs": True,
            "private_tmp": True, "rlimits": {"nofile": "4096:65536"},
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        FILE,
        '[[node]]\nname = "b"\nrlimits.nofile = "1"\ncontroller = \'tcp://old:1\'\n',
    ],
    ids=["none", "several", "another way to write it"],
)
def test_where_it_cannot_be_done_by_rule_that_is_said(text: str) -> None:
    assert with_values(text, {"controller": '"tcp://new:7133"'}, {}, "new") is None
