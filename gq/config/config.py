"""Reads gq.toml into a frozen `Config`: every value checked, every default filled in, the origin of each value known.

The module owns the names and defaults of all settings of both daemons.  An unknown key is an error that names the
nearest known key; a value of the wrong kind is an error that names file and key.  Nothing here changes a file.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from gq.config.notify_settings import problem_of
from gq.config.settings import AccessSettings as AccessSettings
from gq.config.settings import ClientSettings as ClientSettings
from gq.config.settings import ControllerSettings as ControllerSettings
from gq.config.settings import FakeGpuSettings as FakeGpuSettings
from gq.config.settings import HistorySettings as HistorySettings
from gq.config.settings import LimitSettings as LimitSettings
from gq.config.settings import NodeSettings as NodeSettings
from gq.config.settings import PartitionSettings as PartitionSettings
from gq.config.topology_settings import READERS, check_switches
from gq.connection.locate import Location, has_system_cluster, why_chosen
from gq.errors import Refusal, UsageError
from gq.host.job_rlimits import default_rlimits
from gq.model.ids import NAME
from gq.model.notice import NotifySettings
from gq.model.policy_tables import Accounting, Billing, Booking, PriorityWeights, Timers
from gq.model.scheduling import BACKFILLS, EXPECTATIONS, MAX_HISTORY_JOBS, ORDERS, PREEMPTS, PRESETS, Scheduling, Switch
from gq.near_miss import nearest, suggestion
from gq.units import parse_duration_s, parse_memory_mib
from gq.wire.client import MAX_SCRIPT_BYTES
from gq.wire.codec import MAX_MESSAGE_BYTES

DEFAULT = "default"
_ROOT_UID = 0
AUTO = "auto"
LOG_LEVELS = ("debug", "info", "warning", "error")
ISOLATION_FUNCTIONS = ("cpu", "cpuset", "memory", "devices", "pids", "kill")
HOOK_FAILURES = ("refuse", "accept")
NEVER = "never"
UNLIMITED = "unlimited"
MAX_HORIZON_S = 366 * 86400
MAX_COUNT = 2**31 - 1
MAX_WEIGHT = 1e9
"""Maximum weight, up to which sums of points stay exact as integers."""
_HOOK = re.compile(r"(?s)[^\0]+\.py:[^\W\d]\w*")
_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+):(\d{1,5})")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a cluster in this host's gq.toml."""

    path: str
    cluster: str = "gq"
    controller: ControllerSettings = ControllerSettings()
    access: AccessSettings = AccessSettings()
    client: ClientSettings = ClientSettings()
    limits: LimitSettings = LimitSettings()
    timers: Timers = Timers()
    history: HistorySettings = HistorySettings()
    priority: PriorityWeights = PriorityWeights()
    billing: Billing = Billing()
    accounts: Accounting = Accounting()
    reservations: Booking = Booking()
    scheduler: Scheduling = Scheduling()
    notify: NotifySettings = NotifySettings()
    partitions: tuple[PartitionSettings, ...] = (PartitionSettings(name="main", default=True),)
    nodes: tuple[NodeSettings, ...] = ()
    topology: tuple[Switch, ...] = ()
    """Switches, with node names expanded from ranges."""
    licenses: dict[str, int] = {}
    keys_set: frozenset[str] = frozenset()
    """The keys that the file sets, dotted: ``limits.jobs``, ``node.n1.cpus``."""

    def node(self, name: str) -> NodeSettings:
        """Return the settings of one node; `Refusal` if the file has no node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = [node.name for node in self.nodes]
        raise Refusal("unknown_node", f"{self.path} has no [[node]] named `{name}`", _names_hint(name, known))

    def origin(self, key: str) -> str:
        """Return where the value of a dotted key comes from: the path of the file, or ``default``."""
        return self.path if key in self.keys_set else DEFAULT

    def settings(self) -> Iterator[tuple[str, object, str]]:
        """Yield (dotted key, value, origin) of every setting, in the order of the file's tables."""
        yield "cluster", self.cluster, self.origin("cluster")
        tables: list[tuple[str, msgspec.Struct]] = [
            ("controller", self.controller),
            ("access", self.access),
            ("client", self.client),
            ("limits", self.limits),
            ("timers", self.timers),
            ("history", self.history),
            ("priority", self.priority),
            ("billing", self.billing),
            ("accounts", self.accounts),
            ("reservations", self.reservations),
            ("scheduler", self.scheduler),
            ("notify", self.notify),
            *((f"partition.{partition.name}", partition) for partition in self.partitions),
            *((f"topology.{switch.name}", switch) for switch in self.topology),
            *((f"node.{node.name}", node) for node in self.nodes),
        ]
        for name, count in self.licenses.items():
            yield f"licenses.{name}", count, self.path
        for prefix, table in tables:
            for name in table.__struct_fields__:
                key = f"{prefix}.{_KEY_OF.get(name, name)}"
                yield key, getattr(table, name), self.origin(key)


