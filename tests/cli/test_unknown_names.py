"""A list that is empty because of a name that does not exist is refused with the name, and the one that is meant."""

from __future__ import annotations

import pytest

from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController, a_job, jobs, know_names

COMMANDS = ("gqstat", "gqacct", "gqdel", "gqprio")


@pytest.fixture
def empty(controller: ScriptedController) -> ScriptedController:
    """A cluster that knows names and has no jobs."""
    know_names(controller)
    controller.on(wire.ListJobs, jobs())
    controller.on(wire.QueryHistory, jobs())
    controller.on(wire.CancelJobs, wire.JobsDone())
    controller.on(wire.ListPriorities, wire.Priorities(jobs=(), weights={}))
    return controller


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("command", "option", "said"),
    [
        (command, option, said)
        for command in COMMANDS
        for option, said in (
            ("--partition=mian", "error: partition `mian` does not exist\nhint: did you mean `main`?\n"),
            ("--partition=main,xyz", "error: partition `xyz` does not exist\nhint: there are `main`\n"),
            ("--nodelist=n1,nn2", "error: node `nn2` does not exist\nhint: did you mean `n2`?\n"),
            ("--user=root,adda", "error: user `adda` does not exist\nhint: did you mean `ada`?\n"),
            ("--account=npl", "error: account `npl` does not exist\nhint: did you mean `nlp`?\n"),
            ("--qos=nromal", "error: QOS `nromal` does not exist\nhint: did you mean `normal`?\n"),
        )
        if (command, option) != ("gqprio", "--nodelist=n1,nn2")  # pending jobs have no nodes
    ],
)
def test_a_name_that_does_not_exist_is_refused(run: Run, command: str, option: str, said: str) -> None:
    result = run(command, *(["--noheader"] if command == "gqstat" else []), option)

    assert (result.status, result.err) == (1, said)


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("words", [["--sort=-Q"], ["--start"], ["--json"], []])
def test_each_way_to_list_the_queue_refuses_it_and_shows_no_job(run: Run, words: list[str]) -> None:
    result = run("gqstat", "-p", "mian", *words)

    assert (result.status, result.err.splitlines()[0]) == (1, "error: partition `mian` does not exist")


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("command", COMMANDS)
def test_names_that_exist_and_have_no_job_are_no_error(run: Run, command: str) -> None:
    result = run(command, "--partition=main", "--user=root,ada", "--account=nlp", "--qos=normal")

    assert (result.status, result.err) == (0, "")


def test_jobs_of_a_partition_that_was_removed_are_shown(run: Run, empty: ScriptedController) -> None:
    empty.on(wire.QueryHistory, jobs(a_job(partition="old")))

    assert run("gqacct", "-n", "--partition=old", "-P", "-o", "jobid,partition") == (0, "7|old\n", "")


@pytest.mark.usefixtures("empty")
def test_a_user_may_be_named_by_uid(run: Run, controller: ScriptedController) -> None:
    run("gqstat", "--user=0,ada")

    assert controller.all(wire.ListJobs)[0].filter.users == ("root", "ada")
