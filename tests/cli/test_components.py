"""Components of one job: between colons on the command line and between ``hetjob`` lines in a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from gq.cli.framework.components import split_commands
from gq.errors import UsageError
from gq.model.resource import Amount, ResourceRequest
from gq.request.getopt import Arguments, parse
from gq.request.het_job import selections
from gq.request.options import RUN, options_of
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController
from tests.cli.test_where import role

SCRIPT = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2 --gpus-per-task=1\necho hello\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "plain.sh").write_text("#!/bin/sh\n")
    return tmp_path


def sent(run: Run, controller: ScriptedController, *words: str) -> wire.Submit:
    controller.on(wire.Submit, wire.Submitted(job_id=123))
    assert run("gqsub", *words) == (0, "Submitted batch job 123\n", "")
    return controller.the(wire.Submit)


def test_what_stands_between_colons_are_roles_and_the_script_comes_last(
    run: Run, controller: ScriptedController, here: Path
) -> None:
    words = ("-n1", "-c4", "-t", "5", "-L", "lic:1", ":", "-n2", "--gpus-per-task=a100:1", "plain.sh", "--flag", ":")
    found = sent(run, controller, *words)

    assert (found.spec.args, found.spec.time_limit_s) == (("--flag", ":"), 300)
    assert found.spec.resources == ResourceRequest(
        licenses=(Amount("lic", 1),),
        roles=(
            role("group0", ntasks=1, cpus_per_task=4),
            role("group1", ntasks=2, gpus_per_task=1, gpu_type="a100"),
        ),
    )


def test_a_component_of_the_command_line_wins_over_that_of_the_script(
    run: Run, controller: ScriptedController, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GQSUB_CPUS_PER_TASK", "3")
    found = sent(run, controller, ":", "-n7", "job.sh")

    assert found.spec.resources.roles == (
        role("group0", ntasks=1, cpus_per_task=3),
        role("group1", ntasks=7, gpus_per_task=1),
    )


def test_components_are_called_by_their_job_names_if_these_differ(
    run: Run, controller: ScriptedController, here: Path
) -> None:
    found = sent(run, controller, "-J", "head", ":", "-J", "work-er", "plain.sh")

    assert (found.spec.name, [one.name for one in found.spec.resources.roles]) == ("head", ["head", "work-er"])


def test_a_component_may_be_roles(run: Run, controller: ScriptedController, here: Path) -> None:
    found = sent(run, controller, "--role=ps:2", ":", "-n1", "plain.sh")

    assert [one.name for one in found.spec.resources.roles] == ["ps", "group1"]


def test_roles_come_from_a_variable_and_the_command_line_takes_their_place(
    run: Run, controller: ScriptedController, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GQSUB_ROLE", "ps:2")

    assert sent(run, controller, "plain.sh").spec.resources.roles == (role("ps", ntasks=2),)
    controller.heard.clear()
    assert sent(run, controller, "--role=a:1", "plain.sh").spec.resources.roles == (role("a", ntasks=1),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n1", ":", "-t5", "plain.sh"], "`-t` applies to the whole job"),
        (["-n1", ":", "-n1", "-L", "a", "plain.sh"], "`-L` applies to the whole job"),
        (["-p", "a", ":", "-p", "b", "plain.sh"], "`-p` applies to the whole job"),
        (["-n1", ":", "--bogus", "plain.sh"], "unknown option `--bogus`"),
        (["--chain", ":", "-n1", "plain.sh"], "`--chain` and ` : ` exclude each other"),
        (["--role=group1:1", ":", "-n1", "plain.sh"], "two roles are named `group1`"),
    ],
)
def test_what_components_cannot_say_is_refused(
    run: Run, controller: ScriptedController, here: Path, words: list[str], message: str
) -> None:
    result = run("gqsub", *words)

    assert (result.status, result.err.partition("\n")[0]) == (2, f"error: {message}")


# ── of a step ─────────────────────────────────────────────────────────────────────────────────────────────────


def components(*words: str) -> list[tuple[list[str], tuple[str, ...]]]:
    """Of each: the options as written, and the command."""
    given, operands = parse(words, options_of(RUN), operands_end_options=True)
    found = split_commands(RUN, Arguments(given, operands))
    return [([one.written for one in component.given], component.command) for component in found]


def test_each_component_of_gqrun_has_a_command() -> None:
    assert components("--role=a", "x", "1", ":", "--role=b", "y", ":", "-l", "z") == [
        (["--role"], ("x", "1")),
        (["--role"], ("y",)),
        (["-l"], ("z",)),
    ]


def test_a_component_without_a_command_runs_that_of_the_next() -> None:
    assert components("-n1", ":", "-n2", "x", "y") == [(["-n"], ("x", "y")), (["-n"], ("x", "y"))]


def test_a_colon_among_the_arguments_of_a_command_is_left_to_it() -> None:
    assert components("test", "a", ":", "b") == [([], ("test", "a", ":", "b"))]
    assert components("echo", ":") == [([], ("echo", ":"))]


def selected(*words: str) -> list[tuple[str, ...]]:
    given, operands = parse([*words, "cmd"], options_of(RUN), operands_end_options=True)
    return selections([Arguments(one.given) for one in split_commands(RUN, Arguments(given, operands))])


def test_components_of_a_step_name_roles_or_have_those_of_their_numbers() -> None:
    assert selected() == [()]
    assert selected("--role=a,b", "--het-group=3-4") == [("a", "b", "3", "4")]
    assert selected("x", ":", "--het-group=2") == [("0",), ("2",)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--role=a:2"], "`--role`: `a:2` describes a new role, but the roles of a job that has started cannot change"),
        (["--role=1"], "`--role`: `1` cannot be a role's name"),
        (["--het-group=x"], "`--het-group`: `x` is not a whole number"),
        (["--role=a", "x", ":", "--role=a"], "two components run in role `a`"),
        (["--role=a", "x", ":", "--role=b", "-n2"], "`-n` applies to the whole step"),
    ],
)
def test_what_a_step_cannot_select_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        selected(*words)

    assert caught.value.message == message