_FIELD_OF = {
    "default_mem_per_cpu": "default_mem_per_cpu_mib",
    "default_mem_per_gpu": "default_mem_per_gpu_mib",
    "max_age": "max_age_s",
    "half_life": "half_life_s",
    "protect_wide_after": "protect_wide_after_s",
    "protect_any_after": "protect_any_after_s",
    "expected_without_history": "expected_without_history_s",
    "locality_wait": "locality_wait_s",
    "trial": "trial_s",
    "turn": "turn_s",
    "resume_cost": "resume_s",
    "default_time": "default_time_s",
    "max_time": "max_time_s",
    "memory": "memory_mib",
    "fake_gpu": "fake_gpus",
    "attribute_interval": "attribute_interval_s",
    "max_ahead": "max_ahead_s",
    "max_duration": "max_duration_s",
    "horizon": "horizon_s",
    "clear_time": "clear_time_s",
    "no_show": "no_show_s",
}
"""Key in the file → field here, for values that the file writes with a unit."""


def is_duration(key: str) -> bool:
    """Whether the file writes the value of a dotted key with a unit of time, which the field has in seconds."""
    return _FIELD_OF.get(key.rpartition(".")[2], "").endswith("_s")


_KEY_OF = {field: key for key, field in _FIELD_OF.items()}
_MEMORY_KEYS = frozenset({"memory", "default_mem_per_cpu", "default_mem_per_gpu"})
_DURATION_KEYS = frozenset({
    "default_time", "max_time", "max_age", "half_life", "protect_wide_after", "protect_any_after",
    "expected_without_history", "locality_wait", "attribute_interval", "max_ahead", "max_duration", "horizon",
    "clear_time", "no_show", "trial", "turn", "resume_cost",
})  # fmt: skip
_ENDLESS_KEYS = frozenset({"half_life", "protect_wide_after", "protect_any_after", "attribute_interval", "no_show"})
"""Durations that may be ``"never"``."""
_FINITE_KEYS = {
    "max_age": "the age factor is relative to it",
    "expected_without_history": "a prediction must be finite",
    "locality_wait": "the job would never start on other nodes",
    "horizon": "the planning horizon must be finite",
    "clear_time": "no job could run before a reservation",
    "trial": "no job would ever be preempted by time slicing",
    "turn": "no preempted job would ever be resumed",
    "resume_cost": "no preempted job would ever be resumed",
}
_WEIGHT_KEYS = frozenset({"factors", "gpu_types"})
_TCP_KEYS = frozenset({"listen", "listen_clients", "controller", "step_listen"})
_NAME_KEYS = frozenset({"name", "user"})
_PARTITION_MINIMA = {"priority": 0, "max_nodes": 1, "default_cpus_per_gpu": 1, "default_mem_per_gpu_mib": 1}

_TABLES = [
    "cluster", "controller", "access", "client", "limits", "timers", "history", "priority", "billing", "accounts",
    "reservations", "scheduler", "notify", "topology", "licenses", "partition", "node",
]  # fmt: skip
"""The top-level tables and keys of the file."""
_PUBLIC_KEY = re.compile(r"[0-9A-Za-z.:+=^!/*?&<>()\[\]{}@%$#-]{40}")
"""Pattern of a public key in Z85."""

Table = dict[str, Any]
"""A table of TOML, whose values have no type yet."""
S = TypeVar("S", bound=msgspec.Struct)


def node_lines(why_shared_tmp: str) -> str:
    """Return the lines on job isolation for a new gq.toml; `why_shared_tmp`: why jobs share /tmp, or empty."""
    if why_shared_tmp:
        private = f"private_tmp = false              # jobs share /tmp and /dev/shm: {why_shared_tmp}"
    else:
        private = "private_tmp = true               # a /tmp and a /dev/shm for each job, emptied when it ends"
    return f"""\
{private}
no_new_privs = true              # jobs gain no rights: sudo, at and rootless podman do not work in them
{f"rlimits = {default_rlimits()}":<32} # soft:hard, as in limits.conf
"""


