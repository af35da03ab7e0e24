"""Edits the [[node]] tables of a gq.toml as text and leaves everything else as it was written.

The result of an edit is parsed again and compared with the intended content.  If they differ (a table written in an
uncommon way), the result is None and the caller does without.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_NODE = re.compile(r"[ \t]*\[\[[ \t]*node[ \t]*\]\]")
_BELOW_NODE = re.compile(r"[ \t]*\[\[?[ \t]*node[ \t]*\.")

Table = dict[str, Any]


def without_node(text: str, name: str) -> str | None:
    """Return `text` without this node's table and its subtables, or None if this edit is not possible."""
    before = tomllib.loads(text)
    remaining = "".join(block for block in _blocks(text) if _name_of(block) != name)
    nodes = [node for node in before.get("node", []) if node.get("name") != name]
    return remaining if _read(remaining) == _with_nodes(before, nodes) else None


def with_values(text: str, values: Mapping[str, str], defaults: Mapping[str, str], cluster: str) -> str | None:
    """Return `text` with these TOML values in the table of its only node, or None if this edit is not possible.

    `defaults` are set for keys that the table lacks.  The rest of the file stays.
    """
    before = tomllib.loads(text)
    nodes = before.get("node", [])
    if len(nodes) != 1 or not isinstance(before.get("cluster", ""), str):
        return None
    [node] = nodes
    new_values = {**values, **{key: value for key, value in defaults.items() if key not in node}}
    blocks = _blocks(text)
    index = next((index for index, block in enumerate(blocks) if _NODE.match(block)), None)
    if index is None:
        return None
    blocks[index] = _set(blocks[index], new_values)
    blocks[0] = _set_line(blocks[0] or "\n", "cluster", f'"{cluster}"')
    intended = {**before, "cluster": cluster, "node": [{**node, **_values(new_values)}]}
    changed = "".join(blocks)
    return changed if _read(changed) == intended else None


def _blocks(text: str) -> list[str]:
    """Split the text into what precedes the first table, then each table; a node's subtables belong to its block."""
    starts = [0, *(found.start() for found in _HEADER.finditer(text)), len(text)]
    blocks: list[str] = []
    for start, end in pairwise(starts):
        block = text[start:end]
        if blocks and _BELOW_NODE.match(block):
            blocks[-1] += block
        else:
            blocks.append(block)
    return blocks


def _name_of(block: str) -> str:
    """Return the name of the node that the block defines; empty: the block defines no node."""
    nodes = (_read(block) or {}).get("node") if _NODE.match(block) else None
    return str(nodes[0].get("name", "")) if nodes else ""


def _set(block: str, values: Mapping[str, str]) -> str:
    """Set each key in its existing line, or else in a new line after the header."""
    for key, value in values.items():
        block = _set_line(block, key, value)
    return block


def _set_line(block: str, key: str, value: str) -> str:
    line = re.compile(rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)(\"[^\"\n]*\"|true|false)", re.MULTILINE)
    if line.search(block):
        return line.sub(lambda found: found[1] + value, block, count=1)
    header, newline, rest = block.partition("\n")
    return f"{header}{newline or chr(10)}{key} = {value}\n{rest}"


def _values(values: Mapping[str, str]) -> Table:
    return tomllib.loads("".join(f"{key} = {value}\n" for key, value in values.items()))


def _with_nodes(table: Table, nodes: list[Table]) -> Table:
    rest = {key: value for key, value in table.items() if key != "node"}
    return {**rest, "node": nodes} if nodes else rest


def _read(text: str) -> Table | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
