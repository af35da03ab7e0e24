"""Readers of gq.toml's topology, features, attributes, resources and licences.  Pure.

Each reader converts a value of the file to the value of the field; ``ValueError`` names the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gq.model.constraint import NAME as ATTRIBUTE
from gq.model.ids import NAME
from gq.model.nodelist import expand
from gq.model.scheduling import Switch
from gq.units import parse_memory_mib

MAX_COUNT = 2**31 - 1
MAX_VALUE = 255
_DATA = re.compile(r"[^\s,]{1,255}")
TMP = "tmp"
"""The resource that is an amount of scratch space."""


def _data(raw: object) -> list[str]:
    """Check a list of names of data sets, which may be paths."""
    if not isinstance(raw, list):
        raise ValueError('must be a list such as ["imagenet", "/ds/c4"]')
    for name in raw:
        if not isinstance(name, str) or not is_data_name(name):
            raise ValueError(f"has `{name}`, which is not the name of a data set; a name has no blanks and no commas")
    return raw


def is_data_name(text: str) -> bool:
    return bool(_DATA.fullmatch(text)) and text.isprintable()


def _features(raw: object) -> list[str]:
    if not isinstance(raw, list):
        raise ValueError('must be a list such as ["ib", "rack1"]')
    return [_attribute(name) for name in raw]


def _name(raw: object) -> str:
    if not isinstance(raw, str) or not NAME.fullmatch(raw):
        raise ValueError(f"has `{raw}`, which is not a name; use letters, digits, `.`, `_` and `-`, at most 63")
    return raw


def _attribute(raw: object) -> str:
    if not isinstance(raw, str) or not ATTRIBUTE.fullmatch(raw) or len(raw) > MAX_VALUE:
        raise ValueError(f"has `{raw}`, which --constraint cannot use; begin it with a letter, without blanks")
    return raw


def _attributes(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise ValueError('must be a table such as {rack = "r7", ib = "hdr"}')
    return {_attribute(name): _value(name, value) for name, value in raw.items()}


def _value(name: str, raw: object) -> str:
    """Convert a value to text: true is ``yes``."""
    if isinstance(raw, bool):
        return "yes" if raw else "no"
    text = str(raw) if isinstance(raw, int | float | str) else ""
    if not text or not text.isprintable() or len(text) > MAX_VALUE:
        raise ValueError(
            f"has a value for `{name}` that is neither text nor a number of at most {MAX_VALUE} characters"
        )
    return text


def _resources(raw: object) -> dict[str, int]:
    """Return name → count; scratch space is written with a unit, such as ``800G``."""
    if not isinstance(raw, dict):
        raise ValueError('must be a table such as {fpga = 2, tmp = "800G"}')
    return {_name(name): _count(name, value) for name, value in raw.items()}


def _count(name: str, raw: object) -> int:
    if name == TMP and isinstance(raw, str):
        return parse_memory_mib(raw)
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MAX_COUNT:
        hint = 'text with a unit, for example "800G"' if name == TMP else f"a number between 0 and {MAX_COUNT}"
        raise ValueError(f"has `{raw}` for `{name}`; it must be {hint}")
    return raw


def _nodes(raw: object) -> list[str]:
    return _names(raw, 'nodes such as ["n[1-8]", "login"]')


def _switches(raw: object) -> list[str]:
    return _names(raw, 'switches such as ["leaf[1-8]"]')


def _names(raw: object, what: str) -> list[str]:
    """Expand names and ranges of names."""
    texts = raw if isinstance(raw, list) else [raw]
    names: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"must be {what}")
        names += expand(text)
    return names


READERS: dict[str, Callable[[object], object]] = {
    "features": _features,
    "attributes": _attributes,
    "resources": _resources,
    "data": _data,
    "nodes": _nodes,
    "switches": _switches,
}
"""Key of the file → its reader."""


def check_switches(switches: Sequence[Switch]) -> None:
    """Check that the switches form trees: ValueError if one has two parents, or a switch contains itself."""
    names = {switch.name for switch in switches}
    parent_of: dict[str, str] = {}
    for switch in switches:
        if not switch.nodes and not switch.switches:
            raise ValueError(f"`{switch.name}` has neither nodes nor switches")
        if switch.nodes and switch.switches:
            raise ValueError(
                f"`{switch.name}` has both nodes and switches; put the nodes on a separate switch below it"
            )
        for child in switch.switches:
            if child not in names:
                raise ValueError(f"`{switch.name}` names switch `{child}`, which does not exist")
        for child in (*switch.nodes, *switch.switches):
            kind = "switch " if child in switch.switches else ""
            if kind + child in parent_of:
                raise ValueError(
                    f"{kind or 'node '}`{child}` is connected to `{parent_of[kind + child]}` and to `{switch.name}`"
                )
            parent_of[kind + child] = switch.name
    for name in sorted(names):
        seen, ancestor = {name}, name
        while (parent := parent_of.get(f"switch {ancestor}")) is not None:
            if parent in seen:
                raise ValueError(f"switch `{name}` is connected to itself")
            seen.add(parent)
            ancestor = parent
