"""The shape of a private cluster: the machine divided among its nodes, and the gq.toml that defines them.

`gq up` writes that file once; afterwards the file is the user's.  Starts no process (see ``gq.host.daemons``).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gq.config.config import Config, load_config
from gq.connection.locate import Location, make_own_directory
from gq.errors import Refusal, UsageError
from gq.host.interpreter import isolated_python

PORTS_FROM, PORTS_TO = 20000, 31999
"""Below the ephemeral ports of Linux, so that a leased port is rarely taken."""
_PORTS_PER_NODE = 500
_FAKE_MEMORY = "16G"
MAX_NODES = 1000


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `gq up` about its nodes; None: not given."""

    nodes: int | None = None
    fake_gpus: int | None = None
    cpus_per_node: int | None = None
    memory_per_node_mib: int | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of this machine."""

    cpus: int
    memory_mib: int
    gpus: int


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cpus: int
    memory_mib: int
    gpus: tuple[int, ...]
    fake_gpus: int
    ports: tuple[int, int]


def found_machine() -> Machine:
    """Return this machine's resources, as far as this process may use them."""
    return Machine(cpus=len(os.sched_getaffinity(0)), memory_mib=_memory_mib(), gpus=count_gpus())


def _memory_mib() -> int:
    """Return the kernel's total memory, or the limit of this process's control group if that is lower."""
    total_kib = next(
        int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:")
    )
    limits = [total_kib // 1024]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()) // 1024**2)
        except (OSError, ValueError):  # no such controller, or `max`
            continue
    return min(limits)


def count_gpus() -> int:
    """Return the number of GPUs from NVML, in a child process: this package never loads the driver's library."""
    if not Path("/dev/nvidiactl").exists():
        return 0
    program = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    command = [*isolated_python(os.environ), "-c", program]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


# ── the nodes ─────────────────────────────────────────────────────────────────────────────────────────────────


def divide_machine(options: ClusterOptions, machine: Machine, directory: str) -> list[NodeShape]:
    """Divide the machine: disjoint GPUs and memory, CPUs as requested or an equal share, ports of its own."""
    count = options.nodes or 1
    fakes = options.fake_gpus or 0
    ports = list(_port_ranges(count, directory))
    shapes = []
    for index in range(count):
        first, last = machine.gpus * index // count, machine.gpus * (index + 1) // count
        shapes.append(
            NodeShape(
                name=f"n{index + 1}",
                cpus=options.cpus_per_node or max(1, machine.cpus // count),
                memory_mib=options.memory_per_node_mib or max(1, machine.memory_mib // count),
                gpus=() if fakes else tuple(range(first, last)),
                fake_gpus=fakes,
                ports=ports[index],
            )
        )
    requested = options.memory_per_node_mib or 0
    if requested * count > machine.memory_mib:
        raise UsageError(
            "too_much_memory",
            f"{count} nodes with {requested} MiB each need {requested * count} MiB;"
            f" this machine has {machine.memory_mib}",
            f"use at most --mem-per-node {machine.memory_mib // count}M",
        )
    return shapes


def _port_ranges(count: int, directory: str) -> Iterator[tuple[int, int]]:
    """Yield port ranges, disjoint within the cluster; clusters begin apart, so that they rarely try the same port."""
    room = PORTS_TO - PORTS_FROM + 1
    size = min(_PORTS_PER_NODE, room // count)
    blocks = room // size
    offset = int.from_bytes(hashlib.sha256(os.fsencode(directory)).digest()[:4], "big") % blocks
    for index in range(count):
        low = PORTS_FROM + (offset + index) % blocks * size
        yield low, low + size - 1


# ── gq.toml ───────────────────────────────────────────────────────────────────────────────────────────────────

_HEAD = """\
# A private gq cluster, written by `gq up`.  To change it: `gq down`, edit, `gq up`.
# Every setting is described in gq.toml(5); `gqctl config reload` reads most of them again without a restart.

cluster = "gq"

[controller]
log_level = "info"               # debug, info, warning, error
# default_mem_per_cpu = "2G"     # count and limit memory also for jobs that do not ask for any

[[partition]]
name = "main"
default = true
# default_time = "1d"            # limit of jobs without --time; without a limit they wait for reservations to end
# max_time = "7d"                # maximum --time; the GPUs of a job without a time limit cannot be reserved (gqresv)
"""


def config_text(shapes: list[NodeShape]) -> str:
    """Return the gq.toml of a private cluster."""
    return _HEAD + "".join(_node_text(shape) for shape in shapes)


def _node_text(shape: NodeShape) -> str:
    lines = [
        "",
        "[[node]]",
        f'name = "{shape.name}"',
        'address = "127.0.0.1"',
        f"cpus = {shape.cpus}",
        f'memory = "{shape.memory_mib}M"',
        f"gpus = {list(shape.gpus)}",
        f"port_range = {list(shape.ports)}       # MASTER_PORT of jobs",
    ]
    if shape.fake_gpus:
        lines.append("fake_gpu = [                     # pretended GPUs: counted and allocated, without hardware")
        lines += [f'    {{ type = "fake", memory = "{_FAKE_MEMORY}" }},'] * shape.fake_gpus
        lines.append("]")
    return "\n".join(lines) + "\n"


def ensure_config(location: Location, options: ClusterOptions) -> tuple[Config, bool]:
    """Return the cluster's configuration, written first if it is missing; True: it was written now.

    An existing configuration is never changed: options that differ from it are refused.
    """
    path = Path(location.config_path)
    is_new = not path.exists()
    if is_new:
        _make_directory(Path(location.state_dir))
        shapes = divide_machine(options, found_machine(), location.state_dir)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(config_text(shapes), "utf-8")
        fresh.replace(path)
    config = load_config(location)
    if not config.nodes:
        raise Refusal("no_nodes", f"{path} has no [[node]], so no daemon can start", "add a [[node]]; see gq.toml(5)")
    if not is_new:
        _check_options(options, config)
    return config, is_new


def _make_directory(path: Path) -> None:
    try:
        make_own_directory(path)
    except OSError as error:
        raise Refusal(
            "no_directory", f"cannot create {path}: {error.strerror}", "choose another directory with --dir"
        ) from error


def _check_options(options: ClusterOptions, config: Config) -> None:
    """Raise `Refusal`, with the way to change the cluster, if an option differs from the existing cluster."""
    where_set = "under each [[node]] of"
    for option, value, existing, setting in (
        ("--nodes", options.nodes, {len(config.nodes)}, f"add or remove [[node]] tables in {config.path}"),
        ("--fake-gpus", options.fake_gpus, {len(node.fake_gpus) for node in config.nodes}, f"set fake_gpu {where_set}"),
        ("--cpus-per-node", options.cpus_per_node, {node.cpus for node in config.nodes}, f"set cpus {where_set}"),
        (
            "--mem-per-node",
            options.memory_per_node_mib,
            {node.memory_mib for node in config.nodes},
            f"set memory {where_set}",
        ),
    ):
        if value is None or existing == {value}:
            continue
        unit = " MiB" if option == "--mem-per-node" else ""
        found = ", ".join("unset" if number is None else f"{number}{unit}" for number in sorted(existing, key=str))
        file = "" if config.path in setting else f" {config.path}"
        raise Refusal(
            "other_shape",
            f"`gq up {option} {value}{unit}` cannot change the cluster of {config.path}, which has {found}",
            f"{setting}{file}, then `gq down --keep-jobs` and `gq up`; or start another cluster with --dir",
        )
