"""The table of job options: who has what, and who wins between script, variables and command line."""

from __future__ import annotations

import pytest

from gq.errors import Refusal, UsageError
from gq.model.resource import ResourceRequest
from gq.model.step import StepRequest
from gq.request.environment import OWN_VARIABLES
from gq.request.getopt import parse
from gq.request.layers import input_variables, job_arguments, merge
from gq.request.option import ParsedOption
from gq.request.options import (
    ALLOC,
    JOB_OPTIONS,
    RESOURCE_OPTIONS,
    RUN,
    STEP_SIZES,
    SUB,
    JobOption,
    header_options,
    options_of,
)

SPINE = [
    "job-name", "partition", "time", "nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "mem",
    "mem-per-cpu",
    "gpus", "gpus-per-node", "gpus-per-task", "cpus-per-gpu", "mem-per-gpu", "gres", "nodelist", "exclude",
    "exclusive", "hold", "nice", "requeue", "no-requeue", "signal", "kill-on-bad-exit", "no-kill", "output",
    "error", "input", "open-mode", "chdir", "export", "comment", "wrap", "parsable", "wait", "test-only", "begin",
    "array", "sweep", "fail-fast", "account", "qos", "priority", "dependency", "kill-on-invalid-dep", "deadline", "if",
    "constraint", "prefer", "switches", "min-gpu-mem", "tmp", "licenses", "role", "data", "fill-nodes", "elastic",
    "what-if",
    "notify", "notify-on", "mail-type", "mail-user", "reservation", "chain", "grace", "requeue-on", "max-requeue",
    "resume-cost",
]  # fmt: skip
LATER = [
    "time-min",
]  # fmt: skip
LETTERS = {
    "J": "job-name", "p": "partition", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus",
    "w": "nodelist", "x": "exclude", "H": "hold", "o": "output", "e": "error", "i": "input", "D": "chdir", "b": "begin",
    "a": "array", "A": "account", "q": "qos", "d": "dependency",
    "C": "constraint", "L": "licenses",
}  # fmt: skip


def line(*words: str, command: str = SUB) -> list[ParsedOption]:
    return parse(words, options_of(command))[0]


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_gqsub_has_every_option_of_the_contract() -> None:
    built = {option.name for option in options_of(SUB) if not option.is_unbuilt}
    unbuilt = {option.name for option in options_of(SUB) if option.is_unbuilt}

    assert (built, unbuilt) == (set(SPINE), set(LATER))


def test_letters_are_those_of_slurm() -> None:
    by_letter = {option.letter: option.name for option in options_of(SUB)}

    assert {letter: by_letter.get(letter) for letter in LETTERS} == LETTERS


@pytest.mark.parametrize("command", [SUB, RUN, ALLOC])
def test_no_name_and_no_letter_means_two_things(command: str) -> None:
    options = options_of(command)
    names = [name for option in options for name in (option.name, *option.aliases)]
    letters = [option.letter for option in options if option.letter]

    assert len(names) == len(set(names))
    assert len(letters) == len(set(letters))


@pytest.mark.parametrize("option", JOB_OPTIONS, ids=lambda option: option.name)
def test_every_option_that_works_says_what_it_does(option: JobOption) -> None:
    assert option.is_unbuilt == option.is_hidden
    assert option.is_unbuilt or option.help.endswith(".")


def test_every_field_of_a_request_comes_from_one_row_of_the_table() -> None:
    fields = [option.sets for option in RESOURCE_OPTIONS]
    of_values = {"nodes_max", "most_gpus", "gpu_type", "switches_wait_s", "roles"}

    assert sorted({*fields, *of_values}) == sorted(ResourceRequest.__struct_fields__)
    assert [field for field in fields if fields.count(field) > 1] == ["resources", "resources"]
    assert STEP_SIZES.keys() <= set(StepRequest.__struct_fields__)


def test_rivals_know_each_other() -> None:
    by_name = {option.name: option for option in JOB_OPTIONS}

    assert [
        (option.name, rival)
        for option in JOB_OPTIONS
        for rival in option.rivals
        if option.name not in by_name[rival].rivals and rival != option.name
    ] == []


