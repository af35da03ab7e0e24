"""Options in the head of a script: all written forms of #SBATCH and #GQ, and complaints with file and line."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.errors import GqError, UsageError
from gq.request.directives import read_header

COMMON = r"""#!/bin/bash
#SBATCH --job-name="my train"
#SBATCH -p main
#SBATCH --time=1-02:03:04
#SBATCH --nodes 2
#SBATCH -n4
#SBATCH --ntasks-per-node=2     # two on each
#SBATCH --cpus-per-task            8
#SBATCH --mem=16G
#SBATCH --gres=gpu:a100:4
#SBATCH --nodelist='n[1-4]'
#SBATCH -x n3
#SBATCH --exclusive 
#SBATCH --hold
#SBATCH --nice=10
#SBATCH --requeue
#SBATCH --signal=B:USR1@90
#SBATCH --kill-on-bad-exit=0
#SBATCH --no-kill
#SBATCH --output=out/%j.log --error "err %j.log"
#SBATCH --input=/dev/null
#SBATCH --open-mode=append
#SBATCH -D /tmp
#SBATCH --export=ALL,A=1
#SBATCH --comment 'it'\''s #1'
#SBATCH --begin=now+2h
#SBATCH --parsable
#SBATCH --wckey=x
#SBATCH --hint=nomultithread
#SBATCH --get-user-env
#SBATCH --mail-type=END --mail-user=a@b.c
#SBATCH --contiguous
#SBATCH --threads-per-core=1

# a comment
echo start
"""  # noqa: W291 - the blank after --exclusive is what is tested


def options(script: str) -> dict[str, str]:
    return {one.name: one.value for one in read_header(script, "job.sh").given}


def test_thirty_common_slurm_options_are_read_as_slurm_reads_them() -> None:
    header = read_header(COMMON, "job.sh")

    assert {one.name: one.value for one in header.given} == {
        "job-name": "my train",
        "partition": "main",
        "time": "1-02:03:04",
        "nodes": "2",
        "ntasks": "4",
        "ntasks-per-node": "2",
        "cpus-per-task": "8",
        "mem": "16G",
        "gres": "gpu:a100:4",
        "nodelist": "n[1-4]",
        "exclude": "n3",
        "exclusive": "true",
        "hold": "",
        "nice": "10",
        "requeue": "",
        "signal": "B:USR1@90",
        "kill-on-bad-exit": "0",
        "no-kill": "on",
        "output": "out/%j.log",
        "error": "err %j.log",
        "input": "/dev/null",
        "open-mode": "append",
        "chdir": "/tmp",
        "export": "ALL,A=1",
        "comment": "it's #1",
        "begin": "now+2h",
        "parsable": "",
        "mail-type": "END",
        "mail-user": "a@b.c",
    }
    assert [note.split()[1] for note in header.notes] == [
        "--wckey", "--hint", "--get-user-env", "--contiguous", "--threads-per-core",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["--job-name=x y", "--job-name x", "-J x", "-Jx", '--job-name="x"', "--job-name='x'", "--job-name            x ",
     "\t-J\tx\t# comment", r"-J \x", "--job x", 'J', "-J x\r"],
)  # fmt: skip
def test_a_value_may_be_written_in_many_ways(line: str) -> None:
    if line in ("--job-name=x y", "J"):
        with pytest.raises(UsageError, match="is not an option"):
            options(f"#!/bin/sh\n#SBATCH {line}\n")
    else:
        assert options(f"#!/bin/sh\n#SBATCH {line}\n") == {"job-name": "x"}


def test_a_hash_inside_a_word_begins_no_comment() -> None:
    assert options("#!/bin/sh\n#SBATCH --comment=a#b # c\n") == {"comment": "a#b"}


def test_a_script_with_gq_lines_uses_only_those() -> None:
    assert options("#!/bin/sh\n#SBATCH -N 4\n#GQ -N 2\n#SBATCH --bogus\n") == {"nodes": "2"}


def test_the_head_ends_at_the_first_command() -> None:
    assert options("#!/bin/sh\n\n# hello\n#GQ -N 2\n\n  true\n##GQ -n 4\n") == {"nodes": "2"}


@pytest.mark.parametrize(
    "line", ["##SBATCH -N 2", "## SBATCH -N 2", "#SBATCHX -N 2", "# SBATCH lines", "# gq - a queue"]
)
def test_a_comment_that_is_not_spelt_like_a_header_line_is_a_comment(line: str) -> None:
    assert options(f"#!/bin/sh\n{line}\n#SBATCH -n 3\n") == {"ntasks": "3"}


@pytest.mark.parametrize(
    ("line", "meant"),
    [("# SBATCH -N 2", "#SBATCH -N 2"), (" #SBATCH -N 2", "#SBATCH -N 2"), ("#sbatch -N 2", "#SBATCH -N 2"),
     ("#GQ--gpus=1", "#GQ --gpus=1"), ("# GQ --gpus=1", "#GQ --gpus=1"), ("#gq -n1", "#GQ -n1")],
)  # fmt: skip
def test_a_misspelt_header_line_is_refused_with_its_number(line: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_header(f"#!/bin/sh\n#SBATCH -n 3\n{line}\ntrue\n", "job.sh")

    assert caught.value.message == f"job.sh:3: `{line.strip()}` is a comment, not a header line"
    assert caught.value.hint == f"write `{meant}`, or begin it with `##` to keep it a comment"


def test_lines_of_slurm_do_not_count_beside_lines_of_gq_however_they_are_spelt() -> None:
    assert options("#!/bin/sh\n# SBATCH -N 4\n#PBS -l x\n#GQ -N 2\ntrue\n#SBATCH -n 4\n") == {"nodes": "2"}


@pytest.mark.parametrize("mark", ["#GQ", "#SBATCH"])
@pytest.mark.parametrize("head", ["", "#SBATCH -n2\n"])
def test_a_header_line_after_the_first_command_is_refused_with_its_number(mark: str, head: str) -> None:
    script = f"#!/bin/bash\n{head}set -e\n\n{mark} --gpus=1\n"
    with pytest.raises(UsageError) as caught:
        read_header(script, "job.sh")

    number = script.splitlines().index(f"{mark} --gpus=1") + 1
    assert caught.value.message == f"job.sh:{number}: this {mark} line comes after the first command of the script"
    assert caught.value.hint == "move it up, above the first command"


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\n#GQ -n2\ncat <<EOF >next.sh\n#!/bin/sh\n#GQ -n4\nEOF\n",
        "#!/usr/bin/env bash\n#GQ -n2\ncat <<-'END' | gqsub\n#SBATCH -n4\n\tEND\n",
        '#!/usr/bin/python3\n#GQ -n2\nTEXT = """#!/bin/sh\n#GQ -n4\n"""\n',
    ],
)
def test_a_script_may_hold_another_script_with_header_lines(script: str) -> None:
    assert options(script) == {"ntasks": "2"}


