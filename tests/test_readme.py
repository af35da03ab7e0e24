"""The README's commands, run as printed, and its samples compared with what the commands print.

The part about a cluster for a team is in `tests/install/test_whole_way.py`, on hosts of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import BIN, MARK_VARIABLE, clean_environment, marked, processes
from tests.conftest import MARK
from tests.requires import needs_program

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROMPT = "$ "
TIMEOUT_S = 200
_SEPARATOR = "@@ next command"
_NOT_CLONED = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", "*.egg-info", "build", "dist", ".*_cache", ".hypothesis", "gq-*.out"
)


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", README, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no section {title}"
    return found[1]


def blocks(title: str, language: str = "") -> list[list[str]]:
    """The lines of each fenced block of a section."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    return [text.splitlines() for name, text in found if name == language]


def commands(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each command of a terminal session with the output that is shown; a here-document belongs to its command."""
    rest = list(lines)
    while rest:
        first = rest.pop(0)
        assert first.startswith(PROMPT), first
        typed = [first.removeprefix(PROMPT)]
        if "<<'EOF'" in first:
            while typed[-1] != "EOF":
                typed.append(rest.pop(0))
        shown = []
        while rest and not rest[0].startswith(PROMPT):
            shown.append(rest.pop(0))
        yield "\n".join(typed), shown


# ── the demo ──────────────────────────────────────────────────────────────────────────────────────────────────


def plain(line: str) -> str:
    """A line without what differs from run to run: user, times, the leased port, widths of columns."""
    for pattern, word in (
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"\b\d+:\d\d\b(?=\s+\d+\s+\d+ )", "ELAPSED"),
        (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
        (r"(?<=CANCELLED by )\d+", "UID"),
        (r"(?<=epoch \d\d: accuracy )[\d.]+|(?<=test accuracy )[\d.]+", "ACCURACY"),
    ):
        line = re.sub(pattern, word, line)
    return re.sub(r"\s+", " ", line)


@needs_program("make")
def test_the_sample_in_the_readme_is_what_make_demo_prints_and_nothing_is_left_behind(tmp_path: Path) -> None:
    environment = clean_environment(os.environ) | {"TMPDIR": str(tmp_path)}
    made = f"{sys.prefix}/.ready"
    done = subprocess.run(
        ["make", "-o", made, f"VENV={sys.prefix}", f"BIN={BIN}", "demo"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

    printed = [plain(line) for line in _of_ada(done.stdout)]
    sample = [plain(line) for line in blocks("One minute")[1]]
    missing = [line for line in sample if line not in printed]
    assert missing == [], done.stdout
    places = [printed.index(line) for line in sample]
    assert places == sorted(places)
    assert list(tmp_path.iterdir()) == []
    assert marked(str(tmp_path), processes()) == []


def _of_ada(text: str) -> list[str]:
    """The output as it would be for a user `ada` whose Python is called `python`, as in ``.venv``."""
    user = re.search(r"hog +(\S+) +R ", text)
    python = Path((BIN / "gq").read_text().splitlines()[0]).name
    assert user
    text = re.sub(rf"(?<![\w-]){re.escape(user[1])}(?![\w-])", "ada", text)
    return re.sub(rf"^( +\d+\.0 +){re.escape(python)} ", r"\1python ", text, flags=re.MULTILINE).splitlines()


# ── from a clone to the first job ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def environment(cluster_base: Path, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[dict[str, str]]:
    """A user with an empty home directory, for whom the project's address means a repository made of this tree."""
    home = cluster_base / "ada"
    home.mkdir()
    origin = tmp_path / "origin"
    shutil.copytree(ROOT, origin, symlinks=True, ignore=_NOT_CLONED)
    url = re.search(r"git clone (\S+)", README)
    assert url
    python = Path(getattr(sys, "_base_executable", sys.executable)).parent
    made = {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(python), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "DEPENDENCIES": str(_dependencies(tmp_path / "dependencies")),
        "PIP_NO_DEPS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{origin}.insteadOf",
        "GIT_CONFIG_VALUE_0": url[1],
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        MARK_VARIABLE: pytestconfig.stash[MARK],
    }
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *words], cwd=origin, env=made, check=True)
    yield made
    if (home / ".local/gq/bin/gq").exists():
        subprocess.run(
            [home / ".local/gq/bin/gq", "down", "--yes"], env=made, stdin=subprocess.DEVNULL, capture_output=True
        )
    shutil.rmtree(home, ignore_errors=True)


def _dependencies(directory: Path) -> Path:
    """The packages of this environment without gq, so that pip need not fetch them again."""
    directory.mkdir()
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not package.name.startswith(("gq", "__editable__", "pip")) and package.suffix != ".pth":
            (directory / package.name).symlink_to(package)
    return directory


@pytest.mark.slow
@needs_program("bash")
@needs_program("git")
def test_the_commands_from_the_clone_to_the_first_job_do_what_the_readme_says(environment: dict[str, str]) -> None:
    """`make demo` is the test above, and `make test` runs this one."""
    clone = [command for command in commands(blocks("One minute")[0]) if not command[0].startswith("make ")]
    first, last = blocks("Your first job")
    [python] = blocks("Your first job", "python")
    in_python = ("python <<'EOF'\n" + "\n".join(python) + "\nEOF", ["COMPLETED", "{'COMPLETED'}"])
    of_this_environment = ('echo "$DEPENDENCIES" > $(echo ~/.local/gq/lib/python3*/site-packages)/these.pth', [])
    clean = ("git status --porcelain --ignored", [])
    session = [
        *clone,
        *commands(blocks("Install")[0]),
        of_this_environment,
        clean,
        ("command -v gqsub", [f"{environment['HOME']}/.local/gq/bin/gqsub"]),
        *commands(first),
        in_python,
        *commands(last),
    ]

    outputs = _play([typed for typed, _ in session], environment)

    for (typed, shown), output in zip(session, outputs, strict=True):
        assert output == shown or (not shown and typed != clean[0]), f"{typed}\n{output}"
    assert Path(environment["HOME"], ".local/gq/share/man/man1/gqsub.1").exists()


def _play(typed: list[str], environment: dict[str, str]) -> list[list[str]]:
    """Type commands into one shell; the lines that each wrote to standard output."""
    script = f"\necho '{_SEPARATOR}'\n".join(typed)
    home = environment["HOME"]
    done = subprocess.run(
        ["bash", "-e"], input=script, cwd=home, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.splitlines() for part in done.stdout.split(f"{_SEPARATOR}\n")]
