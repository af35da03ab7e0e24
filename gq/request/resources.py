"""The resource options of a job: from parsed options to a `ResourceRequest`.  Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from gq.errors import UsageError
from gq.model.nodelist import expand
from gq.model.resource import ResourceRequest, RoleRequest
from gq.request.getopt import Arguments, whole_number
from gq.request.option import ParsedOption, bad_value, not_available
from gq.request.options import RESOURCE_OPTIONS, ResourceOption
from gq.units import MAX_COUNT, parse_memory_mib

NOTHING = ResourceRequest()
_Fields = dict[str, object]
"""Fields of a `ResourceRequest` by name."""
_GPU_TYPE = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"  # compiled when first needed: a command that needs it is rare


class Gpus(NamedTuple):
    """A number of GPUs, or a range of numbers, of a type."""

    number: int
    type: str | None
    max_number: int | None = None
    """The maximum of a range."""


_NODE_OPTIONS = ("constraint", "prefer", "switches", "tmp", "gres", "licenses", "data")
"""Options read by `gq.request.node_options`, which is loaded only if one of them is given."""
_FIELDS = {option.name: option.sets for option in RESOURCE_OPTIONS}


def resource_request(arguments: Arguments, base: ResourceRequest = NOTHING) -> ResourceRequest:
    """Return the resources that these options request; fields without an option are as in `base`."""
    if base.roles and resource_fields(arguments, base).keys() & RoleRequest.__struct_fields__:
        message = "the resources of a job with roles cannot be changed after submission"
        raise UsageError("contradiction", message, "cancel it with gqdel and submit it again")
    request = _with_gpus_for_tasks(arguments, msgspec.structs.replace(base, **resource_fields(arguments, base)))
    _refuse_contradictions(arguments, request)
    return request


def resource_fields(arguments: Arguments, base: ResourceRequest = NOTHING) -> _Fields:
    """Return the fields that these options set, with None for fields that they replace."""
    fields = _plain(arguments) | _gpus(arguments) | _nodes(arguments)
    if any(arguments.has(name) for name in _NODE_OPTIONS):
        from gq.request.node_options import node_option_fields

        fields |= node_option_fields(arguments, base)
    return fields


def _plain(arguments: Arguments) -> _Fields:
    """Return the fields of the options with one value, and None for the fields of their rivals."""
    given = [option for option in RESOURCE_OPTIONS if option.reads and arguments.has(option.name)]
    replaced: _Fields = {_FIELDS[rival]: None for option in given for rival in option.rivals}
    return replaced | {option.sets: _value(arguments, option) for option in given}


def _value(arguments: Arguments, option: ResourceOption) -> object:
    match option.reads:
        case "flag":
            return True
        case "count":
            return arguments.integer(option.name, option.minimum)
        case "nodelist":
            return arguments.read(option.name, expand)
        case "memory":
            return arguments.read(option.name, _some_memory_mib if option.minimum else parse_memory_mib)
        case _:
            return arguments.read(option.name, parse_memory_mib) or None


def _with_gpus_for_tasks(arguments: Arguments, request: ResourceRequest) -> ResourceRequest:
    """Return the request with the number of GPUs that ``--ntasks`` and ``--ntasks-per-gpu`` determine together."""
    per_gpu, ntasks = request.ntasks_per_gpu, request.ntasks
    is_new = not request.gpus or arguments.has("ntasks") or arguments.has("ntasks-per-gpu")
    if not per_gpu or not ntasks or arguments.has("gpus") or not is_new:
        return request
    if ntasks % per_gpu:
        message = f"--ntasks={ntasks} is not a multiple of --ntasks-per-gpu={per_gpu}"
        raise UsageError("contradiction", message, f"use --ntasks={-(-ntasks // per_gpu) * per_gpu}")
    return msgspec.structs.replace(request, gpus=ntasks // per_gpu)


def _span(text: str) -> tuple[int, int | None]:
    """Parse ``2-4`` → (2, 4), ``3`` → (3, None)."""
    low, dash, high = text.partition("-")
    if text[:1].isalpha():
        raise ValueError(f"`{text}` is not a number of nodes; use --nodelist={text} to name nodes")
    if dash and not (low.isdecimal() and high.isdecimal()):
        raise ValueError(f"`{text}` is not a range like 1-8")
    first = whole_number(low, 1, MAX_COUNT)
    if not dash:
        return first, None
    last = whole_number(high, 1, MAX_COUNT)
    if last < first:
        raise ValueError(f"`{text}` is reversed; use {last}-{first}")
    return first, last


def _some_memory_mib(text: str) -> int:
    mib = parse_memory_mib(text)
    if mib == 0:
        raise ValueError("0 is not allowed; use --mem=0 for all memory of each node")
    return mib


_GPU_OPTIONS = {
    "gpus": "gpus",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpus_per_task",
    "gres": "gpus_per_node",
}


def _gpus(arguments: Arguments) -> _Fields:
    fields: _Fields = {}
    typed: dict[str, ParsedOption] = {}
    for name, field in _GPU_OPTIONS.items():
        gpus = arguments.read(name, _gres if name == "gres" else gpu_count)
        given = arguments.last(name)
        if gpus is None or given is None:
            continue
        if gpus.max_number is not None and name != "gpus":
            raise bad_value(
                given, "a range of GPUs applies to the whole job, on one node", f"use --gpus={_range(gpus)}"
            )
        fields[field] = gpus.number
        if name == "gpus":
            fields["most_gpus"] = gpus.max_number
        if gpus.type is not None:
            typed[gpus.type] = given
            fields["gpu_type"] = gpus.type
    if len(typed) > 1:
        places = " and ".join(f"{given.place} ({kind})" for kind, given in typed.items())
        raise UsageError("contradiction", f"{places} request different types of GPU", "a job has GPUs of one type")
    return fields


def gpu_count(text: str) -> Gpus:
    """Parse ``4`` or ``a100:4``."""
    kind, colon, count = text.rpartition(":")
    if colon and not re.fullmatch(_GPU_TYPE, kind):
        raise ValueError(f"`{text}` is not [TYPE:]COUNT; for example 4 or a100:4")
    if re.fullmatch(r"\d+-.*", count):
        low, high = _span(count)
        return Gpus(low, kind.lower() or None, high if high != low else None)
    return Gpus(whole_number(count, 0, MAX_COUNT), kind.lower() or None)


def _range(gpus: Gpus) -> str:
    return f"{gpus.type}:{gpus.number}-{gpus.max_number}" if gpus.type else f"{gpus.number}-{gpus.max_number}"


def _gres(text: str) -> Gpus | None:
    """Parse ``gpu``, ``gpu:2``, ``gpu:a100``, ``gpu:a100:2``; None: no GPUs in it."""
    parts = [part.strip() for part in text.split(",") if part.strip().partition(":")[0] == "gpu"]
    if not parts:
        return None
    if len(parts) > 1:
        raise ValueError(f"`{text}` requests GPUs twice; a job has GPUs of one type")
    rest = parts[0].partition(":")[2]
    if not rest:
        return Gpus(1, None)
    if re.fullmatch(_GPU_TYPE, rest) and not rest.isdecimal():
        return Gpus(1, rest.lower())
    return gpu_count(rest)


def _nodes(arguments: Arguments) -> _Fields:
    fields: _Fields = {}
    if span := arguments.read("nodes", _span):
        fields = {"nodes_min": span[0], "nodes_max": span[1]}
    given = arguments.last("exclusive")
    if given is not None:
        if given.value in ("user", "mcs", "topo"):
            raise not_available(f"{given.place} with `{given.value}`")
        fields["is_exclusive"] = arguments.choice("exclusive", {"true": True, "false": False}, True)
    return fields


def _refuse_contradictions(arguments: Arguments, request: ResourceRequest) -> None:
    """Refuse contradictions that can be found without knowing any node."""
    has_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task)
    for option in RESOURCE_OPTIONS:
        given = arguments.last(option.name) if option.needs_gpus and not has_gpus else None
        if given is not None and getattr(request, option.sets):
            raise bad_value(given, "the job requests no GPUs", "add --gpus or --gpus-per-node")
    given = arguments.last("fill-nodes")
    if given is not None and not request.gpus:
        raise bad_value(given, "it applies only to GPUs distributed over nodes", "add --gpus=COUNT")
    if request.is_elastic and (request.nodes_min or 1) >= (request.nodes_max or 0):
        given = arguments.last("elastic") or arguments.last("nodes")
        place = "--elastic" if given is None else given.place
        hint = "give the minimum, with which the job starts, and the maximum: --nodes=1-4 --elastic"
        raise UsageError("contradiction", f"{place} requires a range of nodes", hint)
    max_nodes = request.nodes_max or request.nodes_min
    tasks_per_node = request.ntasks_per_node
    if (
        request.ntasks is not None
        and max_nodes is not None
        and tasks_per_node is not None
        and request.ntasks > max_nodes * tasks_per_node
    ):
        message = f"{request.ntasks} tasks do not fit on {max_nodes} nodes with {tasks_per_node} tasks each"
        raise UsageError("contradiction", message, "request more nodes, or more tasks per node")
    overlap = sorted(set(request.nodelist) & set(request.exclude))
    if overlap:
        message = f"node `{overlap[0]}` is both in --nodelist and in --exclude"
        raise UsageError("contradiction", message, "remove it from one of them")
