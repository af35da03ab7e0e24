"""What a job asks of its nodes beside numbers: what they must be, and what they and the cluster must have.  Pure.

Owns the values of ``--constraint --prefer --switches --min-gpu-mem --tmp --gres NAME:n --licenses --data
--fill-nodes``.  Which features, resources and licences there are is known to the controller alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gq.model.resource import Amount, ResourceRequest
from gq.request.getopt import Arguments, whole_number
from gq.request.option import bad_value
from gq.units import parse_duration_s, parse_memory_mib

TMP = "tmp"
"""Scratch space counts as a generic resource, in MiB."""
MAX_COUNT = 2**31 - 1
_RESOURCE = r"[A-Za-z_][A-Za-z0-9_.+-]*"
_DATA = r"[^\s,]+"


class Switches(NamedTuple):
    """``--switches``: over so many leaf switches at most; how long to wait for it (None: the cluster's time)."""

    most: int
    wait_s: int | None


def node_option_fields(arguments: Arguments, base: ResourceRequest) -> dict[str, object]:
    """The fields of a request that these options say; an empty value takes away what `base` has."""
    said: dict[str, object] = {}
    for name in ("constraint", "prefer"):
        if arguments.has(name):
            said[name] = arguments.read(name, read_constraint)
    if switches := arguments.read("switches", read_switches):
        said |= {"switches": switches.most, "switches_wait_s": switches.wait_s}
    if arguments.has("min-gpu-mem"):
        said["min_gpu_mem_mib"] = arguments.read("min-gpu-mem", parse_memory_mib) or None
    if arguments.has("licenses"):
        said["licenses"] = arguments.read("licenses", read_licenses)
    if arguments.has("data"):
        said["data"] = arguments.gather("data", read_data)
    if arguments.has("fill-nodes"):
        said["is_dense"] = True
    return said | _resources(arguments, base)


def _resources(arguments: Arguments, base: ResourceRequest) -> dict[str, object]:
    """Generic resources and scratch space are one field: what is said of either leaves the other as it is."""
    if not (arguments.has("gres") or arguments.has("tmp")):
        return {}
    generic = [one for one in base.resources if one.name != TMP]
    scratch = [one for one in base.resources if one.name == TMP]
    if (named := arguments.read("gres", read_generic)) is not None:
        generic = list(named)
    if (mib := arguments.read("tmp", parse_memory_mib)) is not None:
        scratch = [Amount(TMP, mib)] if mib else []
    return {"resources": (*generic, *scratch)}


def read_constraint(text: str) -> str:
    """The text as it is, if it can be read."""
    if text.strip():
        from gq.model.constraint import parse_constraint  # costs more than the rest of a command

        parse_constraint(text)
    return text.strip()


def read_switches(text: str) -> Switches:
    """``2``, ``1@10m``"""
    count, at, wait = text.partition("@")
    most = whole_number(count, at_least=1, at_most=MAX_COUNT)
    if not at:
        return Switches(most, None)
    wait_s = parse_duration_s(wait)
    return Switches(most, MAX_COUNT if wait_s is None else wait_s)


def read_licenses(text: str) -> tuple[Amount, ...]:
    """``matlab:2,ansys`` (one of it)."""
    return _amounts([word.strip() for word in text.split(",") if word.strip()], "matlab")


def read_generic(text: str) -> tuple[Amount, ...]:
    """The parts of ``--gres`` that are no GPUs: ``gpu:2,fpga:1,port`` → fpga and port."""
    words = [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    amounts = _amounts([word for word in words if not is_gpu(word)], "fpga")
    if any(one.name == TMP for one in amounts):
        raise ValueError(f"`{TMP}` is scratch space; use --tmp=SIZE")
    return amounts


def is_gpu(part: str) -> bool:
    """``gpu``, ``gpu:a100:2``"""
    return part.strip().partition(":")[0] == "gpu"


def _amounts(words: list[str], example: str) -> tuple[Amount, ...]:
    counts: dict[str, int] = {}
    for word in words:
        name, colon, count = word.partition(":")
        if not re.fullmatch(_RESOURCE, name) or ":" in count:
            raise ValueError(f"`{word[:60]}` is not NAME[:COUNT]; for example {example}:1")
        counts[name] = counts.get(name, 0) + (whole_number(count, at_least=0, at_most=MAX_COUNT) if colon else 1)
    return tuple(Amount(name, count) for name, count in counts.items() if count)


def read_data(text: str) -> tuple[str, ...]:
    """Names, as nodes say that they hold them."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if not re.fullmatch(_DATA, word) or not word.isprintable():
            raise ValueError(f"`{word[:60]}` is not the name of a data set; names have no spaces and no commas")
    return words


def refuse_contradictions(arguments: Arguments, request: ResourceRequest) -> None:
    """What can be seen without knowing any node."""
    has_gpus = bool(request.gpus or request.gpus_per_node or request.gpus_per_task)
    given = arguments.last("min-gpu-mem")
    if given is not None and request.min_gpu_mem_mib and not has_gpus:
        raise bad_value(given, "the job asks for no GPUs", "add --gpus or --gpus-per-node")
    given = arguments.last("fill-nodes")
    if given is not None and not request.gpus:
        raise bad_value(given, "it is about GPUs that are dealt out over nodes", "add --gpus=COUNT")
