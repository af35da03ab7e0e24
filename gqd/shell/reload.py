"""Reloading gq.toml while the controller runs: which settings take effect at once, and which wait for a restart.

Owns that comparison.  A file that cannot be read, is unsafe or invalid, or whose submit hook cannot be loaded changes
nothing.  Settings with which the listeners and the database were opened stay until gqd restarts; settings that only
nodes read stay until gqnode restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from gq.config.config import DEFAULT, Config, is_duration, load_config, parse_config
from gq.connection.locate import Location
from gq.errors import GqError
from gq.wire.client import CheckConfig
from gqd.shell.inbox import Inbox
from gqd.shell.log import LOG
from gqd.shell.requests.submit_hook import HookSettings, hook_settings, try_hook
from gqd.shell.settings import policy_of
from gqd.state.input import ClientRequest, ConfigChecked, ConfigRefused, PolicyChanged
from gqd.state.policy import Policy

OPENED_WITH = frozenset({
    "cluster", "controller.user", "controller.listen", "controller.address", "controller.listen_clients",
    "controller.munge",
    "controller.munge_socket", "limits.inbox", "limits.message_bytes", "limits.script_bytes",
    "limits.environment_bytes",
})  # fmt: skip
"""Keys that wait for a restart of gqd."""
_KEPT = ("cluster", "endpoint", "client_endpoint", "server_key", "owner_uid", "is_shared")
"""Fields of the policy that wait for a restart of gqd."""
_OF_COMMANDS = "client."
_OF_NODES = "node."
_ALSO_OF_CONTROLLER = ".login"
MAX_NAMED = 12


class Reloader:
    """Reads gq.toml again; `adopt` (old config, new config, policy, hook settings) updates the parts of the shell."""

    def __init__(
        self,
        location: Location,
        config: Config,
        policy: Policy,
        inbox: Inbox,
        adopt: Callable[[Config, Config, Policy, HookSettings], None],
    ) -> None:
        self._location = location
        self._started = self._current = config
        self._policy = policy
        self._inbox = inbox
        self._adopt = adopt
        self._turn = asyncio.Lock()
        self._readings: set[asyncio.Task[None]] = set()

    def read(self, request: ClientRequest | None = None) -> None:
        """Read the file and put the result into the inbox.  `request`: the client's request; None: a signal."""
        reading = asyncio.ensure_future(self._read(request))
        self._readings.add(reading)
        reading.add_done_callback(self._readings.discard)

    async def close(self) -> None:
        """Cancel reads that are not done; clients repeat unanswered requests."""
        for reading in self._readings:
            reading.cancel()
        if self._readings:
            await asyncio.wait(self._readings)

    async def _read(self, request: ClientRequest | None) -> None:
        """Read after all earlier requests, so that each one compares with the settings in force."""
        async with self._turn:
            if request is not None and isinstance(request.body, CheckConfig):
                self._check(request, request.body)
            else:
                await self._read_alone(request)

    def _check(self, request: ClientRequest, asked: CheckConfig) -> None:
        """Check a file without loading its hook: who may check need not be allowed to run code in this process."""
        try:
            config = parse_config(asked.text, asked.path)
            policy = policy_of(config, self._policy.owner_uid, self._location)
            hook_settings(config)
        except GqError as error:
            refused = ConfigRefused(code=error.code, message=error.message, hint=error.hint, request=request)
            self._inbox.put(refused)
        else:
            text = what_would_change(self._started, self._current, config)
            self._inbox.put(ConfigChecked(request=request, text=text, partitions=policy.partitions))

    async def _read_alone(self, request: ClientRequest | None) -> None:
        try:
            config = load_config(self._location)
            policy = policy_of(config, self._policy.owner_uid, self._location)
            hook = hook_settings(config)
            await try_hook(hook)
        except GqError as error:
            LOG.error("gq.toml was not reloaded, and nothing has changed: %s", error)
            refused = ConfigRefused(code=error.code, message=error.message, hint=error.hint, request=request)
            self._inbox.put(refused)
            return
        text = what_changed(self._started, self._current, config)
        self._policy = msgspec.structs.replace(policy, **{name: getattr(self._policy, name) for name in _KEPT})
        LOG.info("gq.toml was reloaded: %s", text)
        self._adopt(self._current, config, self._policy, hook)
        self._current = config
        self._inbox.put(PolicyChanged(policy=self._policy, request=request, text=text))


