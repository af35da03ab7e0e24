"""Who is to be told of what: the four options as people write them."""

from __future__ import annotations

import pytest

from gq.errors import UsageError
from gq.model.notice import Target
from gq.request.directives import read_header
from gq.request.getopt import Arguments, parse
from gq.request.layers import job_arguments
from gq.request.notify import targets
from gq.request.options import SUB, options_of


def asked(*words: str) -> tuple[Target, ...]:
    return targets(Arguments(parse(words, options_of(SUB))[0]))


def test_without_when_the_end_is_told_of() -> None:
    assert asked("--notify=mail") == (Target(kind="mail", on=("end",)),)


def test_several_are_told_of_the_same() -> None:
    to = "https://hooks.example.org/a:b?c=d,e"
    words = ("--notify=mail:ada@example.org", f"--notify=webhook:{to}", "--notify-on=timeout-80,begin")

    assert asked(*words) == (
        Target(kind="mail", to="ada@example.org", on=("begin", "timeout_80")),
        Target(kind="webhook", to=to, on=("begin", "timeout_80")),
    )


def test_all_is_the_life_of_a_job_without_its_clock_and_none_is_nothing() -> None:
    assert asked("--notify=mail", "--notify-on=all")[0].on == ("begin", "end", "fail", "requeue", "invalid_depend")
    assert asked("--notify=mail", "--notify-on=none") == ()


def test_when_without_how_is_for_the_sites_default() -> None:
    assert asked("--notify-on=fail") == (Target(kind="", on=("fail",)),)


def test_array_tasks_alone_means_the_end_of_each() -> None:
    assert asked("--notify=mail", "--notify-on=array_tasks")[0].on == ("end", "array_tasks")


def test_the_words_of_slurm_mean_the_same_and_may_stay_without_effect() -> None:
    lines = "#!/bin/sh\n#SBATCH --mail-type=BEGIN,TIME_LIMIT_80,stage_out --mail-user=ada@example.org\n"
    header = read_header(lines, "job.sh")

    assert header.notes == ()
    assert targets(job_arguments(SUB, (), {}, header.given)) == (
        Target(kind="mail", to="ada@example.org", on=("begin", "timeout_80"), is_optional=True),
    )


@pytest.mark.parametrize("words", [("--mail-user=ada",), ("--mail-type=NONE",), ("--mail-type=STAGE_OUT",)])
def test_slurms_words_that_ask_for_nothing_ask_for_nothing(words: tuple[str, ...]) -> None:
    assert asked(*words) == ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--notify=pigeon:home",), "is not one of mail, webhook, slack, command"),
        (("--notify=webhook",), "`webhook` needs a URL"),
        (("--notify=command:",), "`command` needs a command"),
        (("--notify=mail", "--notify-on=often"), "`often` is not one of begin, end"),
        (("--notify=mail", "--notify-on=none,end"), "combines none with other values"),
        (("--mail-type=END,SOMETIMES",), "`SOMETIMES` is not one of ALL"),
        (("--notify=webhook:https://a/\x1b[2J",), "must have 1 to 2048 printable characters"),
        (("--notify=mail",) * 9, "at most 8 targets"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_way_out(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(*words)

    assert said in refused.value.message
