"""Which file a job's output, error and input patterns mean."""

from __future__ import annotations

import pytest

from gq.model.job import JobSpec
from gq.request.patterns import error_pattern, expand_pattern, input_pattern, output_pattern


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("gq-%j.out", "gq-42.out"),
        ("%x.%u.%N.%n.%t", "train.ann.n1.2.7"),
        ("%A_%a", "40_3"),
        ("%4a-%3j-%20t", "0003-042-0000000007"),
        ("%J-%s", "42-batch"),
        ("100%% %%j %%%j", "100% %j %42"),
        ("%q %Z% %", "%q %Z% %"),
        ("%5x", "train"),
        ("%12345678901234567890j", "%12345678901234567890j"),
        ("plain", "plain"),
    ],
)
def test_every_code_is_replaced_once(pattern: str, name: str) -> None:
    known = {"job_id": 42, "name": "train", "user": "ann", "node": "n1.example.org", "rank": 7, "node_rank": 2}

    assert expand_pattern(pattern, **known, array_job_id=40, array_task_id=3) == name


def test_a_name_that_looks_like_a_code_is_not_expanded_again() -> None:
    assert expand_pattern("%x-%j", job_id=1, name="%j", user="ann") == "%j-1"


def test_what_is_not_known_stays() -> None:
    assert expand_pattern("%j-%A-%a-%N-%n-%t", job_id=1, name="x", user="ann") == "1-1-%a-%N-%n-%t"


def test_a_step_has_a_number() -> None:
    assert expand_pattern("%J-%s-%3s", job_id=1, name="x", user="ann", step=0) == "1.0-0-000"


def test_the_default_output_is_in_the_submit_directory_and_a_given_one_in_the_jobs() -> None:
    plain = JobSpec(name="x", submit_dir="/home/ann", chdir="/data")
    named = JobSpec(name="x", submit_dir="/home/ann", chdir="/data", output="o/%j", error="/e", input="in")

    assert (output_pattern(plain), error_pattern(plain), input_pattern(plain)) == ("/home/ann/gq-%j.out", "", "")
    assert (output_pattern(named), error_pattern(named), input_pattern(named)) == ("/data/o/%j", "/e", "/data/in")


def test_a_directory_is_no_pattern() -> None:
    pattern = output_pattern(JobSpec(name="x", submit_dir="/run%j"))

    assert expand_pattern(pattern, job_id=1, name="x", user="ann") == "/run%j/gq-1.out"


def test_an_interactive_job_has_no_files() -> None:
    spec = JobSpec(name="x", is_interactive=True, output="o", error="e", input="i")

    assert (output_pattern(spec), error_pattern(spec), input_pattern(spec)) == ("", "", "")