@pytest.mark.parametrize("name", LATER)
def test_an_option_of_a_later_version_is_refused_as_such_wherever_it_stands(name: str) -> None:
    option = next(option for option in options_of(SUB) if option.name == name)
    word = f"--{name}=x" if option.takes_value else f"--{name}"
    header = parse([word], header_options(), source="job.sh:2")[0]

    with pytest.raises(Refusal, match=rf"^`--{name}` is not available in this version$"):
        merge(line(word))
    with pytest.raises(Refusal, match=rf"^job\.sh:2: `--{name}` is not available in this version$"):
        merge(header, [])


# ── who wins ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_line_wins_over_variables_and_these_over_the_script() -> None:
    header = parse(["--nodes=1", "--ntasks=1", "--time=1"], header_options(), source="job.sh:2")[0]
    environ = {"GQSUB_NTASKS": "2", "GQSUB_TIME": "2", "GQRUN_NODES": "9", "GQ_NODES": "9"}

    found = job_arguments(SUB, line("--time=3"), environ, header)

    assert [found.text(name) for name in ("nodes", "ntasks", "time")] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("weak", "strong", "left"),
    [
        ("--mem=1G", "--mem-per-cpu=2G", ["mem-per-cpu"]),
        ("--mem-per-gpu=1G", "--mem=2G", ["mem"]),
        ("--gres=gpu:2", "--gpus-per-node=4", ["gpus-per-node"]),
        ("--requeue", "--no-requeue", ["no-requeue"]),
        ("--cpus-per-task=2", "--cpus-per-gpu=4", ["cpus-per-gpu"]),
        ("--nodes=2", "--gpus=4", ["nodes", "gpus"]),
    ],
)
def test_a_stronger_layer_replaces_what_says_the_same_otherwise(weak: str, strong: str, left: list[str]) -> None:
    assert [one.name for one in merge(line(weak), line(strong))] == left


@pytest.mark.parametrize(
    "words",
    [("--mem=1", "--mem-per-cpu=1"), ("--requeue", "--no-requeue"), ("--gres=gpu:1", "--gpus-per-node=1"),
     ("--no-requeue", "--requeue-on=timeout"),
     ("-c2", "--cpus-per-gpu=2")],
)  # fmt: skip
def test_rivals_in_one_layer_exclude_each_other(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="exclude each other") as caught:
        merge(line(*words))

    assert caught.value.hint == "give one of them"


# ── variables ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("GQSUB_CPUS_PER_TASK", "4", [("cpus-per-task", "4")]),
        ("GQSUB_HOLD", "1", [("hold", "")]),
        ("GQSUB_HOLD", "", [("hold", "")]),
        ("GQSUB_HOLD", "no", []),
        ("GQSUB_EXCLUSIVE", "", [("exclusive", "true")]),
        ("GQSUB_KILL_ON_BAD_EXIT", "0", [("kill-on-bad-exit", "0")]),
    ],
)
def test_a_variable_says_what_its_option_says(variable: str, value: str, expected: list[tuple[str, str]]) -> None:
    assert [(one.name, one.value) for one in input_variables(SUB, {variable: value})] == expected


def test_a_variable_that_names_no_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        input_variables(SUB, {"GQSUB_TIEM": "5"})

    assert caught.value.message == "`GQSUB_TIEM` in the environment does not name an option"
    assert caught.value.hint == "did you mean `GQSUB_TIME`?"


def test_what_is_not_built_is_never_what_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        input_variables(SUB, {"GQSUB_TIM_MIN": "5"})
    assert caught.value.hint == "`gqsub --help` lists the options"

    with pytest.raises(UsageError) as caught:
        parse(["--elastik"], (JobOption(name="elastic", is_unbuilt=True, is_hidden=True),))
    assert caught.value.hint == ""


def test_a_flag_variable_that_is_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(UsageError, match="`GQSUB_HOLD`: `maybe` is neither yes nor no"):
        input_variables(SUB, {"GQSUB_HOLD": "maybe"})


def test_what_gq_sets_in_a_job_is_never_read_as_an_option() -> None:
    assert [input_variables(command, dict.fromkeys(OWN_VARIABLES, "1")) for command in (SUB, RUN, ALLOC)] == [
        [],
        [],
        [],
    ]
