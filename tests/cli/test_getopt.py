"""GNU getopt over a table: every written form, and every way to get it wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.errors import UsageError
from gq.request.getopt import Arguments, parse, whole_number
from gq.request.option import Option, ParsedOption

TABLE = (
    Option(name="nodes", letter="N", metavar="COUNT"),
    Option(name="ntasks", letter="n", metavar="COUNT"),
    Option(name="ntasks-per-node", aliases=("tasks-per-node",), metavar="COUNT"),
    Option(name="hold", letter="H"),
    Option(name="parsable"),
    Option(name="kill-on-bad-exit", letter="K", metavar="[=0|1]", if_bare="1"),
)


def values(*words: str, abbreviate: bool = False) -> list[tuple[str, str]]:
    found, _ = parse(words, TABLE, abbreviate=abbreviate)
    return [(one.name, one.value) for one in found]


@pytest.mark.parametrize(
    "words",
    [["--nodes", "3"], ["--nodes=3"], ["-N", "3"], ["-N3"], ["-HN3"], ["-HN", "3"], ["--", "x"]],
)
def test_every_written_form_of_a_value_is_read_alike(words: list[str]) -> None:
    expected = [("nodes", "3")] if "--" not in words else []

    assert [one for one in values(*words) if one[0] != "hold"] == expected


@pytest.mark.parametrize(
    ("words", "value", "operands"),
    [(["-K"], "1", []), (["-K0"], "0", []), (["-K", "0"], "1", ["0"]), (["--kill-on-bad-exit=0"], "0", []),
     (["--kill-on-bad-exit", "0"], "1", ["0"])],
)  # fmt: skip
def test_an_optional_argument_is_only_taken_when_attached(words: list[str], value: str, operands: list[str]) -> None:
    found, rest = parse(words, TABLE)

    assert ([one.value for one in found], rest) == ([value], operands)


def test_options_and_operands_may_stand_in_any_order() -> None:
    found, operands = parse(["12", "--nodes", "1", "13", "-H"], TABLE)

    assert ([one.name for one in found], operands) == (["nodes", "hold"], ["12", "13"])


def test_what_follows_a_script_belongs_to_the_script() -> None:
    found, operands = parse(["-H", "job.sh", "--nodes", "--", "-x"], TABLE, operands_end_options=True)

    assert ([one.name for one in found], operands) == (["hold"], ["job.sh", "--nodes", "--", "-x"])


def test_two_dashes_end_the_options_and_one_dash_is_an_operand() -> None:
    _, operands = parse(["-", "--", "--nodes", "-H"], TABLE)

    assert operands == ["-", "--nodes", "-H"]


def test_an_alias_is_its_option() -> None:
    assert values("--tasks-per-node=2") == [("ntasks-per-node", "2")]


def test_a_clear_beginning_will_do_where_it_is_allowed() -> None:
    assert values("--par", "--no=2", abbreviate=True) == [("parsable", ""), ("nodes", "2")]


def test_a_whole_name_is_not_ambiguous_although_longer_names_begin_with_it() -> None:
    assert values("--ntasks=2", abbreviate=True) == [("ntasks", "2")]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--nodse=3"], "unknown option `--nodse`", "did you mean `--nodes`?"),
        (["--par"], "unknown option `--par`", ""),
        (["-Z"], "unknown option `-Z`", ""),
        (["-HZ"], "unknown option `-Z`", ""),
        (["--hold=yes"], "`--hold` takes no value, not `yes`", ""),
        (["--nodes"], "`--nodes` needs a value", "--nodes COUNT"),
        (["-N"], "`-N` needs a value", "-N COUNT"),
    ],
)
def test_a_word_that_cannot_be_read_is_named(words: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words, TABLE)

    assert caught.value.message == message
    assert not hint or caught.value.hint == hint


def test_an_ambiguous_beginning_names_what_it_may_mean() -> None:
    with pytest.raises(UsageError, match="`--nt` is ambiguous") as caught:
        parse(["--nt=1"], TABLE, source="job.sh:3", abbreviate=True)

    assert caught.value.message.startswith("job.sh:3: ")
    assert "`--ntasks`" in caught.value.hint


@given(st.lists(st.text(max_size=6), max_size=6), st.booleans())
def test_any_words_are_read_or_refused(words: list[str], abbreviate: bool) -> None:
    try:
        found, operands = parse(words, TABLE, abbreviate=abbreviate)
    except UsageError as error:
        assert error.message
    else:
        assert len(found) + len(operands) <= sum(map(len, words)) + len(words)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_value_counts_and_lists_add_up() -> None:
    arguments = Arguments([ParsedOption("jobs", "1,2", "-j"), ParsedOption("jobs", " 3 ,", "--jobs")])

    assert arguments.text("jobs") == " 3 ,"
    assert arguments.items("jobs", int) == (1, 2, 3)


def test_a_bad_value_is_named_with_its_place_and_its_way_out() -> None:
    arguments = Arguments([ParsedOption("nodes", "x", "-N", "job.sh:3")])

    with pytest.raises(UsageError) as caught:
        arguments.integer("nodes")

    assert caught.value.message == "job.sh:3: `-N`: `x` is not a whole number"


@pytest.mark.parametrize("text", ["", "1.5", "1e3", "x", "--1", "٣"])
def test_what_is_not_a_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        whole_number(text)


def test_a_number_that_is_too_long_to_read_is_said_to_be_too_large() -> None:
    for text, words in (("9" * 30, "is too large"), ("-" + "9" * 30, "is too small")):
        with pytest.raises(ValueError, match=words):
            whole_number(text)


@pytest.mark.parametrize(("text", "rule"), [("0", "the minimum is 1"), ("9", "the maximum is 8")])
def test_a_number_out_of_bounds_is_told_the_bound(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        whole_number(text, 1, 8)
