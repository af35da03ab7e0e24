"""Requirements on a job's nodes besides numbers, and generic resources and licences.  Pure.

The module reads the values of ``--constraint --prefer --switches --tmp --gres NAME:n --licenses --data``.
Only the controller knows which features, resources and licences exist.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gq.model.resource import Amount, ResourceRequest
from gq.request.getopt import Arguments, whole_number
from gq.units import parse_duration_s, parse_memory_mib

TMP = "tmp"
"""Name of scratch space, which is a generic resource in MiB."""
MAX_COUNT = 2**31 - 1
_RESOURCE = r"[A-Za-z_][A-Za-z0-9_.+-]*"
_DATA = r"[^\s,]+"


class Switches(NamedTuple):
    """``--switches``: maximum number of leaf switches; seconds to wait for that (None: the cluster's time)."""

    max_count: int
    wait_s: int | None


def node_option_fields(arguments: Arguments, base: ResourceRequest) -> dict[str, object]:
    """Return the fields that these options set; an empty value removes the value of `base`."""
    fields: dict[str, object] = {}
    for name in ("constraint", "prefer"):
        if arguments.has(name):
            fields[name] = arguments.read(name, read_constraint)
    if switches := arguments.read("switches", read_switches):
        fields |= {"switches": switches.max_count, "switches_wait_s": switches.wait_s}
    if arguments.has("licenses"):
        fields["licenses"] = arguments.read("licenses", read_licenses)
    if arguments.has("data"):
        fields["data"] = arguments.gather("data", read_data)
    return fields | _resources(arguments, base)


def _resources(arguments: Arguments, base: ResourceRequest) -> dict[str, object]:
    """Return the one field for generic resources and scratch space; an option for either leaves the other unchanged."""
    if not (arguments.has("gres") or arguments.has("tmp")):
        return {}
    generic = [amount for amount in base.resources if amount.name != TMP]
    scratch = [amount for amount in base.resources if amount.name == TMP]
    if (named := arguments.read("gres", read_generic)) is not None:
        generic = list(named)
    if (mib := arguments.read("tmp", parse_memory_mib)) is not None:
        scratch = [Amount(TMP, mib)] if mib else []
    return {"resources": (*generic, *scratch)}


def read_constraint(text: str) -> str:
    """Return the text unchanged after checking its syntax."""
    if text.strip():
        from gq.model.constraint import parse_constraint  # costs more than the rest of a command

        parse_constraint(text)
    return text.strip()


def read_switches(text: str) -> Switches:
    """Parse ``2`` or ``1@10m``."""
    count, at, wait = text.partition("@")
    max_count = whole_number(count, at_least=1, at_most=MAX_COUNT)
    if not at:
        return Switches(max_count, None)
    wait_s = parse_duration_s(wait)
    return Switches(max_count, MAX_COUNT if wait_s is None else wait_s)


def read_licenses(text: str) -> tuple[Amount, ...]:
    """Parse ``matlab:2,ansys`` (a count of 1)."""
    return _amounts([word.strip() for word in text.split(",") if word.strip()], "matlab")


def read_generic(text: str) -> tuple[Amount, ...]:
    """Parse the parts of ``--gres`` that are no GPUs: ``gpu:2,fpga:1,port`` → fpga and port."""
    words = [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    amounts = _amounts([word for word in words if not is_gpu(word)], "fpga")
    if any(amount.name == TMP for amount in amounts):
        raise ValueError(f"`{TMP}` is scratch space; use --tmp=SIZE")
    return amounts


def is_gpu(part: str) -> bool:
    """Whether a part of ``--gres`` is ``gpu`` or, for example, ``gpu:a100:2``."""
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
    """Parse names of data sets."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if not re.fullmatch(_DATA, word) or not word.isprintable():
            raise ValueError(f"`{word[:60]}` is not the name of a data set; names have no spaces and no commas")
    return words
