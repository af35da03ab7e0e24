"""Runs the site's ``attribute_script``, which reports attributes, features and data sets of the node.

The script runs at the start and at intervals, with the daemon's rights, without input, for `DEADLINE_S` at most;
`MAX_OUTPUT` bytes of its output are read.  Each line is ``name=value``, ``feature NAME``, ``data NAME``, or a comment
(``#``).  A failed run changes nothing: the results of the last good run stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from gq.config.topology_settings import is_data_name
from gq.model.constraint import NAME as ATTRIBUTE
from gq.model.node import Inventory
from gqnode.daemon.machine import DEFAULT_PATH

log = logging.getLogger(__name__)

DEADLINE_S = 10.0
MAX_OUTPUT = 64 * 1024
MAX_LINES = 500
MAX_VALUE = 255


class Said(msgspec.Struct, frozen=True):
    """The results of a run of the script, sorted by name."""

    attributes: dict[str, str] = {}
    features: tuple[str, ...] = ()
    data: tuple[str, ...] = ()

    def added_to(self, inventory: Inventory) -> Inventory:
        """Return the inventory with these results, which override detected values of the same name."""
        return msgspec.structs.replace(
            inventory,
            attributes={**inventory.attributes, **self.attributes},
            features=tuple(dict.fromkeys((*inventory.features, *self.features))),
            data=tuple(dict.fromkeys((*inventory.data, *self.data))),
        )


def read_said(text: str) -> tuple[Said, list[str]]:
    """Parse the script's output into its results and the invalid lines."""
    attributes: dict[str, str] = {}
    features: set[str] = set()
    data: set[str] = set()
    wrong: list[str] = []
    lines = [line.strip() for line in text.splitlines()]
    for line in [line for line in lines if line and not line.startswith("#")][:MAX_LINES]:
        word, _, name = (part.strip() for part in line.partition(" "))
        key, equals, value = (part.strip() for part in line.partition("="))
        if word == "feature" and ATTRIBUTE.fullmatch(name) and len(name) <= MAX_VALUE:
            features.add(name)
        elif word == "data" and is_data_name(name):
            data.add(name)
        elif equals and ATTRIBUTE.fullmatch(key) and value.isprintable() and max(len(key), len(value)) <= MAX_VALUE:
            attributes[key] = value
        else:
            wrong.append(line)
    return Said(dict(sorted(attributes.items())), tuple(sorted(features)), tuple(sorted(data))), wrong


class AttributeScript:
    """`read` runs the script once; `watch` runs it at intervals and calls back when its results change."""

    def __init__(self, path: str, interval_s: float | None, node: str) -> None:
        self._path = path
        self._interval_s = interval_s
        self._node = node
        self._complaint = ""
        self.said = Said()

    async def read(self) -> bool:
        """Run the script; return whether its results have changed."""
        if not self._path:
            return False
        try:
            check_trusted(self._path)
            text = await asyncio.wait_for(self._run(), DEADLINE_S)
        except TimeoutError:
            return self._complain(f"did not end within {DEADLINE_S:g} s")
        except (OSError, ValueError) as error:
            return self._complain(str(error))
        said, wrong = read_said(text)
        if wrong:
            self._complain(f"line {wrong[0][:80]!r} is neither name=value, nor `feature NAME`, nor `data NAME`")
        else:
            self._complaint = ""
        before, self.said = self.said, said
        return before != said

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Run the script at each interval until the task is cancelled."""
        while self._path and self._interval_s is not None:
            await asyncio.sleep(self._interval_s)
            if await self.read():
                on_change()

    async def _run(self) -> str:
        """Return the script's output; ValueError if it fails or prints too much.  Its process group is killed."""
        process = await asyncio.create_subprocess_exec(
            self._path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": DEFAULT_PATH, "GQ_NODE": self._node, "LC_ALL": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
            limit=MAX_OUTPUT,
        )
        assert process.stdout is not None
        try:
            data = b""
            while len(data) <= MAX_OUTPUT and (more := await process.stdout.read(MAX_OUTPUT + 1 - len(data))):
                data += more
            if len(data) > MAX_OUTPUT:
                raise ValueError(f"printed more than {MAX_OUTPUT} bytes")
            if status := await process.wait():
                raise ValueError(f"ended with status {status}")
            return data.decode("utf-8")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _complain(self, why: str) -> bool:
        """Log an error once for each reason, since the script runs again and again."""
        if why != self._complaint:
            self._complaint = why
            log.error("attribute_script %s: %s; its previous output stays in force", self._path, why)
        return False


def check_trusted(path: str) -> None:
    """Raise ValueError if another user than root or the daemon's could change the script."""
    for place in (Path(path), Path(path).parent):
        found = place.stat()
        is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not is_sticky):
            raise ValueError(f"{place} can be written by users other than root and the daemon's; the script is not run")
