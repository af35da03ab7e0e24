"""The documents say what the code does: manual pages, README, CHANGELOG."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import gq
import gq.elastic
from gq.api import JobOptions
from gq.cli._run import CLUSTER_VERBS, JOB_VERBS, load, module_of
from gq.cli.framework.command import Command, all_options
from gq.config.config import (
    AccessSettings,
    ClientSettings,
    ControllerSettings,
    FakeGpuSettings,
    HistorySettings,
    LimitSettings,
    NodeSettings,
    PartitionSettings,
)
from gq.model.job import JobInfo
from gq.model.notice import NotifySettings
from gq.model.policy_tables import Accounting, Billing, PriorityWeights, Timers
from gq.model.scheduling import PRESETS, Scheduling, Switch
from gq.model.state import STATE_LETTERS, Reason
from gq.version import VERSION
from gq.wire import client, node, step
from gqd.state.lifecycle import TRANSITIONS
from tests import rooms
from tests.requires import needs_program

ROOT = Path(__file__).parent.parent
MAN = ROOT / "man"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = sorted(MAN.iterdir())
DAEMONS = ("gqd", "gqnode")
RECIPES = {"gq-pam.8"}
"""Pages about how things are put together, and not about a command of that name."""


@cache
def text(page: str) -> str:
    return (MAN / page).read_text()


def section(page: str, title: str) -> str:
    """What stands under a heading (``.Sh`` or ``.Ss``), up to the next one."""
    found = re.search(rf"^\.S[hs] {re.escape(title)}\n(.*?)(?=^\.S[hs] |\Z)", text(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title}"
    return found[1]


def items(part: str, macro: str) -> list[str]:
    """First words of the list items that are marked up by `macro`."""
    return re.findall(rf"^\.It {macro} (\S+)", part, re.MULTILINE)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_command_has_a_manual_page_and_every_page_a_command() -> None:
    commands = {f"{name}.{8 if name in DAEMONS else 1}" for name in PROJECT["scripts"]}

    assert {page.name for page in PAGES if page.suffix in (".1", ".8")} - RECIPES == commands


def families(command: Command) -> Iterator[Command]:
    """The command and all its verbs."""
    yield command
    for member in command.verbs().values() if command.verbs else ():
        yield from families(member)


def shown(command: Command) -> set[str]:
    """Every way to write an option of a command that help shows."""
    options = [option for option in all_options(command) if not getattr(option, "is_hidden", False)]
    long = {f"--{name}" for option in options for name in (option.name, *option.aliases)}
    return long | {f"-{option.letter}" for option in options if option.letter}


def documented(page: str) -> set[str]:
    """Every option that a page has an entry for."""
    entries = re.findall(r"^\.It (Fl .*)$", text(page), re.MULTILINE)
    return {f"-{flag}" for entry in entries for flag in re.findall(r"\bFl (\S+)", entry)}


@pytest.mark.parametrize("verb", [verb for verb in JOB_VERBS if verb != "ctl"])
def test_a_page_and_its_command_know_the_same_options(verb: str) -> None:
    assert documented(f"gq{verb}.1") == set().union(*map(shown, families(load(f"gq{verb}"))))


def test_the_page_of_gqresv_knows_every_verb() -> None:
    verbs = load("gqresv").verbs

    assert verbs is not None
    assert items(section("gqresv.1", "DESCRIPTION"), "Ic") == list(verbs())


NOUNS = {
    "node": "Nodes",
    "partition": "Partitions",
    "account": "Accounts",
    "user": "Users",
    "qos": "Quality of service",
    "limit": "Limits",
    "config": "Settings",
    "token": "Tokens",
    "key": "Keys",
    "notice": "Notices",
}
"""Of gqctl, and the sections of its page."""


def test_the_page_of_gqctl_knows_every_verb_and_every_option() -> None:
    command = load("gqctl")
    assert command.verbs is not None
    members = command.verbs()
    single = [name for name, member in members.items() if member.verbs is None]

    titles = ("Jobs", "The audit trail", "Events")
    assert [name for title in titles for name in items(section("gqctl.1", title), "Ic")] == single
    for noun, title in NOUNS.items():
        verbs = members[noun].verbs
        assert verbs is not None
        assert re.findall(rf"^\.It Ic {noun} (\S+)", section("gqctl.1", title), re.MULTILINE) == list(verbs())
    assert documented("gqctl.1") == set().union(*map(shown, families(command)))


def test_the_table_of_verbs_of_gqctl_is_complete() -> None:
    verbs = load("gqctl").verbs
    assert verbs is not None
    members = verbs()
    expected = {noun: list(member.verbs()) for noun, member in members.items() if member.verbs}
    expected["(none)"] = [name for name, member in members.items() if not member.verbs and name not in expected["job"]]
    table: dict[str, list[str]] = {}
    noun = ""
    for words, line in re.findall(r"^\.It(.*?) ?Ta ([a-z].*)$", section("gqctl.1", "Verbs"), re.MULTILINE):
        noun = words.strip() or noun
        table.setdefault(noun, []).extend(line.split())

    assert table == expected


def test_the_page_of_gq_knows_every_verb_and_every_option() -> None:
    own = [load("gq"), *(load(module_of(verb)) for verb in CLUSTER_VERBS)]

    assert sorted(re.findall(r"^\.It Xr gq(\S+) 1 Ta", text("gq.1"), re.MULTILINE)) == sorted(JOB_VERBS)
    assert re.findall(r"^\.It Ic gq (\S+)", text("gq.1"), re.MULTILINE) == list(CLUSTER_VERBS)
    assert documented("gq.1") == shown(own[0]).union(*(shown(one) for command in own[1:] for one in families(command)))


@pytest.mark.parametrize(
    ("daemon", "words"), [("gqd", [[], ["init"], ["keygen"], ["start"]]), ("gqnode", [[], ["join"], ["start"]])]
)
def test_the_page_of_a_daemon_knows_its_options(daemon: str, words: list[list[str]]) -> None:
    helps = [_help(daemon, verb) for verb in words]
    options = {option for one in helps for option in re.findall(r"^ +(--[a-z-]+)", one, re.MULTILINE)}

    assert documented(f"{daemon}.8") == options


def _help(daemon: str, words: list[str]) -> str:
    command = [sys.executable, "-m", daemon, *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("page", [page.name for page in PAGES if page.suffix == ".1"])
def test_every_page_of_a_command_has_examples_and_exit_statuses(page: str) -> None:
    assert section(page, "EXAMPLES").count("\n") > 3
    assert section(page, "EXIT STATUS").strip()


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_the_examples_of_a_page_use_options_that_there_are(page: str) -> None:
    lines = [
        line
        for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", text(page), re.M | re.S)
        for line in block.splitlines()
    ]
    wrong = [line for line in lines for option in _options_of_example(line) if option not in _known_options(line)]

    assert wrong == []


def _command_of(line: str) -> str:
    found = re.match(r"(?:\$ )?(?:\w+=\$\()?(gq\w*)\b", line)
    return found[1] if found else ""


def _options_of_example(line: str) -> list[str]:
    """Long options up to the first quotation mark or operand of a command that starts another."""
    return re.findall(r"(?<=\s)--[a-zA-Z-]+", re.split(r"['#|]", line)[0]) if _command_of(line) else []


@cache
def _every_option() -> set[str]:
    own = [load("gq"), load("gqctl"), load("gqresv"), *(load(module_of(verb)) for verb in (*JOB_VERBS, *CLUSTER_VERBS))]
    return set().union(*(shown(member) for command in own for member in families(command)))


def _known_options(line: str) -> set[str]:
    command = _command_of(line)
    if command in DAEMONS:
        return documented(f"{command}.8")
    alone = command[2:] in JOB_VERBS and load(command).verbs is None
    return shown(load(command)) if alone else _every_option()


# ── the Python API ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_python_page_has_every_public_name_and_no_other() -> None:
    entries = re.findall(r"^\.It (?:Fn|Vt|Va) gq\.(\w+)(?![\w.])", text("gq-python.3"), re.MULTILINE)
    classes = re.findall(r"^\.Ss gq\.(\w+)$", text("gq-python.3"), re.MULTILINE)

    assert sorted(entries + classes) == sorted(gq.__all__)


@pytest.mark.parametrize("kind", [gq.Client, gq.Job])
def test_the_python_page_has_every_member_of_a_class(kind: type) -> None:
    members = {name for name in vars(kind) if not name.startswith("_")} | ({"id"} if kind is gq.Job else set())

    assert set(re.findall(r"^\.It (?:Fn|Va) (\w+)", section("gq-python.3", f"gq.{kind.__name__}"), re.M)) == members


def test_the_python_page_has_every_keyword_and_every_attribute_that_it_names_is_there() -> None:
    written = section("gq-python.3", "KEYWORDS").partition("The keywords are:")[2].partition(".Pp")[0]
    information = " ".join(re.findall(r"^\.It Va (.+)$", section("gq-python.3", "JOB INFORMATION"), re.M))

    assert re.findall(r"\w+", written.replace(".Va", "")) == list(JobOptions.__annotations__)
    assert set(re.findall(r"\w+", information)) <= set(JobInfo.__struct_fields__)


def test_the_python_page_has_every_function_of_elastic_jobs() -> None:
    public = [
        name
        for name, value in vars(gq.elastic).items()
        if inspect.isfunction(value) and value.__module__ == "gq.elastic" and not name.startswith("_")
    ]

    assert sorted(items(section("gq-python.3", "ELASTIC JOBS"), "Fn")) == sorted(
        f"gq.elastic.{name}" for name in public
    )
    record = section("gq-python.3", "ELASTIC JOBS").partition(".It Fn gq.elastic.current")[0]
    assert re.findall(r"^\.Va (\w+)", record, re.M) == [field.name for field in fields(gq.elastic.Gpus)]


# ── specifications ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_of_a_jobs_life_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\.It (\S+) Ta (\w+) Ta (\w+)$", section("gq-states.7", "TRANSITIONS"), re.MULTILINE)
    table = [
        (state.value if state else r"\(em", kind.__name__, after.value) for (state, kind), after in TRANSITIONS.items()
    ]

    assert rows == table


def test_the_states_and_reasons_are_those_in_the_code() -> None:
    shown_states = section("gq-states.7", "STATES AS THEY ARE SHOWN")

    assert re.findall(r"^\.It ([A-Z]+) Ta ([A-Z_]+) Ta", shown_states, re.M) == [
        (v, k) for k, v in STATE_LETTERS.items()
    ]
    assert re.findall(r"^\.It (\S+)$", section("gq-states.7", "REASONS"), re.M) == [reason.value for reason in Reason]


@pytest.mark.parametrize(
    ("title", "union"),
    [
        ("Requests", client.RequestBody),
        ("Replies", client.ReplyBody),
        ("Node messages", node.NodeMessage),
        ("Reports", node.ReportBody),
        ("Controller messages", node.ControllerMessage),
        ("Orders", node.Order),
        ("To a step socket", step.ToDoor),
        ("From a step socket", step.FromDoor),
    ],
)
def test_the_messages_are_those_in_the_code(title: str, union: Any) -> None:
    assert items(section("gq-protocol.7", title), "Vt") == [kind.__name__ for kind in get_args(union)]


KEY_OF = {
    "default_mem_per_cpu_mib": "default_mem_per_cpu",
    "default_mem_per_gpu_mib": "default_mem_per_gpu",
    "max_age_s": "max_age",
    "half_life_s": "half_life",
    "protect_wide_after_s": "protect_wide_after",
    "protect_any_after_s": "protect_any_after",
    "expected_without_history_s": "expected_without_history",
    "locality_wait_s": "locality_wait",
    "trial_s": "trial",
    "turn_s": "turn",
    "resume_s": "resume_cost",
    "default_time_s": "default_time",
    "max_time_s": "max_time",
    "fake_gpus": "fake_gpu",
    "attribute_interval_s": "attribute_interval",
}
"""Fields whose key in the file takes a word with a unit."""


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("[controller]", ControllerSettings),
        ("[access]", AccessSettings),
        ("[client]", ClientSettings),
        ("[limits]", LimitSettings),
        ("[timers]", Timers),
        ("[history]", HistorySettings),
        ("[priority]", PriorityWeights),
        ("[billing]", Billing),
        ("[accounts]", Accounting),
        ("[notify]", NotifySettings),
        ("[scheduler]", Scheduling),
        ("[[topology]]", Switch),
        ("[[partition]]", PartitionSettings),
        ("[[node]]", NodeSettings),
        ("[[node.fake_gpu]]", FakeGpuSettings),
    ],
)
def test_the_settings_are_those_in_the_code(title: str, kind: type[msgspec.Struct]) -> None:
    keys = [KEY_OF.get(field, field) for field in kind.__struct_fields__]
    keys = ["memory" if key == "memory_mib" and kind is NodeSettings else key for key in keys]

    assert items(section("gq.toml.5", title), "Ic") == keys


def test_the_page_names_every_policy() -> None:
    written = section("gq.toml.5", "[scheduler]").partition(".It Ic order")[0]

    assert [name for name in re.findall(r"^\.Cm (\S+)", written, re.MULTILINE) if name in PRESETS][: len(PRESETS)] == [
        *PRESETS
    ]


@pytest.mark.parametrize(
    ("title", "kind"), [("[limits]", LimitSettings), ("[timers]", Timers), ("[history]", HistorySettings)]
)
def test_the_defaults_of_settings_are_those_in_the_code(title: str, kind: type[msgspec.Struct]) -> None:
    written = dict(re.findall(r"^\.It Ic (\S+) Pq (\S+)$", section("gq.toml.5", title), re.MULTILINE))

    assert {key: float(value) for key, value in written.items()} == msgspec.to_builtins(kind())


# ── form ──────────────────────────────────────────────────────────────────────────────────────────────────────


MANDOC = ("mandoc", "-T", "utf8", "-O", "width=80")
GROFF = ("groff", "-mdoc", "-K", "utf8", "-T", "utf8", "-P-c", "-ww", "-rLL=80n")


@needs_program("mandoc")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_lint_accepts_a_page(page: Path) -> None:
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@needs_program("mandoc")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_shows_a_page_in_80_columns(page: Path) -> None:
    assert _too_wide(_formatted(MANDOC, page)) == []


@needs_program("groff")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_groff_shows_a_page_in_80_columns_without_warnings(page: Path) -> None:
    lines = _formatted(GROFF, page)
    shown = [line for line in lines if line]

    assert _too_wide(lines) == []
    assert f"gq {VERSION}" in shown[-1]
    assert "BSD" not in shown[0] + shown[-1]


def _formatted(program: tuple[str, ...], page: Path) -> list[str]:
    """Lines of a page as a terminal shows it, overstrikes for bold and underlined text removed."""
    done = subprocess.run([*program, page], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    return re.sub(".\b", "", done.stdout).splitlines()


def _too_wide(lines: list[str]) -> list[str]:
    return [line for line in lines if len(line) > 80]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_optional_part_of_a_tag_is_closed_before_the_next_option(page: Path) -> None:
    """``Op`` encloses the rest of its line, so that a comma or an option after it would stand inside the brackets."""
    tags = re.findall(r"^\.It .*$", page.read_text(), re.MULTILINE)

    assert [tag for tag in tags if re.search(r" Op .* (,|Fl) ", tag)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_refers_only_to_pages_that_there_are(page: Path) -> None:
    references = {f"{name}.{number}" for name, number in re.findall(r"\bXr (\S+) (\d)", page.read_text())}

    assert references - {other.name for other in PAGES} == set()


# ── README, CHANGELOG ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_readme_gives_a_reason_for_every_dependency_and_for_no_other() -> None:
    readme = (ROOT / "README.md").read_text()
    named = re.findall(r"^\| `([a-z-]+)` \|", readme.partition("## Dependencies")[2], re.MULTILINE)

    assert sorted(named) == sorted(re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"])


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_the_links_of_a_document_lead_to_files_that_there_are(name: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text())

    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_names_the_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))

    assert {"demo", "test"} <= named <= targets


def test_the_version_is_one_and_the_changelog_has_it() -> None:
    headings = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert (gq.__version__, VERSION) == (headings[0], headings[0])
    assert PROJECT["dynamic"] == ["version"], "pyproject.toml reads it from gq.version"


@pytest.mark.slow
def test_the_picture_of_the_rooms_is_what_the_imports_say() -> None:
    """``python -m tests.rooms`` writes it anew."""
    assert f"{rooms.BEGIN}{rooms.picture()}{rooms.END}" in rooms.PAGE.read_text()