def load_config(location: Location) -> Config:
    """Read the settings of the cluster at `location`.

    Raises `Refusal` if the file is missing or others can write it, `UsageError` if it has an error.
    """
    path = Path(location.config_path)
    try:
        with path.open("rb") as file:
            if not location.is_private:
                check_written_by_trusted(path, os.fstat(file.fileno()))
            text = file.read().decode("utf-8")
    except FileNotFoundError:
        raise Refusal("no_config", f"{path} does not exist", _way_to_config(location)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal("unreadable_config", f"{path} cannot be read: {error}") from error
    return parse_config(text, str(path))


def _way_to_config(location: Location) -> str:
    why = why_chosen(location, os.environ)
    if not location.is_private:
        return f"{why}; run `gqd init` on the controller, or `gqnode join` on a node, to write it"
    return why if has_system_cluster() else f"{why}; `gq up` starts a private cluster"


def check_written_by_trusted(path: Path, file: os.stat_result) -> None:
    """Refuse a file that anyone but root and the daemon's user may write, since it controls a daemon of the system."""
    for checked, status in ((path, file), (path.parent, path.parent.stat())):
        if status.st_uid not in (_ROOT_UID, os.geteuid()):
            raise Refusal(
                "unsafe_config",
                f"{checked} belongs to uid {status.st_uid}, neither root nor you",
                f"chown root {checked}",
            )
        is_sticky_directory = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky_directory:
            raise Refusal(
                "unsafe_config",
                f"{checked} is writable by others (mode {stat.S_IMODE(status.st_mode):04o})",
                f"chmod go-w {checked}",
            )


def parse_config(text: str, path: str) -> Config:
    """Parse `text` as gq.toml; `path` is for messages and origins."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError("bad_config", f"{path} is not TOML: {error}") from None
    config = config_of(raw, path)
    if config.scheduler.expect == "exact":
        named = "`scheduler.expect`" if "scheduler.expect" in config.keys_set else "`scheduler.policy`"
        message = f"{path}: {named} is `exact`, which only gqsim supports: it needs the run time of each job in advance"
        raise UsageError("bad_config", message, "use `predicted` or `limit`")
    return config


def config_of(raw: Table, path: str) -> Config:
    """Check the parsed tables of a gq.toml, including values that only gqsim supports."""
    return _Reader(path).config(raw)


class _TableReader:
    """Reads tables of one file into structs, and records which keys the file sets; an error names the file and key."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.keys_set: set[str] = set()

    def read(self, how: str, raw: object, dotted: str) -> object:
        try:
            return READERS[how](raw)
        except ValueError as error:
            self.fail(dotted, str(error))

    def tables(self, kind: type[S], raw: object, key: str) -> tuple[S, ...]:
        """Read an array of tables with unique names."""
        if not isinstance(raw, list):
            self.fail(key, f"is a single table; write [[{key}]], which may be repeated")
        tables = tuple(self._named_table(kind, table, key, index) for index, table in enumerate(raw, 1))
        names = [getattr(table, "name", "") for table in tables]
        for name in names:
            if names.count(name) > 1:
                self.fail(key, f"`{name}` is given twice")
        return tables

    def _named_table(self, kind: type[S], raw: object, key: str, index: int) -> S:
        if not isinstance(raw, dict) or "name" not in raw:
            self.fail(key, f"number {index} has no name", f"begin it with [[{key}]] and name = …")
        return self.table(kind, raw, f"{key}.{raw['name']}")

    def table(self, kind: type[S], raw: object, prefix: str) -> S:
        if not isinstance(raw, dict):
            self.fail(prefix, f"is not a table; write [{prefix}]")
        self.check_keys(raw, [_KEY_OF.get(field, field) for field in kind.__struct_fields__], prefix, _aliases(kind))
        values = {}
        for key, value in raw.items():
            dotted = f"{prefix}.{key}"
            values[_field(kind, key)] = self._value(key, value, dotted)
            self.keys_set.add(dotted)
        for field in msgspec.structs.fields(kind):
            if field.name in values:
                values[field.name] = self._typed(field, values[field.name], f"{prefix}.{_key(field.name, raw)}")
        return kind(**values)

    def check_keys(self, raw: Table, known: list[str], prefix: str, aliases: tuple[str, ...] = ()) -> None:
        for key in raw:
            if key not in known and key not in aliases:
                table = f"[{prefix}]" if prefix else "the file"
                self.fail(f"{prefix}.{key}" if prefix else key, f"is not a setting of {table}", _names_hint(key, known))

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, key: str, value: object, dotted: str) -> object:
        """Convert a value from the file's notation to the field's number or structure."""
        if key == "fake_gpu":
            return self._fake_gpus(value, dotted)
        if key == "isolation":
            return self._isolation(value, dotted)
        if key in _WEIGHT_KEYS:
            return self._weights(value, dotted)
        if key in READERS:
            return self.read(key, value, dotted)
        if (key, value) in (("gpus", AUTO), ("max_gpu_hours", UNLIMITED)) or (key in _ENDLESS_KEYS and value == NEVER):
            return None
        if not isinstance(value, str):
            if key in _DURATION_KEYS or (key in _MEMORY_KEYS and not _is_whole(value)):
                self.fail(
                    dotted,
                    f"must be text with a unit, not {_kind_of(value)}",
                    f'for example {key} = "{"16G" if key in _MEMORY_KEYS else "1h"}"',
                )
            return value
        try:
            if key in _MEMORY_KEYS:
                return parse_memory_mib(value)
            if key in _DURATION_KEYS:
                return self._duration(key, value, dotted)
        except ValueError as error:
            self.fail(dotted, str(error))
        self._check_text(key, value, dotted)
        return value

    def _duration(self, key: str, value: str, dotted: str) -> int | None:
        seconds = parse_duration_s(value)
        if seconds is None and key in _FINITE_KEYS:
            self.fail(dotted, f"`{value}` is not finite: {_FINITE_KEYS[key]}", f'for example {key} = "1h"')
        return seconds

    def _check_text(self, key: str, value: str, dotted: str) -> None:
        if key in _TCP_KEYS:
            match = _TCP.fullmatch(value)
            if match is None or not 1 <= int(match[2]) <= 65535:
                self.fail(dotted, f"`{value}` is not tcp://ADDRESS:PORT")
        if key in ("munge_socket", "attribute_script") and not value.startswith("/"):
            self.fail(dotted, f"`{value}` is not an absolute path")
        if key in _NAME_KEYS and not NAME.fullmatch(value):
            self.fail(dotted, f"`{value}` is not a name; use letters, digits, `.`, `_` and `-`, at most 63")

    def _typed(self, field: msgspec.structs.FieldInfo, value: object, dotted: str) -> object:
        try:
            return msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            self.fail(dotted, f"has the wrong type: {_in_words(str(error))}")

    def _fake_gpus(self, raw: object, dotted: str) -> tuple[FakeGpuSettings, ...]:
        if not isinstance(raw, list):
            self.fail(dotted, "is a single table; write [[node.fake_gpu]], which may be repeated")
        return tuple(self.table(FakeGpuSettings, table, f"{dotted}.{index}") for index, table in enumerate(raw))

    def _isolation(self, raw: object, dotted: str) -> dict[str, str]:
        if raw == AUTO:
            return {}
        if not isinstance(raw, dict) or not all(isinstance(how, str) for how in raw.values()):
            self.fail(dotted, f"must be {AUTO!r} or a table such as {{cpu = 'none'}}, not {_kind_of(raw)}")
        self.check_keys(raw, list(ISOLATION_FUNCTIONS), dotted)
        return {function: how for function, how in raw.items() if how != AUTO}

    def _weights(self, raw: object, dotted: str) -> dict[str, float]:
        """Read a table of names and weights."""
        if not isinstance(raw, dict):
            self.fail(dotted, f"is not a table; write [{dotted}]")
        for name, weight in raw.items():
            if not NAME.fullmatch(name):
                self.fail(f"{dotted}.{name}", "is not a name; use letters, digits, `.`, `_` and `-`, at most 63")
            if not isinstance(weight, int | float) or isinstance(weight, bool):
                self.fail(f"{dotted}.{name}", f"must be a number, not {_kind_of(weight)}")
            self._check_weight(weight, f"{dotted}.{name}")
        return {name: float(weight) for name, weight in raw.items()}

    def check_weights(self, table: msgspec.Struct, prefix: str) -> None:
        for name in table.__struct_fields__:
            value = getattr(table, name)
            if isinstance(value, float):
                self._check_weight(value, f"{prefix}.{_KEY_OF.get(name, name)}")

    def _check_weight(self, value: float, dotted: str) -> None:
        if not 0 <= value <= MAX_WEIGHT:
            self.fail(dotted, f"is {value:g}; it must be between 0 and {MAX_WEIGHT:g}")

    def check_positive(self, table: msgspec.Struct, prefix: str, may_be_zero: tuple[str, ...] = ()) -> None:
        for name in table.__struct_fields__:
            value = getattr(table, name)
            if value < 0 or (value == 0 and name not in may_be_zero):
                self.fail(f"{prefix}.{name}", f"is {value:g}; it must be more than 0")

    def fail(self, key: str, message: str, hint: str = "") -> NoReturn:
        raise UsageError("bad_config", f"{self.path}: `{key}` {message}", hint)


