"""The examples of gq-python(3), run as printed on a real cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.clusters import PrivateCluster
from tests.test_documents import section

EXAMPLES = re.findall(r"^\.Bd -literal -offset indent\n(.*?)^\.Ed", section("gq-python.3", "EXAMPLES"), re.M | re.S)
PRINTED = [
    "COMPLETED 0\nready\n\n",
    "{'COMPLETED'}\n",
    "['COMPLETED', 'COMPLETED', 'COMPLETED', 'COMPLETED']\n",
    "unknown_partition partition `gpu-lrage` does not exist ",
    "CANCELLED\n",
    "",
]
"""What each example prints, or how that begins."""


def test_there_is_an_expectation_for_each_example() -> None:
    assert len(EXAMPLES) == len(PRINTED)


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_an_example_of_the_python_page_does_what_the_page_says(
    shared_cluster: PrivateCluster, tmp_path: Path, number: int
) -> None:
    Path(tmp_path, "train.sh").write_text("#!/bin/sh\necho ready\n")
    Path(tmp_path, "example.py").write_text(EXAMPLES[number].replace(r"\e", "\\"))

    done = shared_cluster.run("env", "-C", str(tmp_path), sys.executable, "example.py")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PRINTED[number]) and bool(done.stdout) == bool(PRINTED[number])
