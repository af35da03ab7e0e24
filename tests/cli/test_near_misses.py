"""A misspelt value of an option is refused with the value that was probably meant."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

JOB = ("gqsub", "--wrap=true")


@pytest.mark.usefixtures("location")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ((*JOB, "--notify=mail", "--notify-on=fial"), "fail"),
        ((*JOB, "--notify=webhok:https://example.org/"), "webhook"),
        ((*JOB, "--mail-type=END,FIAL"), "FAIL"),
        ((*JOB, "--signal=USR3@60"), "USR1"),
        ((*JOB, "--requeue-on=preemt"), "preempt"),
        ((*JOB, "--open-mode=apend"), "append"),
        (("gqdel", "--signal=TREM", "7"), "TERM"),
        (("gqstat", "--states=RUNING"), "RUNNING"),
        (("gqacct", "--state=FIALED"), "FAILED"),
        (("gqresv", "create", "x", "--gpus=1", "--duration=1h", "--start=now", "--flags=MIANT"), "MAINT"),
        (("gqresv", "cal", "--by=nod"), "node"),
        (("gqctl", "notice", "list", "--state=deliverd"), "delivered"),
        (("gqstat", "--completion=zhs"), "zsh"),
    ],
)
def test_a_misspelt_value_names_the_value_that_was_meant(run: Run, words: tuple[str, ...], meant: str) -> None:
    result = run(*words)

    assert (result.status, result.out) == (2, "")
    assert result.err.splitlines()[-1] == f"hint: did you mean `{meant}`?"


@pytest.mark.usefixtures("location")
def test_nodes_by_name_where_a_number_is_wanted_name_the_option_for_them(run: Run) -> None:
    result = run("gqresv", "create", "x", "--nodes=n1", "--start=now", "--duration=1h")

    assert result.err == ("error: `--nodes`: `n1` is not a number of nodes\nhint: use --nodelist=n1 to name nodes\n")


@pytest.mark.usefixtures("location")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("gqresv", "create"), "for example: gqresv create NAME --gpus=4 --start=18:00 --duration=2h"),
        (("gqresv", "delete"), "gqresv delete NAME..."),
        (("gqctl", "account", "remove"), "gqctl account remove NAME..."),
    ],
)
def test_a_missing_operand_is_hinted_at_by_the_form_of_the_command(run: Run, words: tuple[str, ...], hint: str) -> None:
    assert run(*words) == (2, "", f"error: NAME is missing\nhint: {hint}\n")
