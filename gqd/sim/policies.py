"""Policies of a replay: a named policy, or the tables of a gq.toml, with ``--set`` on top.

The daemon's own reader reads the tables, so that a file has the same meaning here.  Settings not about scheduling
(listeners, nodes, partitions of the file) have no effect on virtual nodes.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gq.config.config import Config, config_of
from gq.errors import UsageError
from gq.model.scheduling import PRESETS
from gq.near_miss import nearest
from gqd.shell.settings import policy_of
from gqd.state.policy import Policy

TABLES = ("scheduler", "priority", "billing", "accounts", "limits", "timers", "licenses", "topology")
"""Tables whose keys ``--set`` may change."""
PRESENT, CHANGED = "present", "changed"
USER_LIMITS = 5.0
"""``easy-user``: a job without a time limit gets its run time multiplied by this."""


class SimPolicy(NamedTuple):
    name: str
    """Name in the summary."""
    policy: Policy

    @property
    def knows(self) -> bool:
        """Whether the controller knows the run time of each job."""
        return self.policy.scheduling.expect == "exact"

    def limits_factor(self, said: float | None) -> float | None:
        return USER_LIMITS if said is None and self.policy.scheduling.expect == "limit" else said


def read_policies(words: Sequence[str], changes: Sequence[str], own: Config | None = None) -> list[SimPolicy]:
    """A policy for each word: a name, or a file that ends in ``.toml``; `UsageError` if it does not exist.

    `own`: the configuration of the cluster whose history is replayed; its licences and switches apply to every policy.
    """
    found = []
    for word in dict.fromkeys(words):
        is_file = word.endswith(".toml")
        raw = _tables_of(Path(word)) if is_file else {"scheduler": {"policy": _known(word)}}
        for change in changes:
            _set(raw, change)
        config = config_of(raw, word if is_file else f"--policy {word}")
        if own is not None:
            there = {name: getattr(own, name) for name in ("licenses", "topology") if name not in raw}
            config = msgspec.structs.replace(config, **there)
        found.append(SimPolicy(_name_of(word, words), policy_of(config, 0)))
    return found


def _known(word: str) -> str:
    if word in PRESETS:
        return word
    close = nearest(word, list(PRESETS))
    listed = ", ".join(f"`{name}`" for name in PRESETS)
    hint = f"did you mean `{close}`? " if close else ""
    raise UsageError(
        "unknown_policy", f"`--policy`: `{word}` is not a policy", f"{hint}there are {listed}, and FILE.toml"
    )


def _tables_of(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            "unreadable", f"{path} cannot be read: {why}", "--policy names a policy or a gq.toml"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError("bad_config", f"{path} is not TOML: {error}") from None


def _name_of(word: str, words: Iterable[str]) -> str:
    """The name of a policy file: ``mine`` for ``site/mine.toml``, unless another policy has that name."""
    name = Path(word).stem if word.endswith(".toml") else word
    others = [Path(other).stem if other.endswith(".toml") else other for other in dict.fromkeys(words) if other != word]
    return word if name in others and name != word else name


def _set(raw: dict[str, Any], change: str) -> None:
    """Apply a change such as ``scheduler.order=shortest`` to the tables; strings need no quotation marks."""
    key, equals, text = change.partition("=")
    parts = key.strip().split(".")
    if not equals or len(parts) < 2 or not all(parts):
        raise UsageError(
            "bad_value", f"`--set`: `{change}` is not TABLE.KEY=VALUE", "for example scheduler.order=arrival"
        )
    if parts[0] not in TABLES:
        close = nearest(parts[0], list(TABLES))
        hint = (f"did you mean `{close}`? " if close else "") + f"there are {', '.join(TABLES)}"
        raise UsageError("bad_value", f"`--set`: `{parts[0]}` is not a scheduling table", hint)
    table = raw
    for part in parts[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(
                "bad_value", f"`--set`: `{change}` goes through `{part}`, which is not a table", "see gq.toml(5)"
            )
        table = inner
    table[parts[-1]] = _value_of(text.strip())


def _value_of(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def changed(own: Config, path: str, changes: Sequence[str]) -> list[SimPolicy]:
    """The policies of the cluster's own settings, and of its settings with changes."""
    present = SimPolicy(PRESENT, policy_of(own, 0))
    if not changes:
        return [present]
    raw = _tables_of(Path(path))
    for change in changes:
        _set(raw, change)
    return [present, SimPolicy(CHANGED, policy_of(config_of(raw, path), 0))]
