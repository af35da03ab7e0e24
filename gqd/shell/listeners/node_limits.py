"""Bounds on values in messages of nodes: numbers and lengths that decisions and the database can handle.  Pure.

Decoding checks types; this module checks values.  A node that reports -3 CPUs, a GPU twice or an end at infinity must
not reach any arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain
from typing import Any

import msgspec

from gq.model.node import Inventory
from gq.wire import node as wire

MAX_CPUS = 4096
MAX_GPUS = 1024
MAX_MEMORY_MIB = 2**40
MAX_TEXT = 4096
"""Characters of a text, bytes of a key."""
MAX_ITEMS = 100_000
"""Items of a list, such as the attempts that a node still knows."""
MAX_INSTANT = 1e11
"""The year 5138, which the standard library's calendar can represent."""
MAX_SECONDS = 1e12
MAX_WORDS = 10_000
"""Features, attributes, resources or data sets of a node."""
MAX_WORD = 255
MAX_COUNT = 2**31 - 1
_CPU_LIST = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
INT64 = (-(2**63), 2**63 - 1)

_TEXTS = (str, bytes)
_NUMBERS = (int, float)
"""`bool` is included as a subclass of `int`."""
_Range = tuple[float, float]
_INSTANT: _Range = (0.0, MAX_INSTANT)
_SECONDS: _Range = (0.0, MAX_SECONDS)
_MEMORY: _Range = (0, MAX_MEMORY_MIB)
_NATURAL: _Range = (0, INT64[1])
_RANGES: dict[str, _Range] = {
    "version": (0, 2**31 - 1), "cpus": (0, MAX_CPUS), "memory_mib": _MEMORY, "memory_available_mib": _MEMORY,
    "max_rss_mib": _MEMORY, "index": (0, MAX_GPUS - 1), "numa": (-1, MAX_CPUS), "master_port": (0, 65535),
    "code": (-(2**31), 2**31 - 1), "signal": (0, 255), "uid": (0, 2**32 - 2), "gid": (0, 2**32 - 2), "seq": _NATURAL,
    "last_seq": _NATURAL, "job_id": _NATURAL, "attempt": _NATURAL, "step": _NATURAL, "time_limit_s": (0, 2**31 - 1),
    "at": _INSTANT, "started_at": _INSTANT, "ended_at": _INSTANT, "user_cpu_s": _SECONDS, "system_cpu_s": _SECONDS,
    "load": _SECONDS,
}  # fmt: skip
"""Ranges by field name; other numbers must fit into 64 bits."""


def why_unacceptable(message: wire.NodeMessage) -> str:
    """The first invalid value, in words; empty: none.  The payload of a relay is not checked."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        why = _why_bad(name, value) if name != "payload" else ""
        if why:
            return why
    return _why_bad_inventory(message.inventory) if isinstance(message, wire.Hello) else ""


def _why_bad(name: str, value: Any) -> str:
    """Why a value is invalid; `name` is its field or list.  Written for speed, since reports have dozens of values."""
    if isinstance(value, _TEXTS):
        return f"{name} is {len(value)} long; the maximum is {MAX_TEXT}" if len(value) > MAX_TEXT else ""
    if isinstance(value, _NUMBERS):
        return _why_bad_number(name, value)
    if isinstance(value, msgspec.Struct):
        for one in value.__struct_fields__:
            if why := _why_bad(one, getattr(value, one)):
                return why
    elif isinstance(value, tuple):
        if len(value) > MAX_ITEMS:
            return f"{name} has {len(value)} items; the maximum is {MAX_ITEMS}"
        for one in value:
            if why := _why_bad(name, one):
                return why
    return ""


def _why_bad_number(name: str, value: float) -> str:
    low, high = _RANGES.get(name, INT64)
    if low <= value <= high:  # false for NaN
        return ""
    return f"{name} is {value}, which is not between {low:g} and {high:g}"


def _why_bad_inventory(inventory: Inventory) -> str:
    if len(inventory.gpus) > MAX_GPUS:
        return f"it has {len(inventory.gpus)} GPUs; the maximum is {MAX_GPUS}"
    indices = [gpu.index for gpu in inventory.gpus]
    if len(set(indices)) < len(indices):
        return "two of its GPUs have the same index"
    for gpu in inventory.gpus:
        if len(gpu.nvlink) > MAX_GPUS or len(gpu.pcie) > MAX_GPUS:
            return f"GPU {gpu.index} is linked with more GPUs than a node can have"
    return _why_bad_words(inventory) or _why_bad_numa(inventory)


def _why_bad_words(inventory: Inventory) -> str:
    """Check features, attributes, resources and data sets: their number, length and counts."""
    words: dict[str, Collection[str]] = {
        "features": inventory.features,
        "attributes": inventory.attributes,
        "resources": inventory.resources,
        "data": inventory.data,
    }
    for name, some in words.items():
        if len(some) > MAX_WORDS:
            return f"it has {len(some)} {name}; the maximum is {MAX_WORDS}"
    for word in (*chain.from_iterable(words.values()), *inventory.attributes.values()):
        if len(word) > MAX_WORD or not word.isprintable():
            return f"{word[:60]!r} is not a valid word: it is too long, or not printable"
    for name, count in inventory.resources.items():
        if not 0 <= count <= MAX_COUNT:
            return f"it has {count} of {name}, which is not between 0 and {MAX_COUNT}"
    return ""


def _why_bad_numa(inventory: Inventory) -> str:
    """Check the CPU lists before they are expanded, since a range may be long."""
    if len(inventory.cpu_numa) > MAX_CPUS:
        return f"it has {len(inventory.cpu_numa)} NUMA nodes; the maximum is {MAX_CPUS}"
    for _, cpus in inventory.cpu_numa:
        if not _CPU_LIST.fullmatch(cpus) or max(map(int, _NUMBER.findall(cpus))) >= inventory.cpus:
            return f"{cpus[:60]!r} is not a list of its CPUs"
    return ""