def what_changed(started: Config, current: Config, fresh: Config) -> str:
    """A sentence: the settings that took effect, and those that wait for a restart of a daemon."""
    in_force = [key for key in _differences(current, fresh) if not _waits_for(key)]
    waiting = _differences(started, fresh)
    parts = [f"in force: {_listed(in_force)}" if in_force else "no setting that takes effect at once has changed"]
    for daemon, where in (("gqd", ""), ("gqnode", " on the node's host")):
        keys = [key for key in waiting if _waits_for(key) == daemon]
        if keys:
            parts.append(f"after `{daemon} restart`{where}: {_listed(keys)}")
    return "; ".join(parts)


def what_would_change(started: Config, current: Config, fresh: Config) -> str:
    """A line with old and new value for each key that differs, grouped by when the change would take effect.

    A new table, such as a partition, is followed by a line for each key that the file sets in it.
    """
    before, after = ({key: value for key, value, _ in config.settings()} for config in (current, fresh))
    waiting = _differences(started, fresh)
    lines: list[str] = []
    for daemon, title in _WHEN.items():
        keys = [key for key in (waiting if daemon else _differences(current, fresh)) if _waits_for(key) == daemon]
        lines += [title] if keys else []
        lines += [line for key in keys for line in _change(fresh, before, after, key)]
    return "\n".join(lines) or "no setting would change"


_WHEN = {
    "": "would take effect with `gqctl config reload`:",
    "gqd": "would take effect with `gqd restart`:",
    "gqnode": "would take effect with `gqnode restart` on the node's host:",
}
_MAX_VALUE = 60


def _change(fresh: Config, before: dict[str, object], after: dict[str, object], key: str) -> Iterator[str]:
    """The lines about a changed key, or about a table that was added or removed."""
    if key in before or key in after:
        yield f"  {key}: {_value(before, key)} -> {_value(after, key)}"
        return
    inner = [name for name in after if name.startswith(f"{key}.")]
    yield f"  {key}: {'new' if inner else 'removed'}"
    for name in inner:
        if fresh.origin(name) != DEFAULT and name != f"{key}.name":
            yield f"    {name.removeprefix(f'{key}.')} = {_value(after, name)}"


def _value(settings: dict[str, object], key: str) -> str:
    """A value as short text."""
    if key not in settings:
        return "absent"
    if is_duration(key) and isinstance(settings[key], int | float):
        return f'"{settings[key]:g}s"'
    text = "unset" if settings[key] is None else msgspec.json.encode(settings[key]).decode()
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def _waits_for(key: str) -> str:
    """The daemon that must restart for a change of this key; empty: none."""
    if key.startswith(_OF_NODES):
        return "" if key.endswith(_ALSO_OF_CONTROLLER) else "gqnode"
    return "gqd" if key in OPENED_WITH else ""


def _differences(before: Config, after: Config) -> list[str]:
    """Dotted keys that differ, in the order of the file; an added or removed partition or node counts as one key."""
    old, new = ({key: value for key, value, _ in config.settings()} for config in (before, after))
    return list(dict.fromkeys(_changes(old, new)))


def _changes(old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    for key in {**old, **new}:
        if key.startswith(_OF_COMMANDS):
            continue  # no daemon reads it
        if key in old and key in new:
            if old[key] != new[key]:
                yield key
        else:
            yield key.rpartition(".")[0]


def _listed(keys: list[str]) -> str:
    more = len(keys) - MAX_NAMED
    return ", ".join(keys[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
