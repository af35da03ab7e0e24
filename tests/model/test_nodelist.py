"""Node lists: what Slurm's users write and what its readers parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.model.nodelist import MAX_NAMES, compress, compress_counts, expand

PAIRS = [
    ((), ""),
    (("n1",), "n1"),
    (("n1", "n2", "n3", "n4"), "n[1-4]"),
    (("n1", "n2", "m5", "o3", "o4", "o6"), "n[1-2],m5,o[3-4,6]"),
    (("n9", "n10"), "n[9-10]"),
    (("n09", "n10", "n11"), "n[09-11]"),
    (("n1", "n02"), "n[1,02]"),
    (("login", "n1", "n2"), "login,n[1-2]"),
    (("n2", "n1"), "n[2,1]"),
    (("gpu-a1.site", "gpu-a2.site"), "gpu-a1.site,gpu-a2.site"),
    (("007", "008"), "[007-008]"),
]


@pytest.mark.parametrize(("names", "text"), PAIRS)
def test_a_list_of_names_is_written_as_slurm_writes_it(names: tuple[str, ...], text: str) -> None:
    assert compress(names) == text
    assert expand(text) == names


@given(st.lists(st.from_regex(r"\A[a-z]{1,2}-?[0-9]{0,3}\Z"), max_size=20))
def test_what_was_compressed_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert expand(compress(names)) == tuple(names)


def test_several_brackets_in_one_name_multiply() -> None:
    assert expand("r[1-2]n[1-2]x, m") == ("r1n1x", "r1n2x", "r2n1x", "r2n2x", "m")


@pytest.mark.parametrize(
    "text", ["n[1-2", "n1]", "n[[1]]", "n[2-1]", "n[a-b]", "n[]", f"n[0-{MAX_NAMES}]", "a[0-999]b[0-999]"]
)
def test_what_is_no_node_list_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a node list|more than"):
        expand(text)


@pytest.mark.parametrize(
    ("counts", "text"), [((), ""), ((3,), "3"), ((2, 2), "2(x2)"), ((3, 3, 2, 1, 1), "3(x2),2,1(x2)")]
)
def test_counts_are_written_as_slurm_writes_tasks_per_node(counts: tuple[int, ...], text: str) -> None:
    assert compress_counts(counts) == text