class _Reader:
    """Reads and checks the sections of gq.toml."""

    def __init__(self, path: str) -> None:
        self._file = _TableReader(path)

    def config(self, raw: Table) -> Config:
        self._file.check_keys(raw, _TABLES, "")
        cluster = raw.get("cluster", "gq")
        if not isinstance(cluster, str) or not NAME.fullmatch(cluster):
            self._file.fail("cluster", f"`{cluster}` is not a name; use letters, digits, `.`, `_` and `-`")
        if "cluster" in raw:
            self._file.keys_set.add("cluster")
        return Config(
            path=self._file.path,
            cluster=cluster,
            controller=self._controller(raw.get("controller", {})),
            access=self._file.table(AccessSettings, raw.get("access", {}), "access"),
            client=self._client(raw.get("client", {})),
            limits=self._limits(raw.get("limits", {})),
            timers=self._timers(raw.get("timers", {})),
            history=self._history(raw.get("history", {})),
            priority=self._priority(raw.get("priority", {})),
            billing=self._billing(raw.get("billing", {})),
            accounts=self._file.table(Accounting, raw.get("accounts", {}), "accounts"),
            reservations=self._reservations(raw.get("reservations", {})),
            scheduler=self._scheduler(raw.get("scheduler", {})),
            notify=self._notify(raw.get("notify", {})),
            partitions=self._partitions(raw.get("partition", [])),
            nodes=self._nodes(raw.get("node", [])),
            topology=self._topology(raw.get("topology", [])),
            licenses=self._licenses(raw.get("licenses", {})),
            keys_set=frozenset(self._file.keys_set),
        )

    def _controller(self, raw: object) -> ControllerSettings:
        controller = self._file.table(ControllerSettings, raw, "controller")
        self._check_choice("controller.log_level", controller.log_level, LOG_LEVELS)
        if controller.munge and controller.listen_clients is None:
            self._file.fail(
                "controller.munge",
                "applies to users of other hosts, but listen_clients is not set",
                "set listen_clients",
            )
        if controller.submit_hook and not _HOOK.fullmatch(controller.submit_hook):
            key, example = "controller.submit_hook", 'for example "/etc/gq/hook.py:submit"'
            self._file.fail(key, f"`{controller.submit_hook}` is not FILE.py:FUNCTION", example)
        if not (math.isfinite(controller.submit_hook_timeout_s) and controller.submit_hook_timeout_s > 0):
            self._file.fail(
                "controller.submit_hook_timeout_s", f"is {controller.submit_hook_timeout_s:g}; it must be more than 0"
            )
        self._check_choice("controller.submit_hook_on_failure", controller.submit_hook_on_failure, HOOK_FAILURES)
        return controller

    def _priority(self, raw: object) -> PriorityWeights:
        priority = self._file.table(PriorityWeights, raw, "priority")
        self._file.check_weights(priority, "priority")
        for name in ("max_age_s", "half_life_s"):
            if getattr(priority, name) == 0:
                self._file.fail(f"priority.{_KEY_OF[name]}", "is 0; it must be more than 0")
        return priority

    def _billing(self, raw: object) -> Billing:
        billing = self._file.table(Billing, raw, "billing")
        self._file.check_weights(billing, "billing")
        return billing

    def _reservations(self, raw: object) -> Booking:
        rules = self._file.table(Booking, raw, "reservations")
        for name, minimum in {"max_per_user": 0, "max_gpu_hours": 0, "clear_time_s": 0}.items():
            value = getattr(rules, name)
            if value is not None and not minimum <= value <= MAX_COUNT:
                self._file.fail(
                    f"reservations.{_KEY_OF.get(name, name)}", f"is {value:g}; it must be between 0 and {MAX_COUNT}"
                )
        for name in ("max_ahead_s", "max_duration_s", "horizon_s", "no_show_s"):
            if getattr(rules, name) == 0:
                self._file.fail(f"reservations.{_KEY_OF[name]}", "is 0; it must be more than 0")
        if rules.horizon_s > MAX_HORIZON_S:
            self._file.fail("reservations.horizon", "is longer than 366 days, the maximum")
        return rules

    def _scheduler(self, raw: object) -> Scheduling:
        """Return the keys that the file sets, over the values of the policy that it names."""
        table = self._file.table(Scheduling, raw, "scheduler")
        self._check_choice("scheduler.policy", table.policy, tuple(PRESETS))
        keys = {_field(Scheduling, key) for key in (raw if isinstance(raw, dict) else ())}
        scheduler = Scheduling(**(PRESETS[table.policy] | {name: getattr(table, name) for name in keys}))
        choices_of = {"order": ORDERS, "backfill": BACKFILLS, "preempt": PREEMPTS, "expect": EXPECTATIONS}
        for name, choices in choices_of.items():
            self._check_choice(f"scheduler.{name}", getattr(scheduler, name), choices)
        numbers = ("protected_jobs", "history_jobs", "cores_kept_per_gpu", "plan_steps", "estimate_jobs")
        for name, maximum in {**dict.fromkeys(numbers, MAX_COUNT), "history_jobs": MAX_HISTORY_JOBS}.items():
            minimum = 0 if name in ("protected_jobs", "cores_kept_per_gpu", "estimate_jobs") else 1
            if not minimum <= getattr(scheduler, name) <= maximum:
                self._file.fail(
                    f"scheduler.{name}", f"is {getattr(scheduler, name)}; it must be between {minimum} and {maximum}"
                )
        for name in ("protect_fair_share", "protect_oldest_share"):
            if not 0 <= (share := getattr(scheduler, name)) <= 1:
                self._file.fail(f"scheduler.{name}", f"is {share:g}; it must be between 0 and 1")
        for name in ("trial_s", "turn_s"):
            if getattr(scheduler, name) < 1:
                self._file.fail(f"scheduler.{_KEY_OF[name]}", "is 0; it must be more than 0")
        if scheduler.expected_without_history_s < 1:
            self._file.fail("scheduler.expected_without_history", "is 0; it must be more than 0")
        return scheduler

    def _notify(self, raw: object) -> NotifySettings:
        notify = self._file.table(NotifySettings, raw, "notify")
        if (problem := problem_of(notify)) is not None:
            self._file.fail(f"notify.{problem[0]}", problem[1])
        return notify

    def _check_choice(self, key: str, value: str, choices: tuple[str, ...]) -> None:
        if value not in choices:
            self._file.fail(key, f"`{value}` is not one of {', '.join(choices)}", suggestion(value, choices))

    def _client(self, raw: object) -> ClientSettings:
        client = self._file.table(ClientSettings, raw, "client")
        if client.server_key and not _PUBLIC_KEY.fullmatch(client.server_key):
            self._file.fail(
                "client.server_key",
                f"`{client.server_key}` is not a public key",
                "copy it from keys/gqd.pub of the controller",
            )
        if client.munge and "client.key_file" in self._file.keys_set:
            self._file.fail("client.munge", "and key_file exclude each other", "remove one of them")
        return client

    def _limits(self, raw: object) -> LimitSettings:
        limits = self._file.table(LimitSettings, raw, "limits")
        self._file.check_positive(limits, "limits")
        for name, maximum in (("message_bytes", MAX_MESSAGE_BYTES), ("script_bytes", MAX_SCRIPT_BYTES)):
            if getattr(limits, name) > maximum:
                self._file.fail(
                    f"limits.{name}", f"{getattr(limits, name)} is over {maximum}, the limit of the protocol"
                )
        return limits

    def _history(self, raw: object) -> HistorySettings:
        history = self._file.table(HistorySettings, raw, "history")
        self._file.check_positive(history, "history", may_be_zero=history.__struct_fields__)
        return history

    def _timers(self, raw: object) -> Timers:
        timers = self._file.table(Timers, raw, "timers")
        self._file.check_positive(timers, "timers", may_be_zero=("schedule_min_interval_s", "grace_s"))
        if timers.node_lost_s <= timers.heartbeat_s:
            self._file.fail(
                "timers.node_lost_s",
                f"{timers.node_lost_s:g} is not longer than heartbeat_s, so every node would be lost",
            )
        return timers

    def _partitions(self, raw: object) -> tuple[PartitionSettings, ...]:
        partitions = self._file.tables(PartitionSettings, raw, "partition")
        if not partitions:
            return (PartitionSettings(name="main", default=True),)
        defaults = [partition.name for partition in partitions if partition.default]
        if len(defaults) > 1:
            self._file.fail(
                "partition", f"`{defaults[0]}` and `{defaults[1]}` are both the default; only one partition can be"
            )
        for partition in partitions:
            max_time_s, default_time_s = partition.max_time_s, partition.default_time_s
            if max_time_s is not None and default_time_s is not None and default_time_s > max_time_s:
                self._file.fail(f"partition.{partition.name}.default_time", "is longer than max_time")
            for name, minimum in _PARTITION_MINIMA.items():
                value = getattr(partition, name)
                if value is not None and value < minimum:
                    key = f"partition.{partition.name}.{_KEY_OF.get(name, name)}"
                    self._file.fail(key, f"is {value}; it must be at least {minimum}")
        return partitions

    def _nodes(self, raw: object) -> tuple[NodeSettings, ...]:
        nodes = self._file.tables(NodeSettings, raw, "node")
        for node in nodes:
            self._check_node(node, f"node.{node.name}")
        return nodes

    def _topology(self, raw: object) -> tuple[Switch, ...]:
        switches = self._file.tables(Switch, raw, "topology")
        try:
            check_switches(switches)
        except ValueError as error:
            self._file.fail("topology", str(error))
        return switches

    def _licenses(self, raw: object) -> dict[str, int]:
        licenses = self._file.read("resources", raw, "licenses")
        assert isinstance(licenses, dict)
        self._file.keys_set.update(f"licenses.{name}" for name in licenses)
        return licenses

    def _check_node(self, node: NodeSettings, key: str) -> None:
        low, high = node.port_range
        if not 1024 <= low <= high <= 65535:
            self._file.fail(f"{key}.port_range", f"[{low}, {high}] is not a range of ports between 1024 and 65535")
        for name in ("cpus", "memory_mib", "max_processes", "attribute_interval_s", "min_uid"):
            value = getattr(node, name)
            if value is not None and value < 1:
                self._file.fail(f"{key}.{_KEY_OF.get(name, name)}", "must be at least 1")
        if "root" in node.allowed_users:
            self._file.fail(
                f"{key}.allowed_users", "may not name root", "[access] root_jobs = true lets root's jobs run"
            )
        if node.gpus is not None and (len(set(node.gpus)) < len(node.gpus) or min(node.gpus, default=0) < 0):
            self._file.fail(f"{key}.gpus", f"{list(node.gpus)} is not a list of different GPU indices")
        if node.fake_gpus and node.gpus:
            self._file.fail(f"{key}.fake_gpu", "a node has either real GPUs or pretended GPUs", "set gpus = []")

    # ── tables ────────────────────────────────────────────────────────────────────────────────────────────────


def _aliases(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return ("memory_mib",) if kind is FakeGpuSettings else ()


def _field(kind: type[msgspec.Struct], key: str) -> str:
    """Return the field that a key of the file sets."""
    name = _FIELD_OF.get(key, key)
    return name if name in kind.__struct_fields__ else key


def _key(field: str, raw: Table) -> str:
    """Return the key by which the file set a field."""
    return field if field in raw else _KEY_OF.get(field, field)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TYPE_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def _in_words(message: str) -> str:
    """Replace the type names in a message of msgspec by words: ``Expected `float`, got `str```."""

    def words(found: re.Match[str]) -> str:
        kinds = [kind for kind in found[1].split(" | ") if kind != "null"]
        return " or ".join(_TYPE_WORDS.get(kind, kind) for kind in kinds)

    return re.sub("`([^`]*)`", words, message[:1].lower() + message[1:])


def _kind_of(value: object) -> str:
    return {"int": "a number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a table"}.get(
        type(value).__name__, type(value).__name__
    )


def _names_hint(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    names = f"there are {', '.join(f'`{word}`' for word in known)}" if known else "there is none"
    return f"did you mean `{close}`? {names}" if close else names
