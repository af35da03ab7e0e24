"""The options of `gqresv create` and `update`, and the `Booking` that they describe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import NamedTuple

import msgspec

from gq.calendar.times import local_zone, moment, spoken_moment, zone_named
from gq.cli.framework.command import warn
from gq.cli.framework.submission import refuse_missing_programs
from gq.errors import UsageError
from gq.model.nodelist import compress
from gq.model.reservation import Booking, Flag, Offer
from gq.model.resource import ResourceRequest
from gq.near_miss import suggestion
from gq.request.getopt import Arguments
from gq.request.notify import targets
from gq.request.option import Option, ParsedOption, bad_value
from gq.request.options import RESOURCE_OPTIONS
from gq.request.resources import resource_request
from gq.units import format_duration, parse_duration_s

MAX_NAME_LENGTH = 63
PURGE_S = 300
"""Default of Slurm's ``PURGE_COMP``."""
ALL_NODES = "all"
NEVER = ("never", "none", "")
_UNNAMED_ZONE = "UTC"
_PURGE_COMP = "PURGE_COMP"

_OF_JOBS = tuple(option for option in RESOURCE_OPTIONS if option.in_reservations)
"""Placement options that mean here what they mean for jobs."""
SHARED_OPTIONS = ("gpus", "nodes", "exclusive", *(option.name for option in _OF_JOBS))
"""Options for resources that have the names of a job's options."""
_WHAT = ("type", *SHARED_OPTIONS)
"""Options that select the resources to reserve."""
_WHEN = ("start", "end", "duration")
WHAT_OPTIONS = (
    Option(
        name="gpus", letter="G", metavar="[TYPE:]COUNT", help="Number of GPUs, with their share of CPUs and memory."
    ),
    Option(name="type", metavar="TYPE", help="Type of the GPUs."),
    Option(name="nodes", letter="N", metavar="COUNT|all", help="Number of nodes; without --gpus: whole nodes."),
    Option(
        name="nodelist", letter="w", metavar="NODES", help="Nodes to use, n1,n[3-4]; without --gpus: all of each node."
    ),
    Option(name="exclusive", help="Reserve whole nodes, also with --gpus."),
    Option(
        name="partition", letter="p", metavar="NAME", help="Partition of the nodes (default: the default partition)."
    ),
    *(option for option in _OF_JOBS if option.name != "nodelist"),
)
START = Option(name="start", metavar="TIME", help="Begin: 'fri 18:00', 'tomorrow 9am', now, 2026-12-24T18:00.")
END = Option(name="end", metavar="TIME", help="End of the reservation.")
DURATION = Option(name="duration", letter="t", metavar="TIME", help="Duration: 12h, 2d, minutes, h:m:s.")
ZONE = Option(name="tz", metavar="ZONE", help="Time zone of the times, such as Europe/Berlin (default: yours).")
WHEN_OPTIONS = (
    START,
    END,
    DURATION,
    Option(name="cron", metavar="LINE", help="Schedule in the form of crontab(5): '0 20 * * 1-5'."),
    ZONE,
    Option(name="until", metavar="TIME", help="With --cron: no occurrence begins at or after TIME."),
)
FOR_OPTIONS = (
    Option(name="users", letter="u", metavar="USERS", help="Users, besides the owner, who may use it."),
    Option(name="accounts", letter="A", metavar="NAMES", help="Accounts whose jobs may use it."),
    Option(
        name="flags",
        metavar="FLAGS",
        help="Comma-separated: MAINT, FLEX, MAGNETIC, IGNORE_JOBS, NO_LEND, PURGE_COMP[=TIME]; empty: none.",
    ),
    Option(name="maint", help="Reserve for maintenance: --flags=MAINT."),
    Option(name="no-show", metavar="TIME", help="Release it if unused for TIME after its begin, or never."),
    Option(name="comment", metavar="TEXT", help="Any text, shown with the reservation."),
    Option(
        name="notify",
        metavar="mail[:ADDRESS]|webhook:URL|slack:URL|command:PROGRAM",
        help="Where to report no-shows and failed nodes; may be repeated; none (default: the site's setting).",
    ),
)
BOOKING_OPTIONS = (*WHAT_OPTIONS, *WHEN_OPTIONS, *FOR_OPTIONS)