@pytest.mark.parametrize(
    "script",
    ["#!/bin/bash\ncat <<EOF\nx\nEOF\n#GQ -n4\n", "#!/bin/bash\ncat <<<x\n#GQ -n4\n", "#!/usr/bin/perl\n1;\n#GQ -n4\n"],
)
def test_a_header_line_behind_a_text_is_refused(script: str) -> None:
    with pytest.raises(UsageError, match="comes after the first command"):
        options(script)


def test_an_unknown_option_names_file_line_and_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        read_header("#!/bin/sh\n# x\n#SBATCH --gpus-per-nod3=4\n", "dir/job.sh")

    assert caught.value.message == "dir/job.sh:3: unknown option `--gpus-per-nod3`"
    assert caught.value.hint == "did you mean `--gpus-per-node`?"


def test_gq_lines_want_whole_names() -> None:
    with pytest.raises(UsageError, match=r"job\.sh:2: unknown option `--job`"):
        options("#!/bin/sh\n#GQ --job=x\n")


def test_what_has_no_effect_is_only_accepted_from_slurm_scripts() -> None:
    with pytest.raises(UsageError, match="unknown option `--wckey`"):
        options("#!/bin/sh\n#GQ --wckey=x\n")


@pytest.mark.parametrize("quote", ["'", '"', "\\"])
def test_an_open_quote_is_named_with_its_line(quote: str) -> None:
    with pytest.raises(UsageError, match=r"^job\.sh:2: "):
        options(f"#!/bin/sh\n#SBATCH -J x{quote}")


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_a_het_job_has_components_with_options_of_their_own(word: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -n1 --mem=1G\n#SBATCH {word}\n#SBATCH -n2\n#SBATCH --gpus-per-task=1\n"

    header = read_header(script, "job.sh")

    assert [[(one.name, one.value) for one in component] for component in header.components] == [
        [("ntasks", "1"), ("mem", "1G")],
        [("ntasks", "2"), ("gpus-per-task", "1")],
    ]


def test_a_word_that_is_no_option_is_refused_beside_hetjob() -> None:
    with pytest.raises(UsageError, match=r"job\.sh:2: `hetjobs` is not an option"):
        options("#!/bin/sh\n#SBATCH hetjobs\n")


def test_the_command_to_wrap_cannot_stand_in_a_header() -> None:
    with pytest.raises(UsageError, match="unknown option `--wrap`"):
        options("#!/bin/sh\n#SBATCH --wrap=true\n")


@pytest.mark.parametrize("line", ["#PBS -l walltime=1", "#BSUB -W 1:00", "#PBS"])
@pytest.mark.parametrize("head", ["", "#SBATCH -n2\n"])
def test_lines_of_another_system_are_refused_with_their_number(head: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_header(f"#!/bin/sh\n{head}{line}\ntrue\n", "job.sh")

    mark = line.partition(" ")[0]
    assert caught.value.message == f"job.sh:{3 if head else 2}: this version does not read {mark} lines"
    assert "write its options as #GQ lines" in caught.value.hint


@given(st.text(alphabet=st.characters(exclude_characters="\0\n\r", exclude_categories=("Cs",)), min_size=1))
def test_a_value_quoted_for_a_shell_comes_back_as_it_was(value: str) -> None:
    assert options(f"#!/bin/sh\n#GQ --comment={shlex.quote(value)}\n") == {"comment": value}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        header = read_header(f"#!/bin/sh\n#SBATCH {text}", "job.sh")
    except GqError as error:
        assert error.message.startswith("job.sh:")
    else:
        assert isinstance(header.given, tuple)
