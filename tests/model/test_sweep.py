"""Sweeps as people write them, and the values of each task."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.model.sweep import Sweep, check_sweep, format_sweep, parameters, parse_sweep, sweep_of_task, tasks_of

_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
_VALUES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=6)
_SWEEPS = st.dictionaries(_NAMES, st.lists(_VALUES, min_size=1, max_size=4), min_size=1, max_size=4).map(
    lambda found: tuple((name, tuple(values)) for name, values in found.items())
)


def test_each_task_has_one_combination_and_the_last_name_varies_fastest() -> None:
    sweep = parse_sweep("lr=1e-3,1e-4 bs=32,64,128")

    assert tasks_of(sweep) == 6
    assert [parameters(sweep_of_task(sweep, task)) for task in range(6)] == [
        {"lr": lr, "bs": bs} for lr, bs in product(("1e-3", "1e-4"), ("32", "64", "128"))
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a=1", {"a": ("1",)}),
        ("  a=1,2\n\tb=x  ", {"a": ("1", "2"), "b": ("x",)}),
        ("a='x, y','z'", {"a": ("x, y", "z")}),
        ('a="x y",z b=""', {"a": ("x y", "z"), "b": ("",)}),
        (r"a=x\,y,z\ w", {"a": ("x,y", "z w")}),
        ("a=--depth=3,-v", {"a": ("--depth=3", "-v")}),
        ("""a='it'"'"'s'""", {"a": ("it's",)}),
        ("a=-1,+2,1..9", {"a": ("-1", "+2", "1..9")}),
    ],
)
def test_words_are_read_as_a_shell_reads_them(text: str, meant: dict[str, tuple[str, ...]]) -> None:
    assert dict(parse_sweep(text)) == meant


@given(_SWEEPS.filter(lambda sweep: sum(len(value) for _, values in sweep for value in values) > 0))
def test_what_is_written_is_read_back(sweep: Sweep) -> None:
    assert parse_sweep(format_sweep(sweep)) == sweep


@given(_SWEEPS)
def test_no_two_tasks_have_the_same_places_of_values(sweep: Sweep) -> None:
    numbered = tuple((name, tuple(str(place) for place in range(len(values)))) for name, values in sweep)
    own = [sweep_of_task(numbered, task) for task in range(tasks_of(sweep))]

    assert own == [
        tuple((name, (value,)) for (name, _), value in zip(numbered, values, strict=True))
        for values in product(*(values for _, values in numbered))
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the sweep is empty"),
        ("lr", "`lr` is not NAME=VALUE,..."),
        ("'lr=1'", "`lr=1` is not NAME=VALUE,..."),
        ("=1", "`` is not a valid variable name"),
        ("l-r=1", "`l-r` is not a valid variable name; use letters, digits and _"),
        ("1lr=1", "`1lr` is not a valid variable name"),
        ("lr=", "a value of `lr` is empty; write lr='' for an empty value"),
        ("lr=1,,2", "a value of `lr` is empty"),
        ("lr=1 lr=2", "`lr` is given twice; write lr=1,2"),
        ("lr='1", "ends inside '"),
        ("lr=1\\", "ends inside an escape"),
        ("PATH=/bin", "`PATH` is a variable that programs of the job use; choose another name, such as path"),
        ("HOME=/tmp", "`HOME` is a variable that programs"),
        ("LD_PRELOAD=x", "`LD_PRELOAD` is a variable that programs"),
        ("GQ_JOB_ID=1", "`GQ_JOB_ID` is a variable that programs"),
        ("SLURM_PROCID=1", "`SLURM_PROCID` is a variable that programs"),
        ("CUDA_VISIBLE_DEVICES=0", "`CUDA_VISIBLE_DEVICES` is a variable that programs"),
        (" ".join(f"n{one}=1,2" for one in range(20)), "it has 1048576 combinations"),
        (f"a={'x' * 10_001}", "the values have more than 10000 characters together"),
        (" ".join(f"n{one}=1" for one in range(65)), "the sweep has 65 names; the maximum is 64"),
    ],
)
def test_what_cannot_be_meant_is_said_with_what_can(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_sweep(text)
    assert said in str(caught.value)


def test_what_no_text_could_say_is_refused_too() -> None:
    for sweep in ((("a", ()),), (("a", ("x\0y",)),), (("a", ("1",)), ("a", ("2",)))):
        with pytest.raises(ValueError, match=r"no values|NUL|twice"):
            check_sweep(sweep)
