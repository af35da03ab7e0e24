"""Parses a crontab, in the format of crontab(5) and Slurm's scrontab, into entries.  Pure.

The module reports every line with an error that can be found without knowing the cluster, with its number.  Lines
``#GQ`` (``#SCRON``, ``#SBATCH``) hold options of `gqsub` for the next entry only; ``NAME=value`` applies to all entries
below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from gq.calendar.schedule import FIELDS, read_schedule
from gq.errors import GqError, UsageError
from gq.model.crontab import CronEntry, Missed, Overlap
from gq.near_miss import suggestion
from gq.request.directives import option_line
from gq.request.getopt import Arguments
from gq.request.jobspec import Submission, exported_environment, job_spec
from gq.request.layers import job_arguments
from gq.request.option import Option, ParsedOption, bad_value
from gq.request.options import SUB
from gq.wire.crontab import CronJob

CRON_OPTIONS = (
    Option(name="cron-overlap", metavar="skip|allow", help="Whether to queue a job before the last one has ended."),
    Option(
        name="cron-missed", metavar="skip|once", help="After an outage: queue no job, or one for all missed.",
    ),
)  # fmt: skip
"""Options of crontab entries, besides the options of `gqsub`."""
COMMAND_OPTIONS = ("if", "wait", "test-only", "parsable")
"""Options of `gqsub` that control the command, or concern several jobs."""
RELATIVE = ("begin", "deadline")
_ASSIGNMENT = re.compile(r"""\s*(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*?)\s*""")
_QUOTED = re.compile(r"""(["'])(.*)\1""")
_PERCENT = re.compile(r"(?<!\\)(?:\\\\)*%")
ZONE, SHELL, HOME, MAILTO = "CRON_TZ", "SHELL", "HOME", "MAILTO"


class CronContext(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's home, host and umask, which the crontab's jobs inherit."""

    home: str
    host: str
    umask: int
    has_zone: Callable[[str], bool]
    """Whether a time zone of this name exists."""


class Crontab(NamedTuple):
    jobs: tuple[CronJob, ...]
    complaints: tuple[GqError, ...] = ()
    """An error for each line that has one; the error names the line."""
    notes: tuple[str, ...] = ()
    """Accepted lines and options without effect."""


def parse_crontab(text: str, file: str, surroundings: CronContext) -> Crontab:
    """Parse a crontab; `file` is the text's name in messages."""
    reader = _Reader(file, surroundings)
    for number, line in enumerate(text.split("\n"), 1):
        reader.read(number, line.removesuffix("\r").strip())
    reader.end()
    return Crontab(tuple(reader.jobs), tuple(reader.complaints), tuple(reader.notes))


class _Reader:
    """Parses a crontab line by line."""

    def __init__(self, file: str, surroundings: CronContext) -> None:
        self._file = file
        self._surroundings = surroundings
        self._variables: dict[str, str] = {}
        self._options: list[ParsedOption] = []
        """Options for the next entry."""
        self._options_at = 0
        """Line number of the first of these options; 0: none."""
        self._is_spoiled = False
        """Whether one of these options has an error, which is reported already."""
        self.jobs: list[CronJob] = []
        self.complaints: list[GqError] = []
        self.notes: list[str] = []

    def read(self, number: int, line: str) -> None:
        try:
            self._read(number, line, f"{self._file}:{number}")
        except GqError as error:
            self.complaints.append(error)

    def end(self) -> None:
        if self._options_at:
            message = f"{self._file}:{self._options_at}: no entry follows these options"
            self.complaints.append(UsageError("bad_crontab", message, "options apply to the next entry only"))

    def _read(self, number: int, line: str, source: str) -> None:
        if line.startswith("#"):
            self._take_options(number, line, source)
        elif match := _ASSIGNMENT.fullmatch(line):
            self._assign(match[2], match[3], source)
        elif line:
            self._take_entry(number, line, source)

    def _take_options(self, number: int, line: str, source: str) -> None:
        self._is_spoiled, was_spoiled = True, self._is_spoiled
        found = option_line(line, source, CRON_OPTIONS)
        self._is_spoiled = was_spoiled
        if found is not None:
            self._options += found.given
            self.notes += found.notes
            self._options_at = self._options_at or number

    def _assign(self, name: str, value: str, source: str) -> None:
        quoted = _QUOTED.fullmatch(value)
        value = quoted[2] if quoted else value
        if name == SHELL and not value.startswith("/"):
            raise UsageError(
                "bad_crontab", f"{source}: `{SHELL}={value}` is not an absolute path", "for example /bin/sh"
            )
        if name == ZONE and value and not self._surroundings.has_zone(value):
            message = f"{source}: `{value[:60]}` is not a time zone"
            raise UsageError("unknown_zone", message, f"for example {ZONE}=Europe/Berlin")
        if name == MAILTO:
            hint = "`#GQ --mail-type=FAIL` above an entry sends mail; --output sets the file of its output"
            self.notes.append(f"{source}: {MAILTO} has no effect ({hint})")
        self._variables[name] = value

    def _take_entry(self, number: int, line: str, source: str) -> None:
        options, is_spoiled = self._options, self._is_spoiled
        self._options, self._options_at, self._is_spoiled = [], 0, False
        schedule, command = _split(line, source)
        try:
            schedule = read_schedule(schedule)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            raise UsageError("bad_schedule", f"{source}: {message}", hint) from error
        if is_spoiled:
            return
        try:
            self.jobs.append(self._job(number, schedule, _command(command, source), options))
        except GqError as error:
            if error.message.startswith(f"{self._file}:"):
                raise
            raise UsageError(error.code, f"{source}: {error.message}", error.hint) from error

    def _job(self, number: int, schedule: str, command: str, options: list[ParsedOption]) -> CronJob:
        cron_options = Arguments(option for option in options if option.name.startswith("cron-"))
        _refuse_command_options(options)
        arguments = job_arguments(SUB, (), {}, [option for option in options if not option.name.startswith("cron-")])
        variables = {name: value for name, value in self._variables.items() if name not in (ZONE, MAILTO)}
        spec = job_spec(arguments, self._submission(command))
        entry = CronEntry(
            line=number,
            schedule=schedule,
            zone=self._variables.get(ZONE, ""),
            overlap=cron_options.read("cron-overlap", _overlap) or Overlap.SKIP,
            missed=cron_options.read("cron-missed", _missed) or Missed.SKIP,
            spec=spec,
        )
        script = f"#!{variables.get(SHELL) or '/bin/sh'}\n{command}\n".encode(errors="surrogateescape")
        environment = exported_environment(arguments.last("export"), variables)
        return CronJob(entry=entry, script=script, environment=environment)

    def _submission(self, command: str) -> Submission:
        """Return the submission of an entry's jobs; instants count from the due time."""
        around, home = self._surroundings, self._variables.get(HOME, "")
        return Submission(
            name=command.split(None, 1)[0].rpartition("/")[2] or "cron",
            submit_dir=home if home.startswith("/") else around.home,
            submit_host=around.host,
            umask=around.umask,
            now=0.0,
            command=command,
        )


def _split(line: str, source: str) -> tuple[str, str]:
    """Return the schedule and the command of a line."""
    count = 1 if line.startswith("@") else len(FIELDS)
    words = line.split(None, count)
    if len(words) <= count:
        hint = "write five fields and a command (0 20 * * 1-5 ./train.sh), @daily and a command, or NAME=value"
        raise UsageError("bad_crontab", f"{source}: `{line[:60]}` is not a crontab line", hint)
    return " ".join(words[:count]), words[count]


def _command(text: str, source: str) -> str:
    if _PERCENT.search(text):
        message = f"{source}: `%` marks input of the command in crontab(5), which gq does not support"
        raise UsageError("bad_crontab", message, r"write \% for a percent sign; the input comes from --input=FILE")
    return text.replace(r"\%", "%")


def _refuse_command_options(options: Iterable[ParsedOption]) -> None:
    for option in options:
        if option.name in COMMAND_OPTIONS:
            raise bad_value(option, "this option is only for the command line", "remove it from the crontab")
        if option.name in RELATIVE and not option.value.strip().lower().startswith("now"):
            rule = f"`{option.value}` is a single moment, but an entry is due repeatedly"
            raise bad_value(option, rule, f"use a relative time: --{option.name}=now+2h counts from each due time")


def _overlap(text: str) -> Overlap:
    return Overlap(_one_of(text, [choice.value for choice in Overlap]))


def _missed(text: str) -> Missed:
    return Missed(_one_of(text, [choice.value for choice in Missed]))


def _one_of(text: str, choices: list[str]) -> str:
    if text.lower() not in choices:
        raise ValueError(
            f"`{text}` is not a valid value; " + suggestion(text, choices, f"use one of {', '.join(choices)}")
        )
    return text.lower()
