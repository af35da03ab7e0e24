"""The meaning of job options: from what was given to a `JobSpec` and an environment.  Pure.

Owns every check that needs no knowledge of the cluster; the controller checks the rest, and checks again.  An error
names the option as it was written, its value, the rule and the way out.  `gqsub`, `gqrun`, `gqalloc` and
`gqctl update` all read their options here.
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
from gq.model.nodelist import expand
from gq.model.notice import Target
from gq.model.resource import ResourceRequest, RoleRequest
from gq.model.tasks import MAX_TASK, format_tasks, parse_tasks
from gq.near_miss import none_of, suggestion
from gq.request.getopt import Arguments, whole_number
from gq.request.option import ParsedOption, bad_value, not_available
from gq.request.signals import parse_signal
from gq.units import parse_duration_s, parse_instant, parse_memory_mib, parse_seconds

if TYPE_CHECKING:
    from gq.model.sweep import Sweep

T = TypeVar("T")
_Fields = dict[str, object]
"""Fields of a `ResourceRequest` by name."""

MAX_NAME_LENGTH = 256
MAX_PRIORITY = 2**31 - 1
MAX_REQUEUE = 2**31 - 1
NOTHING = ResourceRequest()
AUTO = "auto"
"""Instead of a number of tasks at once: as many as there are idle GPUs."""
UNLIMITED_S = 0
"""In a `JobSpec`: no time limit (None is the partition's default)."""

# Patterns are compiled when they are first needed: all of them together would cost more than the rest of a command.
_GPU_TYPE = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
_SIGNAL = r"(?:(?P<scope>[A-Za-z]):)?(?P<signal>\w+)(?:@(?P<before>.+))?"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a job takes from the place and the command it is submitted by."""

    name: str
    """Name of a job that was not given one."""
    submit_dir: str
    submit_host: str
    umask: int
    now: float
    command: str = ""
    args: tuple[str, ...] = ()
    is_interactive: bool = False
    read_instant: Callable[[str, float], float] = parse_instant
    """How it reads moments: as ``--begin`` has them, from the text and `now`."""
    read_dependency: Callable[[str], Dependency] = parse_dependency
    """How it reads ``--dependency``."""


def job_spec(arguments: Arguments, submission: Submission, others: Sequence[Arguments] = ()) -> JobSpec:
    """The job that these options describe; `others`: what stands behind each `` : ``."""
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
        kill_on_invalid_dep=_choice(arguments, "kill-on-invalid-dep", _YES_OR_NO, None),
        deadline_at=arguments.read("deadline", lambda text: submission.read_instant(text, submission.now)),
        is_held=arguments.has("hold"),
        nice=arguments.integer("nice", -(2**31), 2**31) or 0,
        priority=arguments.integer("priority", 0, MAX_PRIORITY),
        requeue=_requeue(arguments),
        requeue_on=arguments.read("requeue-on", parse_causes) or (),
        max_requeue=arguments.integer("max-requeue", 0, MAX_REQUEUE),
        grace_s=arguments.read("grace", _grace_s),
        resume_s=arguments.read("resume-cost", _resume_s),
        signal=_signal(arguments.last("signal")),
        kill_on_bad_exit=_choice(arguments, "kill-on-bad-exit", {"1": True, "0": False}, True),
        no_kill=_choice(arguments, "no-kill", {"on": True, "off": False}, False),
        is_interactive=submission.is_interactive,
        args=submission.args,
        chdir=posixpath.normpath(posixpath.join(submission.submit_dir, arguments.text("chdir"))),
        output=_pattern(arguments, "output"),
        error=_pattern(arguments, "error"),
        input=_pattern(arguments, "input"),
        open_mode=_choice(arguments, "open-mode", _OPEN_MODES, "truncate"),
        umask=submission.umask,
        comment=arguments.text("comment"),
        notify=_notify(arguments),
        submit_dir=submission.submit_dir,
        submit_host=submission.submit_host,
        command=submission.command,
    )


_NOT_EMPTY = {"licenses": "matlab:1", "constraint": "a100", "prefer": "a100", "data": "imagenet", "gres": "gpu:1"}
"""Options whose value may be empty only in `gqctl update`, where it takes away what was asked for."""


def _refuse_empty(arguments: Arguments) -> None:
    """Refuse options without a value, as a script writes them whose variable is not set: ``--licenses=$WHICH``."""
    for name, example in _NOT_EMPTY.items():
        given = arguments.last(name)
        if given is not None and not given.value.strip(" ,"):
            raise bad_value(given, "the value is empty", f"leave it out, or give a value: --{name}={example}")


def _notify(arguments: Arguments) -> tuple[Target, ...]:
    if not any(arguments.has(name) for name in ("notify", "notify-on", "mail-type")):
        return ()
    from gq.request.notify import targets  # few jobs tell anybody

    return targets(arguments)


def _resources(arguments: Arguments, others: Sequence[Arguments]) -> ResourceRequest:
    if others or arguments.has("role"):
        from gq.request.het_job import het_job_request  # few jobs have roles

        return het_job_request((arguments, *others))
    return resource_request(arguments)


_YES_OR_NO: dict[str, bool | None] = {"yes": True, "no": False}
_OPEN_MODES = {"append": "append", "a": "append", "truncate": "truncate", "t": "truncate"}


def _choice(arguments: Arguments, name: str, choices: Mapping[str, T], default: T) -> T:
    given = arguments.last(name)
    if given is None:
        return default
    if given.value.lower() not in choices:
        way_out = suggestion(given.value, choices, f"use one of {', '.join(choices)}")
        raise bad_value(given, f"`{given.value}` is not a choice", way_out)
    return choices[given.value.lower()]


def _name(given: ParsedOption | None, default: str) -> str:
    """The job's name; one taken from a file may be odd, one that was asked for may not."""
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
        raise ValueError("a partition has a name")
    return text.strip()


def _word(text: str) -> str:
    """The name of an account, a QOS or a reservation; which there are the controller knows."""
    if not text.strip() or not text.isprintable():
        raise ValueError(f"`{text[:40]}` is not a name")
    return text.strip()


class Array(NamedTuple):
    """``--array``: which tasks, and how many of them at once (None: as many as fit)."""

    tasks: str
    """Empty: it does not say."""
    throttle: int | None
    is_auto: bool = False


def parse_array(text: str) -> Array:
    """``1-100:2%8``, ``1-100%auto``, and for a sweep ``%8``; ``ValueError`` with a sentence."""
    tasks, percent, throttle = text.partition("%")
    found = format_tasks(parse_tasks(tasks)) if tasks or not percent else ""
    if throttle.lower() == AUTO:
        return Array(found, None, True)
    if percent and not throttle.isdecimal():
        rule = f"for example {tasks}%4, or {tasks}%auto for as many as there are idle GPUs"
        raise ValueError(f"`%{throttle}` does not say how many tasks may run at once; {rule}")
    return Array(found, whole_number(throttle, 1, MAX_TASK) if percent else None)


def _array(arguments: Arguments, sweep: Sweep) -> Array | None:
    """The tasks of a sweep are all of its combinations, unless ``--array`` names some."""
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
        rule = f"the sweep has {count} combinations, the tasks 0-{count - 1}"
        raise bad_value(given, f"`{given.value}` names tasks that the sweep has not", rule)
    return array


def _sweep(text: str) -> Sweep:
    from gq.model.sweep import parse_sweep  # few jobs are sweeps

    return parse_sweep(text)


def _fail_fast(arguments: Arguments) -> bool:
    given = arguments.last("fail-fast")
    if given is not None and not arguments.has("array") and not arguments.has("sweep"):
        raise UsageError("contradiction", f"{given.place} is about the tasks of an array", "add --array=1-10")
    return given is not None


def time_limit_s(text: str) -> int:
    """Seconds; `UNLIMITED_S` for ``unlimited`` and, as in Slurm, for 0."""
    return parse_duration_s(text) or UNLIMITED_S


def _requeue(arguments: Arguments) -> bool | None:
    if arguments.has("no-requeue"):
        return False
    return True if arguments.has("requeue") or arguments.has("requeue-on") else None


def parse_causes(text: str) -> tuple[str, ...]:
    """After what a job waits again: ``preempt,timeout``."""
    causes = tuple(dict.fromkeys(one.strip().lower().replace("-", "_") for one in text.split(",")))
    for cause in causes:
        if cause not in REQUEUE_ON:
            raise ValueError(none_of(cause, REQUEUE_ON))
    return causes


def _resume_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if seconds is None:
        raise ValueError("a job is there again some time; for example 2min")
    return seconds


def _grace_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if seconds is None:
        raise ValueError("a grace time ends some time; for example 20s")
    return seconds


def _signal(given: ParsedOption | None) -> SignalSpec | None:
    """``[B:]SIG[@SECONDS]``"""
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
    """Refuse a file pattern with a code that means nothing, such as ``%q``."""
    if "%" not in given.value:
        return
    from gq.request.patterns import CODES, unknown_code  # most jobs name no pattern

    if code := unknown_code(given.value):
        known = ", ".join(f"%{letter}" for letter in CODES)
        rule = f"`{code}` in `{given.value[:60]}` is not a code of file patterns"
        raise bad_value(given, rule, f"there are {known}; write %{code} for a percent sign")


# ── resources ─────────────────────────────────────────────────────────────────────────────────────────────────


class Gpus(NamedTuple):
    number: int
    type: str | None
    most: int | None = None
    """Of a range."""


_WHERE = (
    "constraint", "prefer", "switches", "min-gpu-mem", "tmp", "gres", "licenses", "data", "fill-nodes",
)  # fmt: skip
"""Read by `gq.request.node_options`, which is loaded only for those who need it."""
RESOURCE_OPTIONS = frozenset({
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu", "gpus", "gpus-per-node",
    "gpus-per-task", "cpus-per-gpu", "nodelist", "exclude", "exclusive", "elastic", *_WHERE,
})  # fmt: skip
"""Those that say something of a request."""


def resource_request(arguments: Arguments, base: ResourceRequest = NOTHING) -> ResourceRequest:
    """The resources that these options ask for; what they do not say is as in `base`."""
    if base.roles and resource_fields(arguments, base).keys() & RoleRequest.__struct_fields__:
        message = "what the roles of a gang ask for cannot be changed once it is queued"
        raise UsageError("contradiction", message, "cancel it with gqdel and submit it again")
    request = msgspec.structs.replace(base, **resource_fields(arguments, base))
    _refuse_contradictions(arguments, request)
    return request


def resource_fields(arguments: Arguments, base: ResourceRequest = NOTHING) -> _Fields:
    """The fields of a request that these options say, and None for those that they take the place of."""
    fields = _counts(arguments) | _memory(arguments) | _gpus(arguments) | _nodes(arguments)
    if any(arguments.has(name) for name in _WHERE):
        from gq.request.node_options import node_option_fields

        fields |= node_option_fields(arguments, base)
    return fields


def _counts(arguments: Arguments) -> _Fields:
    options = {"ntasks": "ntasks", "ntasks_per_node": "ntasks-per-node", "cpus_per_gpu": "cpus-per-gpu",
               "cpus_per_task": "cpus-per-task"}  # fmt: skip
    said: _Fields = {
        field: arguments.integer(name, at_least=1) for field, name in options.items() if arguments.has(name)
    }
    if "cpus_per_task" in said or "cpus_per_gpu" in said:
        said = {"cpus_per_task": None, "cpus_per_gpu": None} | said
    if span := arguments.read("nodes", _span):
        said |= {"nodes_min": span[0], "nodes_max": span[1]}
    return said


def _span(text: str) -> tuple[int, int | None]:
    """``2-4`` → (2, 4), ``3`` → (3, None)."""
    low, dash, high = text.partition("-")
    if text[:1].isalpha():
        raise ValueError(f"`{text}` is not a number of nodes; nodes are named by --nodelist={text}")
    if dash and not (low.isdecimal() and high.isdecimal()):
        raise ValueError(f"`{text}` is not a range like 1-8")
    first = whole_number(low, at_least=1)
    if not dash:
        return first, None
    last = whole_number(high, at_least=1)
    if last < first:
        raise ValueError(f"`{text}` has its ends the wrong way round; use {last}-{first}")
    return first, last


def _memory(arguments: Arguments) -> _Fields:
    """One of the three, or nothing: a new one takes the place of another in the base."""
    readers = {"mem": parse_memory_mib, "mem-per-cpu": _some_memory_mib, "mem-per-gpu": _some_memory_mib}
    for name, reader in readers.items():
        if arguments.has(name):
            nothing: _Fields = dict.fromkeys(_MEMORY_FIELDS.values())
            return nothing | {_MEMORY_FIELDS[name]: arguments.read(name, reader)}
    return {}


_MEMORY_FIELDS = {"mem": "mem_per_node_mib", "mem-per-cpu": "mem_per_cpu_mib", "mem-per-gpu": "mem_per_gpu_mib"}


def _some_memory_mib(text: str) -> int:
    mib = parse_memory_mib(text)
    if mib == 0:
        raise ValueError("0 means nothing here; use --mem=0 for all memory of each node")
    return mib


_GPU_OPTIONS = {
    "gpus": "gpus",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpus_per_task",
    "gres": "gpus_per_node",
}


def _gpus(arguments: Arguments) -> _Fields:
    said: _Fields = {}
    typed: dict[str, ParsedOption] = {}
    for name, field in _GPU_OPTIONS.items():
        gpus = arguments.read(name, _gres if name == "gres" else gpu_count)
        given = arguments.last(name)
        if gpus is None or given is None:
            continue
        if gpus.most is not None and name != "gpus":
            raise bad_value(given, "a range of GPUs is of the whole job, on one node", f"use --gpus={_range(gpus)}")
        said[field] = gpus.number
        if name == "gpus":
            said["most_gpus"] = gpus.most
        if gpus.type is not None:
            typed[gpus.type] = given
            said["gpu_type"] = gpus.type
    if len(typed) > 1:
        places = " and ".join(f"{given.place} ({kind})" for kind, given in typed.items())
        raise UsageError("contradiction", f"{places} ask for different types of GPU", "a job has GPUs of one type")
    return said


def gpu_count(text: str) -> Gpus:
    """``4``, ``a100:4``"""
    kind, colon, count = text.rpartition(":")
    if colon and not re.fullmatch(_GPU_TYPE, kind):
        raise ValueError(f"`{text}` is not [TYPE:]COUNT; for example 4 or a100:4")
    if re.fullmatch(r"\d+-.*", count):
        least, most = _span(count)
        return Gpus(least, kind.lower() or None, most if most != least else None)
    return Gpus(whole_number(count, at_least=0), kind.lower() or None)


def _range(gpus: Gpus) -> str:
    return f"{gpus.type}:{gpus.number}-{gpus.most}" if gpus.type else f"{gpus.number}-{gpus.most}"


def _gres(text: str) -> Gpus | None:
    """``gpu``, ``gpu:2``, ``gpu:a100``, ``gpu:a100:2``; None: it says nothing of GPUs."""
    parts = [part.strip() for part in text.split(",") if part.strip().partition(":")[0] == "gpu"]
    if not parts:
        return None
    if len(parts) > 1:
        raise ValueError(f"`{text}` asks for GPUs twice; a job has GPUs of one type")
    rest = parts[0].partition(":")[2]
    if not rest:
        return Gpus(1, None)
    if re.fullmatch(_GPU_TYPE, rest) and not rest.isdecimal():
        return Gpus(1, rest.lower())
    return gpu_count(rest)


def _nodes(arguments: Arguments) -> _Fields:
    said: _Fields = {
        name: arguments.read(name, expand) for name in ("nodelist", "exclude") if arguments.has(name)
    }  # fmt: skip
    if arguments.has("elastic"):
        said["is_elastic"] = True
    given = arguments.last("exclusive")
    if given is not None:
        if given.value in ("user", "mcs", "topo"):
            raise not_available(f"{given.place} with `{given.value}`")
        said["is_exclusive"] = _choice(arguments, "exclusive", {"true": True, "false": False}, True)
    return said


def _refuse_contradictions(arguments: Arguments, request: ResourceRequest) -> None:
    """What can be seen without knowing any node."""
    has_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task)
    for name in ("cpus-per-gpu", "mem-per-gpu"):
        given = arguments.last(name)
        if given is not None and not has_gpus:
            raise bad_value(given, "the job asks for no GPUs", "add --gpus or --gpus-per-node")
    if request.is_elastic and (request.nodes_min or 1) >= (request.nodes_max or 0):
        given = arguments.last("elastic") or arguments.last("nodes")
        place = "--elastic" if given is None else given.place
        hint = "say the least, with which it starts, and the most: --nodes=1-4 --elastic"
        raise UsageError("contradiction", f"{place} is of jobs that ask for a range of nodes", hint)
    if any(arguments.has(name) for name in _WHERE):
        from gq.request.node_options import refuse_contradictions

        refuse_contradictions(arguments, request)
    most = request.nodes_max or request.nodes_min
    each = request.ntasks_per_node
    if request.ntasks is not None and most is not None and each is not None and request.ntasks > most * each:
        message = f"{request.ntasks} tasks do not fit on {most} nodes with {each} tasks each"
        raise UsageError("contradiction", message, "ask for more nodes, or for more tasks per node")
    both = sorted(set(request.nodelist) & set(request.exclude))
    if both:
        message = f"node `{both[0]}` is both in --nodelist and in --exclude"
        raise UsageError("contradiction", message, "leave it out of one of them")


# ── environment ───────────────────────────────────────────────────────────────────────────────────────────────


def exported_environment(given: ParsedOption | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What ``--export`` takes from `environ`; the node adds what a login sets and what is true of the job."""
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
    """``ALL,A=1,B`` → its parts."""
    if given is None or given.value in ("", "ALL"):
        return ["ALL"]
    if given.value in ("NONE", "NIL"):
        return ["NONE"]
    words = [word for word in given.value.split(",") if word]
    for word in words:
        if not re.fullmatch(_VARIABLE, word.partition("=")[0]):
            raise bad_value(given, f"`{word}` is not the name of a variable", "use ALL, NONE, or NAME[=VALUE],...")
    return words