Fields = dict[str, object]
"""Fields of a `Booking` by name."""


class Asked(NamedTuple):
    """A booking, in whose zone it was said, and by which verb."""

    booking: Booking
    zone: tzinfo
    verb: str = "create"


def zone_of(arguments: Arguments, base: Booking | None = None) -> tzinfo:
    """In which times are said: by ``--tz``, else the reservation's, else the reader's."""
    said = arguments.read("tz", zone_named)
    return said or (zone_named(base.zone) if base is not None else local_zone())


def new_booking(arguments: Arguments, name: str, now: float) -> Asked:
    """Return the booking of `gqresv create`."""
    zone = zone_of(arguments)
    booking = booking_of(arguments, name, zone, now)
    begin_at, duration_s = _span(arguments, zone, now)
    fields: Fields = {"begin_at": begin_at, "duration_s": duration_s, "zone": _key(arguments, zone)}
    return Asked(msgspec.structs.replace(booking, **fields), zone)


def booking_of(arguments: Arguments, name: str, zone: tzinfo, now: float) -> Booking:
    """All but when."""
    _refuse_nothing(arguments)
    return Booking(name=name, duration_s=0, **_others(arguments, zone, now, ResourceRequest()))  # type: ignore[arg-type]


def changed_booking(arguments: Arguments, base: Booking, now: float) -> Asked:
    """Return the booking of `gqresv update`; fields without an option stay as in `base`."""
    if not any(arguments.has(option.name) for option in BOOKING_OPTIONS):
        raise UsageError("missing_option", "no change given", "for example --gpus=2, or --duration=8h")
    zone = zone_of(arguments, base)
    fields: Fields = {"zone": _key(arguments, zone)} if arguments.has("tz") else {}
    if any(arguments.has(option) for option in _WHEN):
        begin_at = instant(arguments, "start", zone, now) or base.begin_at
        if begin_at is None and arguments.has("end"):
            raise UsageError("contradiction", "`--cron` and `--end` exclude each other", "use --duration")
        fields |= {"begin_at": begin_at, "duration_s": _duration_s(arguments, begin_at, zone, now, base.duration_s)}
    if arguments.has("start") and base.cron and not arguments.has("cron"):
        raise UsageError("contradiction", f"`{base.name}` begins on its cron schedule", "use --cron, or `gqresv edit`")
    _refuse_lone_until(arguments, base.cron)
    if arguments.text("cron"):
        fields["begin_at"] = None
    fields |= _others(arguments, zone, now, base.resources, base.partition)
    return Asked(msgspec.structs.replace(base, **fields), zone, "update")


def _key(arguments: Arguments, zone: tzinfo) -> str:
    """The zone's name, which a cron line needs and a single time does without."""
    key = str(getattr(zone, "key", ""))
    if not key and arguments.has("cron"):
        raise UsageError(
            "no_zone", "the time zone of this machine has no name", "set --tz, for example --tz=Europe/Berlin"
        )
    return key or _UNNAMED_ZONE


def _refuse_nothing(arguments: Arguments) -> None:
    if not any(arguments.has(name) for name in ("gpus", "nodes", "nodelist")):
        message = "no GPUs or nodes given"
        raise UsageError("missing_option", message, "for example --gpus=4, --nodes=2 or --nodelist=n[1-2]")


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _span(arguments: Arguments, zone: tzinfo, now: float) -> tuple[float | None, int]:
    if arguments.has("cron"):
        for name in ("start", "end"):
            if arguments.has(name):
                message = f"`--cron` and `--{name}` exclude each other"
                raise UsageError("contradiction", message, "a series begins on its schedule and lasts --duration")
        return None, _duration_s(arguments, None, zone, now, None)
    _refuse_lone_until(arguments)
    begin_at = instant(arguments, "start", zone, now)
    if begin_at is None:
        raise UsageError("missing_option", "no begin given", "for example --start='fri 18:00' or --cron='0 20 * * *'")
    return begin_at, _duration_s(arguments, begin_at, zone, now, None)


def _refuse_lone_until(arguments: Arguments, cron: str = "") -> None:
    if arguments.has("until") and not arguments.text("cron", cron):
        raise UsageError("contradiction", "`--until` works only with --cron", "add --cron, or use --end instead")


