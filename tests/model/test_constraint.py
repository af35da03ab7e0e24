"""``--constraint``: what is read, what is met, what is refused and how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.model.constraint import (
    MAX_DEPTH,
    All,
    Any,
    Constraint,
    Count,
    Not,
    Term,
    compare,
    is_met,
    names_in,
    parse_constraint,
)

FEATURES = frozenset({"ib", "rack1"})
ATTRIBUTES = {"cuda": "12.10", "gpu_mem": "81920", "cpus": "64", "gpu_type": "a100,v100", "nvlink": "no", "disk": "2T"}


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("ib", True),
        ("ib&rack1", True),
        ("ib,rack2", False),
        ("ib|rack2", True),
        ("rack2 | ib & rack1", True),
        ("(rack2|ib)&!rack3", True),
        ("!ib", False),
        ("nvlink", False),
        ("gpu_mem", True),
        ("cuda>=12.4", True),
        ("cuda<12.4", False),
        ("cuda=12.10.0", True),
        ("cuda!=11", True),
        ("gpu_mem>=40G", True),
        ("gpu_mem>80G", False),
        ("gpu_mem>=81920", True),
        ("cpus>8", True),
        ("cpus>=100", False),
        ("disk>=1.5T", True),
        ("disk>=1024", True),
        ("gpu_type=v100", True),
        ("gpu_type=h100", False),
        ("missing>=1", False),
        ("missing!=1", True),
    ],
)
def test_a_node_is_what_is_wanted_or_it_is_not(text: str, is_so: bool) -> None:
    assert is_met(parse_constraint(text).each, FEATURES, ATTRIBUTES) is is_so


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ib*2", Constraint(All(()), (Count(Term("ib"), 2),))),
        ("ib*2&cuda>=12", Constraint(Term("cuda", ">=", "12"), (Count(Term("ib"), 2),))),
        ("[rack1*2&rack2*4]", Constraint(All(()), (Count(Term("rack1"), 2), Count(Term("rack2"), 4)))),
        ("[a|b]", Constraint(All(()), (), (Term("a"), Term("b")))),
        ("x&[a|b&!c]", Constraint(Term("x"), (), (Term("a"), All((Term("b"), Not(Term("c"))))))),
        ("(a|b)*3", Constraint(All(()), (Count(Any((Term("a"), Term("b"))), 3),))),
    ],
)
def test_counts_and_kinds_speak_of_all_nodes_together(text: str, expected: Constraint) -> None:
    assert parse_constraint(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("a&", "at position 3, `the end` where a feature or an attribute was expected"),
        ("a b", "at position 3, `b` where `&`, `|` or the end was expected"),
        ("(a", "at position 3, `the end` where `)` was expected"),
        ("[a|b", "where `]` was expected"),
        ("a>=", "where the value after `>=` was expected"),
        ("8>cpus", "`8` is not the name of a feature"),
        ("a$b", "at position 2, '$' is not valid"),
        ("a*0", "`0` is not a number of nodes"),
        ("a*b", "`b` is not a number of nodes"),
        ("a*99999999999999999999", "is not a number of nodes"),
        ("a*2|b", "apply to all nodes"),
        ("!(a*2)", "apply to all nodes"),
        ("([a|b])", "apply to all nodes"),
        ("[a|b]&[c|d]", "twice"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "nested deeper"),
        ("!" * 1000 + "a", "nested deeper"),
        ("a" * 2000, "the maximum is 1024"),
        ("é", "is not valid"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_constraint(text)
    assert message in str(refused.value)


@given(st.text(alphabet="ab&|!()[]*=<>,12.G \x00é", max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        constraint = parse_constraint(text)
    except ValueError as error:
        assert str(error)
    else:
        assert names_in(constraint)
        assert is_met(constraint.each, FEATURES, ATTRIBUTES) in (True, False)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("12.10", "12.4", 1), ("12.4", "12.4.0", 0), ("12.4rc1", "12.4", -1), ("535.104.05", "535.54", 1),
        ("40G", "40960M", 0), ("1T", "999G", 1), ("r3", "r12", -1), ("512", "1G", -1), ("5.15.0-91", "5.15.0-100", -1),
    ],
)  # fmt: skip
def test_values_compare_as_versions_and_amounts(left: str, right: str, order: int) -> None:
    assert compare(left, right) == order
    assert compare(right, left) == -order


def test_the_names_of_a_constraint_are_all_that_it_speaks_of() -> None:
    assert names_in(parse_constraint("a&!b&[c|cuda>1]&d*2&a")) == ("a", "b", "d", "c", "cuda")
