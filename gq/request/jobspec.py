"""The meaning of job options: from parsed options to a `JobSpec` and an environment.  Pure.

The module makes every check that needs no knowledge of the cluster; the controller makes the rest, and these again.  An
error names the option as it was written, its value, the rule and the way out.  `gqsub`, `gqrun`, `gqalloc` and `gqctl
update` all read their options here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from gq.errors import UsageError
from gq.model.dependency import Dependency, parse_dependency
from gq.model.job import REQUEUE_ON, JobSpec, SignalSpec
from gq.model.notice import Target
from gq.model.resource import ResourceRequest
from gq.model.tasks import MAX_TASK, format_tasks, parse_tasks
from gq.near_miss import none_of
from gq.request.getopt import Arguments, whole_number
from gq.request.option import ParsedOption, bad_value, not_available
from gq.request.resources import resource_request
from gq.request.signals import parse_signal
from gq.units import MAX_COUNT, parse_duration_s, parse_instant, parse_seconds

if TYPE_CHECKING:
    from gq.model.sweep import Sweep

T = TypeVar("T")
MAX_NAME_LENGTH = 256
MAX_PRIORITY = 2**31 - 1
MAX_REQUEUE = 2**31 - 1
AUTO = "auto"
"""The automatic throttle: the number of tasks at once follows the idle GPUs."""
UNLIMITED_S = 0
"""In a `JobSpec`: no time limit (None is the partition's default)."""

# Patterns are compiled when they are first needed: all of them together would cost more than the rest of a command.
_SIGNAL = r"(?:(?P<scope>[A-Za-z]):)?(?P<signal>\w+)(?:@(?P<before>.+))?"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a job that come from its command and working directory, not from options."""

    name: str
    """Name of a job without ``--job-name``."""
    submit_dir: str
    submit_host: str
    umask: int
    now: float
    command: str = ""
    args: tuple[str, ...] = ()
    is_interactive: bool = False
    read_instant: Callable[[str, float], float] = parse_instant
    """Reader of instants, as in ``--begin``, from the text and `now`."""
    read_dependency: Callable[[str], Dependency] = parse_dependency
    """Reader of ``--dependency``."""


def job_spec(arguments: Arguments, submission: Submission, others: Sequence[Arguments] = ()) -> JobSpec:
    """Return the job that these options request; `others` are the components after each `` : ``."""
    for component in (arguments, *others):
        _refuse_empty(component)
    sweep = arguments.read("sweep", _sweep) or ()
    array = _array(arguments, sweep)
    return JobSpec(
        name=_name(arguments.last("job-name"), submission.name),
        resources=_resources(arguments, others),
        partition=arguments.read("partition", _partition),
        account=arguments.read("account", _word),
        qos=arguments.read("qos", _word),
        reservation=arguments.read("reservation", _word) or "",
        array=array.tasks if array else "",
        array_throttle=array.throttle if array else None,
        array_auto=bool(array and array.is_auto),
        sweep=sweep,
        fail_fast=_fail_fast(arguments),
        time_limit_s=arguments.read("time", time_limit_s),
        begin_at=arguments.read("begin", lambda text: submission.read_instant(text, submission.now)),
        dependency=arguments.read("dependency", submission.read_dependency),
        kill_on_invalid_dep=arguments.choice("kill-on-invalid-dep", _YES_OR_NO, None),
        deadline_at=arguments.read("deadline", lambda text: submission.read_instant(text, submission.now)),
        is_held=arguments.has("hold"),
        nice=arguments.integer("nice", -MAX_COUNT) or 0,
        priority=arguments.integer("priority", 0, MAX_PRIORITY),
        requeue=_requeue(arguments),
        requeue_on=arguments.read("requeue-on", parse_causes) or (),
        max_requeue=arguments.integer("max-requeue", 0, MAX_REQUEUE),
        grace_s=arguments.read("grace", _grace_s),
        resume_s=arguments.read("resume-cost", _resume_s),
        signal=_signal(arguments.last("signal")),
        kill_on_bad_exit=arguments.choice("kill-on-bad-exit", {"1": True, "0": False}, True),
        no_kill=arguments.choice("no-kill", {"on": True, "off": False}, False),
        is_interactive=submission.is_interactive,
        args=submission.args,
        chdir=posixpath.normpath(posixpath.join(submission.submit_dir, arguments.text("chdir"))),
        output=_pattern(arguments, "output"),
        error=_pattern(arguments, "error"),
        input=_pattern(arguments, "input"),
        open_mode=arguments.choice("open-mode", _OPEN_MODES, "truncate"),
        umask=submission.umask,
        comment=arguments.text("comment"),
        notify=_notify(arguments),
        submit_dir=submission.submit_dir,
        submit_host=submission.submit_host,
        command=submission.command,
    )


_NOT_EMPTY = {"licenses": "matlab:1", "constraint": "a100", "prefer": "a100", "data": "imagenet", "gres": "gpu:1"}
"""Options whose value may be empty only in `gqctl update`, where that removes the request."""


def _refuse_empty(arguments: Arguments) -> None:
    """Refuse options with an empty value, which a script has whose variable is not set: ``--licenses=$WHICH``."""
    for name, example in _NOT_EMPTY.items():
        given = arguments.last(name)
        if given is not None and not given.value.strip(" ,"):
            raise bad_value(given, "the value is empty", f"remove it, or give a value: --{name}={example}")


def _notify(arguments: Arguments) -> tuple[Target, ...]:
    if not any(arguments.has(name) for name in ("notify", "notify-on", "mail-type")):
        return ()
    from gq.request.notify import targets  # few jobs have notifications

    return targets(arguments)


def _resources(arguments: Arguments, others: Sequence[Arguments]) -> ResourceRequest:
    if others or arguments.has("role"):
        from gq.request.het_job import het_job_request  # few jobs have roles

        return het_job_request((arguments, *others))
    return resource_request(arguments)


_YES_OR_NO: dict[str, bool | None] = {"yes": True, "no": False}
_OPEN_MODES = {"append": "append", "a": "append", "truncate": "truncate", "t": "truncate"}


def _name(given: ParsedOption | None, default: str) -> str:
    """Return the job's name: a default from a file is made valid, an option must be valid."""
    if given is None:
        return "".join(letter if letter.isprintable() else "?" for letter in default)[:MAX_NAME_LENGTH]
    if not given.value.strip() or not given.value.isprintable() or len(given.value) > MAX_NAME_LENGTH:
        rule = f"a name has 1 to {MAX_NAME_LENGTH} printable characters"
        raise bad_value(given, f"`{given.value[:40]}` cannot be a job's name", rule)
    return given.value


def _partition(text: str) -> str:
    if "," in text:
        raise not_available("a list of partitions")
    if not text.strip():
        raise ValueError("the partition name is empty")
    return text.strip()


def _word(text: str) -> str:
    """Check the name of an account, a QOS or a reservation; only the controller knows whether it exists."""
    if not text.strip() or not text.isprintable():
        raise ValueError(f"`{text[:40]}` is not a name")
    return text.strip()


class Array(NamedTuple):
    """``--array``: the tasks, and the maximum number of them at once (None: no maximum)."""

    tasks: str
    """Empty: no tasks were given."""
    throttle: int | None
    is_auto: bool = False


def parse_array(text: str) -> Array:
    """Parse ``1-100:2%8``, ``1-100%auto``, and for a sweep ``%8``; ``ValueError`` with a sentence."""
    tasks, percent, throttle = text.partition("%")
    found = format_tasks(parse_tasks(tasks)) if tasks or not percent else ""
    if throttle.lower() == AUTO:
        return Array(found, None, True)
    if percent and not throttle.isdecimal():
        rule = f"for example {tasks}%4, or {tasks}%auto for as many as there are idle GPUs"
        raise ValueError(f"`%{throttle}` is not a number of tasks that may run at once; {rule}")
    return Array(found, whole_number(throttle, 1, MAX_TASK) if percent else None)


def _array(arguments: Arguments, sweep: Sweep) -> Array | None:
    """Return the array's tasks; for a sweep, all of its combinations unless ``--array`` selects some."""
    array, given = arguments.read("array", parse_array), arguments.last("array")
    if not sweep:
        if array is not None and given is not None and not array.tasks:
            raise bad_value(given, f"`{given.value}` names no tasks", f"for example 1-100{given.value}")
        return array
    from gq.model.sweep import tasks_of  # few jobs are sweeps

    count = tasks_of(sweep)
    array = array or Array("", None)
    if not array.tasks:
        return array._replace(tasks=format_tasks((1 << count) - 1))
    if given is not None and parse_tasks(array.tasks) >> count:
        rule = f"the sweep has {count} combinations: tasks 0-{count - 1}"
        raise bad_value(given, f"`{given.value}` names tasks outside the sweep", rule)
    return array


def _sweep(text: str) -> Sweep:
    from gq.model.sweep import parse_sweep  # few jobs are sweeps

    return parse_sweep(text)


def _fail_fast(arguments: Arguments) -> bool:
    given = arguments.last("fail-fast")
    if given is not None and not arguments.has("array") and not arguments.has("sweep"):
        raise UsageError("contradiction", f"{given.place} applies only to job arrays", "add --array=1-10")
    return given is not None


def time_limit_s(text: str) -> int:
    """Parse a time limit into seconds; `UNLIMITED_S` for ``unlimited`` and, as in Slurm, for 0."""
    return parse_duration_s(text) or UNLIMITED_S


def _requeue(arguments: Arguments) -> bool | None:
    if arguments.has("no-requeue"):
        return False
    return True if arguments.has("requeue") or arguments.has("requeue-on") else None


def parse_causes(text: str) -> tuple[str, ...]:
    """Parse the ends after which a job is queued again: ``preempt,timeout``."""
    causes = tuple(dict.fromkeys(cause.strip().lower().replace("-", "_") for cause in text.split(",")))
    for cause in causes:
        if cause not in REQUEUE_ON:
            raise ValueError(none_of(cause, REQUEUE_ON))
    return causes


def _resume_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if seconds is None:
        raise ValueError("the resume cost must be finite; for example 2min")
    return seconds


def _grace_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if seconds is None:
        raise ValueError("the grace time must be finite; for example 20s")
    return seconds


def _signal(given: ParsedOption | None) -> SignalSpec | None:
    """Parse ``[B:]SIG[@SECONDS]``."""
    if given is None:
        return None
    match = re.fullmatch(_SIGNAL, given.value)
    if match is None or match["scope"] not in (None, "B"):
        raise bad_value(given, f"`{given.value}` is not [B:]SIGNAL[@SECONDS]", "for example --signal=B:USR1@120")
    try:
        signum = parse_signal(match["signal"])
        before_s = round(parse_seconds(match["before"] or "60"))
    except ValueError as error:
        raise bad_value(given, str(error)) from error
    return SignalSpec(signum=signum, before_s=before_s, to_batch_shell=match["scope"] == "B")


def _pattern(arguments: Arguments, name: str) -> str | None:
    given = arguments.last(name)
    if given is None:
        return None
    if not given.value or "\0" in given.value:
        raise bad_value(given, f"`{given.value}` is not a file name")
    refuse_unknown_code(given)
    return given.value


def refuse_unknown_code(given: ParsedOption) -> None:
    """Refuse a file pattern with an unknown code, such as ``%q``."""
    if "%" not in given.value:
        return
    from gq.request.patterns import CODES, unknown_code  # most jobs name no pattern

    if code := unknown_code(given.value):
        known = ", ".join(f"%{letter}" for letter in CODES)
        rule = f"`{code}` in `{given.value[:60]}` is not a code of file patterns"
        raise bad_value(given, rule, f"use {known}; write %{code} for a percent sign")


# ── environment ───────────────────────────────────────────────────────────────────────────────────────────────


def exported_environment(given: ParsedOption | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ``--export`` selects from `environ`; the node adds those of a login and of the job."""
    words = _export_words(given)
    exported = dict(environ) if "ALL" in words else {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            exported[name] = value
        elif name in environ and name not in ("ALL", "NONE"):
            exported[name] = environ[name]
    return exported


def _export_words(given: ParsedOption | None) -> list[str]:
    """Split ``ALL,A=1,B``."""
    if given is None or given.value in ("", "ALL"):
        return ["ALL"]
    if given.value in ("NONE", "NIL"):
        return ["NONE"]
    words = [word for word in given.value.split(",") if word]
    for word in words:
        if not re.fullmatch(_VARIABLE, word.partition("=")[0]):
            raise bad_value(given, f"`{word}` is not a variable name", "use ALL, NONE, or NAME[=VALUE],...")
    return words