def _duration_s(arguments: Arguments, begin_at: float | None, zone: tzinfo, now: float, default: int | None) -> int:
    if arguments.has("duration") and arguments.has("end"):
        raise UsageError("contradiction", "`--duration` and `--end` exclude each other", "give one of them")
    duration_s = arguments.read("duration", length_s)
    end_at = end_instant(arguments, begin_at, zone, now)
    if end_at is not None and begin_at is not None:
        return span_s(begin_at, end_at, zone)
    if duration_s is None:
        duration_s = default
    if duration_s is None:
        raise UsageError("missing_option", "no duration given", "for example --duration=12h")
    return duration_s


def span_s(begin_at: float, end_at: float, zone: tzinfo) -> int:
    """From ``--start`` to ``--end``."""
    if end_at <= begin_at:
        order = "before" if end_at < begin_at else "at"
        message = f"`--end`, {spoken_moment(end_at, zone)}, is {order} the begin, {spoken_moment(begin_at, zone)}"
        raise UsageError("contradiction", message, "give a later --end, with its day, or --duration=2h")
    return round(end_at - begin_at)


def length_s(text: str) -> int:
    """How long something is kept: more than nothing, and not for ever."""
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:  # it also names the word for no limit
        rule = str(error).partition("; ")[0]
        raise ValueError(f"{rule}; for example 12h or 7d") from error
    if seconds is None:
        raise ValueError("the duration must be finite; for example 12h or 7d")
    if seconds == 0:
        raise ValueError(f"`{text}` is not longer than 0; for example 12h or 30m")
    return seconds


def instant(arguments: Arguments, name: str, zone: tzinfo, now: float) -> float | None:
    meant = arguments.read(name, lambda text: moment(text, now, zone))
    if meant is not None and meant.note:
        warn(f"--{name}: {meant.note}")
    return None if meant is None else meant.at


def end_instant(arguments: Arguments, begin_at: float | None, zone: tzinfo, now: float) -> float | None:
    """``--start='fri 18:00' --end='mon 8:00'`` ends on the first Monday after that Friday, whatever day it is now."""
    end_at = instant(arguments, "end", zone, now)
    said = arguments.text("end").lower()
    if end_at is None or begin_at is None or end_at > begin_at or re.search(r"now|today|tomorrow|\bin\b", said):
        return end_at
    return instant(arguments, "end", zone, begin_at)


# ── what, for whom, by which rules ────────────────────────────────────────────────────────────────────────────


def _others(arguments: Arguments, zone: tzinfo, now: float, base: ResourceRequest, partition: str = "") -> Fields:
    fields: Fields = {"partition": arguments.text("partition", partition)}
    if any(arguments.has(name) for name in _WHAT):
        fields["resources"] = _resources(arguments, base)
    if arguments.has("cron"):
        fields["cron"] = " ".join(arguments.text("cron").split())
    if arguments.has("until"):
        fields["until_at"] = None if arguments.text("until") in NEVER else instant(arguments, "until", zone, now)
    for name in ("users", "accounts"):
        if arguments.has(name):
            fields[name] = arguments.words(name)
    if arguments.has("flags") or arguments.has("maint"):
        fields |= _flags(arguments)
    if arguments.has("no-show"):
        fields["no_show_s"] = (
            None if arguments.text("no-show").lower() in NEVER else arguments.read("no-show", length_s)
        )
    if arguments.has("comment"):
        fields["comment"] = arguments.text("comment")
    if arguments.has("notify"):
        told = () if arguments.text("notify").lower() in NEVER else targets(arguments)
        refuse_missing_programs(told)
        fields["notify"] = told
    return fields


