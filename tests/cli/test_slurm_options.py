"""Options of Slurm that gq lacks are known by name, and near misses of gq's own are found by edit distance."""

from __future__ import annotations

import pytest

from gq.cli._run import load
from gq.cli.framework.command import all_options
from gq.cli.resv.options import BOOKING_OPTIONS
from gq.errors import UsageError
from gq.near_miss import nearest
from gq.request.directives import read_header
from gq.request.layers import input_variables
from gq.request.slurm_options import COUNTERPARTS, GUESSES, NOTHING, RESERVATION_GUESSES, SLURM_OPTIONS
from tests.cli.conftest import Run


@pytest.mark.parametrize("command", COUNTERPARTS)
def test_every_option_of_slurm_works_or_says_what_to_use_instead(command: str) -> None:
    ours = {name for option in all_options(load(command)) for name in (option.name, *option.aliases)}
    theirs = [option for option in SLURM_OPTIONS if COUNTERPARTS[command] in option.commands]
    unbuilt = {"time-min"}

    assert len(theirs) >= 18
    assert [one.name for one in theirs if one.name not in ours | unbuilt and not one.instead] == []


def test_an_option_of_slurm_stands_in_the_table_once_for_each_command() -> None:
    pairs = [(option.name, command) for option in SLURM_OPTIONS for command in option.commands]

    assert sorted(pairs) == sorted(set(pairs))


@pytest.mark.parametrize(
    ("words", "option", "hint"),
    [
        (["gqsub", "--mincpus=3", "job.sh"], "`--mincpus`", "use --ntasks-per-node and --cpus-per-task"),
        (["gqsub", "-mblock", "job.sh"], "`-m` (--distribution)", "use --ntasks-per-node"),
        (["gqsub", "--acctg-freq=1", "job.sh"], "`--acctg-freq`", NOTHING),
        (["gqrun", "--mpi=pmix", "true"], "`--mpi`", "start MPI programs with mpirun"),
        (["gqrun", "-n1", "a", ":", "--multi-prog", "b"], "`--multi-prog`", "name each program"),
        (["gqalloc", "--no-shell"], "`--no-shell`", "gqsub --wrap"),
        (["gqstat", "-l"], "`-l` (--long)", "use -O to choose the columns"),
        (["gqstat", "--yaml"], "`--yaml`", "use --json"),
        (["gqinfo", "-Nel"], "`-e` (--exact)", "use -N"),
        (["gqinfo", "-R"], "`-R` (--list-reasons)", "use -N"),
        (["gqinfo", "-o", "%P %N"], "`-o` (--format)", "`gqinfo --json`"),
        (["gqinfo", "--summarize"], "`--summarize`", "one line for each partition"),
        (["gqacct", "-l"], "`-l` (--long)", "`gqacct -e` lists them"),
        (["gqacct", "-bX"], "`-b` (--brief)", "`-o jobid,state,exitcode`"),
        (["gqacct", "--delimiter=;"], "`--delimiter`", "use -P"),
        (["gqprio", "-l"], "`-l` (--long)", "leave it out"),
        (["gqprio", "-S", "u"], "`-S` (--sort)", "the highest priority comes first"),
        (["gqshare", "-m"], "`-m` (--partition)", "leave it out"),
        (["gqdel", "-i", "7"], "`-i` (--interactive)", "`gqstat` with the same filters"),
        (["gqdel", "--ctld", "7"], "`--ctld`", "leave it out"),
        (["gqdel", "--hurry", "7"], "`--hurry`", NOTHING),
    ],
)
def test_an_option_that_only_slurm_has_names_the_way_out(run: Run, words: list[str], option: str, hint: str) -> None:
    status, out, err = run(*words)

    error, told = err.splitlines()
    assert (status, out, error) == (2, "", f"error: unknown option {option}: Slurm has it, gq does not")
    assert told.startswith("hint: ") and hint in told


def test_a_header_line_names_the_way_out_with_its_line() -> None:
    with pytest.raises(UsageError) as caught:
        read_header("#!/bin/sh\n#SBATCH --spread-segments\n", "job.sh")

    assert caught.value.message == "job.sh:2: unknown option `--spread-segments`: Slurm has it, gq does not"
    assert "--switches" in caught.value.hint


def test_a_variable_names_the_way_out() -> None:
    with pytest.raises(UsageError) as caught:
        input_variables("gqsub", {"GQSUB_MIN": "1", "GQSUB_MINCPUS": "3"})
    assert caught.value.message == "`GQSUB_MIN` in the environment does not name an option"

    with pytest.raises(UsageError) as caught:
        input_variables("gqsub", {"GQSUB_MINCPUS": "3"})
    assert caught.value.message == "GQSUB_MINCPUS: unknown option `--mincpus`: Slurm has it, gq does not"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["gqsub", "--pty", "x"], "it is an option of `gqrun`"),
        (["gqrun", "--array=1-3", "x"], "it is an option of `gqsub`"),
        (["gqalloc", "--output=x"], "it is an option of `gqsub` and `gqrun`"),
        (["gqsub", "--cpus=4", "x"], "did you mean `--cpus-per-task`?"),
        (["gqresv", "create", "x", "--begin=now"], "did you mean `--start`?"),
        (["gqresv", "update", "x", "--NodeCnt=2"], "did you mean `--nodes`?"),
    ],
)
def test_an_option_of_another_command_names_that_command(run: Run, words: list[str], hint: str) -> None:
    assert run(*words).err.splitlines()[1] == f"hint: {hint}"


def test_an_option_of_the_command_line_is_refused_in_a_script_as_such() -> None:
    with pytest.raises(UsageError) as caught:
        read_header("#!/bin/sh\n#GQ --wrap=true\n", "job.sh")

    assert caught.value.hint == "it belongs on the command line of `gqsub`, not into a script"


def test_a_guess_names_an_option_that_exists() -> None:
    ours = {option.name for option in all_options(load("gqsub"))}

    assert set(GUESSES.values()) <= ours and not ours & set(GUESSES)
    of_reservations = {option.name for option in BOOKING_OPTIONS}
    assert set(RESERVATION_GUESSES.values()) <= of_reservations and not of_reservations & set(RESERVATION_GUESSES)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("nodse", ["ntasks", "nodes"], "nodes"),
        ("--gpus-pre-nod", ["--gpus", "--gpus-per-node"], "--gpus-per-node"),
        ("jobstartd", ["JobStarted"], "JobStarted"),
        ("tow", ["one", "two"], "two"),
        ("--gpus-each", ["--gpus", "--gpus-per-node", "--gpus-per-task"], ""),
        ("fore", ["four"], ""),
        ("zz", ["main", "gpu"], ""),
        ("", ["a"], "a"),
    ],
)
def test_only_a_near_miss_is_suggested(word: str, known: list[str], meant: str) -> None:
    assert nearest(word, known) == meant