def _resources(arguments: Arguments, base: ResourceRequest) -> ResourceRequest:
    """Return the resources, with a job's options and ``--type``; without GPUs whole nodes are reserved."""
    given = [option for option in arguments if option.name in SHARED_OPTIONS and option.name != "exclusive"]
    kind, gpus = arguments.text("type").lower(), arguments.last("gpus")
    if kind and gpus is not None:
        said, colon, _ = gpus.value.rpartition(":")
        if colon and said.lower() != kind:
            raise UsageError("contradiction", f"--type={kind} and --gpus={gpus.value} name different types")
    for other in ("nodes", "nodelist"):  # what is said in other words takes the place of what was
        if arguments.has(other) and not gpus:
            base = msgspec.structs.replace(base, nodes_min=None, nodes_max=None, nodelist=(), gpus=None, gpu_type=None)
    request = resource_request(Arguments(given), base)
    if gpus is not None and not request.gpus:
        raise bad_value(
            gpus, "a reservation needs at least 1 GPU", "omit --gpus to reserve whole nodes with --nodes or --nodelist"
        )
    request = msgspec.structs.replace(request, gpu_type=kind or request.gpu_type)
    if request.nodes_max not in (None, request.nodes_min):
        raise bad_value(_last(arguments, "nodes"), "a reservation has a fixed number of nodes", "for example --nodes=2")
    return msgspec.structs.replace(request, is_exclusive=arguments.has("exclusive") or not request.gpus)


def _last(arguments: Arguments, name: str) -> ParsedOption:
    given = arguments.last(name)
    assert given is not None
    return given


def _flags(arguments: Arguments) -> Fields:
    said = arguments.items("flags", _flag)
    flags = [Flag.MAINT] if arguments.has("maint") else []
    flags += [option for option in said if isinstance(option, Flag)]
    return {
        "flags": tuple(dict.fromkeys(flags)),
        "purge_s": next((one for one in reversed(said) if not isinstance(one, Flag)), None),
    }


def _flag(word: str) -> Flag | int:
    """A flag; of ``PURGE_COMP=5m`` the seconds.  ``ValueError`` with a sentence."""
    name, equals, value = word.upper().partition("=")
    if name == _PURGE_COMP:
        return length_s(value) if equals else PURGE_S
    if equals or name not in Flag.__members__:
        known = (*Flag.__members__, _PURGE_COMP)
        raise ValueError(f"`{word}` is not a flag; " + suggestion(name, known, f"there are {', '.join(known)}[=TIME]"))
    return Flag(name)


def with_all_nodes(arguments: Arguments, names: Iterable[str]) -> Arguments:
    """``--nodes=all`` as the list of all nodes."""
    kept = [option for option in arguments if option.name != "nodes"]
    return Arguments([*kept, ParsedOption("nodelist", compress(names), "--nodes")], arguments.operands)


# ── the other way round ───────────────────────────────────────────────────────────────────────────────────────


def command_of(arguments: Arguments, offer: Offer, asked: Asked) -> str:
    """The command line that takes an offer: as it was typed, with other words where the offer differs."""
    is_other = offer.resources != asked.booking.resources
    drop = {*_WHEN, "json", "quiet", "test-only", *(_WHAT if is_other else ())}
    words = [_word(option) for option in arguments if option.name not in drop]
    if is_other:
        words += resource_words(offer.resources)
    if not asked.booking.cron:
        begin = datetime.fromtimestamp(offer.begin_at, asked.zone)
        words.append(f"--start={begin.isoformat(timespec='seconds' if begin.second else 'minutes')}")
    words.append(f"--duration={duration_word(offer.duration_s)}")
    return shlex.join(["gqresv", asked.verb, *arguments.operands, *words])


def _word(given: ParsedOption) -> str:
    return f"--{given.name}={given.value}" if given.value else f"--{given.name}"


def resource_words(request: ResourceRequest) -> list[str]:
    """Return the resources as options."""
    kind = f"{request.gpu_type}:" if request.gpu_type else ""
    said: dict[str, object] = {
        "gpus": f"{kind}{request.gpus}" if request.gpus else None,
        "nodes": request.nodes_min,
        **{option.name: getattr(request, option.sets) or None for option in _OF_JOBS},
    }
    said |= {name: compress(names) for name, names in said.items() if isinstance(names, tuple)}
    words = [f"--{name}={value}" for name, value in said.items() if value is not None]
    return [*words, *(["--exclusive"] if request.is_exclusive and request.gpus else [])]


def duration_word(seconds: int) -> str:
    """``12h``, ``30m``, ``36h``; what is not even, as Slurm writes it."""
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return format_duration(seconds) if seconds >= 3600 else f"{seconds}s"
